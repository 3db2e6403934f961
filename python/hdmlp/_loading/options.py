"""What a loader is made with: the order of its stream, and how the job is run."""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._launch.place import Place
from .._lib.arguments import check_text, check_timeout, seed_of, switch, whole_number
from .._records.mixture import Mixture
from ..errors import ConfigError

_SHUFFLES: dict[bool | str, str] = {
    True: "torch",
    False: "none",
    "torch": "torch",
    "feistel": "feistel",
    "none": "none",
}


def order_of(shuffle: bool | str) -> str:
    """Returns the protocol's name for the order that a ``shuffle`` argument asks for.

    Raises:
        ConfigError: There is no such order.
    """
    try:
        return _SHUFFLES[shuffle if isinstance(shuffle, str) else switch("shuffle", shuffle)]
    except (KeyError, ConfigError):
        raise ConfigError(
            f"shuffle={shuffle!r}: must be True, False, 'torch', 'feistel' or 'none'"
        ) from None


#: How the ranks share a global batch (docs/SEMANTICS.md, "Order").
SCHEMES = ("strided", "uniform", "whole", "imbalanced")


def scheme_of(name: str, scheme: str) -> str:
    """Returns a distribution scheme.

    Args:
        name: The user's argument, for the message.
        scheme: Its value.

    Raises:
        ConfigError: There is no such scheme.
    """
    if scheme not in SCHEMES:
        raise ConfigError(f"{name}={scheme!r}: must be {', '.join(map(repr, SCHEMES))}")
    return scheme


def share_of(scheme: str, batch: int, rank: int, world_size: int) -> int:
    """Returns how many samples of a global batch a rank gets (thesis 4.1.3).

    Args:
        scheme: One of :data:`SCHEMES`.
        batch: Samples of the global batch.
        rank: The rank.
        world_size: The number of ranks.
    """
    if scheme == "whole":
        return batch
    if scheme == "uniform":
        most = -(-batch // world_size)
        return min(most, max(0, batch - rank * most))
    if scheme == "strided":
        return max(0, -(-(batch - rank) // world_size))

    def begin(rank: int) -> int:  # cut at cumulative weights, 4 for each rank of the first half
        weights = [n + 3 * min(n, world_size // 2) for n in (rank, world_size)]
        return batch * weights[0] // weights[1]

    return begin(rank + 1) - begin(rank)


def dealt(scheme: str, batch_size: int, world_size: int, drop_last: bool) -> dict[str, Any]:
    """Returns what :class:`StreamOptions` say about how the ranks share batches.

    With torch's scheme an epoch is padded, or cut, so that all ranks get the same number of
    samples. With the others each sample comes once.

    Args:
        scheme: One of :data:`SCHEMES`.
        batch_size: Samples per batch of a rank, on average over the ranks.
        world_size: The number of ranks.
        drop_last: See :class:`StreamOptions`.
    """
    padded = "drop" if drop_last else "pad"
    return {
        "global_batch": batch_size * (1 if scheme == "whole" else world_size),
        "scheme": scheme,
        "tail": padded if scheme == "strided" else "keep",
        "drop_last": drop_last,
    }


def check_shares(samples: int, stream: StreamOptions, world_size: int) -> None:
    """Checks that each rank gets samples of each batch.

    Raises:
        ConfigError: One does not, so that it would be a step behind the others.
    """
    if stream.scheme == "strided":
        return
    sizes = [stream.global_batch] * (samples >= stream.global_batch)
    if samples % stream.global_batch and not stream.drop_last:
        sizes.append(samples % stream.global_batch)
    for size in sizes:
        for rank in range(world_size):
            if not share_of(stream.scheme, size, rank, world_size):
                last = size != stream.global_batch
                raise ConfigError(
                    f"scheme={stream.scheme!r}: rank {rank} of {world_size} gets no sample of "
                    + (
                        f"an epoch's last batch, which has {size} of the {samples} samples: give "
                        "drop_last=True, or another batch_size"
                        if last
                        else f"a batch of {size} samples: give a larger batch_size"
                    )
                )


@dataclass(frozen=True)
class StreamOptions:
    """Which samples the ranks get, in which order and in what batches; the same on all ranks.

    Attributes:
        global_batch: Samples per step over all ranks.
        shuffle: ``"torch"``, ``"feistel"``, ``"none"`` or ``"given"``.
        epochs: Epochs of the run, for which caches are planned; None means no end.
        limited: No epoch is delivered after the last of ``epochs``. If False, further epochs are
            delivered, and caches are not planned for them.
        seed: The order's seed, in [0, 2^64); None means that the daemon draws it.
        seed_drawn: The user did not choose ``seed``, so a saved state's seed replaces it.
        scheme: How a global batch is shared among the ranks: one of :data:`SCHEMES`.
        tail: What becomes of samples that do not fill a batch on every rank: ``"pad"``, ``"drop"``
            or ``"keep"``.
        drop_last: Leave out a last batch that is short.
        subset: IDs of the samples that the stream is over, int32; None means all samples.
        mixture: How epochs take samples of several datasets; None: there is one.

    Raises:
        ConfigError: A value is not allowed; the message names the user's argument.
    """

    global_batch: int
    shuffle: str = "torch"
    epochs: int | None = None
    limited: bool = True
    seed: int | None = None
    seed_drawn: bool = False
    scheme: str = "strided"
    tail: str = "pad"
    drop_last: bool = False
    subset: array.array[int] | None = None
    mixture: Mixture | None = None

    def __post_init__(self) -> None:
        """Checks what users give."""
        object.__setattr__(self, "seed", seed_of(self.seed))
        if self.epochs is not None:
            object.__setattr__(self, "epochs", whole_number("epochs", self.epochs, 1))

    @property
    def seed_replaceable(self) -> bool:
        """Reports whether a saved state's seed replaces this one, which the user did not choose."""
        return self.seed is None or self.seed_drawn

    def request(self) -> dict[str, Any]:
        """Returns OPEN's ``stream`` object (docs/FORMATS.md), without the subset."""
        request: dict[str, Any] = {
            "seed": self.seed,
            "epochs": self.epochs or 0,
            "global_batch": self.global_batch,
            "drop_last": self.drop_last,
            "shuffle": self.shuffle,
            "scheme": self.scheme,
            "tail": self.tail,
        }
        if self.mixture is not None:
            request["mix"] = self.mixture.request()
        return request


@dataclass(frozen=True)
class Options:
    """What a loader is made with, beside its dataset.

    Attributes:
        stream: Which samples the ranks get, in which order.
        place: Which rank this process is.
        name: The loader's name, the same on all ranks; None means its number in the process.
        loader: The loader's number in its process
            (:func:`hdmlp._launch.membership.next_loader`); None means a new one.
        timeout: Seconds that ``next()`` waits for a batch; 0 means no limit.
        verify: Check at the end of each epoch that all ranks together got every sample, with the
            bytes of its file.
        transforms: What the daemon does with samples, as requests describe it; None means nothing.
        config: Configuration keys that the user gave as arguments, checked by
            :func:`hdmlp._lib.arguments.configuration`.
        config_file: A TOML file of configuration keys; None means ``HDMLP_CONFIG``, if it is set.

    Raises:
        ConfigError: A value is not allowed; the message names the user's argument.
    """

    stream: StreamOptions
    place: Place
    name: str | None = None
    loader: int | None = None
    timeout: float = 0
    verify: bool = False
    transforms: Sequence[Mapping[str, object]] | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    config_file: str | None = None

    def __post_init__(self) -> None:
        """Checks what users give."""
        check_timeout(self.timeout)
        check_text("name", self.name)
