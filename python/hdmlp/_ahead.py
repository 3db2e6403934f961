"""Batches that are made ahead of ``next()``.

What a batch costs is mostly that a training step has emptied the processor's caches of the code that makes it: the second
batch made in one call takes a tenth of the time of the first. So whoever makes one makes a few more, of those that the daemon has
ready. What they consist of lies in shared memory either way.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable

from ._source import Taken
from ._stream import Stream
from .errors import HDMLPError

#: Batches that one call makes beside its own, at the most. Samples that are handed over where they lie take no room in the staging
#: buffer: without a limit the daemon could send them as fast as they are made, and the call would not end before the run does.
_MOST = 7


class Ahead:
    """Stands between the stream and the loader, and looks like a stream: ``position``, ``seek``, ``next``.

    Args:
        stream: where batches come from; its owner closes it.
        make: what becomes of a batch. It must not fail, nor do what the user could notice the time of.
    """

    def __init__(self, stream: Stream, make: Callable[[Taken], Any]):
        self._stream = stream
        self._make = make
        self._made: deque[Taken] = deque()
        self._error: HDMLPError | None = None  # of the stream, to raise after what is made
        self._error_at: int | None = None
        self.stall = self.python = 0

    @property
    def broken(self) -> bool:
        """True if it cannot be used any more."""
        return self._stream.broken and self._error is None

    def close(self) -> None:
        """Forgets what is made. Idempotent."""
        self._made.clear()

    @property
    def position(self) -> int | None:
        """What :meth:`next` yields next, or None if nothing comes."""
        if self._made:
            return self._position_of(self._made[0])
        return self._stream.position if self._error is None else self._error_at

    def _position_of(self, taken: Taken) -> int:
        return taken.epoch * self._stream.steps + taken.step

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, whatever was to come."""
        self._made.clear()
        self._error = None
        self._stream.restart()

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; what is made is given up if it is not that."""
        if position == self.position:
            return
        self._made.clear()
        self._error = None
        self._stream.seek(position)

    def take(self, position: int) -> Taken | None:
        """The batch at a position, if it is made and is still to be yielded; else None, as after :meth:`close`."""
        if not self._made:
            return None
        taken, stream = self._made[0], self._stream
        if taken.epoch * stream.steps + taken.step != position or stream.ends(position):
            return None
        return self._made.popleft()

    def next(self, timeout: float = 0.0) -> Taken:
        """The next batch, with what was made of it as its ``content``. Waits for it, and raises, as :meth:`Stream.next` does."""
        made = self._made
        if made and self._stream.ends(self._position_of(made[0])):
            made.clear()  # the stream's error comes
        if made:
            self.stall = 0
            return made.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        taken = self._stream.next(timeout)
        self.stall = self._stream.stall
        first = taken._replace(content=self._make(taken))
        self._make_the_rest()
        return first

    def _make_the_rest(self) -> None:
        """Makes what has come behind it, up to a limit."""
        while self._error is None and len(self._made) < _MOST:
            expected = self._stream.position
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
            self._made.append(taken._replace(content=self._make(taken)))
