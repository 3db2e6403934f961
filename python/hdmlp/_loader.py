"""What all loaders have in common: a job opened as one rank, iterated epoch by epoch.

An iteration counts the batches that it has yielded; the stream, or the workers in
front of it, run ahead. Whatever interrupts an iteration (``break``, Ctrl-C, an
exception in a transform), the next one says from which position on it wants batches,
and the stream goes there. Iterations that live at the same time have a stream each.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import logging
import os
import secrets
import threading
import time
import traceback
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _daemon, _launcher, _memory
from ._arguments import settings, whole_number
from ._feed import Brought, Feed
from ._options import Options
from ._output import Output
from ._progress import Progress
from ._protocol import audit_sum
from ._recipe import Undecodable
from ._reports import Explanation, Report, Stats
from ._source import BatchSource, Taken, column
from ._stream import Stream
from .errors import (
    AuditError,
    BusyError,
    ClosedError,
    ConfigError,
    EndError,
    LimitError,
    MismatchError,
    SampleError,
)

log = logging.getLogger("hdmlp")

_loaders: "weakref.WeakSet[Loader]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_loaders):
        loader.close()


class Loader:
    """The loaders' common part; see :class:`hdmlp.data.DataLoader` and :class:`hdmlp.torch.DataLoader`.

    A sub-class says in ``_make`` what becomes of a batch. A loader is for one thread at
    a time. In a process forked from its own it opens a connection of its own when it is used.
    """

    def __init__(
        self,
        dataset: Any,
        options: Options,
        *,
        opens: bool = True,
    ):
        self._turn = threading.RLock()  # threads may begin iterations side by side
        stream = options.stream
        self._seed_drawn = stream.seed_replaceable
        # Whether epochs= says how many there are, or how many are planned.
        self._limited, self._went_on = stream.limited, False
        self._subset = stream.subset
        self._transforms = list(options.transforms or ()) or None
        self._feeds: List[Feed] = []
        self._closed = False
        self.dataset = dataset
        self.epochs = stream.epochs
        self.drop_last = stream.drop_last
        self.timeout = options.timeout
        self._place = options.place
        name = options.name
        self._given_name = self._name = str(_launcher.next_ordinal() if name is None else name)
        self._verify = options.verify
        self._config_file = options.config_file
        self._arguments = dict(options.config)
        self._spec = stream.request()
        self._opened: Optional[Dict[str, Any]] = None
        self._position = 0  # of the next batch of the last iteration
        self._start = 0  # where the next iteration begins
        self._jump = False  # set_epoch or load_state_dict said so, not the order of things
        self._last: Optional["weakref.ref[_Iteration]"] = None
        self._batches = self._samples = self._waits = self._stall = self._python = 0
        _loaders.add(self)
        if opens:
            self._ready()

    # The connections.

    def _connect(self, number: int) -> Tuple[Stream, BatchSource]:
        """Opens the job, for the feed of this number."""
        if self._closed:
            raise ClosedError("the loader is closed")
        deadline, collected = time.monotonic() + 1.0, False
        while True:
            try:
                stream, source = self._request(number)
                break
            except (BusyError, LimitError) as error:
                # Loaders that cannot be reached any more may wait for the collector, and hold memory until then.
                if isinstance(error, LimitError) and not collected:
                    alive, collected = len(_loaders), True
                    gc.collect()
                    if len(_loaders) == alive:
                        raise
                # The daemon may not yet have seen that an earlier loader hung up.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        opened = stream.opened
        try:
            self._compare(opened)
        except MismatchError:
            source.close()
            stream.close()
            raise
        for warning in opened.get("warnings") or ():
            if self._opened is None:
                log.warning("%s", warning)
        self._opened = opened
        self._spec["seed"] = int(opened["seed"])
        return stream, source

    def _compare(self, opened: Dict[str, Any]) -> None:
        """Raises MismatchError if it is another version of the dataset than it was."""
        if self._opened is not None and self._opened["fingerprint"] != opened["fingerprint"]:
            raise MismatchError(
                "the dataset changed while the loader was open",
                {
                    "key": "fingerprint",
                    "mine": self._opened["fingerprint"],
                    "theirs": opened["fingerprint"],
                },
            )
        if (
            self._place.nodes == 1
        ):  # else it is node 0's version, which may differ where files cannot be read
            self.dataset.check_version(opened["fingerprint"])
        self.dataset.told(opened)

    def _request(self, number: int) -> Tuple[Stream, BatchSource]:
        # A job of its own for each further iteration that lives at the same time.
        name = self._name if not number else f"{self._name}+{number}"
        request = {
            "job": _launcher.job_key(self._place, name),
            "rank": self._place.rank,
            "world_size": self._place.world_size,
            "dataset": {**self.dataset.describe(), "view": True},
            "verify": self._verify,
            "stream": self._spec,
            "transforms": self._transforms,
            **_cluster(self._place, name),
            **settings(self._arguments, self._config_file),
        }
        fds = []
        if self._subset is not None:
            request["stream"] = {**self._spec, "subset": {"count": len(self._subset)}}
            fds.append(_memory.listed(self._subset))
        try:
            client = _daemon.connect()
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        try:
            return self._open_stream(client, request, fds)
        except (BusyError, ConfigError) as error:
            client.close()
            doubts = _launcher.doubts(self._place)
            if doubts:
                said = str(error)
                raise type(error)(
                    f"{said}{' ' if said.endswith(('.', '?')) else '. '}{doubts}", error.details
                ) from None
            raise
        except BaseException:
            client.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def _open_stream(
        self, client: _daemon.Client, request: Dict[str, Any], fds: Sequence[int] = ()
    ) -> Tuple[Stream, BatchSource]:
        """Opens the job; returns the stream, and where batches come from: the stream, or what stands in front of it. ``fds`` go with the request."""
        stream = Stream(client, request, Progress(), fds=fds)
        return stream, stream

    def _ready(self) -> Stream:
        """The stream of the first feed, opened (again) if there is none that works."""
        with self._turn:
            if self._closed:
                raise ClosedError("the loader is closed")
            if not self._feeds:
                self._feeds.append(self._new_feed())
            feed = self._feeds[0]
            if feed.is_open and not feed.free:
                return (
                    feed.stream
                )  # its user, who may be in the middle of it, opens it again if it does not work
            return feed.ready()

    def _new_feed(self) -> Feed:
        number = len(self._feeds)
        # A feed outlives no loader: it must not keep it from being collected.
        loader = weakref.ref(self)
        return Feed(lambda: loader()._connect(number))

    def _feed(self) -> Feed:
        """One that no other iteration uses."""
        self._ready()
        for feed in self._feeds:
            if feed.free:
                return feed
        self._feeds.append(self._new_feed())
        return self._feeds[-1]

    def close(self) -> None:
        """Leaves the job. Batches that the program keeps stay valid. Idempotent."""
        self._closed = True
        for feed in self._feeds:
            feed.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_feeds": [], "_last": None, "_turn": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.RLock())
        if self._place.world_size == 1:
            self._name = self._given_name = (
                f"{self._name}-{secrets.token_hex(4)}"  # a job of its own, beside the original's
            )
        _loaders.add(self)

    # What it is.

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return int(self._facts["steps"])

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        return self.steps

    @property
    def _facts(self) -> Dict[str, Any]:
        if self._opened is None:
            self._ready()
        return self._opened

    @property
    def samples(self) -> int:
        """The number of samples in the dataset, F."""
        return int(self._facts["samples"])

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
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
        return self._spec["global_batch"]

    # Iteration.

    def set_epoch(self, epoch: int) -> None:
        """The next iteration delivers this epoch; else it is the one after the last.

        May be called as often as one likes, as scripts for ``DistributedSampler`` do.

        Args:
            epoch: from 0.
        """
        epoch = whole_number("epoch", epoch, 0)
        steps = self.steps
        if (
            steps and self._start // steps != epoch
        ):  # else it may begin amid the epoch, after a restart
            self._start = epoch * steps
        self._jump = True

    def __iter__(self) -> Iterator[Any]:
        """The next epoch, or the rest of one after :meth:`load_state_dict`. The epoch is taken with the first batch: an
        iterator that is never asked for one takes none.

        Returns:
            an iterator over the epoch's batches. Several may live at the same time, each in an epoch of its own.

        Raises:
            EndError: with the first batch, if there are only ``epochs`` epochs.
        """
        self._ready()
        return _Iteration(self)

    def _begin(self, iteration: "_Iteration") -> None:
        """Gives an iteration its epoch, and a feed."""
        steps = self.steps
        epoch = self._start // steps
        if self.epochs is not None and epoch >= self.epochs and self._limited:
            iteration.over = True
            raise EndError(
                f"epoch {epoch} was asked for, but the loader was made with epochs={self.epochs} "
                f"(0 to {self.epochs - 1}): give a larger epochs="
            )
        iteration.feed = self._feed()
        if self.epochs is not None and epoch >= self.epochs:
            if not self._went_on:
                self._went_on = True
                log.warning(
                    "epoch %d was asked for, and epochs=%d were planned: it is delivered as well; caches are not planned for it",
                    epoch,
                    self.epochs,
                )
            if epoch == self.epochs:
                iteration.feed.restart()  # the last epoch's end may still be on its way
        iteration.feed.user = self._last = weakref.ref(iteration)
        iteration.position = self._position = self._start
        iteration.end = self._start = (epoch + 1) * steps
        iteration.whole = iteration.position % steps == 0
        self._jump = False

    def _next(self, iteration: "_Iteration") -> Any:
        """The iteration's next batch."""
        if iteration.feed is None:
            if not self.steps:
                raise StopIteration
            with self._turn:
                if iteration.before is not None:
                    iteration.before()
                self._begin(iteration)
        if iteration.failed:
            self._take_again(iteration)
        position, feed = iteration.position, iteration.feed
        if position == iteration.end:
            iteration.over = True
            if iteration.whole:
                self._finish_epoch(feed, position // self.steps - 1)
            raise StopIteration
        if feed.broken:
            self._reopen(feed)
        iteration.take = feed.source.take
        try:
            brought = self._bring(feed, position)
        except BaseException:
            iteration.failed = True
            raise
        self._yielded(
            iteration, brought.taken, brought.stall, brought.python
        )  # where the user's code failed, it will not come again
        if brought.error is not None:
            try:
                raise brought.error
            finally:
                del brought  # the error's traceback has this frame: the batch's room would be kept until the next collection
        return brought.batch

    def _take_again(self, iteration: "_Iteration") -> None:
        """Lets an iteration that failed go on: with its feed, or with another one if that was given away."""
        iteration.failed = False
        with self._turn:
            if not iteration.feed.used_by(iteration):
                iteration.feed = self._feed()
                iteration.feed.user = weakref.ref(iteration)

    def _reopen(self, feed: Feed) -> None:
        if self._closed:
            raise ClosedError("the loader is closed")
        feed.ready()

    def _bring(self, feed: Feed, position: int) -> Brought:
        """Takes the batch at a position from the feed, and makes what the user gets of it. What the source raises is raised."""
        source = feed.source
        stall = python = 0
        bad: Optional[Undecodable] = None
        while True:
            if source.position != position:
                source.seek(position)
            try:
                taken = source.next(self.timeout)
            except SampleError as failed:
                if bad is not None and failed.sample == bad.sample:
                    raise failed from bad.__cause__
                raise
            begin = time.perf_counter_ns()
            batch = error = bad = None
            try:
                batch = self._make(feed, taken)
            except Undecodable as failed:
                bad = failed
            except Exception as failed:
                error = failed
            spent = time.perf_counter_ns() - begin if self._works else 0
            stall, python = stall + source.stall + spent, python + source.python + spent
            if bad is None:
                return Brought(taken, batch, error, stall, python)
            del taken
            self._leave_out(feed, bad)

    def _leave_out(self, feed: Feed, bad: Undecodable) -> None:
        """Has the daemon decide about a sample that Python cannot decode, as about one that cannot be read. The batch that has it comes again,
        without the sample or with another one in its place; or the sample's error comes, on all ranks."""
        for error in (bad, bad.__cause__):
            if error is not None:
                traceback.clear_frames(error.__traceback__)  # they hold the batch's room
        policy = feed.stream.call("unusable", {"sample": bad.sample, "reason": str(bad)})[
            "on_error"
        ]
        if policy != "raise":
            log.warning(
                "sample %d (%s) cannot be decoded in Python, and %s (on_error=%s): %s",
                bad.sample,
                getattr(bad, "path", None) or "path unknown",
                "is left out" if policy == "skip" else "the next one that can be stands in for it",
                policy,
                bad,
            )
        feed.source.restart()

    #: True if Python does more for a batch, in ``next()``, than handing over what lies there.
    _works = False

    def _make(self, feed: Feed, taken: Taken) -> Any:
        """What the user gets for a batch that came from the feed."""
        raise NotImplementedError

    @property
    def output(self) -> Optional[Output]:
        """What the daemon makes of every sample; None: it stays as it is."""
        return self._ready().output

    def views(self, taken: Taken) -> Any:
        """The batch's samples, one by one."""
        output = self.output
        return taken.content if output is None else output.split(taken.content, taken.n)

    def _yielded(self, iteration: "_Iteration", taken: Taken, stall: int, python: int) -> None:
        """Counts a batch, and tells the daemon. ``stall``: ns blocked for it; ``python``: the part of them in which Python made it."""
        _, payload, n, epoch, step, audit = taken
        if self._verify and audit_sum(epoch, column(payload, n, "ids")) != audit:
            raise AuditError(
                f"batch {step} of epoch {epoch} does not contain the samples that the daemon counted"
            )
        feed = iteration.feed
        iteration.audit = (iteration.audit + audit) & 0xFFFFFFFFFFFFFFFF
        iteration.position += 1
        if self._last is not None and self._last() is iteration:
            self._position = iteration.position
        self._batches += 1
        self._samples += n
        if stall:
            self._waits += 1
            self._stall += stall
            self._python += python
        feed.stream.ack(epoch, step, stall, python, iteration.audit)

    def _finish_epoch(self, feed: Feed, epoch: int) -> None:
        """Compares what the ranks got of an epoch that was delivered from its first batch on, if that is wanted."""
        if not self._verify:
            return
        result = feed.ready().call("audit", {"epoch": epoch})
        if result["expected"] == result["delivered"]:
            return
        if result.get("missing"):
            log.warning(
                "epoch %d: ranks %s left before its end%s, so it cannot be verified",
                epoch,
                result["missing"],
                f" or were not heard ({result['why']})" if result.get("why") else "",
            )
            return
        raise AuditError(
            f"epoch {epoch}: the ranks got samples that sum to {result['delivered']}, "
            f"not {result['expected']}",
            result,
        )

    # State.

    def state_dict(self) -> Dict[str, Any]:
        """Where the loader is, by batches yielded: small, JSON-compatible, the same on all ranks.

        Returns:
            ``epoch`` and ``step`` of the next batch, and what the order depends on.
        """
        facts = self._facts
        steps = self.steps
        epoch, step = (
            divmod(self._start if self._jump else self._position, steps) if steps else (0, 0)
        )
        return {
            "version": 1,
            "epoch": epoch,
            "step": step,
            "steps": steps,
            "fingerprint": facts["fingerprint"],
            "samples": facts["samples"],
            "seed": self.seed,
            "subset": self._subset_sum(),
            **{
                key: self._spec[key]
                for key in ("shuffle", "scheme", "tail", "drop_last", "global_batch")
            },
        }

    def _subset_sum(self) -> Optional[str]:
        """What tells subsets apart; None: all samples."""
        return (
            None
            if self._subset is None
            else hashlib.blake2b(self._subset.tobytes(), digest_size=8).hexdigest()
        )

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; the next iteration yields the rest of that epoch.

        Nothing is read again. The world size may differ, the global batch size may not. A loader without a seed takes the state's.

        Args:
            state: what :meth:`state_dict` returned, on any rank.

        Raises:
            MismatchError: the state belongs to another dataset, seed, order or global batch size.
            ConfigError: it is no such state.
        """
        if not isinstance(state, dict) or state.get("version") != 1:
            raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
        if state.get("kind") == "sampler":
            raise ConfigError(
                "the state is of a loader whose order a sampler drew, and this one's follows from a seed or is by ID: make the loader as that one "
                "was made, with its sampler, or with shuffle=True and without seed"
            )
        facts = self._facts
        mine = {
            "global_batch": self._spec["global_batch"],
            "fingerprint": facts["fingerprint"],
            "samples": facts["samples"],
            "seed": self.seed,
            "shuffle": self._spec["shuffle"],
            "scheme": self._spec["scheme"],
            "tail": self._spec["tail"],
            "drop_last": self._spec["drop_last"],
            "subset": self._subset_sum(),
        }
        adopts = self._seed_drawn and state.get("seed") != self.seed
        if adopts:
            mine["seed"] = whole_number("seed of the state", state.get("seed"), 0)
        for key, value in mine.items():
            if state.get(key) != value:
                then = f": make the loader with seed={state.get(key)!r}" if key == "seed" else ""
                raise MismatchError(
                    f"{key} is {value!r} here, but {state.get(key)!r} in the saved state{then}",
                    {"key": key, "mine": value, "theirs": state.get(key)},
                )
        epoch, step = (
            whole_number(f"{key} of the state", state.get(key), 0) for key in ("epoch", "step")
        )
        if step >= max(self.steps, 1) or epoch >> 32:
            raise ConfigError(
                f"epoch {epoch}, step {step} of the state: an epoch of this loader has {self.steps} steps, counted from 0"
            )
        if adopts:
            self._adopt(mine["seed"])
        self._start = epoch * self.steps + step
        self._jump = True

    def _adopt(self, seed: int) -> None:
        """Goes over to a job with another seed: to one of another name, as ranks may still be in the old one."""
        for feed in self._feeds:
            feed.retire()
        self._feeds = []
        self._spec = {**self._spec, "seed": seed}
        self._name = f"{self._given_name}@{seed:x}"
        self._opened = None

    @property
    def fresh(self) -> bool:
        """True if the position where the next iteration begins was said, not reached."""
        return self._jump

    @property
    def next_epoch(self) -> int:
        """The epoch in which the next iteration begins."""
        return self._start // self.steps if self.steps else 0

    def follow(self, other: "Loader") -> None:
        """Goes on where another loader of the same steps is."""
        self._position, self._start, self._jump = other._position, other._start, other._jump
        self._seed_drawn = other._seed_drawn

    def _left(self) -> int:
        """Batches of an iteration that begins now."""
        return self.steps - self._start % self.steps if self.steps else 0

    # What it tells.

    @property
    def stats(self) -> Stats:
        """What this process counted so far."""
        return Stats(
            self._batches, self._samples, self._waits, self._stall / 1e9, self._python / 1e9
        )

    def report(self, cluster: bool = False) -> Report:
        """The job's ledger: what was read from where, and what the stalls were for.

        Args:
            cluster: over all of the job's nodes, with the epochs added up, and each node's part; the others are asked
                for it. False: of all ranks on this node, epoch by epoch.
        """
        return Report(self._ready().call("report", {"cluster": True} if cluster else None) or {})

    def explain(self, epoch: int, step: int, rank: Optional[int] = None) -> Explanation:
        """Which samples a batch consists of, without reading them.

        Args:
            epoch, step: which batch.
            rank: whose; None: this rank's.
        """
        params = {"epoch": whole_number("epoch", epoch, 0), "step": whole_number("step", step, 0)}
        if rank is not None:
            params["rank"] = whole_number("rank", rank, 0)
        result = self._ready().call("explain", params)
        return Explanation(result["ids"], result["labels"], result["paths"])

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.dataset!r}, global_batch={self.global_batch_size}, "
            f"rank={self.rank} of {self.world_size})"
        )


def _cluster(place: _launcher.Place, name: str) -> Dict[str, Any]:
    """OPEN's key for jobs on several nodes."""
    cluster = _launcher.cluster(place, name)
    return {} if cluster is None else {"cluster": cluster}


class _Iteration:
    """The batches of one epoch.

    Attributes:
        feed: where they come from; None before the first.
        position, end: of the next batch, and behind the last.
        audit: the sum of the batches' audits so far, and whole: whether that covers the epoch from its first batch on.
        over: there will be no more.
        failed: next() raised; it may be asked again, but who has kept the exception need not mean to.
        before: called when it is asked for its first batch, before it takes an epoch; None: nothing is.
        take: of the feed's source, when the last batch came the long way; None: none came.
    """

    __slots__ = (
        "feed",
        "position",
        "end",
        "audit",
        "whole",
        "over",
        "failed",
        "before",
        "take",
        "_loader",
        "_turn",
        "__weakref__",
    )

    def __init__(self, loader: Loader):
        self.feed: Optional[Feed] = None
        self.before: Optional[Callable[[], None]] = None
        self.take: Optional[Callable[[int], Optional[Taken]]] = None
        self.position = self.end = self.audit = 0
        self.whole = self.over = self.failed = False
        self._loader = loader
        self._turn = threading.Lock()

    def __iter__(self) -> "_Iteration":
        return self

    def __next__(self) -> Any:
        with self._turn:  # threads that share an iterator are given its batches in turn
            if self.over:
                raise StopIteration
            # The short way, for what was made ahead. A training step has emptied the processor's caches: what this costs is how much code it needs.
            if self.take is not None and self.position != self.end and not self.failed:
                taken = self.take(self.position)
                if taken is not None:
                    self._loader._yielded(self, taken, 0, 0)
                    return taken.content
            return self._loader._next(self)

    def __len__(self) -> int:
        """Batches that are left."""
        if self.over:
            return 0
        return self.end - self.position if self.feed is not None else self._loader._left()
