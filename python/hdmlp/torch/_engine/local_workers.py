"""The worker processes of a loader which the daemon does not serve."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..._lib.typing import Context
from ..._workers.pool import Pool
from .._data.items import Items
from .._order.tasks import Draws
from .pinning import Device, Pinning
from .worker_init import WorkerInit


class User(Protocol):
    """An epoch, as its workers see it.

    Attributes:
        over: There will be no further batch.
    """

    over: bool


@dataclass(eq=False)
class Workers:
    """Worker processes, and the source of their tasks.

    Attributes:
        batches: What they make: the pool of processes, or what pins its batches.
        draws: The tasks.
        user: The epoch that they make, or made last.
    """

    batches: Pool | Pinning
    draws: Draws
    user: weakref.ref[User]

    @property
    def free(self) -> bool:
        """Reports whether another epoch may have them."""
        user = self.user()
        return user is None or user.over

    def close(self) -> None:
        """Ends the processes. Idempotent."""
        self.batches.close()
        self.draws.close()


class Pools:
    """Worker processes for each epoch that is under way.

    Args:
        items: What the workers make.
        count: The number of workers of a pool.
        prefetch: Batches under way per worker.
        context: A multiprocessing context; None: Python's default when workers are started, which
            asking for it fixes for the program.
        init: The user's ``worker_init_fn``.
        persistent: Workers stay for the next epoch.
        device: For which tensors are pinned; None: they are not.
    """

    def __init__(
        self,
        items: Items,
        count: int,
        prefetch: int,
        context: Context | None,
        init: Callable[[int], None] | None,
        persistent: bool,
        device: Device | None = None,
    ):
        self._items = items
        self._count = count
        self._prefetch = prefetch
        self._context = context
        self._init = init
        self._persistent = persistent
        self._device = device
        self._open: list[Workers] = []

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_open": []}

    def workers(self, user: User) -> Workers:
        """Returns workers which no other epoch uses."""
        for workers in list(self._open):
            if not workers.free:
                continue
            if self._persistent and not workers.batches.broken:
                workers.user = weakref.ref(user)
                return workers
            # As in torch, a new epoch's workers see the dataset as it is now.
            self._end(workers)
        return self._opened(user)

    def _opened(self, user: User) -> Workers:
        draws = Draws()
        init = WorkerInit(self._init, self._items.dataset, self._count)
        context = self._context or multiprocessing.get_context()
        pool = Pool(self._items, self._count, self._prefetch, context, init, draws.base_seed)
        pool.attach(draws)
        batches = pool if self._device is None else Pinning(pool, self._device)
        workers = Workers(batches, draws, weakref.ref(user))
        self._open.append(workers)
        return workers

    def renewed(self, user: User) -> Workers:
        """Returns new workers for an epoch whose own are of no more use."""
        for workers in [workers for workers in self._open if workers.user() is user]:
            workers.close()
            self._open.remove(workers)
        return self._opened(user)

    def ended(self, user: User) -> None:
        """Ends the workers of an epoch that is over, unless they are to stay."""
        for workers in list(self._open):
            if workers.user() is user and not self._persistent:
                self._end(workers)

    def _end(self, workers: Workers) -> None:
        try:
            self._open.remove(workers)
        except ValueError:  # another thread has done so
            return
        workers.close()

    def close(self) -> None:
        """Ends all workers. Idempotent."""
        for workers in self._open:
            workers.close()
        self._open = []
