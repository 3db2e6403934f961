"""The epochs of a loader whose order its sampler draws, made by workers or in this process."""

from __future__ import annotations

import threading
import time
from typing import Callable, Protocol

import torch

from ..._workers.failures import Failed, RemoteTraceback
from ..._workers.pool import Pool
from ...errors import ClosedError
from .._order.drawn import Drawn
from .._order.samplers import Sampler, State
from .._order.tasks import STEPS, EpochOverError, SamplerFailedError, count
from .local_workers import Pools
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
    def pinned(self, batch: object) -> object: ...
    def counted(self, iteration: Batches, samples: int, stall: int, python: int) -> None: ...
    def ended(self, iteration: Batches) -> None: ...
    def warn_unforeseen(self) -> None: ...


class Batches:
    """The batches of one epoch; a subclass makes them in ``_next``.

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
        self._step = drawn.step
        self._turn = threading.Lock()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> object:
        with self._turn:  # threads which share an iterator get its batches in turn
            if self.over:
                raise StopIteration
            if self._local.closed:
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
        """Batches of the epoch, as the sampler says."""
        return len(self._local.sampler)

    @property
    def complete(self) -> bool:
        """Reports whether all batches are known to have been yielded."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Reports whether the sampler was asked for one batch more than it has."""
        return self._drawn.ended

    def state(self) -> State:
        """Returns the state from which the epoch can be resumed."""
        return {**self._local.head(self.epoch), **self._drawn.state(self._step)}

    def _next(self) -> object:
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
            workers = local.pools.workers(self)
            workers.draws.begin(drawn, seed)
            self._made = workers.batches
            self._made.restart()
            self._made.seek(epoch * STEPS + self._step)
            self._made.start()

    @property
    def complete(self) -> bool:
        """Reports whether that was the last batch, as far as the sampler has a length."""
        try:
            return self._step == len(self._local.sampler)
        except (TypeError, NotImplementedError):
            return False

    def _next(self) -> object:
        return self._from_here() if self._made is None else self._from_workers(self._made)

    def _from_here(self) -> object:
        """Makes the next batch; one that fails counts, as with workers: it does not come again."""
        begin = time.perf_counter_ns()
        try:
            indices = next(self._drawn)
        except StopIteration:
            self.over = True
            raise
        self._step += 1
        try:
            made = self._local.make_here(self._seed, self.epoch, self._step - 1, indices)
            batch = self._local.pinned(made)
        except Exception:
            self._count(count(indices), begin)
            raise
        self._count(count(indices), begin)
        return batch

    def _from_workers(self, made: Pool | Pinning) -> object:
        begin = time.perf_counter_ns()
        try:
            taken = made.next(self._local.timeout)
        except (EpochOverError, SamplerFailedError) as last:
            self.over = True
            self._local.pools.ended(self)
            if isinstance(last, EpochOverError):
                raise StopIteration from None
            raise (last.__cause__ or last) from None
        self._step += 1
        value = made.value(taken.content)
        self._count(taken.n, begin)
        if isinstance(value, Failed):
            where = f"batch {taken.step} of epoch {taken.epoch}"
            if value.sample is not None:
                where = f"item {value.sample}, {where}"
            raise value.error from RemoteTraceback(
                f"in worker {value.worker}, {where}:\n{value.text}"
            )
        return value

    def _count(self, samples: int, begin: int) -> None:
        spent = time.perf_counter_ns() - begin
        self._local.counted(self, samples, spent, spent)
