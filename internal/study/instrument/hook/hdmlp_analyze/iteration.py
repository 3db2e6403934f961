"""What a script iterates in the place of a loader's own iterator, and which loader is measured.

The first loader that is iterated for training is measured: one whose batches are asked for while
gradients are computed, or, if there is no such loader, one that is iterated for long. If it gives a
few batches only, to be looked at, the next one is. All others are left alone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable

from . import description, replacement
from .channel import Gone
from .session import VALIDATES, Session, gradients

#: After so many iterations a loader is measured although no gradients are computed.
PATIENCE = 60

#: This process's session; None: no loader is measured yet.
_session: Session | None = None
#: Nothing is measured in this process.
_off = False
#: Loaders that were iterated and are not measured, described.
_others: dict[int, str] = {}


def is_over() -> bool:
    """Reports whether nothing is measured any more."""
    return _off or (_session is not None and _session.over)


def _forget() -> None:
    """Has a forked process measure loaders of its own."""
    global _session, _off
    _off = is_over()
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
    if is_over() or _making.now or _in_worker():
        return original(loader)
    return Iterator(loader, original, kind)


class _Making(threading.local):
    """Whether a loader is making its iterator: loaders that it uses for that are its own."""

    now = False


_making = _Making()


def _in_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


class Iterator:
    """An iterator over a loader's batches.

    Args:
        loader: The loader.
        original: The ``__iter__`` of its class.
        kind: Whose loader it is.

    Attributes:
        making: Seconds that making the loader's own iterator took, and that no batch has counted.
        given: How many batches it has given that were not measured.
        counts: It is one of the epochs that the session has counted.
    """

    def __init__(self, loader: Any, original: Callable[[Any], Any], kind: str):
        self.loader, self.kind, self.original = loader, kind, original
        self.making = 0.0
        self.given = 0
        self.counts = False
        self._inner: Any = None
        if _session is None or not _session.needs_no_loader:
            self._open()

    def _open(self) -> None:
        began = time.perf_counter()
        _making.now = True
        try:
            replacing = replacement.of(self.loader) if VALIDATES and self.kind == "torch" else None
            self._inner = self.original(self.loader) if replacing is None else iter(replacing)
            if replacing is not None and not replacement.WORKERS:
                self.kind = "hdmlp"
        finally:
            _making.now = False
        self.making = time.perf_counter() - began

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        session = self._measured()
        if session is not None:
            return session.next(self)
        self.given += 1
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
        if is_over():
            return None
        if _session is None and (gradients() or self.given >= PATIENCE):
            try:
                _session = Session.begin(self, _others)
            except Gone:
                _off = True
            _off = _off or _session is None
        if _session is None:
            _others[id(self.loader)] = description.short(self.loader)
            return None
        if _session.is_about(self.loader):
            return _session if _session.trains() and not _session.passes_over(self) else None
        if gradients() and _session.gives_way(self.given):
            _session.move(self)
            return _session
        _session.note_other(self.loader)
        return None
