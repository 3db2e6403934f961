"""Any dataset which torch's loader takes, in the order that its sampler draws.

Items are made by worker processes or in this one; those that are a folder's samples are served by
the daemon, which is sent the order.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from torch.utils.data import BatchSampler, DataLoader

from ..._loading.reports import Report, Stats
from ..._loading.state import named
from ..._transforms.generators import generators_kept
from ..._workers.results import Arena
from ...errors import ClosedError, ConfigError, HDMLPError, StallTimeoutError
from .._data.batch_transform import BatchTransform
from .._data.interfaces import Indexed
from .._data.items import Items, length_of
from .._order.disjoint import Drawings
from .._order.drawn import Drawn, set_start, start_of
from .._order.drawn import parts as samplers_in
from .._order.foreseen import foresee
from .._order.known import Seeded, Shared, asked_epoch, set_epoch_of
from .._order.position import Position
from .._order.samplers import State
from .._order.tasks import count
from .counted import Counted
from .drawn_jobs import Jobs
from .epochs import Batches, Epoch
from .given import Given
from .local_workers import Pools
from .parts import PartsOf
from .pinning import Device
from .served_epoch import ServedEpoch

if TYPE_CHECKING:
    import array

log = logging.getLogger("hdmlp")


class Local:
    """The batches of a loader whose order its sampler draws.

    Args:
        loader: Its sampler, generator, workers and so on apply. It is not kept.
        dataset: The items.
        collate: From items to a batch.
        seed: The seed of items' random numbers; None: drawn at each epoch's start, as torch draws
            its workers' seed.
        serve: Opens the daemon's part if the items are samples of a folder; None: they are not.
        subset: Which samples the items are; None: all.
        on_error: The job's policy for samples which cannot be used.
        drawings: Where ranks which share epochs compare what they draw; None: they share nothing.
        parts: How ranks on several nodes give parts of the epochs; None: this rank is on its own.
        part: As for :class:`~hdmlp.torch._data.items.Items`.
        device: For which tensors are pinned, if the loader has ``pin_memory``.
        every: As for :class:`~hdmlp.torch._data.items.Items`.
        advises: Say what workers would bring, if the loop waits for items.
        last: What becomes of batches at last; None: nothing.
        served: The items are samples of a folder or of records.
        threads: As for :class:`~hdmlp.torch._data.items.Items`.

    Attributes:
        sampler: What the batches' indices come from.
        generator: The loader's generator.
        dataset: The loader's dataset.
        workers: The number of worker processes.
        prefetch: Batches under way per worker.
        timeout: Seconds to wait for a batch; 0: no limit.
        position: The next epoch, and the state.
        pools: The worker processes.
        jobs: The daemon's jobs; None: the items are not samples of a folder.
        closed: Whether the engine is closed.
    """

    def __init__(
        self,
        loader: DataLoader[object],
        dataset: Indexed,
        collate: Callable[..., object],
        seed: int | None,
        serve: Callable[..., Given] | None = None,
        subset: array.array[int] | None = None,
        on_error: str = "raise",
        drawings: Drawings | None = None,
        parts: PartsOf | None = None,
        part: tuple[int, int] = (0, 1),
        device: Device | None = None,
        every: bool = False,
        advises: bool = False,
        last: BatchTransform | None = None,
        served: bool = True,
        threads: int = 1,
    ):
        batched = loader.batch_sampler is not None
        self.sampler: Any = loader.batch_sampler if batched else loader.sampler
        self.generator = loader.generator
        self.dataset: object = loader.dataset
        self.workers = loader.num_workers
        self.prefetch = loader.prefetch_factor or 2
        self.timeout = loader.timeout
        name = named(loader.dataset)
        size = loader.batch_size
        self.position = Position(
            seed,
            subset,
            length_of(loader.dataset),
            name,
            part,
            None if size is None else size * part[1],
        )
        self.jobs = None if serve is None else Jobs(serve, subset, parts, name)
        self.closed = False
        self._items = Items(dataset, collate, batched, part, every, threads)
        self._last, self._rank = last, part[0]
        self._pinned_for = device if loader.pin_memory else None
        self.pools = Pools(
            self._items,
            self.workers,
            self.prefetch,
            loader.multiprocessing_context,
            loader.worker_init_fn,
            loader.persistent_workers,
            self._pinned_for,
        )
        self._persistent = loader.persistent_workers
        self._on_error = on_error
        self._advises, self._served = advises, served
        self._drawings = drawings
        self._arena = Arena()
        self._warned_endless = self._warned_unforeseen = False
        self._counted = Counted()
        self._turn = threading.Lock()  # threads may begin epochs side by side

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_arena": Arena(), "_turn": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _turn=threading.Lock())

    # Epochs.

    def __iter__(self) -> Iterator[object]:
        """Begins the next epoch, or the rest of one after :meth:`load_state_dict`.

        What torch's loader draws at this point is drawn here.
        """
        if self.closed:
            raise ClosedError("the loader is closed")
        with self._turn:
            return self._begin()

    def _begin(self) -> Batches:
        """Begins an epoch.

        1. Foresee what the sampler is going to yield, if the daemon is to be sent it.
        2. Iterate the sampler itself, which draws what torch's loader would draw.
        3. Open the daemon's job, or leave the items to this process if the daemon cannot help.
        """
        position, jobs = self.position, self.jobs
        self._go_to_asked()
        resume, after = position.take()
        position.length = length_of(self.dataset)
        base_seed = position.base_seed if resume is None else resume["base_seed"]
        foreseen, sampler, workers = None, self.sampler, self.workers > 0
        if jobs is not None:
            foreseen = foresee(
                sampler, self.dataset, position.length, self.generator, resume, base_seed, workers
            )
        drawn = Drawn(sampler, self.generator, resume, base_seed, workers=workers)
        asked_epoch(self._ordered)  # drawing again sets it
        if resume is not None and drawn.follows and not resume["drawn"]:
            self._warn_of_another_rank(resume["rank"])
        if resume is None and self._drawings is not None and not self._drawings.left:
            leave = self._drawings.leave
            drawn.on_end = functools.partial(leave, position.epoch, samples=position.length)
        if foreseen is not None and foreseen.endless:
            self._warn_endless()
        if self._persistent:  # torch draws it once for workers that stay
            position.base_seed = drawn.base_seed
        epoch = position.epoch
        position.epoch += 1
        seed = drawn.base_seed if position.seed is None else position.seed
        if jobs is None or foreseen is None:
            iteration: Batches = Epoch(self, drawn, epoch, seed)
        else:
            if not foreseen.empty or jobs.parts is not None:
                jobs.open(seed, epoch, after if resume is None else resume)
            if foreseen.empty:
                iteration = Epoch(self, drawn, epoch, seed)
                iteration.before = functools.partial(jobs.leave_parts, foreseen.why_empty)
            else:
                iteration = ServedEpoch(self, jobs, drawn, epoch, foreseen)
            if jobs.parts is not None and jobs.parts.why:
                iteration.before = functools.partial(jobs.leave_parts, jobs.parts.why)
        position.begin(iteration)
        return iteration

    @property
    def _ordered(self) -> Any:
        """The sampler itself, and not what makes batches of it."""
        return self.sampler.sampler if type(self.sampler) is BatchSampler else self.sampler

    def _go_to_asked(self) -> None:
        """Goes to the epoch that the program set on a sampler of ours, if it set one.

        Else back to that of an iteration which was not asked for a batch, if it is gone.
        """
        asked, unasked = asked_epoch(self._ordered), self.position.unasked
        if asked is not None and asked == self._ordered.epoch:  # not iterated since
            self.set_epoch(asked)
        elif unasked is not None and isinstance(self._ordered, (Seeded, Shared)):
            self.set_epoch(unasked)
            set_epoch_of(self._ordered, unasked)

    def head(self, epoch: int) -> State:
        """Returns the beginning of an epoch's state."""
        return self.position.head(epoch, self._numbers())

    def _numbers(self) -> dict[str, int]:
        return {} if self.jobs is None else self.jobs.numbers()

    def counted(self, iteration: Batches, samples: int, stall: int, python: int) -> None:
        """Notes a batch which is handed over now.

        Args:
            iteration: The epoch that it belongs to.
            samples: Its number of samples.
            stall: Nanoseconds for which ``next()`` blocked.
            python: The part of them in which Python made the batch.
        """
        iteration.at = self._counted.add(samples, stall, python, iteration.at)
        self.place(iteration)  # Lightning asks for no further batch
        if self._advises:
            line = self._counted.waits
            if line:
                self._advises = False
                log.warning("%s: %s", type(self.dataset).__name__, line)

    def place(self, iteration: Batches, missing: int = 0) -> None:
        """Notes where an epoch is.

        Args:
            iteration: The epoch.
            missing: So many of the batches that were counted have not reached the loop.
        """
        if not self.position.is_last(iteration):
            return
        self.position.yielded(iteration, missing)
        if not missing and iteration.complete:
            self.ended(iteration)

    def begun_in_vain(self, iteration: Batches, error: BaseException) -> None:
        """Has the next iteration begin the epoch of one that has no batch because of an error.

        Unless it is an error of all ranks, of which others may have a batch: all go on with the
        next epoch then.
        """
        own = not isinstance(error, HDMLPError) or isinstance(error, StallTimeoutError)
        if self.position.is_last(iteration) and (own or self.position.world_size == 1):
            self.position.untake(iteration)

    def ended(self, iteration: Batches) -> None:
        """Notes that an epoch is over: from now on, the state is the next epoch's beginning."""
        if self.position.is_last(iteration):
            self.position.ended(iteration, self.head(iteration.epoch + 1))

    def make_here(self, seed: int, epoch: int, step: int, indices: object) -> object:
        """Makes a batch in this process."""
        try:
            batch = self._items.batch(seed, epoch, step, indices, self._arena, keep=True)
        finally:
            late = self._items.note()
            if late:
                self._items.noted(late)
        return self.transformed(batch, seed, epoch, step, count(indices))

    def transformed(self, batch: object, seed: int, epoch: int, step: int, samples: int) -> object:
        """Returns what the ``batch_transform`` makes of a batch, unless it has no samples."""
        if self._last is None or not samples:
            return batch
        return self._last(batch, seed, epoch, step, self._rank)

    def pinned(self, batch: object) -> object:
        """Returns the batch in pinned memory, if the user wants that and CUDA is available."""
        return batch if self._pinned_for is None else self._pinned_for.pinned(batch)

    # What is logged about samplers.

    def _sampler_name(self) -> str:
        return type(self._ordered).__name__

    def _warn_of_another_rank(self, rank: object) -> None:
        """Warns that another rank's generators are used.

        accelerate does so on purpose: it keeps them the same on all ranks.
        """
        if not any(
            type(part).__module__.startswith("accelerate.") for _, part in samplers_in(self.sampler)
        ):
            log.warning(
                "the state is that of rank %s, and what %s yields follows from generators: this "
                "rank continues as that one would, which is right only if they are the same on "
                "all ranks; otherwise save the state of each rank, and load each rank's own",
                rank,
                self._sampler_name(),
            )

    def _warn_endless(self) -> None:
        name = self._sampler_name()
        if self._on_error != "raise":
            raise ConfigError(
                f"on_error={self._on_error!r}: {name} has no __len__, or a wrong one, so files "
                "are read without the daemon, which alone can skip samples; give the sampler a "
                "correct __len__, or on_error='raise'"
            )
        if not self._warned_endless:
            self._warned_endless = True
            log.warning(
                "%s has no __len__, or a wrong one: files are read in Python, and nothing is "
                "cached; give it a correct __len__, or, if it has no end so that workers stay, "
                "give the loader persistent_workers=True in its place",
                name,
            )

    def warn_unforeseen(self) -> None:
        """Warns once that the sampler's batches cannot be foreseen."""
        if not self._warned_unforeseen:
            self._warned_unforeseen = True
            log.warning(
                "%s: what it yields depends on what happens during its epoch, or it cannot be "
                "copied: it is asked when torch's loader would ask it, and no more is read ahead "
                "than num_workers allows",
                self._sampler_name(),
            )

    # The loader's interface.

    @property
    def next_epoch(self) -> int:
        """The number of the next iteration's epoch."""
        return self.position.epoch

    @property
    def output(self) -> None:
        """None: what the daemon makes of samples is not known before the first epoch."""
        return None

    @property
    def seed(self) -> int:
        """The seed of the items' random numbers.

        Raises:
            ConfigError: It is drawn anew at each epoch's start.
        """
        if self.position.seed is None:
            raise ConfigError(
                "seed: the order is the sampler's, and the loader has no seed; give seed="
            )
        return self.position.seed

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return self._counted.stats

    def report(self, cluster: bool = False) -> Report:
        """Returns the daemon's ledger if it served an epoch; else what this process counted."""
        if self.jobs is not None and self.jobs.served:
            return self.jobs.given.report(cluster)
        return self._counted.report()

    def explain(self, epoch: int, step: int, rank: int | None = None) -> NoReturn:
        """Raises ConfigError: only iterating the sampler reveals its order."""
        if not self._served:
            raise ConfigError(
                f"explain: the items of the {type(self.dataset).__name__} are made in Python, and "
                "the daemon has no samples of it to name: use hdmlp.torch.ImageFolder, Files or "
                "another dataset whose samples HDMLP reads"
            )
        raise ConfigError(
            "explain: the order is the sampler's, which only iterating it reveals; give "
            "shuffle=True and seed=, or a DistributedSampler"
        )

    def set_epoch(self, epoch: int) -> None:
        """Sets the next epoch's number, from which its items' random numbers follow.

        The order is the sampler's.
        """
        number = self.position.set_epoch(epoch)
        if number is not None and self.jobs is not None:
            self.jobs.go_to(number)

    def state_dict(self) -> State:
        """Returns where the last iteration is, by batches yielded.

        It is JSON-compatible if what the sampler's ``state_dict`` returns is.
        """
        state = self.position.state_dict(self._numbers())
        if not state.keys() & {"generators", "after"}:  # before the first epoch
            state.update(start_of(self.sampler, self.generator))
        return state

    def load_state_dict(self, state: State) -> None:
        """Resumes from where :meth:`state_dict` was called; the next iteration yields the rest."""
        number = self.position.load(state, length_of(self.dataset), self._redraw)
        if "start" in state:
            here = start_of(self.sampler, self.generator)
            set_start(self.sampler, self.generator, state["start"])
            if here.get("start") != state["start"] and self.position.is_anothers(state):
                self._warn_of_another_rank(state["rank"])
        if "generators" not in state:
            set_epoch_of(self._ordered, self.position.epoch)
        if self.jobs is not None:
            self.jobs.go_to(number)

    def _redraw(self, state: State) -> None:
        """Draws an epoch which is over again; the program's generators keep their states.

        Its sampler and generators are then where it left them.
        """
        drawn = Drawn(self.sampler, self.generator, state, state["base_seed"], over=True)
        with generators_kept():
            if state["ended"]:
                next(drawn, None)
        if self._persistent:
            self.position.base_seed = state["base_seed"]

    def follow(self, other: Local) -> None:
        """Continues where another engine is."""
        self.position.follow(other.position)
        self._drawings = other._drawings
        if self.jobs is not None and other.jobs is not None:
            self.jobs.follow(other.jobs)
        self._counted = other._counted

    def close(self) -> None:
        """Ends the workers and leaves the jobs. Idempotent."""
        self.closed = True
        self.pools.close()
        if self.jobs is not None:
            self.jobs.close()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, contextlib may be gone before
            self.close()
        except Exception:  # half-made
            pass
