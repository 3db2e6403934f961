"""What an iteration takes its batches from, and what it gets."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

from ._source import BatchSource, Taken
from ._stream import Stream
from .errors import ClosedError


class User(Protocol):
    """An iteration, as its feed sees it.

    Attributes:
        over: It yields no further batch.
        failed: Its last ``next()`` raised, so it may not go on.
    """

    over: bool
    failed: bool


class Feed:
    """The batches of one iteration at a time: the job, opened as one rank.

    Args:
        connect: Opens the job. Returns the stream, and what batches are taken from: the stream, or
            the source in front of it.

    Attributes:
        user: The iteration that takes batches from the feed, or that took the last one.
    """

    def __init__(self, connect: Callable[[], tuple[Stream, BatchSource]]):
        self._connect = connect
        self._stream: Stream | None = None
        self._source: BatchSource | None = None
        self.user: weakref.ref[User] | None = None

    @property
    def is_open(self) -> bool:
        """Reports whether there is a stream, which may be broken."""
        return self._stream is not None

    @property
    def broken(self) -> bool:
        """Reports whether :meth:`ready` must open the job before a batch can be taken."""
        return self._source is None or self._source.broken

    @property
    def stream(self) -> Stream:
        """The daemon's stream.

        Raises:
            ClosedError: The feed is not open.
        """
        if self._stream is None:
            raise _closed()
        return self._stream

    @property
    def source(self) -> BatchSource:
        """What batches are taken from.

        Raises:
            ClosedError: The feed is not open.
        """
        if self._source is None:
            raise _closed()
        return self._source

    @property
    def free(self) -> bool:
        """Reports whether another iteration may have it: no user of it may go on."""
        return self.user is None or self._over(self.user())

    @staticmethod
    def _over(user: User | None) -> bool:
        return user is None or user.over or user.failed

    def used_by(self, user: User) -> bool:
        """Reports whether the iteration is the feed's last user."""
        return self.user is not None and self.user() is user

    def ready(self) -> Stream:
        """Returns the stream, after opening it if there is none that works."""
        if self._stream is None or self.broken:
            self.close()
            self._stream, self._source = self._connect()
        return self._stream

    def restart(self) -> None:
        """Has the source, if there is one, ask the daemon for what comes next."""
        if self._source is not None:
            self._source.restart()

    def retire(self) -> None:
        """Closes the feed for good: an iteration that asks it for more gets a ClosedError."""

        def refuse() -> NoReturn:
            raise ClosedError(
                "the loader resumed from a state with another seed; start a new iteration"
            )

        self._connect = refuse
        self.close()

    def close(self) -> None:
        """Closes the source and the stream. Idempotent."""
        source, self._source = self._source, None
        stream, self._stream = self._stream, None
        if source is not None and source is not stream:
            source.close()
        if stream is not None:
            stream.close()


def _closed() -> ClosedError:
    return ClosedError("the loader is closed")


class Brought(NamedTuple):
    """A batch that was made.

    Attributes:
        taken: What it was made of.
        batch: What the user gets.
        error: What the user's code raised in its place; None if it raised nothing.
        stall: Nanoseconds that ``next()`` blocked for it.
        python: Nanoseconds, of ``stall``, for which Python code was making it.
    """

    taken: Taken
    batch: Any
    error: Exception | None
    stall: int
    python: int
