"""The phases of one process: the job as it is, training alone, preparation alone.

States of a :class:`Session`: AS_IS, in which the loader's batches are passed on; TRAINING, in which
a few kept ones are, again and again; ENDED. They follow each other at iterations that all ranks
agree on (schedule.py). With the first iteration of ENDED the script pauses in ``next()``,
preparation is measured, and the script is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import weakref
from typing import Any, Callable, Protocol

from . import description, place, preparation
from .channel import SETTINGS, Channel, Gone
from .claim import Claim
from .commands import Commands
from .device import Device
from .ending import Ended, end_later
from .kept import Kept
from .meeting import Lost, Refused
from .queued import Draining
from .schedule import Schedule

AS_IS, TRAINING, ENDED = range(3)

#: Iterations that are not counted, at the beginning of a phase.
WARM_UP = 5
#: The share of the time for the job as it is until its queue is taken to be full always.
DRAINING = 0.25
#: Iterations that a phase counts at least, unless it takes OVERTIME times its time.
LEAST = 10
OVERTIME = 3
#: Seconds after which iterations of the job as it is are sent, so that they count however the
#: script ends.
SENT_EVERY = 1.0
#: Another loader takes the place of torch's, and only the job as it is then is measured.
VALIDATES: bool = SETTINGS["validate"]


def gradients() -> bool:
    """Reports whether gradients are computed, or nothing is known of them."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


class Iterated(Protocol):
    """What a script iterates in the place of a loader's own iterator (iteration.Iterator)."""

    loader: Any
    kind: str
    original: Callable[[Any], Any]
    making: float
    given: int
    counts: bool

    def own(self) -> Any:
        """Returns the next batch of the loader itself."""

    def drop(self) -> None:
        """Ends the loader's own iterator, with its workers."""


class Session:
    """The measurements of one process.

    Args:
        iterator: What iterates the loader to be measured.
        where: The process's place.
        claim: Its right to be measured.
        schedule: When phases begin.
        channel: A connection.

    Attributes:
        over: Nothing is measured any more.
    """

    def __init__(
        self,
        iterator: Iterated,
        where: place.Place,
        claim: Claim,
        schedule: Schedule | Commands,
        channel: Channel,
    ):
        self.over = False
        self._take(iterator)
        self._channel, self._rank, self._ranks = channel, where.rank, where.ranks
        self._claim, self._schedule = claim, schedule
        self._noted: set[int] = set()
        self._unsaid: dict[int, str] = {}  # of these, loaders that were not reported yet, described
        self._pid = os.getpid()
        self._phase = AS_IS
        self._iteration = 0  # of all phases, from 1
        self._epochs = 0  # that have begun
        self._of: Iterated | None = None  # that gave the last batch
        self._last: weakref.ref[Iterated] | None = None  # that is measured
        self._left: weakref.WeakSet[Iterated] = weakref.WeakSet()  # that were, before it
        self._beside: weakref.WeakSet[Iterated] = weakref.WeakSet()  # in turn with these
        self._returned = 0.0  # when it was given
        self._waited = 0.0  # for it
        self._counted: list[list[Any]] = []  # iterations of the phase
        self._seen = 0  # iterations of the phase, with those that are not counted
        self._since = 0.0  # when counting began
        self._draining = self._drained()
        self._samples = 0  # of the last batch
        self._sent = 0  # iterations of those that are counted
        self._sent_at = 0.0
        self._kept = Kept()
        self._device = Device()

    def _take(self, iterator: Iterated) -> None:
        self._loader, self._kind = iterator.loader, iterator.kind
        self._dataset = description.dataset_of(iterator.loader)
        self._original = iterator.original
        self._gradients = gradients()

    @classmethod
    def begin(cls, iterator: Iterated, others: dict[int, str]) -> Session | None:
        """Returns a session; None: this process measures nothing.

        Args:
            iterator: What iterates the loader to be measured.
            others: Loaders that were iterated before, described, by their identity.

        Raises:
            Gone: hdmlp analyze has ended.
        """
        where = place.find()
        channel = Channel()
        try:
            claim = Claim(where.rank)
        except OSError as error:
            was = "was" if isinstance(error, FileExistsError) else "is"
            channel.note(
                "",
                f"{sys.argv[0] or 'a program'}, process {os.getpid()}, iterates "
                f"{description.short(iterator.loader)} as well, and is not measured: another "
                f"process of rank {where.rank} {was}",
            )
            channel.close()
            return None
        schedule: Schedule | Commands
        try:
            alone = where.nodes == 1 or (where.nodes == 0 and not place.is_distributed())
            schedule = Schedule(where.ranks) if alone else Commands(where)
        except (Refused, Lost) as error:
            channel.send("refused" if isinstance(error, Refused) else "lost", text=str(error))
            return None
        session = cls(iterator, where, claim, schedule, channel)
        session._noted, session._unsaid = set(others), dict(others)
        session._tell_loader()
        atexit.register(session.leave)
        return session

    def _tell_loader(self) -> None:
        self._noted.discard(id(self._loader))
        self._unsaid.pop(id(self._loader), None)
        facts = description.of(self._loader, self._kind)
        if VALIDATES and self._kind == "torch":
            facts["workers"] = SETTINGS["workers"]
        self._channel.send("loader", pid=os.getpid(), rank=self._rank, ranks=self._ranks, **facts)

    def gives_way(self, given: int) -> bool:
        """Reports whether another loader is the one of the training.

        Scripts look at a batch of some loader before they train, and compute gradients then. It is
        another one if that has given more batches than the measured one, of which none counts yet.

        Args:
            given: How many batches the other one has given in this epoch.
        """
        return self._is_open() and given > self._iteration

    def _is_open(self) -> bool:
        return self._phase == AS_IS and self._seen <= WARM_UP

    def move(self, iterator: Iterated) -> None:
        """Measures another loader from now on.

        Raises:
            Gone: hdmlp analyze has ended.
        """
        self.note_other(self._loader)
        self._take(iterator)
        self._iteration, self._seen, self._of = iterator.given, 0, None
        self._epochs, self._draining = 0, self._drained()
        self._tell_loader()

    def _drained(self) -> Draining:
        """Returns what leaves out batches that the loader may have queued."""
        queues = self._kind != "torch" or bool(getattr(self._loader, "num_workers", 1))
        return Draining(DRAINING * SETTINGS["as_is"] if queues else 0.0)

    def is_about(self, loader: Any) -> bool:
        """Reports whether the loader is the measured one, or a new one for the same dataset.

        Scripts that resample make a new dataset for each epoch: one of the same class and length,
        over which gradients are computed, counts as the same.
        """
        if loader is self._loader:
            return True
        dataset = description.dataset_of(loader)
        if dataset is None or dataset is self._dataset:
            return dataset is not None
        return (
            type(dataset) is type(self._dataset)
            and gradients()
            and description.length(dataset) == description.length(self._dataset) is not None
        )

    def passes_over(self, iterator: Iterated) -> bool:
        """Notices that this iterator is asked for a batch, and reports whether it is not measured.

        It is not if a script takes batches from it in turn with the measured one: of loaders for
        one dataset, or iterators of one loader, the first is measured then. A later one counts as
        that of another epoch until an earlier one goes on.
        """
        if iterator in self._beside:
            return True
        last = None if self._last is None else self._last()
        if iterator is last:
            return False
        if last is not None:
            if iterator in self._left:
                self._beside.add(last)
                self._left.clear()
                if last.loader is not self._loader:
                    self.note_other(last.loader)
            else:
                self._left.add(last)
        self._last = weakref.ref(iterator)
        return False

    def trains(self) -> bool:
        """Reports whether the measured loader's batches are for training, not for an evaluation."""
        return gradients() or not self._gradients

    @property
    def needs_no_loader(self) -> bool:
        """Whether batches come from those that were kept."""
        return self._kept.full

    def note_other(self, loader: Any) -> None:
        """Tells once that a loader is iterated and not measured, when it is certain which is."""
        if id(loader) not in self._noted:
            self._noted.add(id(loader))
            self._unsaid[id(loader)] = description.short(loader)

    def _say_others(self) -> None:
        for text in self._unsaid.values():
            self._channel.note(
                "",
                f"another loader, {text}, is iterated as well; the measured one is "
                f"{description.short(self._loader)}, the first that is iterated for training",
            )
        self._unsaid.clear()

    def next(self, iterator: Iterated) -> Any:
        """Returns the script's next batch, or ends the script."""
        if self._phase == TRAINING:
            self._device.end()
        self._end_iteration(iterator, time.perf_counter())
        self._iteration += 1
        try:
            training, ended = self._changes_to(TRAINING), self._changes_to(ENDED)
        except (Refused, Lost) as error:
            return self._abandon(iterator, error)
        if training:
            self._claim.keep()
            self._end_phase()
            if VALIDATES:
                self._phase = ENDED
                self._finish(iterator)
            self._channel.send("phase", name="training")
        if ended:
            self._end_phase()
            self._finish(iterator)
        if time.perf_counter() - self._sent_at > SENT_EVERY:
            self._send()
        try:
            return self._as_is(iterator) if self._phase == AS_IS else self._ready(iterator)
        except StopIteration:
            self._of = None
            raise

    def _end_iteration(self, iterator: Iterated, now: float) -> None:
        """Counts the iteration that ends as the script asks for another batch."""
        if self._of is not iterator:
            self._of = None
            return
        self._seen += 1
        step = now - self._returned
        if self._seen <= WARM_UP or self._is_early(now, step):
            self._since = now
            return
        if self._phase == AS_IS:
            self._counted.append([self._waited, step, self._samples, self._epochs])
        else:
            self._counted.append([step, self._device.seconds, self._samples])

    def _is_early(self, now: float, step: float) -> bool:
        """Reports whether the iteration is too early to be counted.

        Training is slowed down while the loader still prepares batches ahead, and a validation
        counts epochs after the first, whose samples are in caches.
        """
        if self._phase == AS_IS:
            if VALIDATES:
                return self._epochs < 2
            return self._draining.goes_on(now, self._waited, step)
        settled = self._kept.full and now - self._kept.since > SETTINGS["training"] / 5
        return not self._counted and not settled

    def _changes_to(self, phase: int) -> bool:
        if self._phase != phase - 1:
            return False
        if self._rank == 0 and self._is_enough():
            self._schedule.announce(phase, self._iteration)
        return self._schedule.has_begun(phase, self._iteration)

    def _is_enough(self) -> bool:
        if not self._counted:
            return False
        least = SETTINGS["as_is" if self._phase == AS_IS else "training"]
        passed = time.perf_counter() - self._since
        return passed >= least and (len(self._counted) >= LEAST or passed >= OVERTIME * least)

    def _as_is(self, iterator: Iterated) -> Any:
        began = time.perf_counter()
        batch = iterator.own()
        return self._give(iterator, batch, time.perf_counter() - began + iterator.making)

    def _ready(self, iterator: Iterated) -> Any:
        was_full = self._kept.full
        batch = self._kept.next(self._iteration, iterator.own)
        if self._kept.full and not was_full:
            iterator.drop()
        self._device.begin()
        return self._give(iterator, batch, 0.0)

    def _give(self, iterator: Iterated, batch: Any, waited: float) -> Any:
        iterator.making = 0.0
        if not iterator.counts:  # scripts need not iterate to the end
            iterator.counts, self._epochs = True, self._epochs + 1
        self._of, self._waited = iterator, waited
        self._samples = description.samples(self._loader, batch)
        self._returned = time.perf_counter()
        return batch

    def _send(self) -> None:
        """Sends those iterations of the phase that were not sent yet."""
        if not self._is_open():
            self._say_others()
        name = ("as_is", "training")[self._phase]
        self._channel.send(name, iterations=self._counted[self._sent :])
        self._sent, self._sent_at = len(self._counted), time.perf_counter()

    def _end_phase(self) -> None:
        self._send()
        self._phase += 1
        self._counted, self._sent, self._seen, self._of = [], 0, 0, None

    def _abandon(self, iterator: Iterated, error: Refused | Lost) -> Any:
        """Measures no more, reports why, and goes on with the script."""
        self.over = True
        with contextlib.suppress(Gone):
            self._channel.send("refused" if isinstance(error, Refused) else "lost", text=str(error))
        return iterator.own()

    def leave(self) -> None:
        """Sends what is known when the script ends by itself."""
        if self._phase == ENDED or os.getpid() != self._pid:
            return
        with contextlib.suppress(Gone):
            self._say_others()
            self._send()

    def _finish(self, iterator: Iterated) -> None:
        """Measures preparation, and ends the script.

        Raises:
            Ended: Always.
        """
        iterator.drop()
        self._kept.clear()
        try:
            if not VALIDATES:
                preparation.measure(
                    self._loader, self._original, self._kind, self._schedule.here, self._channel
                )
            self._channel.send("end")
        except Gone:
            pass
        except Exception as error:  # the script's own code, on samples of its dataset
            self._channel.note("preparation", f"it failed: {type(error).__name__}: {error}")
            self._channel.send("end")
        self.over = True
        self._channel.close()
        end_later()
        raise Ended(0)
