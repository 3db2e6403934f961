"""Any dataset that torch's loader takes: its items are made by worker processes, or in this one, in the sampler's order."""

from __future__ import annotations

import functools
import hashlib
import logging
import multiprocessing
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
import torch.utils.data

from .._arguments import whole_number
from .._recipe import generators_kept
from .._reports import Report, Stats
from .._results import Arena
from .._workers import Pool
from ..errors import ClosedError, ConfigError, MismatchError
from ._batch import pinned
from ._disjoint import Drawings
from ._drawn import Drawn, parts as samplers_in
from ._epochs import Batches, Draws, Epoch, ServedEpoch
from ._foreseen import ahead, most_batches, stand_in
from ._given import Given, Order
from ._init import WorkerInit
from ._items import Items, length_of
from ._parts import Parts, PartsOf
from ._states import of_another, process_rank

log = logging.getLogger("hdmlp")


class Local:
    """The batches of a loader that HDMLP's daemon does not serve.

    Args:
        loader: whose sampler, generator, workers and so on count.
        dataset: the items.
        collate: from items to a batch.
        seed: of the items' random numbers; None: drawn at each epoch's start, as torch draws its workers' seed.
        served: makes the daemon's part, where the items are samples of a folder; None: they are not.
        subset: which samples the items are; None: all.
        on_error: the job's policy for samples that cannot be used.
        drawings: where ranks that share epochs compare what they draw; None: they share nothing.
        parts: where ranks on several nodes may each give a part of the epochs; None: this rank reads by itself.

    Attributes:
        given: the daemon's part, once an epoch was begun; None: there is none.
    """

    def __init__(
        self,
        loader: torch.utils.data.DataLoader,
        dataset: Any,
        collate: Callable,
        seed: Optional[int],
        served: Optional[Callable[[int], Given]] = None,
        subset: Optional[Sequence[int]] = None,
        on_error: str = "raise",
        drawings: Optional[Drawings] = None,
        parts: Optional[PartsOf] = None,
    ):
        self._drawings = drawings
        self._parts = parts
        self._left: Optional[Parts] = (
            None  # the job that this rank has left: others may ask for what its node holds
        )
        self._served, self._subset, self._on_error = served, subset, on_error
        self._dataset = loader.dataset
        self._length = length_of(loader.dataset)  # when the epoch began
        self._subset_sum = (
            None if subset is None else hashlib.blake2b(subset.tobytes(), digest_size=8).hexdigest()
        )
        self._said_endless = self._said_unforeseen = False
        self.given: Optional[Given] = None
        self._job_seed = 0
        self._number: Optional[int] = (
            None  # of the next epoch in a job of several ranks, where a state says it
        )
        self._items = Items(dataset, collate, loader.batch_sampler is not None)
        self._sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        self._generator = loader.generator
        self._workers, self._prefetch = loader.num_workers, loader.prefetch_factor or 2
        self._context = loader.multiprocessing_context or multiprocessing.get_context()
        self._init = loader.worker_init_fn
        self._pin = loader.pin_memory
        self._timeout = loader.timeout
        self._persistent = loader.persistent_workers
        self._seed = seed
        self._arena = Arena()
        self._epoch = 0  # of the next iteration
        self._base_seed: Optional[int] = None
        self._resume: Optional[Dict[str, Any]] = None
        self._last: Optional["weakref.ref[Batches]"] = None
        self._pools: List[Any] = []  # of [pool, draws, who uses it]
        self._at: Optional[Dict[str, Any]] = None  # the state, once the last iteration is gone
        self._after: Optional[Dict[str, Any]] = (
            None  # the state of the epoch that ended before the next one begins
        )
        self._batches = self._samples = self._waits = self._stall = self._python = 0
        self._seconds = 0  # ns, from asking for epochs' first batches to yielding the last so far
        self._closed = False
        self._turn = threading.Lock()  # threads may iterate the loader side by side

    def __getstate__(self) -> Dict[str, Any]:
        return {
            **self.__dict__,
            "_pools": [],
            "_last": None,
            "_arena": Arena(),
            "given": None,
            "_left": None,
            "_parts": None,
            "_turn": None,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.Lock())

    def __iter__(self) -> Iterator[Any]:
        """The next epoch, or the rest of one after :meth:`load_state_dict`. What torch's loader draws here is drawn here."""
        if self._closed:
            raise ClosedError("the loader is closed")
        with self._turn:
            return self._next_epoch()

    def _next_epoch(self) -> Batches:
        resume, self._resume = self._resume, None
        self._length = length_of(self._dataset)
        base_seed = self._base_seed if resume is None else resume["base_seed"]
        most = 0 if self._served is None else most_batches(self._sampler, self._length or 0)
        stands = stand_in(self._sampler, self._dataset) if most else None
        foreseen = (
            None if stands is None else ahead(stands, self._generator, resume, base_seed, most)
        )
        drawn = Drawn(self._sampler, self._generator, resume, base_seed)
        if drawn.follows and not resume["drawn"]:
            self._say_of_another(resume["rank"])
        if resume is None and self._drawings is not None:
            drawn.on_end = functools.partial(self._leave, self._epoch)
        endless = self._served is not None and (not most or stands is not None and foreseen is None)
        if endless:
            self._say_endless()
        if self._persistent:  # torch draws it once for workers that stay
            self._base_seed = drawn.base_seed
        epoch = self._epoch
        self._epoch += 1
        seed = drawn.base_seed if self._seed is None else self._seed
        here = self._served is None or endless or foreseen == []
        if not here or self._parts is not None:
            self._open_given(seed, epoch, self._after if resume is None else resume)
        if here:
            iteration: Batches = Epoch(self, drawn, epoch, seed)
            iteration.before = functools.partial(
                self.leave_parts,
                "its sampler does not say where its epochs end"
                if endless
                else "its sampler yields nothing",
            )
        else:
            iteration = ServedEpoch(self, drawn, epoch, foreseen, most)
        if self._parts is not None and self._parts.why:
            iteration.before = functools.partial(self.leave_parts, self._parts.why)
        self._last = weakref.ref(iteration)
        self._at, self._after = iteration.state(), None
        return iteration

    def _leave(self, epoch: int, indices: bytes) -> None:
        """Has the ranks compare what they drew, once."""
        drawings, self._drawings = self._drawings, None
        if drawings is not None:
            drawings.leave(epoch, indices, self._length)

    def _sampler_name(self) -> str:
        return type(
            self._sampler
            if type(self._sampler) is not torch.utils.data.BatchSampler
            else self._sampler.sampler
        ).__name__

    def _say_of_another(self, rank: Any) -> None:
        """Says that another rank's generators are gone on with, unless it was a framework that has them alike on all ranks."""
        if not any(
            type(part).__module__.startswith("accelerate.")
            for _, part in samplers_in(self._sampler)
        ):
            log.warning(
                "the state is that of rank %s, and what %s yields follows from generators: this rank goes on as that one would, which is right only if "
                "they are the same on all ranks; else save the state of each rank, and load each rank's own",
                rank,
                self._sampler_name(),
            )

    def _say_endless(self) -> None:
        sampler = self._sampler_name()
        if self._on_error != "raise":
            raise ConfigError(
                f"on_error={self._on_error!r}: {sampler} does not say where its epochs end, or not rightly, so that files are read without the "
                "daemon, which alone leaves samples out; give the sampler a __len__ that holds, or on_error='raise'"
            )
        if not self._said_endless:
            self._said_endless = True
            log.warning(
                "%s does not say where its epochs end, or not rightly: files are read in Python, and nothing is cached; give it a __len__ that holds",
                sampler,
            )

    def order(self, batches: List[Any], epoch: int, first: int = 0) -> Order:
        """Batches of indices, from the epoch's ``first`` on, as the daemon is told them."""
        return Order(batches, self._subset, self.given.samples, epoch, first)

    def say_unforeseen(self) -> None:
        """Says once that what the sampler yields cannot be had ahead."""
        if not self._said_unforeseen:
            self._said_unforeseen = True
            log.warning(
                "%s: what it yields depends on what happens while its epoch is under way, or it cannot be copied: it is asked when torch's loader would ask it, "
                "and no more is read ahead; num_workers says how far that is",
                self._sampler_name(),
            )

    def _open_given(self, seed: int, epoch: int, resume: Optional[Dict[str, Any]]) -> None:
        if self.given is None:
            known = None if resume is None else resume.get("job_seed")
            self._job_seed = seed if known is None else known
            if self._parts is None:
                self.given = self._served(seed=self._job_seed)
            else:
                number = epoch if self._number is None else self._number
                self.given = self._parts.make(
                    seed=known, own_seed=seed, job=self._parts.job, epoch=number
                )
        theirs = None if resume is None else resume.get("fingerprint")
        if theirs not in (None, self.given.fingerprint):
            raise MismatchError(
                f"fingerprint is {self.given.fingerprint!r} here, but {theirs!r} in the saved state",
                {"key": "fingerprint", "mine": self.given.fingerprint, "theirs": theirs},
            )

    def leave_parts(self, why: str) -> None:
        """Has this rank read by itself from now on, and tells the others, if they have epochs in common."""
        if self._parts is None:
            return
        try:
            self.given.leave(why)
        except ConfigError as error:
            if not Parts.ends(error):
                raise
        self._go_apart()

    def goes_apart(self, error: BaseException) -> bool:
        """True if after this error the rank reads by itself."""
        if not Parts.ends(error):
            return False
        if self._parts is not None:  # else another iteration was told before
            log.warning(
                "%s. Each rank's node reads what its ranks need; no node asks another for it",
                str(error).rstrip("."),
            )
            self._go_apart()
        return True

    def _go_apart(self) -> None:
        self._left, self._parts = self.given, None
        self.given = self._served(seed=self._job_seed)

    @property
    def next_epoch(self) -> int:
        """The number of the next iteration's epoch."""
        return self._epoch

    def _next_job(self) -> int:
        """The number of the next job in which ranks have epochs in common: one that is over may not have ended yet."""
        return self.given.job + 1 if isinstance(self.given, Parts) else self._parts.job

    def follow(self, other: "Local") -> None:
        """Goes on where another one is."""
        self._epoch, self._resume, self._at, self._base_seed = (
            other._epoch,
            other._resume,
            other._at,
            other._base_seed,
        )
        self._drawings = other._drawings
        self._parts = (
            None
            if self._parts is None or other._parts is None
            else self._parts._replace(job=other._next_job())
        )
        self._after = other._after
        self._batches, self._samples, self._waits = other._batches, other._samples, other._waits
        self._stall, self._python, self._seconds = other._stall, other._python, other._seconds

    def report(self, cluster: bool = False) -> Report:
        """The daemon's ledger where it served the last epochs; else what this process counted."""
        if self.given is not None and self.given.opened:
            return self.given.report(cluster)
        counted, seconds = self.stats, self._seconds / 1e9
        utilisation = max(0.0, 1 - counted.stall / seconds) if seconds else 0.0
        sentence = (
            f"{counted.batches} batches of {counted.samples} items, made by this process or its workers; next() was blocked for "
            f"{counted.stall:.3f} s (utilisation {100 * utilisation:.1f} %)"
        )
        if counted.stall > 0.001:
            sentence += ", for Python's part of making batches (the dataset, collate_fn): give num_workers more processes"
        return Report(
            {
                "batches": counted.batches,
                "samples": counted.samples,
                "seconds": seconds,
                "stall_seconds": counted.stall,
                "stall": {"python": counted.python},
                "utilisation": utilisation,
                "sentence": f"{sentence}.",
            }
        )

    def explain(self, epoch: int, step: int, rank: Optional[int] = None) -> Any:
        """Not to be had: only iterating the sampler tells its order."""
        raise ConfigError(
            "explain: the order is the sampler's, which only iterating it tells; give shuffle=True and seed=, or a DistributedSampler"
        )

    @property
    def output(self) -> None:
        """Nothing that could be told before the first epoch."""
        return None

    @property
    def seed(self) -> int:
        """The seed of the items' random numbers.

        Raises:
            ConfigError: it is drawn anew at each epoch's start.
        """
        if self._seed is None:
            raise ConfigError(
                "seed: the order is the sampler's, and has none that is the loader's; give seed="
            )
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """The number of the next epoch, on which its items' random numbers depend where there is a seed; its order is the sampler's."""
        if self._resume is None:
            self._epoch = whole_number("epoch", epoch, 0)
            self._go_to(self._epoch)

    def _go_to(self, number: int) -> None:
        self._number = number
        if isinstance(self.given, Parts):
            self.given.next = number

    def pool(self, user: Epoch) -> Any:
        """Workers that no other iteration uses, and what hands them their tasks."""
        for entry in list(self._pools):
            pool, draws, uses = entry
            other = uses()
            if other is not None and not other.over:
                continue
            if self._persistent and not pool.broken:
                entry[2] = weakref.ref(user)
                return entry
            # As in torch: a new epoch's workers see the dataset as it is now.
            pool.close()
            draws.close()
            self._pools.remove(entry)
        pool, draws = (
            Pool(
                self._items,
                self._workers,
                self._prefetch,
                self._context,
                WorkerInit(self._init, self._items.dataset, self._workers, True),
            ),
            Draws(),
        )
        pool.attach(draws)
        self._pools.append([pool, draws, weakref.ref(user)])
        return self._pools[-1]

    def close(self) -> None:
        """Ends the workers. Idempotent."""
        self._closed = True
        for pool, draws, _ in self._pools:
            pool.close()
            draws.close()
        self._pools = []
        for jobs in (self.given, self._left):
            if jobs is not None:
                jobs.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass

    def counted(self, iteration: Batches, samples: int, stall: int, python: int) -> None:
        """Notes a batch that is handed over now. ``stall``: ns blocked for it; ``python``: the part of them in which Python made it."""
        self._batches += 1
        self._samples += samples
        if stall:
            self._waits += 1
            self._stall += stall
            self._python += python
        now = time.perf_counter_ns()
        self._seconds += now - (iteration.at or now - stall)
        iteration.at = now
        if self._last is not None and self._last() is iteration:
            self._at = iteration.state()
            if iteration.complete:  # nobody need ask for one more batch, and Lightning does not
                self.ended(iteration)

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return Stats(
            self._batches, self._samples, self._waits, self._stall / 1e9, self._python / 1e9
        )

    def state_dict(self) -> Dict[str, Any]:
        """Where the last iteration is, by batches yielded; JSON-compatible if what the sampler's ``state_dict`` returns is."""
        if self._resume is not None:
            return dict(self._resume)
        if self._at is None:
            return {**self.head(self._epoch), "step": 0}
        return dict(self._at)

    def head(self, epoch: int) -> Dict[str, Any]:
        """What every state begins with."""
        number = {"number": self.given.next} if isinstance(self.given, Parts) else {}
        return {
            "version": 1,
            "kind": "sampler",
            "epoch": epoch,
            **number,
            "rank": process_rank(),
            **self._facts(),
        }

    def _facts(self) -> Dict[str, Any]:
        """What a loader that goes on from a state must have as well."""
        return {
            key: value
            for key, value in (
                ("seed", self._seed),
                ("samples", self._length),
                ("subset", self._subset_sum),
            )
            if value is not None
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; the next iteration yields the rest of that epoch."""
        if not isinstance(state, dict) or state.get("version") != 1:
            raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
        if state.get("kind") != "sampler":
            raise ConfigError(
                f"the state is of a loader whose order follows from its arguments (shuffle={state.get('shuffle')!r}, "
                f"seed={state.get('seed')}), and this one's from a sampler: make the loader as that one was made"
            )
        if self._seed is None:
            self._seed = state.get("seed")
        self._length = length_of(self._dataset)
        mine = self._facts()
        for key in ("seed", "samples", "subset"):
            if mine.get(key) != state.get(key):
                then = f": make the loader with seed={state.get(key)!r}" if key == "seed" else ""
                raise MismatchError(
                    f"{key} is {mine.get(key)!r} here, but {state.get(key)!r} in the saved state, of epoch {state.get('epoch')}{then}",
                    {"key": key, "mine": mine.get(key), "theirs": state.get(key)},
                )
        self._epoch = whole_number("epoch of the state", state.get("epoch"), 0)
        self._go_to(whole_number("number of the state", state.get("number", self._epoch), 0))
        if (
            state.get("rank") != process_rank()
        ):  # accelerate keeps one rank's for all; what the others drew cannot be compared with theirs
            state = of_another(state)
        self._resume = state if "generators" in state else None
        self._at, self._after = None, state.get("after")
        if self._after is not None:
            self._pass(self._after)
            self._at = state

    def _pass(self, state: Dict[str, Any]) -> None:
        """Draws an epoch that is over again, so that its sampler and generators are where it left them; the program's are kept."""
        drawn = Drawn(self._sampler, self._generator, state, state["base_seed"], over=True)
        with generators_kept():
            if state["ended"]:
                next(drawn, None)
        if self._persistent:
            self._base_seed = state["base_seed"]

    def ended(self, iteration: Batches) -> None:
        """Notes that an epoch is over: from now on the state is the next one's beginning."""
        if self._last is not None and self._last() is iteration:
            self._after = {**iteration.state(), "ended": iteration.ended}
            self._at = {**self.head(iteration._epoch + 1), "step": 0, "after": self._after}

    def make_here(self, seed: int, epoch: int, step: int, indices: Any) -> Any:
        """The batch, made in this process."""
        with generators_kept():
            return self._items.batch(seed, epoch, step, indices, self._arena)

    def pinned(self, batch: Any) -> Any:
        """The batch, in pinned memory if that was asked for and can be had."""
        return pinned(batch) if self._pin and torch.cuda.is_available() else batch
