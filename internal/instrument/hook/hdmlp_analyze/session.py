"""The phases of one process: the job as it is, training alone, preparation alone.

A script iterates an :class:`Iterator` in the place of a loader's own. The first loader that is
iterated for training is measured: one whose batches are asked for while gradients are computed, or,
if there is no such loader, one that is iterated for long. All others are left alone.

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
import threading
import time
from typing import Any, Callable

from . import batches, description, place, preparation, replacement
from .channel import SETTINGS, Channel, Gone, path
from .device import Device
from .ending import Ended, end_later
from .schedule import Schedule

AS_IS, TRAINING, ENDED = range(3)

#: Iterations that are not counted, at the beginning of a phase.
WARM_UP = 5
#: Iterations that a phase counts at least, unless it takes OVERTIME times its time.
LEAST = 10
OVERTIME = 3
#: After so many iterations a loader is measured although no gradients are computed.
PATIENCE = 60
#: How many batches are kept, and how many bytes they take at most unless one takes more.
KEPT, KEPT_BYTES = 4, 256 << 20
#: hdmlp's loader takes the place of torch's, and only the job as it is then is measured.
VALIDATES: bool = SETTINGS["validate"]


#: This process's session; None: no loader is measured yet.
_session: Session | None = None
#: Nothing is measured in this process.
_off = False
#: Loaders that were iterated and are not measured, described.
_others: dict[int, str] = {}


def _forget() -> None:
    """Has a forked process measure loaders of its own."""
    global _session
    _session = None
    _others.clear()


os.register_at_fork(after_in_child=_forget)


def iterate(loader: Any, original: Callable[[Any], Any], kind: str) -> Any:
    """Returns what a script iterates.

    Args:
        loader: A loader.
        original: The ``__iter__`` of its class.
        kind: Whose loader it is: ``"torch"`` or ``"hdmlp"``.
    """
    if _off or _making.now or _in_worker():
        return original(loader)
    return Iterator(loader, original, kind)


class _Making(threading.local):
    """Whether a loader is making its iterator: loaders that it uses for that are its own."""

    now = False


_making = _Making()


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _gradients() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


class Iterator:
    """An iterator over a loader's batches.

    Args:
        loader: The loader.
        original: The ``__iter__`` of its class.
        kind: Whose loader it is.

    Attributes:
        making: Seconds that making the loader's own iterator took, and that no batch has counted.
    """

    def __init__(self, loader: Any, original: Callable[[Any], Any], kind: str):
        self.loader, self.kind, self.original = loader, kind, original
        self.making = 0.0
        self._given = 0
        self._inner: Any = None
        if _session is None or not _session.needs_no_loader:
            self._open()

    def _open(self) -> None:
        began = time.perf_counter()
        _making.now = True
        try:
            replacing = replacement.of(self.loader) if VALIDATES and self.kind == "torch" else None
            self._inner = self.original(self.loader) if replacing is None else iter(replacing)
            self.kind = self.kind if replacing is None else "hdmlp"
        finally:
            _making.now = False
        self.making = time.perf_counter() - began

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        session = self._measured()
        if session is not None:
            return session.next(self)
        self._given += 1
        return self.own()

    def own(self) -> Any:
        """Returns the next batch of the loader itself."""
        if self._inner is None:
            self._open()
        return next(self._inner)

    def drop(self) -> None:
        """Ends the loader's own iterator, with its workers."""
        self._inner = None

    def __len__(self) -> int:
        return len(self.loader if self._inner is None else self._inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _measured(self) -> Session | None:
        """Returns the session if this loader is the one that is measured."""
        global _session, _off
        if _off:
            return None
        if _session is None and (_gradients() or self._given >= PATIENCE):
            try:
                _session = Session.begin(self)
            except Gone:
                _off = True
            _off = _off or _session is None
        if _session is None:
            _others[id(self.loader)] = description.short(self.loader)
            return None
        if _session.is_about(self.loader):
            return _session
        _session.note_other(self.loader)
        return None


class Session:
    """The measurements of one process.

    Args:
        iterator: What iterates the loader to be measured.
        where: The process's place among the ranks.
        channel: A connection.
    """

    def __init__(self, iterator: Iterator, where: place.Place, channel: Channel):
        self._loader, self._kind = iterator.loader, iterator.kind
        self._dataset = description.dataset_of(iterator.loader)
        self._original = iterator.original
        self._channel, self._rank = channel, where.rank
        self._schedule = Schedule(where.ranks)
        self._noted: set[int] = set()
        self._pid = os.getpid()
        self._phase = AS_IS
        self._iteration = 0  # of all phases, from 1
        self._epochs = 0  # that have ended
        self._of: Iterator | None = None  # that gave the last batch
        self._returned = 0.0  # when it was given
        self._waited = 0.0  # for it
        self._counted: list[list[Any]] = []  # iterations of the phase
        self._seen = 0  # iterations of the phase, with those that are not counted
        self._since = 0.0  # when counting began
        self._samples = 0  # of the last batch
        self._kept: list[Any] = []
        self._full = False  # no more batches are kept
        self._filled = 0.0  # when that was
        self._device = Device()

    @classmethod
    def begin(cls, iterator: Iterator) -> Session | None:
        """Returns a session; None: this process measures nothing."""
        where = place.find()
        channel = Channel()
        if where.nodes > 1:
            channel.send("refused", text=f"the job has {where.nodes} nodes")
            return None
        try:
            os.close(os.open(path(f"rank-{where.rank}"), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            channel.note(
                "",
                f"process {os.getpid()} iterates a loader as well; another process of the same "
                "rank was measured",
            )
            channel.close()
            return None
        channel.send(
            "loader",
            pid=os.getpid(),
            rank=where.rank,
            ranks=where.ranks,
            **description.of(iterator.loader, iterator.kind),
        )
        session = cls(iterator, where, channel)
        for text in _others.values():
            session._note_other(text)
        atexit.register(session.leave)
        return session

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
            and _gradients()
            and description.length(dataset) == description.length(self._dataset) is not None
        )

    @property
    def needs_no_loader(self) -> bool:
        """Whether batches come from those that were kept."""
        return self._full

    def note_other(self, loader: Any) -> None:
        """Tells once that a loader is iterated and not measured."""
        if id(loader) not in self._noted:
            self._noted.add(id(loader))
            self._note_other(description.short(loader))

    def _note_other(self, text: str) -> None:
        self._channel.note(
            "",
            f"another loader, {text}, is iterated as well; the measured one is "
            f"{description.short(self._loader)}, the first that is iterated for training",
        )

    def next(self, iterator: Iterator) -> Any:
        """Returns the script's next batch, or ends the script."""
        if self._phase == TRAINING:
            self._device.end()
        self._end_iteration(iterator, time.perf_counter())
        self._iteration += 1
        if self._changes_to(TRAINING):
            self._send()
            if VALIDATES:
                self._phase = ENDED
                self._finish(iterator)
            self._channel.send("phase", name="training")
        if self._changes_to(ENDED):
            self._send()
            self._finish(iterator)
        try:
            return self._as_is(iterator) if self._phase == AS_IS else self._ready(iterator)
        except StopIteration:
            self._of = None
            self._epochs += 1
            raise

    def _end_iteration(self, iterator: Iterator, now: float) -> None:
        """Counts the iteration that ends as the script asks for another batch."""
        if self._of is not iterator:
            self._of = None
            return
        self._seen += 1
        if self._seen <= WARM_UP or self._is_early(now):
            self._since = now
            return
        step = now - self._returned
        if self._phase == AS_IS:
            self._counted.append([self._waited, step, self._samples])
        else:
            self._counted.append([step, self._device.seconds, self._samples])

    def _is_early(self, now: float) -> bool:
        """Reports whether the iteration is too early to be counted.

        Training is slowed down while the loader still prepares batches ahead, and a validation
        counts epochs after the first, whose samples are in caches.
        """
        if self._phase == AS_IS:
            return VALIDATES and self._epochs == 0
        settled = self._full and now - self._filled > SETTINGS["training"] / 5
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

    def _as_is(self, iterator: Iterator) -> Any:
        began = time.perf_counter()
        batch = iterator.own()
        return self._give(iterator, batch, time.perf_counter() - began + iterator.making)

    def _ready(self, iterator: Iterator) -> Any:
        """Returns a copy of a batch that was kept, so that nothing the script does changes it."""
        if not self._full:
            try:
                batch = iterator.own()
            except StopIteration:
                if not self._kept:
                    raise
                self._full = True
            else:
                self._kept.append(batches.copied(batch))
                each = batches.size(self._kept) / len(self._kept)
                self._full = len(self._kept) == KEPT or batches.size(self._kept) + each > KEPT_BYTES
            if self._full:
                iterator.drop()
                self._filled = time.perf_counter()
        batch = batches.copied(self._kept[self._iteration % len(self._kept)])
        self._device.begin()
        return self._give(iterator, batch, 0.0)

    def _give(self, iterator: Iterator, batch: Any, waited: float) -> Any:
        iterator.making = 0.0
        self._of, self._waited = iterator, waited
        self._samples = description.samples(self._loader, batch)
        self._returned = time.perf_counter()
        return batch

    def _send(self) -> None:
        """Sends the iterations of a phase, which is over."""
        name = ("as_is", "training")[self._phase]
        self._channel.send(name, iterations=self._counted)
        self._phase += 1
        self._counted, self._seen, self._of = [], 0, None

    def leave(self) -> None:
        """Sends what is known when the script ends by itself."""
        if self._phase == ENDED or os.getpid() != self._pid:
            return
        with contextlib.suppress(Gone):
            self._send()

    def _finish(self, iterator: Iterator) -> None:
        """Measures preparation, and ends the script.

        Raises:
            Ended: Always.
        """
        global _off
        iterator.drop()
        self._kept.clear()
        try:
            if not VALIDATES:
                preparation.measure(self._loader, self._original, self._kind, self._channel)
            self._channel.send("end")
        except Gone:
            pass
        except Exception as error:  # the script's own code, on samples of its dataset
            self._channel.note("preparation", f"it failed: {type(error).__name__}: {error}")
            self._channel.send("end")
        _off = True
        self._channel.close()
        end_later()
        raise Ended(0)
