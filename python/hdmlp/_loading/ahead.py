"""Batches that are made ahead of ``next()``.

Most of what a batch costs is that a training step has evicted the code that makes it from the
processor's caches: the second batch made in one call takes a tenth of the time of the first. So
whenever one batch has to be made, a few more of those that are ready are made with it. The memory
that they consist of is shared with the daemon either way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from .._batches.segments import forget_in_child
from .._batches.source import Taken
from .._batches.stream import Stream
from ..errors import HDMLPError

#: The most batches that one call makes in addition to its own. Samples that are delivered in place
#: from the cache take no room in the staging buffer: without a limit the daemon could send them as
#: fast as they are made, and the call would not end before the run does.
_MOST = 7


class NotMade:
    """What takes the place of a batch whose making failed.

    Args:
        error: Why.
    """

    def __init__(self, error: Exception):
        self.error = error


class Ahead:
    """A source in front of a stream.

    Args:
        stream: Where batches come from; its owner closes it.
        make: What becomes of a batch. It must have no side effects visible to the user, and must
            not fail, except for a batch with samples that the daemon leaves to Python.

    Attributes:
        stall: Nanoseconds for which the last :meth:`next` blocked.
        python: Nanoseconds, of ``stall``, for which Python made the batch: 0 unless samples were
            left to it.
    """

    def __init__(self, stream: Stream, make: Callable[[Taken], object]):
        self._stream = stream
        self._make = make
        self._made: deque[Taken] = deque()
        self._error: HDMLPError | None = None  # of the stream, to raise after what is made
        self._error_at: int | None = None
        self.stall = self.python = 0
        forget_in_child(self)

    def forget(self) -> None:
        """Forgets what is made."""
        self._made.clear()

    @property
    def broken(self) -> bool:
        """Whether the source can no longer be used."""
        return self._stream.broken and self._error is None

    def close(self) -> None:
        """Forgets what is made. Idempotent."""
        self._made.clear()

    @property
    def position(self) -> int | None:
        """The position that :meth:`next` yields, or None if nothing is under way."""
        if self._made:
            return self._position_of(self._made[0])
        return self._stream.position if self._error is None else self._error_at

    def _position_of(self, taken: Taken) -> int:
        return taken.epoch * self._stream.steps + taken.step

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""
        self._made.clear()
        self._error = None
        self._stream.restart()

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; gives up what is made if it is not that."""
        if position == self.position:
            return
        if self._made:
            # Even to where the stream goes on, as the daemon waits until these have been yielded.
            self._made.clear()
            self._stream.restart()
        self._error = None
        self._stream.seek(position)

    def take(self, position: int) -> Taken | None:
        """Returns the batch at a position if it is made and may still be yielded, else None."""
        if not self._made:
            return None
        taken, stream = self._made[0], self._stream
        if taken.epoch * stream.steps + taken.step != position or stream.ends(position):
            return None
        if taken.left:
            return None  # its content may be a NotMade
        return self._made.popleft()

    def next(self, timeout: float = 0.0) -> Taken:
        """Waits for the next batch and takes it; its ``content`` is what was made of it.

        That may be a :class:`NotMade` if samples of it are left to Python.

        Args:
            timeout: Seconds to wait at most; 0 means no limit.

        Raises:
            StallTimeoutError: The time is up.
            HDMLPError: What :meth:`Stream.next` raises.
        """
        made = self._made
        if made and self._stream.ends(self._position_of(made[0])):
            made.clear()  # the stream's error comes
        if made:
            self.stall = self.python = 0
            return made.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        first = self._stream.next(timeout)
        self.stall, self.python = self._stream.stall, 0
        if first.left:
            begin = time.perf_counter_ns()
            first.content = self._make_left(first)
            self.python = time.perf_counter_ns() - begin
            self.stall += self.python
        else:
            first.content = self._make(first)
        if not self._stream.drained:
            self._make_the_rest()
        return first

    def begin(self, count: int, start: Callable[..., object]) -> None:
        """Begins what else is done with batches before they are yielded.

        Args:
            count: With how many of the next batches, as far as they are ready.
            start: Called with the content of each; what it returns takes its place. It is called
                again with what it has returned.
        """
        made = self._made
        if len(made) < count:
            self._make_the_rest()
        for i in range(min(count, len(made))):
            made[i].content = start(made[i].content)

    def _make_the_rest(self) -> None:
        """Makes what has come after it, up to a limit."""
        while self._error is None and len(self._made) < _MOST:
            expected = self._stream.position
            try:
                taken = self._stream.poll()
            except HDMLPError as error:
                # Its frames would keep the iterator alive.
                self._error, self._error_at = error.with_traceback(None), expected
                return
            if taken is None:
                return
            taken.content = self._make_left(taken) if taken.left else self._make(taken)
            self._made.append(taken)
            if taken.left:
                return  # it took its time

    def _make_left(self, taken: Taken) -> object:
        """Makes a batch with samples that are left to Python; NotMade if that fails."""
        try:
            return self._make(taken)
        except Exception as error:
            # Its frames would keep the batch, and the iterator, alive.
            for one in (error, error.__cause__, error.__context__):
                if one is not None:
                    one.__traceback__ = None
            return NotMade(error)
