"""Batches in pinned memory, where a thread copies them ahead of ``next()``."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import traceback
import weakref
from collections import deque
from types import ModuleType
from typing import Any, Callable, Protocol

import torch

from ..._batches.segments import forget_in_child
from ..._batches.source import BatchSource, Taken
from ..._lib.interrupts import start
from ..._workers.pool import Pool
from ...errors import ClosedError
from .._data.collation import pinned

#: Batches that are copied ahead of the one that :meth:`Pinning.next` yields.
_MOST = 2
#: Seconds after which a wait for a copy checks that there is a thread which makes it.
_TICK = 0.5
#: Seconds that the thread may take to end: a ``pin_memory`` of the user's may not return.
_GRACE = 5.0

_pinnings: weakref.WeakSet[Pinning] = weakref.WeakSet()

#: What a forked child must not free: copies of its parent.
_orphans: list[object] = []


@atexit.register
def _end_all() -> None:
    """Ends all threads: one that is in torch's code when Python ends may abort the process."""
    for pinning in list(_pinnings):
        pinning._end()


class Device:
    """The CUDA device for which a loader's batches are pinned.

    Attributes:
        number: That of the thread which made the last iterator; None: there was no iterator yet,
            or CUDA is not available, so batches are not pinned.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def note(self) -> None:
        """Notes the device of the calling thread, which makes an iterator."""
        cuda: ModuleType = torch.cuda  # some of whose functions have no types in some releases
        if not cuda.is_available():
            self.number = None
        elif cuda.is_initialized():
            self.number = cuda.current_device()
        else:  # asking would initialize CUDA, and workers that are forked then could not use it
            self.number = 0

    def pinned(self, batch: object) -> object:
        """Returns a batch in pinned memory, if batches are pinned; the calling thread copies it."""
        return batch if self.number is None else pinned(batch)


class Source(BatchSource, Protocol):
    """What :class:`Pinning` takes batches from: an Ahead or a Pool."""

    def begin(self, count: int, start: Callable[..., object]) -> None:
        """Begins what else is done with the next batches.

        See :meth:`hdmlp._loading.ahead.Ahead.begin`.
        """


class _Copy:
    """A batch that the thread copies.

    It is queued, then done, which ``_done`` shows by being free. It may be given up in between; the
    thread then only drops it.

    Args:
        content: What the source made. The copy drops it when it is done.
        make: What becomes of it before it is pinned.
        device: The CUDA device.

    Attributes:
        given_up: It will not be yielded.
        good: It is done, and did not fail.
    """

    __slots__ = (
        "_batch",
        "_content",
        "_device",
        "_done",
        "_error",
        "_is_done",
        "_make",
        "given_up",
        "good",
    )

    def __init__(self, content: object, make: Callable[..., object], device: int):
        self._content, self._make, self._device = content, make, device
        self._batch: object = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()
        self.given_up = self.good = self._is_done = False

    def run(self, device: int | None) -> int | None:
        """Makes the copy, in the thread.

        Args:
            device: The thread's CUDA device; None: it was not set.

        Returns:
            The thread's CUDA device.
        """
        try:
            if device != self._device:
                torch.cuda.set_device(self._device)
                device = self._device
            self._batch = self._pinned()
            self.good = True
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they hold the batch's memory
            self._error, self._content = error, None
        self._is_done = True
        self._done.release()
        return device

    def _pinned(self) -> object:
        content, self._content = self._content, None
        batch = self._make(content)  # also of a batch that is given up: a worker's slots go with it
        return None if self.given_up else pinned(batch)

    def wait(self, seconds: float) -> bool:
        """Waits until it is done; reports whether it is."""
        if self._is_done:
            return True
        # Not released again, which Ctrl-C might prevent: _is_done was set before.
        return self._done.acquire(timeout=seconds)

    def get(self) -> object:
        """Returns the batch, once it is done.

        Raises:
            ClosedError: It was given up: another thread closed the loader in the meantime.
            Exception: What making it, or pinning it, raised.
        """
        if self.given_up:
            raise _closed()
        if self._error is None:
            return self._batch
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback has this frame


def _run(copies: queue.SimpleQueue[_Copy | None]) -> None:
    """Makes copies until there is a None; the thread's function. It does not refer to loaders."""
    torch.set_num_threads(1)  # as torch's loader: a copy is not to take all processors
    device: int | None = None
    while True:
        copy = copies.get()
        if copy is None:
            return
        device = copy.run(device)
        del copy  # get() waits


class Pinning:
    """A source in front of another one, whose batches it yields in pinned memory.

    A thread copies the next batches that are ready while the program uses the last one. It is given
    what the source made of them, and nothing else: the source, and the stream behind it, belong to
    the thread that calls :meth:`next`. They keep the batches until they are yielded, so that what
    comes next, what is given up, and errors are theirs; a copy takes the place of a batch's content
    there.

    Args:
        source: Where batches come from. It is closed with this one.
        device: For which they are pinned, if for any.

    Attributes:
        stall: Nanoseconds for which the last :meth:`next` blocked.
        python: Nanoseconds, of ``stall``, for which Python was making the batch; waiting for the
            thread is part of it.
    """

    def __init__(self, source: Source, device: Device):
        self._source, self._device = source, device
        self._make = source.value if isinstance(source, Pool) else _as_it_is
        self._queue: queue.SimpleQueue[_Copy | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Those of batches that were not yielded; some may be of batches that the source gave up.
        self._copies: deque[_Copy] = deque()
        # What the source has yielded and next() has not, and its position: Ctrl-C ended the wait.
        self._taken: Taken | None = None
        self._at: int | None = None
        self.stall = self.python = 0
        forget_in_child(self)
        _pinnings.add(self)

    # Life.

    def forget(self) -> None:
        """Forgets the thread, which a forked child does not have, and what it was to copy."""
        self._queue, self._thread = queue.SimpleQueue(), None
        # The thread may have been in the allocator of pinned memory, whose lock is held then: to
        # free any would hang.
        _orphans.append((self._copies, self._taken))
        self._copies, self._taken = deque(), None

    def close(self) -> None:
        """Ends the thread, and closes the source. Idempotent."""
        self._give_up()
        try:
            self._end()
        finally:  # Ctrl-C may end the wait for the thread
            self._source.close()

    def _end(self) -> None:
        """Ends the thread: once it has, no batch's memory is read."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            # The collector may run in it, and Ctrl-C may have kept it from starting.
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(_GRACE)

    def __del__(self) -> None:
        if self._thread is not None:
            self._queue.put(None)

    def _start_thread(self) -> None:
        # A daemon: at exit the interpreter waits for others before loaders are closed.
        thread = threading.Thread(target=_run, args=(self._queue,), name="hdmlp-pin", daemon=True)
        self._thread = thread  # before it runs, so that an interrupted start does not leak it
        try:
            start(thread)
        except RuntimeError:
            self._thread = None
            raise

    # What the source does.

    @property
    def broken(self) -> bool:
        """Whether the source can no longer be used."""
        return self._source.broken

    @property
    def position(self) -> int | None:
        """The position that :meth:`next` yields, or None if nothing is under way."""
        return self._source.position if self._taken is None else self._at

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""
        self._taken = None
        self._source.restart()

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; gives up what is made if it is not that."""
        if self._taken is not None:
            if position == self._at:
                return
            self._taken = None
        if position != self._source.position:
            self._give_up()
        self._source.seek(position)

    def renew(self, end: int | None) -> None:
        """Has new workers do what comes next; see :meth:`hdmlp._workers.pool.Pool.renew`."""
        assert isinstance(self._source, Pool)
        self._taken = None
        self._source.renew(end)

    def rest(self) -> None:
        """Has workers end or rest; see :meth:`hdmlp._workers.pool.Pool.rest`."""
        assert isinstance(self._source, Pool)
        self._taken = None
        self._source.rest()

    @property
    def end(self) -> int | None:
        """The position from which on nothing is handed out; None: there is none."""
        return self._source.end if isinstance(self._source, Pool) else None

    def start(self) -> None:
        """Has workers begin, before the first :meth:`next`."""
        assert isinstance(self._source, Pool)
        self._source.start()

    def _give_up(self) -> None:
        """Gives up the copies of what the source gives up."""
        self._taken = None
        while self._copies:
            self._copies.pop().given_up = True

    # Batches.

    def take(self, position: int) -> Taken | None:
        """Returns the batch at a position if it is copied and may still be yielded, else None."""
        copies = self._copies
        if self._taken is not None:
            return None
        if copies:
            if not copies[0].good:
                return None  # next() waits, or value() raises
        elif self._device.number is not None:
            return None
        taken = self._source.take(position)
        if taken is None or not copies:
            return taken
        taken.content = self._copied(taken).get()
        return taken

    def next(self, timeout: float = 0.0) -> Taken:
        """Waits for the next batch and takes it; its ``content`` is what :meth:`value` takes.

        Args:
            timeout: Seconds to wait at most, not counting the copy; 0 means no limit.

        Raises:
            ClosedError: There is no thread: the loader was closed in the meantime.
            HDMLPError: What the source raises.
        """
        source = self._source
        if self._taken is None:
            self._at = source.position
            self._taken = source.next(timeout)
        taken = self._taken
        self.stall, self.python = source.stall, source.python
        if self._device.number is not None or isinstance(taken.content, _Copy):
            copy = self._copied(taken)
            taken.content = copy
            if not copy.wait(0):
                begin = time.perf_counter_ns()
                self._wait(copy)
                waited = time.perf_counter_ns() - begin
                self.stall, self.python = self.stall + waited, self.python + waited
        self._taken = None
        return taken

    def value(self, content: Any) -> object:
        """Returns what a source made of a batch, in pinned memory.

        Args:
            content: That of a batch that :meth:`next` returned.

        Raises:
            Exception: What making the batch, or pinning it, raised.
        """
        return content.get() if isinstance(content, _Copy) else self._make(content)

    def _copied(self, taken: Taken) -> _Copy:
        """Returns the copy of a batch that the source has yielded, and begins the next ones."""
        copy = self._begin(taken.content)
        while self._copies and self._copies.popleft() is not copy:
            pass  # its batch was given up by the source
        if self._device.number is not None:
            self._source.begin(_MOST, self._begin)
        return copy

    def _begin(self, content: object) -> _Copy:
        """Has the thread copy a batch, if it was not asked before."""
        if isinstance(content, _Copy):
            return content
        assert self._device.number is not None
        if self._thread is None:
            self._start_thread()
        copy = _Copy(content, self._make, self._device.number)
        self._queue.put(copy)
        self._copies.append(copy)
        return copy

    def _wait(self, copy: _Copy) -> None:
        """Waits until the thread has made a copy."""
        while not copy.wait(_TICK):
            thread = self._thread
            if (thread is None or not thread.is_alive()) and not copy.wait(0):
                self._thread = self._taken = None
                raise _closed()


def _closed() -> ClosedError:
    return ClosedError("the loader was closed; iterate again")


def _as_it_is(content: object) -> object:
    return content
