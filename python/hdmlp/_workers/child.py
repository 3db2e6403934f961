"""What runs in a worker process: takes descriptors of batches, returns batches.

A worker maps the daemon's segments itself and reads the samples in place. It ends when the training
process does, however that ends, because its socket is closed then.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .._batches.segments import Segment, drop
from .._lib import protocol
from .results import SLOT_BODY, Place, Slots, encode

# Training process to worker, beside the daemon's SEGMENT and DROP, forwarded.
# REST: the epoch is over; u32 milliseconds after which the worker ends. GO_ON, for a worker without
# tasks: the next one begins; u64 base seed, then the recipe, pickled.
TASK, FREE, CANCEL, REST, GO_ON = 1, 2, 3, 4, 5
# Worker to training process.
RESULT, SLOT, FAILED, FORGET, SKIPPED, NOTE, GOES_ON = 200, 201, 202, 203, 204, 205, 206

TO_WORKER_WITH_FD = frozenset({protocol.SEGMENT})
FROM_WORKER_WITH_FD = frozenset({SLOT})


class Maker(Protocol):
    """What workers do; goes to them by fork or by pickle."""

    def make(
        self, payload: bytearray, segments: dict[int, Segment], seed: int, place: Place
    ) -> object:
        """Returns the batch of a task.

        Args:
            payload: The task's payload, as its source made it.
            segments: The shared memory where samples lie, by number.
            seed: The job's.
            place: Where the batch may go.
        """

    def note(self) -> str:
        """Returns what making batches has revealed for the loader's process; empty: nothing."""

    def noted(self, note: str) -> None:
        """Takes, in the loader's process, what :meth:`note` returned in a worker."""


class Worker:
    """One worker process's state.

    Args:
        sock: Connected to the training process.
        recipe: What the worker does.
        seed: The job's seed.
        init: Called with the base seed of each later epoch for which the worker stays; None means
            nothing is.
    """

    def __init__(
        self,
        sock: socket.socket,
        recipe: Maker,
        seed: int,
        init: Callable[[int], None] | None = None,
    ):
        self._connection = protocol.Connection(sock, TO_WORKER_WITH_FD)
        self._recipe = recipe
        self._seed = seed
        self._init = init
        self._rests_until: float | None = None  # by time.monotonic; None: an epoch is under way
        self._segments: dict[int, Segment] = {}
        # In the order in which they came: tasks, and numbers of segments to drop.
        self._tasks: deque[tuple[int, bytearray] | int] = deque()
        self._cancelled = 0
        # Numbers of segments that were dropped, and that this process maps no more.
        self._gone: deque[int] = deque()
        self._slots = Slots(self._announce, self._forget)

    def run(self) -> None:
        """Works until the training process closes the connection, or leaves it idle in a rest."""
        while True:
            while self._connection.fill():
                pass
            frame = self._connection.frame()
            while frame is not None:
                self._sort(*frame)
                frame = self._connection.frame()
            if not self._connection.flush() or not self._tasks:
                rest = self._rests_until
                left = None if rest is None else rest - time.monotonic()
                if not self._connection.wait(left) and rest is not None:
                    return
                continue
            task = self._tasks.popleft()
            if isinstance(task, int):
                drop(self._segments.pop(task, None), task, self._gone.append)
            else:
                self._do(*task)
            while self._gone:
                number = protocol.U32.pack(self._gone.popleft())
                self._connection.send(protocol.encode(protocol.GONE, number))

    def _sort(self, kind: int, payload: bytearray, fd: int | None) -> None:
        if kind == TASK:
            number = protocol.U64.unpack_from(payload)[0]
            self._tasks.append((number, payload[8:]))
        elif kind == FREE:
            for slot in memoryview(payload).cast("I").tolist():
                self._slots.free(slot)
        elif kind == CANCEL:
            self._cancelled = protocol.U64.unpack(payload)[0]
        elif kind == protocol.SEGMENT and fd is not None:
            number, _, size = protocol.SEGMENT_BODY.unpack(payload)
            try:
                self._segments[number] = Segment(fd, size, False)
            finally:
                os.close(fd)
        elif kind == protocol.DROP:
            self._tasks.append(protocol.U32.unpack(payload)[0])
        elif kind == REST:
            self._rests_until = time.monotonic() + protocol.U32.unpack(payload)[0] / 1000
        elif kind == GO_ON:
            self._go_on(payload)

    def _go_on(self, payload: bytearray) -> None:
        """Begins another epoch as a new worker does.

        Raises:
            Disconnected: It cannot; the training process starts a new one.
        """
        try:
            self._recipe = pickle.loads(memoryview(payload)[8:])
            if self._init is not None:
                self._init(protocol.U64.unpack_from(payload)[0])
        except Exception as error:
            raise protocol.Disconnected(str(error)) from None
        self._rests_until = None
        self._connection.send(protocol.encode(GOES_ON))

    def _do(self, number: int, payload: bytearray) -> None:
        if number <= self._cancelled:
            self._connection.send(protocol.encode(SKIPPED, protocol.U64.pack(number)))
            return
        place = Place(self._slots)
        try:
            result = encode(
                number, self._recipe.make(payload, self._segments, self._seed, place), place
            )
            frame = protocol.encode(RESULT, result)
        except Exception as error:
            place.give_up()
            frame = protocol.encode(FAILED, protocol.U64.pack(number) + describe(error))
        note = self._recipe.note()
        if note:
            self._connection.send(protocol.encode(NOTE, note.encode()))
        self._connection.send(frame)

    def _announce(self, number: int, size: int, fd: int) -> None:
        self._connection.send_fds(protocol.encode(SLOT, SLOT_BODY.pack(number, 0, size)), [fd])

    def _forget(self, number: int) -> None:
        self._connection.send(protocol.encode(FORGET, protocol.U32.pack(number)))


def describe(error: BaseException) -> bytes:
    """Returns an exception, its traceback as text and the sample it names, pickled."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    sample = getattr(error, "sample", None)
    sample = sample if isinstance(sample, int) else None
    pickled = None
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = None
    return pickle.dumps((pickled, text, sample))


#: glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, and their values in bytes; the latter's is the
#: largest that is allowed.
_KEPT = ((-1, 256 << 20), (-3, 32 << 20))


def keep_memory() -> None:
    """Has malloc keep what is freed, up to 256 MiB.

    Each transform of an image allocates some hundred KB, and frees them. By default malloc returns
    them to the kernel, which clears and maps each page anew: a quarter of the processor time of
    torchvision's transforms. A user's own setting takes precedence.
    """
    if any(
        name in os.environ
        for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library, or another malloc
        return
    for parameter, size in _KEPT:
        mallopt(parameter, size)


def main(
    sock: socket.socket,
    recipe: Maker,
    seed: int,
    number: int,
    init: Callable[[int, int], None] | None,
    base_seed: int,
) -> None:
    """Runs a worker process.

    Args:
        sock: Connected to the training process.
        recipe: What the worker does.
        seed: The job's seed.
        number: The worker's number in its pool.
        init: Called with ``base_seed`` and ``number`` first; None means nothing is.
        base_seed: That of the pool's workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process decides
    keep_memory()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    again = None if init is None else functools.partial(_init_again, init, number)
    worker = Worker(sock, recipe, seed, again)
    try:
        if init is not None:
            try:
                init(base_seed, number)
            except Exception as error:
                worker._connection.send(
                    protocol.encode(FAILED, protocol.U64.pack(0) + describe(error))
                )
        worker.run()
    except protocol.Disconnected:
        pass


def _init_again(init: Callable[[int, int], None], number: int, base_seed: int) -> None:
    init(base_seed, number)


def rebuild_error(payload: bytes) -> tuple[Exception, str, int | None]:
    """Unpacks what :func:`describe` packed.

    Returns:
        The exception, or a RuntimeError in its place; its traceback; the sample that it names.
    """
    pickled, text, sample = pickle.loads(payload)
    error = None
    if pickled is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(pickled)
    if not isinstance(error, Exception):
        error = RuntimeError(text.strip().splitlines()[-1])
    return error, text, sample
