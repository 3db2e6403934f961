"""What all loaders have in common: a job opened as one rank, iterated epoch by epoch.

A loader consists of

- a session, which opens the job (:mod:`hdmlp._loading.session`);
- feeds, one for each iteration that lives at the same time, each with a stream of its own, which
  is opened again when it breaks (:mod:`hdmlp._loading.feed`);
- a cursor, which is where the next iteration begins (:mod:`hdmlp._loading.state`);
- counts of what was yielded (:mod:`hdmlp._loading.reports`).

Iterations (:mod:`hdmlp._loading.iteration`) refer to their loader, and feeds to the loader weakly.
So a loader and its connections go when the last reference of the program goes.
"""

from __future__ import annotations

import atexit
import copy
import logging
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from .._batches.output import Output
from .._batches.source import BatchSource, Taken
from .._batches.stream import Stream
from .._daemon import connecting
from .._launch.place import Place
from .._lib.arguments import whole_number
from .._lib.progress import Progress
from .._lib.protocol import LAST_EPOCH
from .._lib.typing import Opened
from .._records.records import Listed
from ..errors import BusyError, ClosedError, DaemonDiedError, EndError
from . import delivered as _delivered
from . import state as _state
from .audit import check_epoch
from .bring import Brought, bring
from .feed import Feed, Feeds
from .iteration import Iteration
from .options import Options
from .reports import Counts, Explanation, Report, Stats, explain, report
from .session import Session

log = logging.getLogger("hdmlp")

_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_loaders):
        loader.close()


class Loader:
    """Base class of the loaders whose batches the daemon serves.

    A sub-class defines in ``_make`` what becomes of a batch. A loader is for one thread at a time.
    In a process forked from its own it opens a connection of its own when it is used.

    Args:
        dataset: The dataset.
        options: What the job is opened with.
        opens: Open the job now; otherwise the first use does.
    """

    #: Whether Python does more for a batch, in ``next()``, than handing over what the daemon made.
    _works = False

    #: Whether it does so for batches that were made ahead as well.
    _finishes = False

    def __init__(self, dataset: Any, options: Options, *, opens: bool = True):
        stream = options.stream
        self.dataset: Any = dataset
        self.epochs = stream.epochs
        self.drop_last = stream.drop_last
        self.timeout = options.timeout
        self._session = Session(dataset, options)
        self._verify = options.verify
        self._limited = stream.limited
        self._said_unplanned = False
        self._seed_replaceable = stream.seed_replaceable
        self._counts = Counts()
        self._closed = False
        self._turn = threading.RLock()  # guards _cursor.start and _feeds: threads may begin at once
        self._cursor = _state.Cursor()
        self._feeds = Feeds(self)
        _loaders.add(self)
        if opens:
            self._ready()

    # Connections.

    def _connect(self, number: int) -> tuple[Stream, BatchSource]:
        """Opens the job for the feed of this number."""
        if self._closed:
            raise ClosedError("the loader is closed")
        first = self._session.opened is None
        stream, source = self._session.connect(number, self._open_stream, self._replace_earlier)
        if first:
            opened = stream.opened
            self._cursor.settle(int(opened.get("epoch", 0)) * int(opened["steps"]))
        return stream, source

    def _replace_earlier(self) -> bool:
        """Closes an earlier loader of this process that has the name of this one's job.

        A notebook's cell that makes a loader makes it again while the variable still has the first.

        Returns:
            Whether there was one.

        Raises:
            BusyError: There is, and an iteration over it, or another rank, may go on.
        """
        for other in list(_loaders):
            if other is self or not other._feeds.open:
                continue
            if not other._session.is_named_as(self._session):
                continue
            name = self._session.name
            if other._feeds.used or self.world_size > 1:
                why = "an iteration over it is not over"
                if self.world_size > 1:
                    why = f"is rank {self.rank} of {self.world_size} as well"
                raise BusyError(
                    f"name={name!r}: an earlier loader of this process has this name, and {why}: "
                    "close() that loader first, or give this one another name"
                )
            log.warning(
                "name=%r: an earlier loader of this process has this name; it is closed, and this "
                "one takes its place",
                name,
            )
            other.close()
            return True
        return False

    def _open_stream(
        self, client: connecting.Client, request: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[Stream, BatchSource]:
        """Opens the stream; see :data:`hdmlp._loading.session.Opener`."""
        stream = Stream(client, request, Progress(), fds=fds)
        return stream, stream

    def _ready(self) -> Stream:
        """Returns the stream of the first feed, opened (again) if there is none that works."""
        with self._turn:
            if self._closed:
                raise ClosedError("the loader is closed")
            feed = self._feeds.first()
            if feed.is_open and not feed.free:
                return feed.stream  # its user, which may be taking a batch, opens it again
            return feed.ready()

    def close(self) -> None:
        """Leaves the job. Batches that the program keeps stay valid. Idempotent."""
        self._closed = True
        self._feeds.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, contextlib may be gone before
            self.close()
        except Exception:
            pass

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_feeds": None, "_turn": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _turn=threading.RLock(), _feeds=Feeds(self))
        self._session = self._session.copy()
        self._cursor, self._counts = copy.copy(self._cursor), copy.copy(self._counts)
        _loaders.add(self)

    # What it is.

    @property
    def _facts(self) -> Opened:
        """The OPENED object."""
        if self._session.opened is None:
            return self._ready().opened
        return self._session.opened

    @property
    def _place(self) -> Place:
        return self._session.place

    @property
    def _spec(self) -> dict[str, Any]:
        return self._session.spec

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return int(self._facts["steps"])

    def __len__(self) -> int:
        """Returns the number of batches per epoch of this rank."""
        return self.steps

    @property
    def samples(self) -> int:
        """The number of samples in the dataset."""
        return int(self._facts["samples"])

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return list(self._facts["classes"])

    @property
    def seed(self) -> int:
        """The seed of the order, drawn by the daemon if none was given."""
        return int(self._facts["seed"])

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._place.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._place.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return int(self._spec["global_batch"])

    @property
    def output(self) -> Output | None:
        """What the daemon's transforms make of a sample; None if there are no transforms."""
        return self._ready().output

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0.

        A new loader is in epoch 0, or with ``share_join=True`` in that of its group.
        """
        steps = self.steps  # opens the job, which determines where it begins
        return self._cursor.next // steps if steps else 0

    # Iteration.

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration yields; by default it is the one after the last.

        May be called as often as one likes, as scripts for ``DistributedSampler`` do.

        Args:
            epoch: The epoch, from 0.

        Raises:
            ConfigError: It is no whole number, negative, or above 2^32 - 2.
        """
        epoch = whole_number("epoch", epoch, 0, LAST_EPOCH)
        steps, start = self.steps, self._cursor.start
        # After load_state_dict() the next iteration may begin in the middle of this epoch.
        stays = not steps or start // steps == epoch
        self._cursor.jump(start if stays else epoch * steps)

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the next epoch, or the rest of one after :meth:`load_state_dict`.

        The epoch is taken with the first batch: an iterator that is never asked for one takes none.
        Several iterators may live at the same time, each in an epoch of its own.

        Returns:
            An iterator over the epoch's batches.

        Raises:
            EndError: With the first batch, if there are only ``epochs`` epochs.
        """
        self._ready()
        return Iteration(self)

    def _take_epoch(self, iteration: Iteration) -> Feed:
        """Gives an iteration its epoch; returns its feed."""
        with self._turn:
            if iteration.before is not None:
                iteration.before()
            return self._begin(iteration)

    def _begin(self, iteration: Iteration) -> Feed:
        """Does what :meth:`_take_epoch` describes, under ``_turn``."""
        steps, start = self.steps, self._cursor.start
        epoch = whole_number("epoch", start // steps, 0, LAST_EPOCH)
        unplanned = self.epochs is not None and epoch >= self.epochs
        if unplanned and self._limited:
            iteration.over = True
            raise EndError(
                f"epoch {epoch} is out of range: the loader was made with epochs={self.epochs} "
                f"(0 to {self.epochs - 1}): give a larger epochs="  # type: ignore[operator]
            )
        self._ready()
        feed = self._feeds.free()
        if unplanned:
            self._say_unplanned(epoch)
            if epoch == self.epochs:
                feed.restart()  # the END after the last epoch may still be on its way
        end = (epoch + 1) * steps
        iteration.begin(feed, end, whole=start % steps == 0)
        return feed

    def _say_unplanned(self, epoch: int) -> None:
        """Logs once that an epoch is after the last that was planned."""
        if self._said_unplanned:
            return
        self._said_unplanned = True
        log.warning(
            "epoch %d is after the last of epochs=%d: it is delivered, but caches are not planned "
            "for it; give a larger epochs=",
            epoch,
            self.epochs,
        )

    def _take_again(self, iteration: Iteration, feed: Feed) -> Feed:
        """Returns the feed with which an iteration that failed goes on.

        It is its own, or another one if that was given away.
        """
        with self._turn:
            if not feed.used_by(iteration):
                self._ready()
                feed = self._feeds.free()
                feed.user = weakref.ref(iteration)
            return feed

    @property
    def works(self) -> bool:
        """Whether Python does more for a batch than handing over what the daemon made."""
        return self._works

    def _bring(self, feed: Feed, position: int) -> Brought:
        """Takes the batch at a position from the feed, and makes what the user gets of it."""
        return bring(feed, feed.source, position, self._make, self.timeout, self._works)

    def _make(self, feed: Feed, taken: Taken) -> object:
        """Returns what the user gets for a batch that came from the feed."""
        raise NotImplementedError

    def _finish_epoch(self, feed: Feed, epoch: int) -> None:
        """Checks an epoch that was yielded from its first batch on, if ``verify`` is set."""
        if self._verify:
            check_epoch(feed.ready(), epoch)

    def _rest(self, feed: Feed) -> None:
        """Ends what makes batches from the feed, whose iteration yields no further one."""

    # State.

    def _identity(self) -> dict[str, Any]:
        mine = _state.identity(self._spec, self._facts, self._session.subset)
        if self.dataset.may_change:
            mine["fingerprint"] = self.dataset._facts["fingerprint"]
        return mine

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loader is, by batches yielded.

        The state is small and JSON-compatible.

        Returns:
            ``epoch`` and ``step`` of the next batch, and what the order depends on, which is the
            same on all ranks; and ``delivered``, what this rank was given so far, of which
            ``hdmlp verify`` proves that nothing came twice and nothing was left out.
        """
        cursor, steps = self._cursor, self.steps
        delivered = _delivered.parts(cursor.earlier, cursor.delivered, self._place, steps)
        return _state.save(self._identity(), steps, cursor.next, delivered)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from a state: the next iteration yields the rest of its epoch.

        No batch before it is read again. The world size may differ, the global batch size may not.
        A loader without a seed takes the state's.

        Args:
            state: What :meth:`state_dict` returned, on any rank.

        Raises:
            MismatchError: The state is of another dataset, seed, order or global batch size.
            ConfigError: It is no state of such a loader.
        """
        _state.check(state)
        mine = self._identity()
        adopts = self._seed_replaceable and state.get("seed") != mine["seed"]
        if adopts:
            mine["seed"] = whole_number("state['seed']", state.get("seed"), 0)
        _state.compare(state, mine, _state.named(self.dataset), self.world_size)
        position, earlier = _state.position_in(state, self.steps), _delivered.saved(state)
        if adopts:
            self._adopt(mine["seed"])
        self._cursor.jump(position)
        self._cursor.earlier = earlier
        self._cursor.delivered = _delivered.Part(position, position, 0, 0)

    def _adopt(self, seed: int) -> None:
        """Changes to a job with another seed."""
        self._feeds.retire()
        self._session.adopt(seed)

    def _left(self) -> int:
        """Returns the number of batches of an iteration that begins now."""
        return self.steps - self._cursor.start % self.steps if self.steps else 0

    # Reports.

    @property
    def stats(self) -> Stats:
        """What this process has counted so far."""
        return self._counts.stats

    def report(self, cluster: bool = False) -> Report:
        """Returns the job's ledger: what was read from where, and what the stalls were for.

        Args:
            cluster: True: over all of the job's nodes, which are asked for it, with the epochs
                added up, and each node's part; after an epoch it waits up to 2 s for ranks that
                are still in it. False: of all ranks on this node, epoch by epoch.

        Raises:
            DaemonDiedError: The daemon has ended, and the ledger with it. Until a batch is taken
                from a new daemon, this raises what ``next()`` raised, at once.
        """
        feed = self._feeds.first()
        end = feed.stream.daemon.end if feed.is_open else None
        if end is not None:
            raise DaemonDiedError(end)
        return report(self._ready(), cluster)

    def explain(self, epoch: int, step: int, rank: int | None = None) -> Explanation:
        """Returns which samples a batch consists of, without reading them.

        Args:
            epoch: The batch's epoch, from 0.
            step: The batch's number in the epoch, from 0.
            rank: The rank that gets the batch; None means this one.

        Raises:
            ConfigError: There is no such batch.
        """
        found = explain(self._ready(), epoch, step, rank)
        if isinstance(self.dataset, Listed):
            return found._replace(labels=self.dataset.labels_of(found.ids))
        return found

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.dataset!r}, global_batch={self.global_batch_size}, "
            f"rank={self.rank} of {self.world_size})"
        )
