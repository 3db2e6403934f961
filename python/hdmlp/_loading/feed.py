"""What an iteration takes its batches from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NoReturn, Protocol

from .._batches.source import BatchSource
from .._batches.stream import Stream
from ..errors import ClosedError, HDMLPError


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
        step: The number in the epoch of the batch that is brought, where the job's order is only a
            part of the epoch; None: it is that of the job.
    """

    def __init__(self, connect: Callable[[], tuple[Stream, BatchSource]]):
        self._connect = connect
        self._stream: Stream | None = None
        self._source: BatchSource | None = None
        self.user: weakref.ref[User] | None = None
        self.step: int | None = None

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

    def working(self) -> tuple[Stream, BatchSource]:
        """Returns the stream and the source, after opening them if they do not work."""
        stream, source = self._stream, self._source
        if stream is None or source is None or source.broken:
            self.close()
            stream, source = self._stream, self._source = self._connect()
        return stream, source

    def ready(self) -> Stream:
        """Returns the stream, after opening it if there is none that works."""
        return self.working()[0]

    def seek(self, position: int) -> bool:
        """Makes ``position`` what comes next; reports whether the daemon had to be asked.

        The daemon then audits the epoch from there.
        """
        if self.source.position == position:
            return False
        self.source.seek(position)
        return True

    def raised(self, error: HDMLPError) -> None:
        """Tells the daemon that the loop gets an error, if it ended the stream."""
        if self._stream is not None:
            self._stream.raised(error)

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
        # Forgotten once they are closed: an exception of a signal's handler may end this anywhere.
        source, stream = self._source, self._stream
        try:
            if source is not None and source is not stream:
                source.close()
        finally:  # Ctrl-C may end a wait for workers or a thread
            if stream is not None:
                stream.close()
            if self._stream is stream:
                self._source = self._stream = None


def _closed() -> ClosedError:
    return ClosedError("the loader is closed")


class Owner(Protocol):
    """What opens the jobs of feeds, and is referred to weakly by them."""

    def _connect(self, number: int) -> tuple[Stream, BatchSource]:
        """Opens the job for the feed of this number."""


class Feeds:
    """The feeds of a loader, one for each iteration that lives at the same time.

    Not safe for concurrent use: the loader's lock guards it.

    Args:
        owner: The loader.
    """

    def __init__(self, owner: Owner):
        self._owner = weakref.ref(owner)
        self._feeds: list[Feed] = []

    def __len__(self) -> int:
        return len(self._feeds)

    def __getitem__(self, number: int) -> Feed:
        return self._feeds[number]

    def first(self) -> Feed:
        """Returns the first feed, which has an iteration's stream or waits for one."""
        return self._feeds[0] if self._feeds else self._add()

    def free(self) -> Feed:
        """Returns a feed that no other iteration uses."""
        return next((feed for feed in self._feeds if feed.free), None) or self._add()

    def of(self, user: User) -> tuple[int, Feed]:
        """Returns the iteration's feed, or one that no other iteration uses, and its number."""
        for number, feed in enumerate(self._feeds):
            if feed.free or feed.used_by(user):
                feed.user = weakref.ref(user)
                return number, feed
        feed = self._add()
        feed.user = weakref.ref(user)
        return len(self._feeds) - 1, feed

    def index(self, feed: Feed) -> int:
        """Returns the feed's number."""
        return self._feeds.index(feed)

    @property
    def open(self) -> bool:
        """Reports whether this process has a connection of a job, whether it works or not."""
        return any(feed.is_open and not feed.stream.closed for feed in self._feeds)

    @property
    def used(self) -> bool:
        """Reports whether an iteration may go on to take batches."""
        return any(feed.is_open and not feed.free for feed in self._feeds)

    def _add(self) -> Feed:
        number, reference = len(self._feeds), self._owner

        def connect() -> tuple[Stream, BatchSource]:
            owner = reference()
            if owner is None:
                raise _closed()
            return owner._connect(number)

        self._feeds.append(Feed(connect))
        return self._feeds[-1]

    def retire(self) -> None:
        """Closes all feeds for good, and forgets them."""
        for feed in self._feeds:
            feed.retire()
        self._feeds.clear()

    def close(self) -> None:
        """Closes all feeds. Idempotent."""
        for feed in self._feeds:
            feed.close()
