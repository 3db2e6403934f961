"""The epochs of a loader whose order its sampler draws: made by workers, in this process, or by the daemon."""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from .._feed import Brought
from .._source import Taken
from .._worker_failures import Failed, RemoteTraceback
from ..errors import ClosedError, ConfigError, HDMLPError
from ._drawn import Drawn, Generators, same
from ._foreseen import again, stand_in

#: A position is epoch * _STEPS + step: how many steps an epoch has a sampler need not know.
_STEPS = 1 << 32

#: Why a rank does not give its part of epochs any more.
_UNLIKE = "its sampler yields something else than a copy of it did before"


class _Over(HDMLPError):
    """The epoch's last batch was taken."""


class _SamplerFailed(HDMLPError):
    """In place of an exception of the sampler, which is its cause."""


class Draws:
    """Looks like a stream: hands a pool what it is to make."""

    opened = {"seed": 0}
    output = None
    steps = _STEPS
    broken = False

    def __init__(self) -> None:
        self._fds = (
            [os.eventfd(0)] if hasattr(os, "eventfd") else list(os.pipe())
        )  # the first is never ready
        self._drawn: Optional[Drawn] = None
        self._seed = 0
        self.position: Optional[int] = None

    def begin(self, drawn: Drawn, seed: int) -> None:
        """What :meth:`seek` begins with."""
        self._drawn, self._seed = drawn, seed

    def fileno(self) -> int:
        return self._fds[0]

    def close(self) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def restart(self) -> None:
        self.position = None

    def seek(self, position: int) -> None:
        self.position = position

    def poll(self) -> Optional[Taken]:
        if self.position is None:
            return None
        epoch, step = divmod(self.position, _STEPS)
        try:
            indices = next(self._drawn)
        except StopIteration:
            self.position = None
            raise _Over("") from None
        except Exception as error:
            self.position = None
            raise _SamplerFailed(str(error)) from error
        self.position += 1
        payload = pickle.dumps((self._seed, epoch, step, indices))
        return Taken(
            None, payload, len(indices) if isinstance(indices, (list, tuple)) else 1, epoch, step, 0
        )

    def ends(self, position: int) -> bool:
        return False

    def free(self, slots: bytes) -> None:
        pass

    def return_slots(self) -> None:
        pass

    def say_waiting(self) -> None:
        pass


class Batches:
    """The batches of one epoch; a sub-class says in ``_next`` where they come from.

    Args:
        local: the :class:`Local` whose epoch it is.
        drawn: what its sampler yields.
        epoch: its number.

    Attributes:
        over: there will be no more.
        at: when the last batch was yielded, in ns of the performance counter; 0: none was.
        before: called when it is asked for its first batch; None: nothing is.
    """

    def __init__(self, local: Any, drawn: Drawn, epoch: int):
        self.over = False
        self.at = 0
        self.before: Optional[Callable[[], None]] = None
        self._local, self._drawn, self._epoch = local, drawn, epoch
        self._step = drawn.step
        self._turn = threading.Lock()

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Any:
        with self._turn:  # threads that share an iterator are given its batches in turn
            if self.over:
                raise StopIteration
            if self._local._closed:
                raise ClosedError("the loader is closed")
            if self.before is not None:
                self.before()
                self.before = None
            try:
                return self._next()
            except StopIteration:
                self._local.ended(self)
                raise

    def __len__(self) -> int:
        """Batches of the epoch, by what the sampler says."""
        return len(self._local._sampler)

    @property
    def complete(self) -> bool:
        """True if all batches are known to have been yielded."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """True if the sampler was asked for one more than it has."""
        return self._drawn.ended

    def _next(self) -> Any:
        raise NotImplementedError


class Epoch(Batches):
    """One epoch, made by workers or in this process."""

    def __init__(self, local: Any, drawn: Drawn, epoch: int, seed: int):
        super().__init__(local, drawn, epoch)
        self._seed = seed
        self._pool: Any = None
        if local._workers:
            self._begin()

    def _begin(self) -> None:
        self._pool, draws, _ = self._local.pool(self)
        draws.begin(self._drawn, self._seed)
        self._pool.restart()
        self._pool.seek(self._epoch * _STEPS + self._step)
        self._pool.start()

    def state(self) -> Dict[str, Any]:
        """Where it is."""
        return {**self._local.head(self._epoch), **self._drawn.state(self._step)}

    @property
    def complete(self) -> bool:
        """True if that was the last batch, as far as the sampler says how many there are."""
        try:
            return self._step == len(self._local._sampler)
        except (TypeError, NotImplementedError):
            return False

    def _next(self) -> Any:
        return self._from_pool() if self._local._workers else self._from_here()

    def _from_here(self) -> Any:
        begin = time.perf_counter_ns()
        try:
            indices = next(self._drawn)
        except StopIteration:
            self.over = True
            raise
        self._step += 1
        batch = self._local.pinned(
            self._local.make_here(self._seed, self._epoch, self._step - 1, indices)
        )
        spent = time.perf_counter_ns() - begin
        self._local.counted(
            self, len(indices) if isinstance(indices, (list, tuple)) else 1, spent, spent
        )
        return batch

    def _from_pool(self) -> Any:
        begin = time.perf_counter_ns()
        try:
            taken = self._pool.next(self._local._timeout)
        except _Over:
            self.over = True
            raise StopIteration from None
        except _SamplerFailed as failed:
            self.over = True
            raise failed.__cause__ from None
        self._step += 1
        value = self._pool.value(taken.content)
        if not isinstance(value, Failed):
            value = self._local.pinned(value)
        spent = time.perf_counter_ns() - begin
        self._local.counted(self, taken.n, spent, spent)
        if isinstance(value, Failed):
            where = f"batch {taken.step} of epoch {taken.epoch}"
            if value.sample is not None:
                where = f"item {value.sample}, {where}"
            raise value.error from RemoteTraceback(
                f"in worker {value.worker}, {where}:\n{value.text}"
            )
        return value


class ServedEpoch(Batches):
    """One epoch, by the daemon.

    The sampler is iterated beside it, as far ahead as torch's loader would, so that it and its generators are where torch leaves them. What it
    yields then counts: where that is not what was foreseen, because of what happened since, the daemon is told of the batches as they are drawn.

    Args:
        foreseen: all batches of the epoch, those that a state has left behind as well; None: they cannot be had ahead.
        most: how many there are at most.
    """

    def __init__(
        self, local: Any, drawn: Drawn, epoch: int, foreseen: Optional[List[Any]], most: int
    ):
        super().__init__(local, drawn, epoch)
        self.failed = False
        self._step = self._first = self._pulled = drawn.step
        self._unforeseen = foreseen is None
        self._drawn_all = False
        self._most = most
        self._audit = 0
        self._feed: Any = None
        self._given: Any = None  # whose it is
        self._number = epoch  # the epoch's there
        self._begin = 0  # the batch that the order begins with
        self._order: Any = None
        if foreseen is None:
            local.say_unforeseen()
            self.before = functools.partial(
                local.leave_parts,
                "its sampler cannot be copied, so that what it yields cannot be had ahead",
            )
        else:
            try:
                self._order = local.order(foreseen, epoch)
            except (IndexError, TypeError) as error:  # which is raised when the sampler yields it
                self._unforeseen = True
                self.before = functools.partial(local.leave_parts, str(error))
        self._batches = list(drawn.skipped) if self._unforeseen else foreseen
        self._pull(local._workers * local._prefetch)

    def _pull(self, count: int) -> None:
        """Draws so many more batches, as torch's loader does now."""
        for _ in range(count):
            if self._drawn_all:
                return
            generators = (
                Generators(self._local._sampler, self._local._generator)
                if self._pulled == 0 and not self._unforeseen
                else None
            )
            before = None if generators is None else generators.state()
            for indices in self._drawn:
                break
            else:
                self._drawn_all = True
                if self._pulled < len(self._batches):
                    self._part_from(self._pulled)
                return
            if self._unforeseen:
                self._batches.append(indices)
            elif self._pulled == len(self._batches) or not same(
                indices, self._batches[self._pulled]
            ):
                anew = None if before is None else self._foresee_again(generators, before)
                if anew and same(
                    indices, anew[0]
                ):  # something drew from the generators between iter() and here
                    self._batches, self._order, self._feed = (
                        anew,
                        self._local.order(anew, self._epoch),
                        None,
                    )
                else:
                    self._part_from(self._pulled)
                    self._batches.append(indices)
            self._pulled += 1

    def _foresee_again(self, generators: Generators, before: Any) -> Optional[List[Any]]:
        stands = stand_in(self._local._sampler, self._local._dataset)
        return None if stands is None else again(stands, generators, before, self._most)

    def _order_of_drawn(self) -> Any:
        """The order of what was drawn and not yielded yet; of the next batch alone, where a later one is wrong."""
        try:
            return self._local.order(self._batches[self._step :], self._epoch, self._step)
        except (IndexError, TypeError):
            return self._local.order(
                self._batches[self._step : self._step + 1], self._epoch, self._step
            )

    def _part_from(self, step: int) -> None:
        """Forgets what was foreseen from this batch on."""
        self._local.say_unforeseen()
        self._unforeseen = True
        del self._batches[step:]
        self._order = None

    def state(self) -> Dict[str, Any]:
        """Where it is."""
        head = self._local.head(self._epoch)
        if "number" in head and self._feed is not None:
            head["number"] = self._number
        return {
            **head,
            "fingerprint": self._local.given.fingerprint,
            "job_seed": self._local.given.seed_of_job,
            **self._drawn.state(self._step),
        }

    @property
    def complete(self) -> bool:
        """True if that was the last batch, as far as it is known."""
        return self._step == len(self._batches) and (self._drawn_all or not self._unforeseen)

    def _next(self) -> Any:
        if not self.failed:
            self._pull(1)
        if self._step == len(self._batches):
            self.over = True
            if self._unforeseen:
                self._local.leave_parts(_UNLIKE)
            elif self._feed is not None and not self._first:
                self._given._finish_epoch(self._feed, self._number)
            raise StopIteration
        return self._batch()

    def _brought(self) -> Brought:
        """The next batch, by the daemon."""
        if self.failed and not self._feed.used_by(self):
            self._feed = None
        self.failed = False
        if self._unforeseen and (
            self._order is None or self._step - self._begin == len(self._order.sizes)
        ):
            self._local.leave_parts(_UNLIKE)
            self._begin, self._feed = self._step, None
            self._order = self._order_of_drawn()
        if self._feed is None:
            self._given = self._local.given
            self._feed, self._number = self._given.feed(self, self._epoch, self._order)
        if self._feed.broken:
            self._feed.ready()
        try:
            return self._given.bring(
                self._feed, self._number * self._feed.stream.steps + self._step - self._begin
            )
        except BaseException:
            self.failed = True
            raise

    def _batch(self) -> Any:
        try:
            brought = self._brought()
        except ConfigError as error:
            if not self._local.goes_apart(error):
                raise
            self._feed, self.failed = None, False
            self._first, self._audit = (
                self._step,
                0,
            )  # of what was served before, the job that follows knows nothing
            brought = self._brought()
        taken = brought.taken
        self._step += 1
        self._audit = (self._audit + taken.audit) & 0xFFFFFFFFFFFFFFFF
        self._feed.stream.ack(taken.epoch, taken.step, brought.stall, brought.python, self._audit)
        self._local.counted(self, taken.n, brought.stall, brought.python)
        if brought.error is not None:
            try:
                raise brought.error
            finally:
                del (
                    brought,
                    taken,
                )  # the error's traceback has this frame: the batch's room would be kept until the next collection
        return brought.batch
