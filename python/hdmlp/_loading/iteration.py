"""The batches of one epoch, as a loader yields them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from .._batches.source import Taken
from .._launch.place import Place
from .._lib.interrupts import interrupts
from ..errors import HDMLPError, StallTimeoutError
from .audit import check_batch
from .bring import blocked, bring, now
from .delivered import Part, continued
from .feed import Feed
from .reports import Counts
from .state import Cursor

NOT_COPIED = (
    "an iterator over a loader can be neither pickled nor copied: pickle or copy the loader, "
    "whose state_dict() has the position"
)

_MASK = 0xFFFFFFFFFFFFFFFF


class Epochs(Protocol):
    """A loader, as its iterations see it (:class:`hdmlp._loading.base_loader.Loader`)."""

    timeout: float
    _counts: Counts
    _cursor: Cursor
    _verify: bool
    _works: bool
    _finishes: bool

    @property
    def _place(self) -> Place: ...
    @property
    def world_size(self) -> int: ...
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
    of the user's transform) the source is given the position at which the next batch is.

    ``next()`` has a short way, for batches that were made ahead. After a training step the
    processor's caches hold none of this code, so what ``next()`` costs is how much of it runs.

    Threads that share an iteration are given its batches in turn.

    An exception may strike anywhere: Ctrl-C, or a signal handler's that the loop catches. No batch
    is lost by it. A batch is kept, with what is true once it is counted, until ``next()`` returns.
    One that was not kept is brought again; one that was is returned by the thread's following
    ``next()``, and until then the loader's state does not count it.

    Attributes:
        position: The position of the next batch.
        end: The position after the epoch's last batch.
        audit: The sum of the yielded batches' audits, modulo 2^64, since the daemon was sent where
            they begin: a new one does not know what was yielded before.
        over: No batch follows.
        failed: The last ``next()`` raised. It may be called again, but the feed may then serve
            another iteration, as the exception may keep this one alive without further use.
        before: Called before the first batch is taken; None means nothing is.
    """

    __slots__ = (
        "__weakref__",
        "_ack",
        "_delivered",
        "_feed",
        "_first",
        "_kept",
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
        self.position = self.end = self.audit = self._first = 0
        self.over = self.failed = False
        self._loader = loader
        self._feed: Feed | None = None  # None before the first batch
        self._whole = False  # the epoch is yielded from its first batch on
        self._number = 0  # in the loader's cursor
        self._delivered = Part(0, 0, 0, 0)
        # Of the feed's source and stream, when the last batch was not made ahead.
        self._take: Callable[[int], Taken | None] | None = None
        self._ack: Callable[[int, int, int, int, int], None] | None = None
        self._turn = threading.Lock()
        # By thread: the position after a batch that was not returned, the audit, the batch, and
        # what was delivered with it, and without it.
        self._kept: dict[int, tuple[int, int, object, Part, Part]] = {}

    def __getstate__(self) -> object:
        raise NotImplementedError(NOT_COPIED)

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> object:
        thread = threading.get_ident()
        try:
            with self._turn:
                if thread in self._kept:
                    self._count(self._kept[thread])
                else:
                    self._advance(thread)
            batch = self._kept[thread][2]
            del self._kept[thread]  # after this nothing is called before the return
            return batch
        except BaseException as error:
            if interrupts(error):
                self.failed = True  # the feed may not work any more
            if thread in self._kept:
                self._count(self._kept[thread], 1)
            elif self._feed is not None and self.position == self._first:
                self._give_epoch_back(error)
            raise

    def _advance(self, thread: int) -> None:
        """Keeps the next batch for the thread."""
        if self.over:
            raise StopIteration
        if self._take is not None and self.position != self.end and not self.failed:
            taken = self._take(self.position)
            if taken is not None:
                self._yielded(taken, 0, 0, thread, taken.content)
                return
        self._next(thread)

    def _count(self, kept: tuple[int, int, object, Part, Part], missing: int = 0) -> None:
        """Counts a batch that is kept. May be called again.

        Args:
            kept: The batch.
            missing: 1 if it does not reach the loop now.
        """
        position, audit, _, delivered, before = kept
        if position > self.position:
            self.position, self.audit, self._delivered = position, audit, delivered
        cursor = self._loader._cursor
        if cursor.iteration == self._number and position == self.position:
            cursor.position = position - missing
            cursor.delivered = before if missing else delivered
            if not cursor.jumped:
                cursor.start = self.end

    def __len__(self) -> int:
        """Returns the number of batches that are left."""
        if self.over:
            return len(self._kept)
        if self._feed is not None:
            return self.end - self.position + len(self._kept)
        steps = self._loader.steps
        return steps - self._loader._cursor.start % steps if steps else 0

    def begin(self, feed: Feed, end: int, whole: bool) -> None:
        """Starts where the loader's cursor is, and moves that.

        Args:
            feed: Where batches come from.
            end: The position after the last batch.
            whole: The first batch is the epoch's.
        """
        feed.user = weakref.ref(self)
        loader, cursor = self._loader, self._loader._cursor
        earlier, delivered = continued(
            cursor.earlier, cursor.delivered, loader._place, loader.steps, cursor.start
        )
        # Nothing is called from here on, or a signal's handler might run in between.
        cursor.iteration += 1
        cursor.earlier, cursor.delivered = earlier, delivered
        self._delivered = delivered
        cursor.position = cursor.start
        cursor.start = cursor.end = end
        cursor.jumped = False
        self._number, self._whole = cursor.iteration, whole
        self.position = self._first = cursor.position
        self.end, self._feed = end, feed

    def _next(self, thread: int) -> None:
        """Brings the next batch, waiting for it.

        Takes an epoch first, if there is none; opens the feed if it does not work; brings the
        batch; counts it, even if the user's code failed for it, as it does not come again.
        """
        begin = now()
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
        self._take = None if loader._finishes else source.take
        self._ack = stream.ack
        if feed.seek(self.position):
            self.audit = 0
        try:
            brought = bring(
                feed, source, self.position, loader._make, loader.timeout, loader._works
            )
        except BaseException:
            self.failed = True
            raise
        stall, python = blocked(begin, brought, loader._works)
        lost = brought.error is not None
        self._yielded(brought.taken, stall, python, thread, brought.batch, lost)
        if brought.error is not None:
            try:
                raise brought.error
            finally:
                # The error's traceback has this frame, which would keep the batch's memory.
                self._kept.pop(thread, None)
                del brought

    def _give_epoch_back(self, error: BaseException) -> None:
        """Leaves the epoch to the next iteration, as this one has no batch of it.

        Unless the daemon ended the streams of several ranks: then others may have a batch of it,
        and all go on with the next epoch.
        """
        own = not isinstance(error, HDMLPError) or isinstance(error, StallTimeoutError)
        if own or self._loader.world_size == 1:
            self._loader._cursor.give_back(self._number)

    def _yielded(
        self,
        taken: Taken,
        stall: int,
        python: int,
        thread: int,
        batch: object,
        lost: bool = False,
    ) -> None:
        """Keeps what was made of a batch for the thread, counts it, and notifies the daemon.

        Args:
            taken: The batch.
            stall: Nanoseconds that ``next()`` blocked for it.
            python: Nanoseconds, of ``stall``, for which Python code was making it.
            thread: Which thread gets it.
            batch: What it gets.
            lost: It gets an exception instead, and the batch does not come again: what was
                delivered has its step, but not its samples.
        """
        loader = self._loader
        if loader._verify:
            check_batch(taken)
        counts = loader._counts
        if stall:
            counts.waited(stall, python)
        audit, had = taken.audit, self._delivered
        added, n = (0, 0) if lost else (audit, taken.n)
        has = Part(had.begin, had.end + 1, (had.sum + added) & _MASK, had.samples + n, had.id)
        kept = self.position + 1, (self.audit + audit) & _MASK, batch, has, had
        self._kept[thread] = kept
        self._count(kept)
        counts.batches += 1
        counts.samples += taken.n
        self._ack(taken.epoch, taken.step, stall, python, self.audit)  # type: ignore[misc]
