"""One worker process and the tasks that it has, as the training process sees them."""

from __future__ import annotations

import select
import signal
import socket
from collections import deque
from collections.abc import Callable

from .._batches.segments import Segment
from .._batches.source import Taken
from .._lib import protocol
from .._lib.typing import Context
from ..errors import WorkerDiedError
from . import child
from .failures import Failed
from .results import slots_of

#: Seconds in which a worker may end by itself, before it is killed.
_GRACE = 1.0


def _advice(status: int | None) -> str:
    """Returns what to do about a worker that ended with this status; None: it runs."""
    if status == -signal.SIGKILL:
        return (
            "probably by the kernel's OOM killer; give a smaller num_workers, prefetch_factor or "
            "batch_size, or more memory"
        )
    if status is not None and status < 0:
        return "run with num_workers=0, or set PYTHONFAULTHANDLER=1, to see where"
    return (
        "neither may end the process or close its descriptors; run with num_workers=0 to see which "
        "one does"
    )


class Task:
    """A batch under way through a worker.

    Attributes:
        number: The task's number in its pool.
        position: The batch's position.
        taken: The batch.
        result: What the worker made of it: a RESULT payload, or why it failed; None before.
        begun: What :meth:`hdmlp._workers.pool.Pool.begin` has begun with it; None: nothing.
        stale: The batch will not be yielded.
    """

    __slots__ = ("begun", "number", "position", "result", "stale", "taken")

    def __init__(self, number: int, position: int, taken: Taken):
        self.number = number
        self.position = position
        self.taken = taken
        self.result: bytearray | Failed | None = None
        self.begun: object = None
        self.stale = False

    def content(self, worker: Handle) -> object:
        """Returns what the pool yields: what was begun, or the worker and its result."""
        return (worker, self.result) if self.begun is None else self.begun

    @property
    def slots(self) -> bytes:
        """The slots of the daemon's buffer that the batch occupies."""
        return self.taken.slots


class Handle:
    """One worker.

    Args:
        number: The worker's number in its pool.
        context: A multiprocessing context.
        recipe: What the worker does.
        seed: The seed of the job.
        init: Called in the worker with the base seed and its number; None means nothing is.
        base_seed: That of the pool's workers.

    Attributes:
        connection: To the worker.
        tasks: What the worker has, by number.
        segments: Where the worker's results lie, by number.
        freed: Slots of these that the program has given up. Any thread may append.
        goes_on: The worker has begun the epoch for which it was to stay.
        events: That a wait for the worker ends with.
    """

    def __init__(
        self,
        number: int,
        context: Context,
        recipe: child.Maker,
        seed: int,
        init: Callable[[int, int], None] | None,
        base_seed: int,
    ):
        mine, theirs = socket.socketpair()
        self.number = number
        self.connection = protocol.Connection(mine, child.FROM_WORKER_WITH_FD)
        self.tasks: dict[int, Task] = {}
        self.segments: dict[int, Segment] = {}
        self.freed: deque[tuple[int, ...]] = deque()
        self.events = select.POLLIN
        self.goes_on = False
        self.process = context.Process(
            target=child.main,
            args=(theirs, recipe, seed, number, init, base_seed),
            name=f"hdmlp-worker-{number}",
            daemon=True,
        )
        try:
            self.process.start()
        finally:
            theirs.close()

    def send(self, frame: bytes) -> None:
        """Sends a frame.

        Raises:
            WorkerDiedError: The worker has ended.
        """
        try:
            self.connection.send(frame)
        except protocol.Disconnected:
            raise self.died() from None

    def send_segment(self, number: int, fd: int, size: int) -> None:
        """Sends one of the daemon's segments."""
        frame = protocol.encode(protocol.SEGMENT, protocol.SEGMENT_BODY.pack(number, 0, size))
        try:
            self.connection.send_fds(frame, [fd])
        except protocol.Disconnected:
            raise self.died() from None

    def assign(self, task: Task) -> None:
        """Sends a task, and the slots that are free."""
        self.tasks[task.number] = task
        numbers: list[int] = []
        while self.freed:
            numbers += self.freed.popleft()
        if numbers:
            payload = b"".join(protocol.U32.pack(n) for n in numbers)
            self.send(protocol.encode(child.FREE, payload))
        number = protocol.U64.pack(task.number)
        self.send(protocol.encode(child.TASK, number + task.taken.payload))

    def give_up(self, result: bytearray) -> None:
        """Frees the slots of a result that will not be yielded."""
        self.freed.append(slots_of(result))

    def died(self) -> WorkerDiedError:
        """Returns the error for the worker's end."""
        self.process.join(_GRACE)
        status = self.process.exitcode
        how = "hung up" if status is None else f"exited with status {status}"
        if status is not None and status < 0:
            try:
                how = f"was killed by {signal.Signals(-status).name}"
            except ValueError:
                how = f"was killed by signal {-status}"
        return WorkerDiedError(
            f"worker {self.number} of the loader (pid {self.process.pid}) {how} while it ran "
            f"transforms or collate_fn: {_advice(status)}"
        )

    def end(self) -> None:
        """Asks the process to end, by hanging up and by signal."""
        self.connection.close()
        if self.process.is_alive():
            self.process.terminate()

    def reap(self) -> None:
        """Waits for the process's end, and kills it if it takes too long."""
        self.process.join(_GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_GRACE)
