"""Which rank a loader is, and how many share its epochs."""

from __future__ import annotations

import logging

from .. import _launcher
from ..errors import ConfigError

log = logging.getLogger("hdmlp")

#: The place of a job of one rank, whatever others there are.
ALONE = _launcher.Place(0, 1, 0, "a loader that shares no epochs")


class Ranks:
    """Which rank a loader is, of those that share its epochs. The first answer holds: another one later is an error.

    Args:
        shared: ranks share the epochs.
        rank, world_size: what the user said; None: what torch.distributed or the launcher says.

    Attributes:
        groups: several ranks have the same place, as in tensor or pipeline parallelism: what they read is for each of them. None: not known yet.
    """

    def __init__(self, shared: bool, rank: int | None, world_size: int | None):
        self._shared, self._given = shared, (rank, world_size)
        self._place: _launcher.Place | None = None
        self._warned = False
        self.groups: bool | None = None

    @property
    def place(self) -> _launcher.Place | None:
        """The place, once it is settled."""
        return self._place

    def __call__(self) -> tuple[int, int]:
        place = self.settle()
        return place.rank, place.world_size

    def settle(self, rank: int | None = None, world_size: int | None = None) -> _launcher.Place:
        """The place; ``rank`` and ``world_size`` are a sampler's.

        Raises:
            ConfigError: it is another one than before, or none that there can be.
        """
        if rank is None:
            rank, world_size = self._given
        if rank is not None and self._place is not None:
            return self._place
        if rank is None and not self._shared:
            place = ALONE
        else:
            place = _launcher.find(rank, world_size)
        if self._place is None:
            self._place = place
        elif place[:2] != self._place[:2]:
            raise ConfigError(
                f"the loader began as rank {self._place.rank} of {self._place.world_size} ({self._place.source}), and this is now rank "
                f"{place.rank} of {place.world_size} ({place.source}): make the loader, or ask for its length, after torch.distributed is initialised"
            )
        return self._place

    def __str__(self) -> str:
        place = self._place
        return (
            ""
            if place is None or place.world_size == 1
            else f", rank={place.rank} of {place.world_size}"
        )

    @staticmethod
    def _world() -> int:
        """How many ranks there are, whether they share anything or not."""
        try:
            return _launcher.find(None, None).world_size
        except ConfigError:  # variables that say half of it: they mean nothing here
            return 1

    @property
    def alone(self) -> bool:
        """True if nothing says that there are other ranks."""
        return self._world() == 1

    def in_groups(self, replicas: int) -> bool:
        """True if so many replicas are fewer, or more, than there are ranks. The first answer holds."""
        if self.groups is None:
            world = self._world()
            self.groups = world > 1 and replicas not in (1, world)
        return self.groups

    def warn(self) -> None:
        """Says once that ranks share nothing, if there are several."""
        if self._warned:
            return
        world = self._world()
        if world > 1:
            self._warned = True
            log.warning(
                "the loader is shuffled, and not shared between the %d ranks: each rank gets all samples; give shard=True or a "
                "DistributedSampler to have them share each epoch",
                world,
            )
