"""The epochs of a loader whose order its sampler draws, made by workers or in this process."""

from __future__ import annotations

import threading
import time
from typing import Callable, Protocol

import torch

from ..._lib.interrupts import interrupts
from ..._loading.iteration import NOT_COPIED
from ..._workers.failures import Failed, RemoteTraceback
from ..._workers.pool import Pool
from ...errors import ClosedError
from .._order.drawn import Drawn
from .._order.samplers import Sampler, State
from .._order.tasks import STEPS, EpochOverError, SamplerFailedError, count
from .local_workers import Pools, Workers
from .pinning import Pinning


class Engine(Protocol):
    """What makes the batches of epochs, as they see it.

    That is :class:`hdmlp.torch._engine.local.Local`.
    """

    sampler: Sampler
    generator: torch.Generator | None
    dataset: object
    workers: int
    prefetch: int
    timeout: float
    pools: Pools
    closed: bool

    def head(self, epoch: int) -> State: ...
    def make_here(self, seed: int, epoch: int, step: int, indices: object) -> object: ...
    def transformed(
        self, batch: object, seed: int, epoch: int, step: int, samples: int
    ) -> object: ...
    def pinned(self, batch: object) -> object: ...
    def counted(self, iteration: Batches, samples: int, stall: int, python: int) -> None: ...
    def place(self, iteration: Batches, missing: int = 0) -> None: ...
    def begun_in_vain(self, iteration: Batches, error: BaseException) -> None: ...
    def ended(self, iteration: Batches) -> None: ...
    def warn_unforeseen(self) -> None: ...


class Batches:
    """The batches of one epoch; a subclass makes them in ``_next``.

    No batch is lost if an exception strikes anywhere that the loop catches; see
    :class:`hdmlp._loading.iteration.Iteration`. Here ``_next`` keeps a batch for the thread, and
    then counts it.

    Args:
        local: The engine whose epoch it is.
        drawn: What its sampler yields.
        epoch: Its number.

    Attributes:
        epoch: Its number.
        over: There will be no further batch.
        failed: The last ``next()`` raised.
        at: When the last batch was yielded, in nanoseconds of the performance counter; 0: none was.
        before: Called when the first batch is asked for; None: nothing is.
    """

    def __init__(self, local: Engine, drawn: Drawn, epoch: int):
        self.epoch = epoch
        self.over = self.failed = False
        self.at = 0
        self.before: Callable[[], None] | None = None
        self._local, self._drawn = local, drawn
        self._step = self._begin_step = drawn.step
        self._turn = threading.Lock()
        # By thread: the step after a batch that was not returned, and the batch.
        self._kept: dict[int, tuple[int, object]] = {}

    def __getstate__(self) -> object:
        raise NotImplementedError(NOT_COPIED)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> object:
        thread = threading.get_ident()
        try:
            with self._turn:  # threads which share an iterator get its batches in turn
                if thread in self._kept:
                    self._step = max(self._step, self._kept[thread][0])
                    self._local.place(self)
                else:
                    self._advance(thread)
            _, batch = self._kept[thread]
            del self._kept[thread]  # after this nothing is called before the return
            return batch
        except BaseException as error:
            if interrupts(error):
                self.failed = True
            if thread in self._kept:
                self._step = max(self._step, self._kept[thread][0])
                self._local.place(self, 1)
            elif self._step == self._begin_step and not isinstance(error, StopIteration):
                self._local.begun_in_vain(self, error)
            raise

    def _advance(self, thread: int) -> None:
        """Counts the next batch, and keeps it for the thread."""
        if self.over:
            raise StopIteration
        if self._local.closed:
            raise ClosedError("the loader is closed")
        if self.before is not None:
            self.before()
            self.before = None
        try:
            self._next(thread)
        except StopIteration:
            self._local.ended(self)
            raise

    def __len__(self) -> int:
        """Batches of the epoch, as the sampler gives them."""
        return len(self._local.sampler)

    @property
    def complete(self) -> bool:
        """Reports whether all batches are known to have been yielded."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Reports whether the sampler was asked for one batch more than it has."""
        return self._drawn.ended

    def state(self, missing: int = 0) -> State:
        """Returns the state from which the epoch can be resumed.

        Args:
            missing: So many of the batches that were counted have not reached the loop.
        """
        return {**self._local.head(self.epoch), **self._drawn.state(self._step - missing)}

    def _next(self, thread: int) -> None:
        raise NotImplementedError


class Epoch(Batches):
    """An epoch whose batches are made by workers or in this process.

    Args:
        local: The engine whose epoch it is.
        drawn: What its sampler yields.
        epoch: Its number.
        seed: The seed of the items' random numbers.
    """

    def __init__(self, local: Engine, drawn: Drawn, epoch: int, seed: int):
        super().__init__(local, drawn, epoch)
        self._seed = seed
        self._made: Pool | Pinning | None = None
        if local.workers:
            self._made = self._given(local.pools.workers(self))
            self._made.restart()
            self._made.seek(epoch * STEPS + self._step)
            self._made.start()

    def _given(self, workers: Workers) -> Pool | Pinning:
        """Gives workers the epoch's tasks; returns where its batches come from."""
        workers.draws.begin(self._drawn, self._seed)
        return workers.batches

    @property
    def complete(self) -> bool:
        """Reports whether that was the last batch, as far as the sampler has a length."""
        try:
            return self._step == len(self._local.sampler)
        except (TypeError, NotImplementedError):
            return False

    def _next(self, thread: int) -> None:
        if self._made is None:
            self._from_here(thread)
        else:
            self._from_workers(self._made, thread)

    def _from_here(self, thread: int) -> None:
        """Makes the next batch; one that fails counts, as with workers: it does not come again."""
        begin = time.perf_counter_ns()
        try:
            indices = self._drawn.batch(self._step)
        except StopIteration:
            self.over = True
            raise
        try:
            made = self._local.make_here(self._seed, self.epoch, self._step, indices)
            batch = self._local.pinned(made)
        except Exception as error:
            if not interrupts(error):
                self._step += 1
                self._count(count(indices), begin)
            raise
        samples = count(indices)
        self._kept[thread] = self._step + 1, batch
        self._step += 1
        self._count(samples, begin)

    def _from_workers(self, made: Pool | Pinning, thread: int) -> None:
        begin = time.perf_counter_ns()
        # The position is compared as well: whatever raised, no batch stands for another one.
        if self.failed or made.position != self.epoch * STEPS + self._step:
            made = self._made_again(made)
        try:
            taken = made.next(self._local.timeout)
        except (EpochOverError, SamplerFailedError) as last:
            self.over = True
            self._local.pools.ended(self)
            if isinstance(last, EpochOverError):
                raise StopIteration from None
            raise (last.__cause__ or last) from None
        value: object = None
        error: Exception | None = None
        try:
            value = made.value(taken.content)
            if not isinstance(value, Failed):
                value = self._last(value, taken.n)
        except Exception as raised:
            if interrupts(raised):
                raise
            error = raised
        self._kept[thread] = self._step + 1, value
        self._step += 1
        self._count(taken.n, begin)
        if error is not None:
            self._kept.pop(thread, None)
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        if isinstance(value, Failed):
            self._kept.pop(thread, None)
            where = f"batch {taken.step} of epoch {taken.epoch}"
            if value.sample is not None:
                where = f"item {value.sample}, {where}"
            raise value.error from RemoteTraceback(
                f"in worker {value.worker}, {where}:\n{value.text}"
            )

    def _last(self, batch: object, samples: int) -> object:
        """Returns what becomes of a batch that a worker made."""
        local = self._local
        made = local.transformed(batch, self._seed, self.epoch, self._step, samples)
        return batch if made is batch else local.pinned(made)

    def _made_again(self, made: Pool | Pinning) -> Pool | Pinning:
        """Has workers make what was not counted again, after an exception that may lose it."""
        if made.broken:
            made = self._made = self._given(self._local.pools.renewed(self))
        made.seek(self.epoch * STEPS + self._step)
        self.failed = False
        return made

    def _count(self, samples: int, begin: int) -> None:
        spent = time.perf_counter_ns() - begin
        self._drawn.drop(self._step)
        self._local.counted(self, samples, spent, spent)
