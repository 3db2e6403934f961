"""Which rank a loader is, how many share its epochs, and what its job is called."""

from __future__ import annotations

import logging
import secrets

from ..._launch import membership
from ..._launch.place import Place
from ...errors import ConfigError

log = logging.getLogger("hdmlp")

#: The place of a job which only one rank takes part in, no matter how many ranks there are.
ALONE = Place(0, 1, 0, "a loader that shares no epochs")


class Ranks:
    """Which rank a loader is, of those that share its epochs.

    The first answer holds: a different one later is an error.

    Args:
        shared: Ranks share the epochs.
        rank: What the user gave; None: what torch.distributed or the launcher gives.
        world_size: The same.

    Attributes:
        groups: Several ranks have the same place, as in tensor or pipeline parallelism, and read
            the same samples. None: not known yet.
    """

    def __init__(self, shared: bool, rank: int | None, world_size: int | None):
        self._shared, self._given = shared, (rank, world_size)
        self._place: Place | None = None
        self._warned = False
        self.groups: bool | None = None

    @property
    def place(self) -> Place | None:
        """The place, once it is settled."""
        return self._place

    def __call__(self) -> tuple[int, int]:
        """Returns the rank and the world size, and settles them."""
        place = self.settle()
        return place.rank, place.world_size

    def settle(self, rank: int | None = None, world_size: int | None = None) -> Place:
        """Returns the place.

        Args:
            rank: The rank of a sampler, which precedes what the user and the launcher say.
            world_size: Its number of replicas.

        Raises:
            ConfigError: The place differs from an earlier answer, or is impossible.
        """
        if rank is None:
            rank, world_size = self._given
        if rank is not None and self._place is not None:
            return self._place
        alone = rank is None and not self._shared
        place = ALONE if alone else membership.find(rank, world_size)
        if self._place is None:
            self._place = place
        elif place[:2] != self._place[:2]:
            raise ConfigError(
                f"the loader began as rank {self._place.rank} of {self._place.world_size} "
                f"({self._place.source}), and this is now rank {place.rank} of {place.world_size} "
                f"({place.source}): make the loader, or ask for its length, after "
                "torch.distributed is initialised"
            )
        return self._place

    def __str__(self) -> str:
        place = self._place
        if place is None or place.world_size == 1:
            return ""
        return f", rank={place.rank} of {place.world_size}"

    @staticmethod
    def _world() -> int:
        """Returns the number of ranks, whether they share anything or not."""
        try:
            return membership.find(None, None).world_size
        except ConfigError:  # incomplete variables, which do not matter here
            return 1

    @property
    def alone(self) -> bool:
        """Reports whether there is no sign of other ranks."""
        return self._world() == 1

    def in_groups(self, replicas: int) -> bool:
        """Reports whether a sampler's number of replicas is not the number of ranks.

        The first answer holds.
        """
        if self.groups is None:
            world = self._world()
            self.groups = world > 1 and replicas not in (1, world)
        return self.groups

    def warn_unshared(self) -> None:
        """Warns once that a shuffled loader is not shared, if there are several ranks."""
        if self._warned:
            return
        world = self._world()
        if world > 1:
            self._warned = True
            log.warning(
                "the loader is shuffled but not shared among the %d ranks: each rank gets all "
                "samples; give shard=True or a DistributedSampler to share each epoch among them",
                world,
            )


class JobName:
    """The name of a loader's job in this launch.

    It is the user's, or the loader's number among those of the process that ranks share, which is
    the same on all ranks; or random where no other rank is to find the job.

    Args:
        name: The user's.
        shared: Ranks share the loader's epochs.

    Attributes:
        loader: The loader's number in its process.
    """

    def __init__(self, name: str | None, shared: bool):
        self.loader = membership.next_loader()
        self._name = name
        self._number = membership.next_ordinal() if shared and name is None else None

    def __call__(self) -> str:
        if self._name is not None:
            return self._name
        return secrets.token_hex(4) if self._number is None else str(self._number)

    def __setstate__(self, state: dict[str, object]) -> None:
        """A copy in another process must not give its number to a new loader there."""
        self.__dict__.update(state)
        if self._number is not None:
            membership.reserve_ordinal(self._number)
