"""The worker processes of a pool, and the daemon's segments that they map."""

from __future__ import annotations

import multiprocessing.process
import os
import select
from collections.abc import Callable

from .._batches.segments import drop, forget_in_child, of_class
from .._lib import protocol
from .._lib.typing import Context
from ..errors import ClosedError, WorkerDiedError
from . import child
from .handle import Handle

#: Milliseconds after which a worker ends that rests. It holds memory and files of this process,
#: which may have closed them: a program that waits for that waits no longer than this.
IDLE = 5000


class WorkerProcesses:
    """The worker processes of a pool.

    Args:
        recipe: What the workers do.
        count: The number of workers.
        context: A multiprocessing context.
        init: Called in each worker with the base seed and its number; None means nothing is.

    Attributes:
        workers: Those that run, by number.
        resting: No epoch is under way. Workers may have ended by themselves.
    """

    def __init__(
        self,
        recipe: child.Maker,
        count: int,
        context: Context,
        init: Callable[[int, int], None] | None,
    ):
        self._recipe, self._count = recipe, count
        self._context, self._init = context, init
        self.workers: list[Handle] = []
        self.resting = False
        self._by_fd: dict[int, Handle] = {}
        self._fds: dict[int, tuple[int, int]] = {}  # the daemon's segments: descriptor and size
        # Segments that the daemon dropped: the workers that may still map one, and what to call
        # when none does.
        self._dropped: dict[int, tuple[set[int], Callable[[int], None]]] = {}
        self._workers_only, self._all = select.poll(), select.poll()
        forget_in_child(self)

    # Segments.

    def on_segment(self, number: int, fd: int, size: int) -> None:
        """Passes a segment of the daemon's on to workers that run, and to those that will."""
        self._fds[number] = (os.dup(fd), size)
        try:
            for worker in self.workers:
                worker.send_segment(number, *self._fds[number])
        except WorkerDiedError:
            if not self.resting:
                raise
            self.stop(_free_nothing)

    def forget(self) -> None:
        """Closes the descriptors of the daemon's segments.

        In a forked child, the workers are not the child's to end when it exits.
        """
        for fd, _ in self._fds.values():
            os.close(fd)
        self._fds.clear()
        ended_at_exit: set[object] = getattr(multiprocessing.process, "_children", set())
        ended_at_exit.difference_update(worker.process for worker in self.workers)

    def on_drop(self, number: int, gone: Callable[[int], None]) -> None:
        """Forgets a segment that no later batch names.

        Args:
            number: The segment's number.
            gone: Called with it once no worker maps the segment.
        """
        entry = self._fds.pop(number, None)
        if entry is None:
            return
        os.close(entry[0])
        if self.resting:
            # Nothing is read from them, which may still map it, until the next epoch begins.
            self.stop(_free_nothing)
        for worker in self.workers:
            worker.send(protocol.encode(protocol.DROP, protocol.U32.pack(number)))
        if of_class(number):
            self._dropped[number] = ({worker.number for worker in self.workers}, gone)
            self.let_go(number, None)

    def let_go(self, number: int, worker: Handle | None) -> None:
        """Notes that a worker does not map a segment any more, which was dropped."""
        mapping, gone = self._dropped.get(number, (set(), None))
        if worker is not None:
            mapping.discard(worker.number)
        if gone is not None and not mapping:
            del self._dropped[number]
            drop(None, number, gone)

    # Life.

    @property
    def unusable(self) -> bool:
        """Whether the connection to a worker can no longer be used."""
        return any(worker.connection.unusable for worker in self.workers)

    def start(self, source: int, seed: int, base_seed: int) -> None:
        """Starts the workers.

        Args:
            source: The descriptor of the source of tasks, which :meth:`wait` waits for as well.
            seed: The seed of the job.
            base_seed: The workers' base seed.
        """
        self._workers_only, self._all = select.poll(), select.poll()
        self._all.register(source, select.POLLIN)
        for number in range(self._count):
            worker = Handle(number, self._context, self._recipe, seed, self._init, base_seed)
            self.workers.append(worker)
            fd = worker.connection.fileno()
            self._by_fd[fd] = worker
            self._workers_only.register(fd, worker.events)
            self._all.register(fd, worker.events)
            for segment, entry in list(self._fds.items()):
                worker.send_segment(segment, *entry)

    def stop(self, free: Callable[[bytes], None]) -> None:
        """Ends the workers.

        Args:
            free: Called with the slots of the daemon's buffer that they had.
        """
        workers, self.workers = self.workers, []
        self.resting = False
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.reap()
            for task in worker.tasks.values():
                free(task.slots)
            for number in list(self._dropped):
                self.let_go(number, worker)
        self._by_fd.clear()

    def rest(self) -> None:
        """Has workers, which have no tasks, wait for the next epoch."""
        self.resting = True
        self._send(protocol.encode(child.REST, protocol.U32.pack(IDLE)))

    def begin_again(self, base_seed: int, recipe: bytes) -> None:
        """Has workers that rest begin an epoch; each confirms that it does (GOES_ON).

        Args:
            base_seed: As for :meth:`start`.
            recipe: What they do, pickled.

        Raises:
            WorkerDiedError: One has ended.
        """
        for worker in self.workers:
            worker.goes_on = False
        self._send(protocol.encode(child.GO_ON, protocol.U64.pack(base_seed) + recipe))

    def _send(self, frame: bytes) -> None:
        for worker in self.workers:
            worker.send(frame)

    def leave(self) -> None:
        """Leaves the workers to the process that started them, in a forked child."""
        self.workers = []

    # Work.

    def idlest(self) -> Handle:
        """Returns the worker with the fewest tasks.

        Raises:
            ClosedError: Another thread has ended the workers.
        """
        worker = min(self.workers, key=lambda worker: len(worker.tasks), default=None)
        if worker is None:
            raise ClosedError("the loader is closed")
        return worker

    def wait(self, milliseconds: int, source: bool) -> list[Handle]:
        """Waits at most so long for workers; returns those that sent something, or take more.

        Args:
            milliseconds: How long.
            source: The wait ends as well when the source of tasks has one.
        """
        self._await_room()
        ready = (self._all if source else self._workers_only).poll(milliseconds)
        found = [self._by_fd.get(fd) for fd, _ in ready]
        return [worker for worker in found if worker is not None]

    def _await_room(self) -> None:
        """Has a wait end as well when a worker can take more of what is queued for it.

        A task may be larger than what a socket holds.
        """
        for worker in self.workers:
            events = select.POLLIN | (select.POLLOUT if worker.connection.writing else 0)
            if events != worker.events:
                worker.events = events
                self._workers_only.modify(worker.connection.fileno(), events)
                self._all.modify(worker.connection.fileno(), events)


def _free_nothing(_: bytes) -> None:
    """Takes the slots of workers that have no tasks."""
