"""Orders which are known ahead: from torch's samplers, or from the loader's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import torch
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

from ..._lib import originals
from ...errors import ConfigError
from .mixed import Mixed


class Seeded(RandomSampler):
    """The sampler of ``shuffle=True, seed=...``.

    Each epoch has the order of a ``DistributedSampler`` with one replica and the same seed.

    Args:
        data_source: The dataset.
        seed: The order's seed.

    Attributes:
        epoch: The epoch that the next iteration yields; each iteration adds 1.
        asked: The epoch that the program set since :func:`asked_epoch` was called; None: it did
            not.
    """

    def __init__(self, data_source: Any, seed: int):
        # RandomSampler's own __init__ asks for the dataset's length. The loader learns it when it
        # opens the job, which saves a call to the daemon.
        self.data_source = data_source
        self.replacement = False
        self._num_samples = None
        self.generator = None
        self.seed = seed
        self.epoch = 0
        self.asked: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration yields."""
        self.epoch = self.asked = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        self.epoch += 1
        yield from torch.randperm(len(self.data_source), generator=generator).tolist()


class Shared(DistributedSampler[object]):
    """The sampler of ``shard=True``: a ``DistributedSampler`` which settles its rank when needed.

    Args:
        dataset: The dataset.
        settle: Returns rank and number of replicas.
        shuffle: As for ``DistributedSampler``.
        seed: The same.
        drop_last: The same.
        scheme: How the ranks share a global batch. Only the daemon deals batches otherwise than
            torch.

    Attributes:
        epoch: The epoch that the next iteration yields; each iteration adds 1.
        asked: As for :class:`Seeded`.
        empty: ``drop_last`` of the loader leaves no batch, whatever the scheme.
    """

    empty = False

    def __init__(
        self,
        dataset: Dataset[object],
        settle: Callable[[], tuple[int, int]],
        shuffle: bool,
        seed: int,
        drop_last: bool,
        scheme: str = "strided",
    ):
        self.scheme = scheme
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self.asked: int | None = None
        self._settle = settle

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration yields."""
        self.epoch = self.asked = epoch

    @property
    def rank(self) -> int:  # type: ignore[override]
        """The rank of this process."""
        return self._settle()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The number of ranks that share an epoch."""
        return self._settle()[1]

    def _plain(self) -> DistributedSampler[object]:
        if self.scheme != "strided":
            raise ConfigError(
                f"scheme={self.scheme!r}: the daemon deals the batches, and this sampler does not "
                "have them: iterate the hdmlp loader itself"
            )
        rank, replicas = self._settle()
        sampler: DistributedSampler[object] = DistributedSampler(
            self.dataset, replicas, rank, self.shuffle, self.seed, self.drop_last
        )
        sampler.set_epoch(self.epoch)
        return sampler

    def __len__(self) -> int:
        return 0 if self.empty else len(self._plain())

    def __iter__(self) -> Iterator[object]:
        sampler = () if self.empty else self._plain()
        self.epoch += 1
        yield from sampler


#: Samplers of ours, whose epochs the program may set.
OURS = (Seeded, Shared, Mixed)


def asked_epoch(sampler: object) -> int | None:
    """Returns the epoch that the program set on a sampler of ours, once; None: it set none.

    It may be the same epoch again, as in a loop over torch's ``DistributedSampler``.
    """
    if not isinstance(sampler, OURS):
        return None
    asked, sampler.asked = sampler.asked, None
    return asked


def set_epoch_of(sampler: object, epoch: int) -> None:
    """Sets the epoch that a sampler of ours yields next, for the loader itself."""
    if isinstance(sampler, OURS):
        sampler.epoch, sampler.asked = epoch, None


class Known(NamedTuple):
    """An order which the daemon computes for all epochs.

    Attributes:
        shuffle: ``"torch"``, ``"feistel"`` or ``"none"``.
        seed: The order's seed; None: node 0's daemon draws it.
        replicas: The number of ranks that share an epoch; None: it is settled when the first
            batch or the length is asked for.
        rank: This process's rank among them; None: likewise.
        pad: Repeat samples so that all ranks get the same number; otherwise leave some out.
        follows: The sampler whose ``epoch`` is the next epoch; None: epochs are counted.
        scheme: How the ranks share a global batch.
    """

    shuffle: str
    seed: int | None
    replicas: int | None
    rank: int | None
    pad: bool
    follows: DistributedSampler[object] | None
    scheme: str = "strided"


def known(dataset: Any, sampler: object, batch_sampler: object) -> Known | None:
    """Returns the order of a sampler which is known ahead; None: only iterating reveals it.

    A subclass may yield anything, so only torch's own classes and ours count, and only over the
    loader's own dataset.
    """
    batched: object = getattr(batch_sampler, "sampler", None)
    if not is_torchs(batch_sampler, BatchSampler) or batched is not sampler:
        return None
    if (
        isinstance(sampler, DistributedSampler)
        and is_torchs(sampler, DistributedSampler)
        and len(sampler.dataset) == len(dataset)  # type: ignore[arg-type]
        and 0 <= sampler.seed < 1 << 64
        and len(sampler) == _share(len(dataset), sampler.num_replicas, sampler.drop_last)
    ):
        return Known(
            "torch" if sampler.shuffle else "none",
            int(sampler.seed),
            sampler.num_replicas,
            sampler.rank,
            not sampler.drop_last,
            sampler,
        )
    if (
        isinstance(sampler, SequentialSampler)
        and is_torchs(sampler, SequentialSampler)
        and len(sampler.data_source) == len(dataset)
    ):
        return Known("none", 0, 1, 0, True, None)
    if (
        type(sampler) is Seeded
        and sampler.data_source is dataset
        and not originals.replaced("randperm")
    ):
        return Known("torch", sampler.seed, 1, 0, True, None)
    return None


def ordered_by(sampler: object, batch_sampler: object) -> str:
    """Returns the argument which decides the order, for a message."""
    if type(batch_sampler) is BatchSampler:
        return f"sampler={type(sampler).__name__}"
    if batch_sampler is not None:
        return f"batch_sampler={type(batch_sampler).__name__}"
    return "batch_size=None"


def _share(samples: int, replicas: int, drop_last: bool) -> int:
    """Returns the number of samples of each replica."""
    return samples // replicas if drop_last else -(-samples // replicas)


def is_torchs(sampler: object, known: type) -> bool:
    """Reports whether a sampler yields what torch's own class of this name does.

    A subclass may yield anything, and so may an object or a class whose methods were replaced.
    """
    own = getattr(sampler, "__dict__", {})
    return (
        type(sampler) is known
        and not ("__iter__" in own or "set_epoch" in own)
        and not originals.replaced(known.__name__)
    )


def is_shared_as_torch() -> bool:
    """Reports whether :class:`Shared` yields what torch's own ``DistributedSampler`` does."""
    return not originals.replaced("DistributedSampler", "BatchSampler")
