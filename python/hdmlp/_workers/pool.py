"""The worker processes of a loader, and the batches under way through them.

The pool is a source of batches in front of another source, of tasks: the daemon's stream, or drawn
indices. It hands descriptors of batches, never bytes, to workers, at most ``prefetch`` per worker
that have not been yielded yet, and yields in order. A batch's slots go back to the daemon as soon
as the worker is done with it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable

from .._batches.segments import Segment
from .._batches.source import Taken, TaskSource
from .._batches.stall import stalled
from .._lib import protocol
from .._lib.typing import Context
from ..errors import ClosedError, HDMLPError, WorkerDiedError
from . import child
from .failures import Failed, RemoteTraceback
from .handle import Handle, Task
from .processes import WorkerProcesses
from .results import SLOT_BODY, decode
from .seeds import base_seed
from .staying import Staying

_TICK_MS = 50
#: Seconds in which workers that rest have to begin another epoch.
_GRACE = 1.0


class Pool:
    """Worker processes in front of a source of tasks.

    The daemon's stream is made with the pool's :meth:`on_segment` and :meth:`on_drop`, then given
    to :meth:`attach`. The workers start with the first :meth:`seek`.

    Args:
        recipe: What the workers do.
        workers: The number of workers.
        prefetch: Batches per worker that may be under way.
        context: A multiprocessing context.
        init: Called in each worker with the base seed and its number; None means nothing is.
        base_seed: From the job's seed and the epoch for which workers start to their base seed.
        staying: Whether workers that are not to stay may do so all the same, as nobody could tell
            the difference; None: they may not.

    Attributes:
        end: The position from which on nothing is handed out; None: there is none.
        stall: Nanoseconds for which the last :meth:`next` blocked.
        python: Nanoseconds, of ``stall``, for which a worker had the batch.
    """

    def __init__(
        self,
        recipe: child.Maker,
        workers: int,
        prefetch: int,
        context: Context,
        init: Callable[[int, int], None] | None = None,
        base_seed: Callable[[int, int], int] = base_seed,
        staying: Staying | None = None,
    ):
        self._recipe = recipe
        self._processes = WorkerProcesses(recipe, workers, context, init)
        self._capacity = workers * prefetch
        self._base_seed = base_seed
        self._staying = staying
        self._pid = os.getpid()
        self._attached: TaskSource | None = None
        # What is under way, in the order in which it is yielded, and which worker has it.
        self._order: deque[tuple[Task, Handle]] = deque()
        self._error: HDMLPError | None = None  # of the source, to raise after what is under way
        self._error_at: int | None = None
        self.end: int | None = None
        self._tasks = 0
        # A section is under way in which the books do not match the workers'; see Link.busy.
        self._busy = False
        self.stall = self.python = 0

    def attach(self, source: TaskSource) -> None:
        """Takes tasks from ``source`` from now on."""
        self._attached = source

    @property
    def _source(self) -> TaskSource:
        if self._attached is None:
            raise ClosedError("the loader is closed")
        return self._attached

    def on_segment(self, number: int, fd: int, size: int) -> None:
        """As :meth:`WorkerProcesses.on_segment`."""
        self._processes.on_segment(number, fd, size)

    def on_drop(self, number: int, gone: Callable[[int], None]) -> None:
        """As :meth:`WorkerProcesses.on_drop`."""
        self._processes.on_drop(number, gone)

    # Life.

    @property
    def broken(self) -> bool:
        """Whether the pool can no longer be used."""
        source = self._attached
        if self._busy or source is None:
            return True
        if source.broken and self._error is None:  # else what is under way comes first
            return True
        return self._processes.unusable

    @property
    def _workers(self) -> list[Handle]:
        return self._processes.workers

    def _start(self, position: int) -> None:
        if self._staying is not None:
            self._staying.started()
        seed = int(self._source.opened["seed"])
        self._processes.start(self._source.fileno(), seed, self._base_seed_at(position))

    def _base_seed_at(self, position: int) -> int:
        """Returns the base seed of workers that begin with the batch at a position."""
        source = self._source
        epoch = position // source.steps if source.steps else 0
        return self._base_seed(int(source.opened["seed"]), epoch)

    def _stop(self) -> None:
        """Ends the workers. What they had goes back to the daemon."""
        source = self._attached
        self._processes.stop(source.free if source is not None else lambda slots: None)

    def close(self) -> None:
        """Ends the workers. Batches that the program keeps stay valid. Idempotent."""
        self._order.clear()
        if os.getpid() == self._pid:
            self._stop()
        else:  # in a forked child the workers are the parent's to end
            self._processes.leave()
        self._processes.forget()
        self._attached = None

    # Batches.

    @property
    def position(self) -> int | None:
        """The position that :meth:`next` yields; None if nothing is under way or no worker runs."""
        if self._order:
            return self._order[0][0].position
        if not self._workers or self._processes.resting:
            return None
        return self._source.position if self._error is None else self._error_at

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""
        self._give_up()
        self._error = None
        self._source.restart()

    def renew(self, end: int | None) -> None:
        """Has new workers do what comes next, which see the program as it is when they start.

        Workers that :meth:`rest` stay if nothing could be different with new ones.

        Args:
            end: The position from which on nothing is handed out; None means there is none.
        """
        self._give_up()
        if not self._processes.resting:
            self._stop()
        self.end = end

    def rest(self) -> None:
        """Ends the workers, unless new ones for the next epoch may do nothing else than they."""
        idle = not self._order and not any(worker.tasks for worker in self._workers)
        staying = self._staying
        if not idle or staying is None or not staying.possible:
            self.renew(None)
            return
        try:
            self._processes.rest()
        except WorkerDiedError:
            self.renew(None)

    def _begin_again(self, position: int) -> bool:
        """Has workers that rest begin an epoch; reports whether all do."""
        recipe = None if self._staying is None else self._staying.recipe()
        if recipe is None:
            return False
        try:
            self._processes.begin_again(self._base_seed_at(position), recipe)
            end = time.monotonic() + _GRACE
            while not all(worker.goes_on for worker in self._workers):
                if time.monotonic() > end:
                    return False
                for worker in self._processes.wait(_TICK_MS, source=False):
                    self._read(worker)
        except WorkerDiedError:
            return False
        self._processes.resting = False
        return True

    def take(self, position: int) -> Taken | None:
        """Returns None: handing over what a worker made may take time."""
        return None

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; gives up what is under way if it is not that."""
        if not self._workers or self._processes.resting:
            self._busy = True  # an interrupted start leaves workers without segments
            if not self._workers or not self._begin_again(position):
                self._stop()
                self._start(position)
            self._busy = False
        elif position == self.position:
            return
        if self._order:
            # Even to where the source goes on, as it waits until these have been yielded.
            self._source.restart()
        self._give_up()
        self._error = None
        self._busy = True  # stays so if a worker has died: then the pool is broken
        for worker in self._workers:
            worker.send(protocol.encode(child.CANCEL, protocol.U64.pack(self._tasks)))
        self._busy = False
        self._source.seek(position)

    def start(self) -> None:
        """Hands out what there is to do, before the first :meth:`next`."""
        self._turn(0)

    def _give_up(self) -> None:
        """Takes back what is under way; it will not be yielded."""
        for task, worker in self._order:
            task.stale = True
            if isinstance(task.result, bytearray) and task.begun is None:
                worker.give_up(task.result)
        self._order.clear()

    def next(self, timeout: float = 0.0) -> Taken:
        """Waits for the next batch and takes it; its ``content`` is what :meth:`value` takes.

        Args:
            timeout: Seconds to wait at most; 0 means no limit.

        Raises:
            WorkerDiedError: A worker ended.
            StallTimeoutError: The time is up.
            HDMLPError: What the source of tasks raises.
        """
        if self._busy:
            raise ClosedError("the loader was interrupted; iterate again")
        self._turn(0)
        if self._order and self._source.ends(self._order[0][0].position):
            self._give_up()  # the source's error comes
        self.stall = self.python = 0
        if not self._ready:
            self._wait(timeout)
        task, worker = self._order.popleft()
        self._busy = True
        self._dispatch()
        self._busy = False
        task.taken.content = task.content(worker)
        return task.taken

    def begin(self, count: int, start: Callable[..., object]) -> None:
        """Begins what else is done with batches before they are yielded.

        See :meth:`hdmlp._loading.ahead.Ahead.begin`; ``start`` is called with what :meth:`value`
        takes.
        """
        self._busy = True
        for task, worker in itertools.islice(self._order, count):
            if task.result is None:
                break
            task.begun = start(task.content(worker))
        self._busy = False

    @property
    def _ready(self) -> bool:
        """Whether the next batch is made."""
        return bool(self._order) and self._order[0][0].result is not None

    @property
    def _complete(self) -> bool:
        """Whether all batches before the end have come.

        If another rank's stream ended before one of them, the error is still to come.
        """
        end, position = self.end, self._source.position
        if end is None or position is None or position < end:
            return False
        return not self._source.ends(end - 1)

    def _wait(self, timeout: float) -> None:
        """Waits until the next batch is made, and measures for how long."""
        begin = now = time.perf_counter_ns()
        waiting = False
        while not self._ready:
            if not self._order and self._error is not None:
                error, self._error = self._error, None
                try:
                    raise error
                finally:
                    del error  # its traceback has this frame, which would keep the pool
            if not self._order and not waiting:
                self._source.say_waiting()
                waiting = True
            self._source.return_slots()
            working = bool(self._order)  # a worker has the batch; else the daemon
            self._turn(_TICK_MS)
            before, now = now, time.perf_counter_ns()
            if working:
                self.python += now - before
            if timeout and now - begin > timeout * 1e9:
                raise stalled(timeout, working=working)
        self.stall = now - begin

    @staticmethod
    def value(content: tuple[Handle, bytearray | Failed]) -> object:
        """Returns the batch itself, or the :class:`Failed` in its place."""
        worker, result = content
        if isinstance(result, Failed):
            return result
        return decode(result, worker.segments, worker.freed.append)

    def _turn(self, milliseconds: int) -> None:
        """Waits at most so long, reads what came, and hands out what there is to hand out."""
        full = len(self._order) >= self._capacity or self._error is not None or self._complete
        ready = self._processes.wait(milliseconds, source=not full)
        self._busy = True
        for worker in ready:
            self._read(worker)
        self._dispatch()
        self._busy = False

    def _read(self, worker: Handle) -> None:
        try:
            worker.connection.flush()
            more = worker.connection.fill()
        except protocol.Disconnected:
            raise worker.died() from None
        while more:
            frame = worker.connection.frame()
            if frame is None:
                return
            self._sort(worker, *frame)

    def _sort(self, worker: Handle, kind: int, payload: bytearray, fd: int | None) -> None:
        """Takes a worker's frame."""
        if kind == child.SLOT and fd is not None:
            number, _, size = SLOT_BODY.unpack(payload)
            try:
                worker.segments[number] = Segment(fd, size, True)
            finally:
                os.close(fd)
            return
        if kind == protocol.GONE:
            self._processes.let_go(protocol.U32.unpack(payload)[0], worker)
            return
        if kind == child.GOES_ON:
            worker.goes_on = True
            return
        if kind == child.NOTE:
            self._recipe.noted(payload.decode())
            return
        if kind == child.FORGET:
            worker.segments.pop(protocol.U32.unpack(payload)[0], None)
            return
        number = protocol.U64.unpack_from(payload)[0]
        if kind == child.FAILED and number == 0:
            failed = Failed(bytes(payload[8:]), worker.number)
            raise failed.error from RemoteTraceback(
                f"worker_init_fn, in worker {worker.number}:\n{failed.text}"
            )
        task = worker.tasks.pop(number)
        self._source.free(task.slots)
        if kind == child.RESULT:
            if task.stale:
                worker.give_up(payload)
            else:
                task.result = payload
        elif kind == child.FAILED:
            task.result = Failed(bytes(payload[8:]), worker.number)

    def _dispatch(self) -> None:
        """Hands batches that have come to workers, as many as may be under way."""
        source = self._source
        while len(self._order) < self._capacity and self._error is None and not self._complete:
            expected = source.position
            try:
                taken = source.poll()
            except HDMLPError as error:
                # Its frames would keep the iterator alive.
                self._error, self._error_at = error.with_traceback(None), expected
                return
            if taken is None:
                return
            worker = self._processes.idlest()
            self._tasks += 1
            task = Task(self._tasks, taken.epoch * source.steps + taken.step, taken)
            worker.assign(task)
            self._order.append((task, worker))
