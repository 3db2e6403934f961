"""An epoch whose order a sampler draws and whose batches the daemon serves."""

from __future__ import annotations

import functools
import time
from typing import Any

from ..._loading.bring import Brought, blocked, now
from ..._loading.feed import Feed
from ...errors import ConfigError
from .._order.drawn import Drawn, Generators, same
from .._order.foreseen import Foreseen, again, stand_in
from .._order.samplers import GeneratorStates, State
from .drawn_jobs import Jobs
from .epochs import Batches, Engine
from .given import Given, Order

#: Why a rank no longer gives its part of epochs.
_DIFFERS = "its sampler yields something other than a copy of it did before"

_MASK = 0xFFFFFFFFFFFFFFFF


class ServedEpoch(Batches):
    """An epoch served by the daemon.

    The daemon is sent the whole order ahead, as it was foreseen. The sampler itself is iterated
    as far ahead as torch's loader would, so that it and its generators are where torch leaves
    them. What it yields then applies: if it differs from what was foreseen, because of what
    happened in the meantime, the daemon is sent the batches as they are drawn.

    States, of which only the second may follow the first:

    * foreseen: ``_batches`` are all of the epoch's, and ``_order`` is made of them.
    * drawn: ``_batches`` are those which were drawn so far, and ``_order`` is made of the ones
      which were not yielded when it was given.

    Args:
        local: The engine whose epoch it is.
        jobs: The daemon's jobs.
        drawn: What the sampler yields.
        epoch: Its number.
        foreseen: What was foreseen.
    """

    def __init__(self, local: Engine, jobs: Jobs, drawn: Drawn, epoch: int, foreseen: Foreseen):
        super().__init__(local, drawn, epoch)
        self._jobs = jobs
        self._first = self._pulled = drawn.step
        self._most = foreseen.most
        self._drawn_all = False
        self._audit = 0
        self._feed: Feed | None = None
        self._given: Given | None = None  # whose feed it is
        self._number = epoch  # the epoch's number in that job
        self._begin = 0  # the batch with which the order begins
        self._empty = 0  # how many of the batches since then were empty, and are not in the order
        self._order: Order | None = None
        self._unforeseen = foreseen.batches is None
        if foreseen.batches is None:
            local.warn_unforeseen()
            self.before = functools.partial(
                jobs.leave_parts,
                "its sampler cannot be copied, so its order cannot be drawn in advance",
            )
        else:
            try:
                self._order = jobs.order(foreseen.batches, epoch)
            except (IndexError, TypeError) as error:  # raised again when the sampler yields it
                self._unforeseen = True
                self.before = functools.partial(jobs.leave_parts, str(error))
        self._batches: list[object] = list(drawn.skipped)
        if foreseen.batches is not None and not self._unforeseen:
            self._batches = foreseen.batches
            self._empty = sum(map(_is_empty, self._batches[: self._first]))
        self._ahead = local.workers * local.prefetch
        self._pull(self._step + self._ahead)

    # Drawing.

    def _pull(self, step: int) -> None:
        """Draws the batches before a step, as torch's loader does at this point."""
        while self._pulled < step and not self._drawn_all:
            generators = before = None
            if self._pulled == 0 and not self._unforeseen:
                generators = Generators(self._local.sampler, self._local.generator)
                before = generators.state()
            try:
                indices = self._drawn.batch(self._pulled)
            except StopIteration:
                self._drawn_all = True
                if self._pulled < len(self._batches):
                    self._part_from(self._pulled)
                return
            if self._unforeseen:
                self._batches += [indices]
            elif self._pulled == len(self._batches) or not same(
                indices, self._batches[self._pulled]
            ):
                anew = None
                if generators is not None and before is not None:
                    anew = self._foresee_again(generators, before)
                if anew and same(indices, anew[0]):
                    # Something drew from the generators between iter() and here.
                    self._batches, self._feed = anew, None
                    self._order = self._jobs.order(anew, self.epoch)
                else:
                    self._part_from(self._pulled)
                    self._batches += [indices]
            self._pulled += 1  # nothing is called since the batch was noted
            self._drawn.drop(self._pulled)

    def _foresee_again(
        self, generators: Generators, before: GeneratorStates
    ) -> list[object] | None:
        stands = stand_in(self._local.sampler, self._local.dataset)
        return None if stands is None else again(stands, generators, before, self._most)

    def _order_of_drawn(self) -> Order:
        """Returns the order of what was drawn and not yielded yet.

        If one of these batches is invalid, only of the next one.
        """
        try:
            return self._jobs.order(self._batches[self._step :], self.epoch, self._step)
        except (IndexError, TypeError):
            following = self._batches[self._step : self._step + 1]
            return self._jobs.order(following, self.epoch, self._step)

    def _part_from(self, step: int) -> None:
        """Forgets what was foreseen from this batch on."""
        self._local.warn_unforeseen()
        self._unforeseen = True
        del self._batches[step:]
        self._order = None

    # Iteration.

    def state(self, missing: int = 0) -> State:
        """Returns the state from which the epoch can be resumed; see :meth:`Batches.state`."""
        head = self._local.head(self.epoch)
        if "number" in head and self._feed is not None:
            head["number"] = self._number
        return {
            **head,
            "fingerprint": self._jobs.given.fingerprint,
            "job_seed": self._jobs.given.seed_of_job,
            **self._drawn.state(self._step - missing),
        }

    @property
    def complete(self) -> bool:
        """Reports whether that was the last batch, as far as it is known."""
        return self._step == len(self._batches) and (self._drawn_all or not self._unforeseen)

    def _next(self, thread: int) -> None:
        begin = now()
        self._pull(self._step + 1 + self._ahead)
        if self._step == len(self._batches):
            self.over = True
            if self._feed is not None and self._given is not None and self._feed.used_by(self):
                self._given.rest(self._feed)
            if self._unforeseen:
                self._jobs.leave_parts(_DIFFERS)
            elif self._feed is not None and self._given is not None and not self._first:
                self._given.finish_epoch(self._feed, self._number)
            raise StopIteration
        if _is_empty(self._batches[self._step]):
            self._empty_batch(thread)
        else:
            self._batch(thread, begin)

    def _empty_batch(self, thread: int) -> None:
        """Makes a batch without samples, which the daemon is not sent."""
        begin = time.perf_counter_ns()
        indices = self._batches[self._step]
        self._step += 1
        self._empty += 1
        try:
            made = self._local.make_here(self._drawn.base_seed, self.epoch, self._step - 1, indices)
            self._kept[thread] = self._step, self._local.pinned(made)
        finally:
            spent = time.perf_counter_ns() - begin
            self._local.counted(self, 0, spent, spent)

    @property
    def _place(self) -> int:
        """The number of the next batch in the order."""
        return self._step - self._begin - self._empty

    def _brought(self) -> tuple[Given, Feed, Brought]:
        """Has the daemon bring the next batch; returns its job, its feed, and the batch."""
        if self.failed and self._feed is not None and not self._feed.used_by(self):
            self._feed = None
        self.failed = False
        if self._unforeseen and (self._order is None or self._place == len(self._order.sizes)):
            self._jobs.leave_parts(_DIFFERS)
            self._begin, self._empty, self._feed = self._step, 0, None
            self._order = self._order_of_drawn()
        assert self._order is not None
        if self._feed is None or self._given is None:
            self._given = self._jobs.given
            self._feed, self._number = self._given.feed(
                self, self.epoch, self._order, self._drawn.base_seed
            )
        feed = self._feed
        if feed.broken:
            feed.ready()
        try:
            position = self._number * feed.stream.steps + self._place
            if feed.seek(position):
                self._audit = 0  # the daemon audits from here
            return self._given, feed, self._given.bring(feed, position, self._step)
        except BaseException:
            self.failed = True
            raise

    def _batch(self, thread: int, begin: int) -> None:
        try:
            given, feed, brought = self._brought()
        except ConfigError as error:
            if not self._jobs.goes_apart(error):
                raise
            # The job that follows has nothing of what was served before.
            self._feed, self.failed = None, False
            self._first, self._audit = self._step, 0
            given, feed, brought = self._brought()
        taken = brought.taken
        stall, python = blocked(begin, brought, given.works)
        audit = (self._audit + taken.audit) & _MASK
        self._kept[thread] = self._step + 1, brought.batch
        self._step, self._audit = self._step + 1, audit
        feed.stream.ack(taken.epoch, taken.step, stall, python, self._audit)
        self._local.counted(self, taken.n, stall, python)
        if brought.error is not None:
            try:
                raise brought.error
            finally:
                # The error's traceback refers to this frame, which would keep the batch's slots.
                self._kept.pop(thread, None)
                del brought, taken


def _is_empty(batch: Any) -> bool:
    try:
        return len(batch) == 0
    except TypeError:  # an error with its place is raised when the order is made
        return False
