"""In which order a loader delivers its dataset: what of it is known ahead, from torch's sampler or from the loader's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

import torch


class Seeded(RandomSampler):
    """What ``shuffle=True, seed=...`` is as a sampler: each epoch the order of ``DistributedSampler`` with one replica and this seed.

    Args:
        data_source: the dataset.
        seed: of the order.

    Attributes:
        epoch: which epoch the next iteration yields; it counts on by itself.
    """

    def __init__(self, data_source: Any, seed: int):
        # What RandomSampler's own does, but for asking the dataset's length, which a loader that opens it brings.
        self.data_source, self.replacement, self._num_samples, self.generator = (
            data_source,
            False,
            None,
            None,
        )
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration yields this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        self.epoch += 1
        return iter(torch.randperm(len(self.data_source), generator=generator).tolist())


class Shared(DistributedSampler):
    """What ``shard=True`` is as a sampler: a ``DistributedSampler`` whose ranks are settled when they are needed.

    Args:
        dataset: the dataset.
        settle: returns rank and number of replicas.
        shuffle, seed, drop_last: as of ``DistributedSampler``.

    Attributes:
        epoch: which epoch the next iteration yields; it counts on by itself.
    """

    def __init__(
        self,
        dataset: Any,
        settle: Callable[[], tuple[int, int]],
        shuffle: bool,
        seed: int,
        drop_last: bool,
    ):
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = (
            dataset,
            shuffle,
            seed,
            drop_last,
            0,
        )
        self._settle = settle

    @property
    def rank(self) -> int:
        """Which of the replicas this is."""
        return self._settle()[0]

    @property
    def num_replicas(self) -> int:
        """How many share an epoch."""
        return self._settle()[1]

    def _same(self) -> DistributedSampler:
        rank, replicas = self._settle()
        sampler = DistributedSampler(
            self.dataset, replicas, rank, self.shuffle, self.seed, self.drop_last
        )
        sampler.set_epoch(self.epoch)
        return sampler

    def __len__(self) -> int:
        return len(self._same())

    def __iter__(self) -> Iterator[int]:
        sampler = self._same()
        self.epoch += 1
        return iter(sampler)


class Known(NamedTuple):
    """An order that the daemon knows for all epochs.

    Attributes:
        shuffle: ``"torch"``, ``"feistel"`` or ``"none"``.
        seed: None: drawn by node 0's daemon.
        replicas, rank: how many share an epoch, and which of them this is; None: settled when the first batch or the length is asked for.
        pad: repeat samples to give all the same number; else leave some out.
        follows: the sampler whose ``epoch`` says which epoch comes; None: they come one after the other.
    """

    shuffle: str
    seed: int | None
    replicas: int | None
    rank: int | None
    pad: bool
    follows: DistributedSampler | None


def known(dataset: Any, sampler: Any, batch_sampler: Any) -> Known | None:
    """The order of a sampler that can be asked ahead; None: only iterating it tells.

    Sub-classes may yield anything, so that only torch's own classes and ours count, over the loader's own dataset.
    """
    if type(batch_sampler) is not BatchSampler or batch_sampler.sampler is not sampler:
        return None
    if (
        type(sampler) is DistributedSampler
        and not _replaced(sampler)
        and len(sampler.dataset) == len(dataset)
        and 0 <= sampler.seed < 1 << 64
        and len(sampler) == _share(len(dataset), sampler.num_replicas, sampler.drop_last)
    ):
        return Known(
            "torch" if sampler.shuffle else "none",
            sampler.seed,
            sampler.num_replicas,
            sampler.rank,
            not sampler.drop_last,
            sampler,
        )
    if (
        type(sampler) is SequentialSampler
        and not _replaced(sampler)
        and len(sampler.data_source) == len(dataset)
    ):
        return Known("none", 0, 1, 0, True, None)
    if type(sampler) is Seeded and sampler.data_source is dataset:
        return Known("torch", sampler.seed, 1, 0, True, None)
    return None


def _share(samples: int, replicas: int, drop_last: bool) -> int:
    """Samples of each of so many replicas."""
    return samples // replicas if drop_last else -(-samples // replicas)


def _replaced(sampler: Any) -> bool:
    """True if methods were put over the class's."""
    return "__iter__" in vars(sampler) or "set_epoch" in vars(sampler)
