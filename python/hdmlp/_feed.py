"""What an iteration takes its batches from, and what it gets."""

from __future__ import annotations

import weakref
from typing import Any, Callable, NamedTuple, Optional, Tuple

from ._stream import Stream, Taken
from .errors import ClosedError


class Feed:
    """Where the batches of one iteration at a time come from: the job, opened as one rank.

    Args:
        connect: opens it; returns the stream, and what stands in front of it: workers, or the stream itself.

    Attributes:
        stream, source: what ``connect`` returned; None: not open.
        user: the iteration that takes batches from it, or took the last one.
    """

    def __init__(self, connect: Callable[[], Tuple[Stream, Any]]):
        self._connect = connect
        self.stream: Optional[Stream] = None
        self.source: Any = None
        self.user: Optional["weakref.ref[Any]"] = None

    @property
    def free(self) -> bool:
        """True if no iteration that may go on uses it."""
        user = None if self.user is None else self.user()
        return user is None or user.over or user.failed

    def ready(self) -> Stream:
        """The stream, opened (again) if there is none that works."""
        if self.stream is None or self.source.broken:
            self.close()
            self.stream, self.source = self._connect()
        return self.stream

    def retire(self) -> None:
        """Closes it for good: an iteration that asks it for more is told so."""

        def refuse() -> Tuple[Stream, Any]:
            raise ClosedError(
                "the loader has gone on from a state of another seed: begin a new iteration"
            )

        self._connect = refuse
        self.close()

    def close(self) -> None:
        """Idempotent."""
        source, self.source = self.source, None
        stream, self.stream = self.stream, None
        if source is not None and source is not stream:
            source.close()
        if stream is not None:
            stream.close()


class Brought(NamedTuple):
    """A batch that was made.

    Attributes:
        taken: what it was made of.
        batch: what the user gets.
        error: in its place, what the user's code raised; None: nothing.
        stall: ns blocked for it in ``next()``; python: the part of them in which Python made it.
    """

    taken: Taken
    batch: Any
    error: Optional[Exception]
    stall: int
    python: int
