"""The batches of one epoch, as a loader yields them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from .._batches.source import Taken
from .audit import check_batch
from .bring import bring
from .feed import Feed
from .reports import Counts
from .state import Cursor

_MASK = 0xFFFFFFFFFFFFFFFF


class Epochs(Protocol):
    """A loader, as its iterations see it (:class:`hdmlp._loading.base_loader.Loader`)."""

    timeout: float
    _counts: Counts
    _cursor: Cursor
    _verify: bool
    _works: bool

    @property
    def steps(self) -> int: ...
    def _take_epoch(self, iteration: Iteration) -> Feed: ...
    def _take_again(self, iteration: Iteration, feed: Feed) -> Feed: ...
    def _make(self, feed: Feed, taken: Taken) -> object: ...
    def _finish_epoch(self, feed: Feed, epoch: int) -> None: ...
    def _rest(self, feed: Feed) -> None: ...


class Iteration:
    """An iterator over the batches of one epoch.

    The epoch is taken with the first batch, and the source of the batches with it. An iteration
    counts what it has yielded; the source runs ahead. After an interruption (Ctrl-C, an exception
    of the user's transform) the source is told the position at which the next batch is.

    ``next()`` has a short way, for batches that were made ahead. After a training step the
    processor's caches hold none of this code, so what ``next()`` costs is how much of it runs.

    Threads that share an iteration are given its batches in turn.

    Attributes:
        position: The position of the next batch.
        end: The position after the epoch's last batch.
        audit: The sum of the yielded batches' audits, modulo 2^64, since the daemon was told where
            they begin: a new one does not know what was yielded before.
        over: No batch follows.
        failed: The last ``next()`` raised. It may be called again, but the feed may then serve
            another iteration, as the exception may keep this one alive without further use.
        before: Called before the first batch is taken; None means nothing is.
    """

    __slots__ = (
        "__weakref__",
        "_ack",
        "_feed",
        "_loader",
        "_number",
        "_take",
        "_turn",
        "_whole",
        "audit",
        "before",
        "end",
        "failed",
        "over",
        "position",
    )

    def __init__(self, loader: Epochs):
        self.before: Callable[[], None] | None = None
        self.position = self.end = self.audit = 0
        self.over = self.failed = False
        self._loader = loader
        self._feed: Feed | None = None  # None before the first batch
        self._whole = False  # the epoch is yielded from its first batch on
        self._number = 0  # in the loader's cursor
        # Of the feed's source and stream, when the last batch was not made ahead.
        self._take: Callable[[int], Taken | None] | None = None
        self._ack: Callable[[int, int, int, int, int], None] | None = None
        self._turn = threading.Lock()

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> object:
        with self._turn:
            if self.over:
                raise StopIteration
            if self._take is not None and self.position != self.end and not self.failed:
                taken = self._take(self.position)
                if taken is not None:
                    self._yielded(taken, 0, 0)
                    return taken.content
            return self._next()

    def __len__(self) -> int:
        """Returns the number of batches that are left."""
        if self.over:
            return 0
        if self._feed is not None:
            return self.end - self.position
        steps = self._loader.steps
        return steps - self._loader._cursor.start % steps if steps else 0

    def begin(self, feed: Feed, number: int, begin: int, end: int, whole: bool) -> None:
        """Starts at a position.

        Args:
            feed: Where batches come from.
            number: The iteration's number in the loader's cursor.
            begin: The position of the first batch.
            end: The position after the last one.
            whole: ``begin`` is the epoch's first batch.
        """
        self._feed, self._number, self._whole = feed, number, whole
        self.position, self.end = begin, end
        feed.user = weakref.ref(self)

    def _next(self) -> object:
        """Returns the next batch, waiting for it.

        Takes an epoch first, if there is none; opens the feed if it does not work; brings the
        batch; counts it, even if the user's code failed for it, as it does not come again.
        """
        loader, feed = self._loader, self._feed
        if feed is None:
            if not loader.steps:
                raise StopIteration
            feed = loader._take_epoch(self)
        if self.failed:
            feed = self._feed = loader._take_again(self, feed)
            self.failed = False
        if self.position == self.end:
            self.over = True
            loader._rest(feed)
            if self._whole:
                loader._finish_epoch(feed, self.position // loader.steps - 1)
            raise StopIteration
        stream, source = feed.working()
        self._take, self._ack = source.take, stream.ack
        if feed.seek(self.position):
            self.audit = 0
        try:
            brought = bring(
                feed, source, self.position, loader._make, loader.timeout, loader._works
            )
        except BaseException:
            self.failed = True
            raise
        self._yielded(brought.taken, brought.stall, brought.python)
        if brought.error is not None:
            try:
                raise brought.error
            finally:
                # The error's traceback has this frame, which would keep the batch's memory.
                del brought
        return brought.batch

    def _yielded(self, taken: Taken, stall: int, python: int) -> None:
        """Counts a batch, and tells the daemon.

        Args:
            taken: The batch.
            stall: Nanoseconds that ``next()`` blocked for it.
            python: Nanoseconds, of ``stall``, for which Python code was making it.
        """
        loader = self._loader
        if loader._verify:
            check_batch(taken)
        self.audit = (self.audit + taken.audit) & _MASK
        self.position += 1
        cursor, counts = loader._cursor, loader._counts
        if cursor.iteration == self._number:
            cursor.position = self.position
        counts.batches += 1
        counts.samples += taken.n
        if stall:
            counts.waited(stall, python)
        self._ack(taken.epoch, taken.step, stall, python, self.audit)  # type: ignore[misc]
