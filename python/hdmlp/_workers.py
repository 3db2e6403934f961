"""The worker processes of a loader, and the batches under way through them.

The pool stands between the stream and the loader, and looks like a stream: ``position``,
``seek``, ``next``. It hands descriptors of batches, never bytes, to workers, at most
``prefetch`` per worker that have not been yielded yet, and yields in order. A batch's
slots go back to the daemon as soon as the worker is done with it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import time
from collections import deque
from typing import Any, Callable

from . import _protocol as protocol
from . import _worker
from ._recipe import Recipe
from ._results import SLOT_BODY, decode, slots_of
from ._segments import Segment
from ._source import HEAD_SIZE, Taken, TaskSource
from ._worker_failures import Failed, RemoteTraceback
from .errors import ClosedError, HDMLPError, StallTimeoutError, WorkerDiedError

log = logging.getLogger("hdmlp")

_TICK_MS = 50


class _Task:
    __slots__ = ("number", "position", "result", "stale", "taken", "worker")

    def __init__(self, number: int, position: int, taken: Taken, worker: _Handle):
        self.number = number
        self.position = position
        self.taken = taken
        self.worker = worker
        self.result: Any = None
        self.stale = False


class _Handle:
    """One worker, seen from the training process."""

    def __init__(
        self,
        number: int,
        context: Any,
        recipe: Recipe,
        seed: int,
        init: Callable[[int], None] | None,
    ):
        mine, theirs = socket.socketpair()
        self.number = number
        self.connection = protocol.Connection(mine, _worker.FROM_WORKER_WITH_FD)
        self.tasks: dict[int, _Task] = {}
        self.segments: dict[int, Segment] = {}
        self.freed: deque[tuple[int, ...]] = deque()
        self.events = select.POLLIN  # that a wait ends with
        self.process = context.Process(
            target=_worker.main,
            args=(theirs, recipe, seed, number, init),
            name=f"hdmlp-worker-{number}",
            daemon=True,
        )
        try:
            self.process.start()
        finally:
            theirs.close()

    def send(self, frame: bytes) -> None:
        try:
            self.connection.send(frame)
        except protocol.Disconnected:
            raise self.died() from None

    def died(self) -> WorkerDiedError:
        """The error for this worker's end."""
        self.process.join(1.0)
        code = self.process.exitcode
        how = "ended by itself" if code is None else f"exited with status {code}"
        if code is not None and code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was killed by signal {-code}"
        return WorkerDiedError(
            f"worker {self.number} of the loader (pid {self.process.pid}) {how}"
            + ("; out of memory?" if code == -signal.SIGKILL else "")
        )

    def return_slots(self) -> None:
        numbers: list[int] = []
        while self.freed:
            numbers += self.freed.popleft()
        if numbers:
            payload = b"".join(protocol.U32.pack(n) for n in numbers)
            self.send(protocol.encode(_worker.FREE, payload))

    def end(self) -> None:
        """Asks the process to end, by hanging up and by signal."""
        self.connection.close()
        if self.process.is_alive():
            self.process.terminate()

    def reap(self) -> None:
        """Waits for the process's end, and makes it come if it does not."""
        self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)


class Pool:
    """Worker processes in front of a stream.

    Args:
        recipe: what the workers do.
        workers: how many.
        prefetch: batches per worker that may be under way.
        context: a multiprocessing context.
        init: called in each worker with its number.

    The stream is made with the pool's :meth:`on_segment` and :meth:`on_drop`, then given to
    :meth:`attach`. The workers start with the first :meth:`seek`.
    """

    def __init__(
        self,
        recipe: Recipe,
        workers: int,
        prefetch: int,
        context: Any,
        init: Callable[[int], None] | None = None,
    ):
        self._recipe = recipe
        self._count = workers
        self._capacity = workers * prefetch
        self._context = context
        self._init = init
        self._pid = os.getpid()
        self._stream: TaskSource | None = None
        self._workers: list[_Handle] = []
        self._by_fd: dict[int, _Handle] = {}
        self._order: deque[_Task] = deque()
        self._error: HDMLPError | None = None  # of the stream, to raise after what is under way
        self._error_at: int | None = None
        self._end: int | None = (
            None  # nothing from this position on is handed out; None: there is none
        )
        self._fds: dict[int, tuple[int, int]] = {}
        self._tasks = 0
        self._busy = False
        self._workers_only: Any = None
        self._all: Any = None
        self.stall = self.python = 0

    def attach(self, stream: TaskSource) -> None:
        """Takes batches from ``stream`` from now on."""
        self._stream = stream

    # Segments.

    def on_segment(self, number: int, fd: int, size: int) -> None:
        """A segment came: workers that run, and those that will, get it."""
        self._fds[number] = (os.dup(fd), size)
        for worker in self._workers:
            self._send_segment(worker, number)

    def on_drop(self, number: int) -> None:
        """No later batch names the segment."""
        fd, _ = self._fds.pop(number, (None, 0))
        if fd is not None:
            os.close(fd)
            for worker in self._workers:
                worker.send(protocol.encode(protocol.DROP, protocol.U32.pack(number)))

    def _send_segment(self, worker: _Handle, number: int) -> None:
        fd, size = self._fds[number]
        try:
            worker.connection.send_fds(
                protocol.encode(protocol.SEGMENT, protocol.SEGMENT_BODY.pack(number, 0, size)), [fd]
            )
        except protocol.Disconnected:
            raise worker.died() from None

    # Life.

    @property
    def broken(self) -> bool:
        """True if the pool cannot be used any more."""
        return (
            self._busy
            or self._stream is None
            or (self._stream.broken and self._error is None)  # else what is under way comes first
            or any(w.connection.closed or w.connection.torn for w in self._workers)
        )

    def _start(self) -> None:
        self._workers_only, self._all = select.poll(), select.poll()
        self._all.register(self._stream.fileno(), select.POLLIN)
        for number in range(self._count):
            worker = _Handle(
                number, self._context, self._recipe, int(self._stream.opened["seed"]), self._init
            )
            self._workers.append(worker)
            fd = worker.connection.fileno()
            self._by_fd[fd] = worker
            self._workers_only.register(fd, worker.events)
            self._all.register(fd, worker.events)
            for segment in list(self._fds):
                self._send_segment(worker, segment)

    def close(self) -> None:
        """Ends the workers. Batches that the program keeps stay valid. Idempotent."""
        workers, self._workers = self._workers, []
        if os.getpid() == self._pid:  # in a forked child the workers are not ours to end
            for worker in workers:
                worker.end()
            for worker in workers:
                worker.reap()
        for fd, _ in self._fds.values():
            os.close(fd)
        self._fds.clear()
        self._order.clear()
        self._stream = None

    # Batches.

    @property
    def position(self) -> int | None:
        """What :meth:`next` yields next, or None if nothing is under way, or there is nobody to make it."""
        if self._order:
            return self._order[0].position
        if not self._workers:
            return None
        return self._stream.position if self._error is None else self._error_at

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, whatever was to come."""
        self._give_up()
        self._error = None
        self._stream.restart()

    def renew(self, end: int | None) -> None:
        """Has new workers, which see the program as it is when they start, do what comes next, up to the position ``end``."""
        self._give_up()
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.reap()
        self._by_fd.clear()
        self._end = end

    def take(self, position: int) -> Taken | None:
        """None: what a batch is made of may take time to be handed over."""
        return None

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; what is under way is given up if it is not that."""
        if not self._workers:
            self._start()
        elif position == self.position:
            return
        self._give_up()
        self._error = None
        for worker in self._workers:
            worker.send(protocol.encode(_worker.CANCEL, protocol.U64.pack(self._tasks)))
        self._stream.seek(position)

    def start(self) -> None:
        """Hands out what there is to be done, before the first :meth:`next`."""
        self._turn(0)

    def _give_up(self) -> None:
        """Takes back what is under way; it will not be yielded."""
        for task in self._order:
            task.stale = True
            if isinstance(task.result, bytearray):
                task.worker.freed.append(slots_of(task.result))
        self._order.clear()

    def next(self, timeout: float = 0.0) -> Taken:
        """The next batch; its ``content`` is what :meth:`value` takes. Waits for it; :attr:`stall` says for how many ns, and
        :attr:`python` for how many of them a worker had it.

        Raises:
            WorkerDiedError: a worker ended.
            StallTimeoutError: no batch within ``timeout`` seconds (0: for ever).
            and what the stream raises.
        """
        if self._busy:
            raise ClosedError("the loader was interrupted; iterate again")
        self._turn(0)
        if self._order and self._stream.ends(self._order[0].position):
            self._give_up()  # the stream's error comes
        self.stall = self.python = 0
        if not self._order or self._order[0].result is None:
            begin = now = time.perf_counter_ns()
            waiting = False
            while not self._order or self._order[0].result is None:
                if not self._order and self._error is not None:
                    error, self._error = self._error, None
                    raise error
                if not self._order and not waiting:
                    self._stream.say_waiting()
                    waiting = True
                self._stream.return_slots()
                working = bool(self._order)  # a worker has the batch; else the daemon
                self._turn(_TICK_MS)
                before, now = now, time.perf_counter_ns()
                if working:
                    self.python += now - before
                if timeout and now - begin > timeout * 1e9:
                    raise StallTimeoutError(f"no batch within timeout={timeout:g} seconds")
            self.stall = now - begin
        task = self._order.popleft()
        self._busy = True
        self._dispatch()
        self._busy = False
        return task.taken._replace(content=(task.worker, task.result))

    @staticmethod
    def value(content: tuple[_Handle, Any]) -> Any:
        """The batch itself, or the :class:`Failed` in its place."""
        worker, result = content
        if isinstance(result, Failed):
            return result
        return decode(result, worker.segments, worker.freed.append)

    def _turn(self, milliseconds: int) -> None:
        """Waits at most so long, reads what came, and hands out what there is to hand out."""
        self._await_room()
        full = len(self._order) >= self._capacity or self._error is not None
        ready = (self._workers_only if full else self._all).poll(milliseconds)
        self._busy = True
        for fd, _ in ready:
            worker = self._by_fd.get(fd)
            if worker is not None:
                self._read(worker)
        self._dispatch()
        self._busy = False

    def _await_room(self) -> None:
        """Has a wait end as well when a worker can take more of what is queued for it: a task may be larger than what a socket holds."""
        for worker in self._workers:
            events = select.POLLIN | (select.POLLOUT if worker.connection.writing else 0)
            if events != worker.events:
                worker.events = events
                self._workers_only.modify(worker.connection.fileno(), events)
                self._all.modify(worker.connection.fileno(), events)

    def _read(self, worker: _Handle) -> None:
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

    def _sort(self, worker: _Handle, kind: int, payload: bytearray, fd: int | None) -> None:
        if kind == _worker.SLOT:
            number, _, size = SLOT_BODY.unpack(payload)
            try:
                worker.segments[number] = Segment(fd, size, True)
            finally:
                os.close(fd)
            return
        if kind == _worker.FORGET:
            worker.segments.pop(protocol.U32.unpack(payload)[0], None)
            return
        number = protocol.U64.unpack_from(payload)[0]
        if kind == _worker.FAILED and number == 0:
            failed = Failed(bytes(payload[8:]), worker.number)
            raise failed.error from RemoteTraceback(
                f"worker_init_fn, in worker {worker.number}:\n{failed.text}"
            )
        task = worker.tasks.pop(number)
        taken = task.taken
        self._stream.free(bytes(taken.payload[HEAD_SIZE + 32 * taken.n :]))
        if kind == _worker.RESULT:
            if task.stale:
                worker.freed.append(slots_of(payload))
            else:
                task.result = payload
        elif kind == _worker.FAILED:
            task.result = Failed(bytes(payload[8:]), worker.number)

    def _dispatch(self) -> None:
        while len(self._order) < self._capacity and self._error is None:
            expected = self._stream.position
            if self._end is not None and expected is not None and expected >= self._end:
                return
            try:
                taken = self._stream.poll()
            except HDMLPError as error:
                self._error, self._error_at = (
                    error.with_traceback(None),
                    expected,
                )  # whose frames would keep the iterator
                return
            if taken is None:
                return
            worker = min(self._workers, key=lambda w: len(w.tasks))
            self._tasks += 1
            position = taken.epoch * self._stream.steps + taken.step
            task = _Task(self._tasks, position, taken, worker)
            worker.tasks[task.number] = task
            worker.return_slots()
            worker.send(
                protocol.encode(_worker.TASK, protocol.U64.pack(task.number) + taken.payload)
            )
            self._order.append(task)
