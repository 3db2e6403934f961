"""Which global generators the items that threads make have called.

A state that is the same before and after does not show that items left a generator alone: an item
may keep the state, seed, draw, and restore it, as ``torch.random.fork_rng`` does, and others that
are made at the same time then draw from its seed. So calls are noted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Protocol

from .generators import forget_numpys, present


class _Noting(Protocol):
    """What is used of a bit generator of numpy's that notes calls."""

    noted_by: Touching
    state: object


class Touching:
    """Notes calls of the generators' methods while items are made.

    Python's and torch's are found by a profile function of each thread, also of those that items
    start with ``threading``. If another profile function replaces it, all count as called. numpy's
    methods are not seen by it: its bit generator is replaced by an equal one that notes what it is
    asked for.

    Attributes:
        names: Of the generators that were called.
        on: Whether calls of numpy's are noted at the moment.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.on = False
        self._replaceable = True
        self._attached = False
        self._in_new_threads = 0  # blocks in which threads that start are profiled

    def attach(self) -> None:
        """Has numpy's calls noted here from now on, if it is imported.

        A bit generator that cannot be replaced counts as called by all items. Nor is one replaced
        that others refer to, as a ``Generator`` of ``numpy.random.get_bit_generator()`` does: they
        would no longer share its state.
        """
        self._attached = True
        if not self._replaceable:
            return
        rand = getattr(getattr(sys.modules.get("numpy.random"), "mtrand", None), "_rand", None)
        if rand is None:
            return
        try:
            bits = rand._bit_generator
            if hasattr(bits, "noted_by"):
                bits.noted_by = self
                return
            forget_numpys()  # which refers to it
            alone = type(rand)()
            fresh = alone._bit_generator
            if sys.getrefcount(bits) != sys.getrefcount(fresh):
                self._replaceable = False
                return
            state = rand.get_state(legacy=False)
            noting = _noting(type(bits))()
        except (AttributeError, TypeError):
            # Another release, or a bit generator of the program's own, made with arguments.
            self._replaceable = False
            return
        noting.noted_by = self
        noting.replaced = bits  # stays, as another thread of the program's may be drawing from it
        rand.__init__(noting)
        rand.set_state(state)
        forget_numpys()

    def note_numpys(self) -> None:
        if self.on:
            self.names.add("numpy")

    def note_all(self) -> None:
        """Counts all generators as called, as calls cannot be noted."""
        self.names.update(generator.name for generator in present())

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes calls in a ``with`` block: of numpy's generator, of whatever thread.

        Those of the others are noted in threads that start in the block.
        """
        self.on = True
        if not self._replaceable:
            self.note_numpys()
        try:
            with self.in_new_threads():
                yield
        finally:
            self.on = False

    @contextmanager
    def in_new_threads(self) -> Iterator[None]:
        """Notes calls of Python's and torch's generators in threads that start in the block."""
        # Python 3.9 has no threading.getprofile.
        before = threading._profile_hook
        if before is not None and before != self._called:
            self.note_all()
            yield
            return
        self._in_new_threads += 1
        threading.setprofile(self._called)
        try:
            yield
        finally:
            threading.setprofile(before)
            self._in_new_threads -= 1

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """Notes calls of Python's and torch's generators that this thread makes in the block.

        It lies within :meth:`noting`.
        """
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Notes calls of Python's and torch's generators that this thread makes from now on."""
        # A thread that started in a block of in_new_threads has the function already.
        if sys.getprofile() in (None, self._called):
            sys.setprofile(self._called)
        else:
            self.note_all()

    def end(self) -> None:
        """Notes them no longer, after :meth:`begin`."""
        if sys.getprofile() == self._called:
            sys.setprofile(None)
        else:  # items have put another in its place, as cProfile does before Python 3.12
            self.note_all()

    def _called(self, frame: FrameType, event: str, function: object) -> None:
        if event != "c_call":
            return
        if not self._attached and not self._in_new_threads:
            # A thread that items have started, after the last item that is looked at.
            sys.setprofile(None)
            return
        owner = getattr(function, "__self__", None)
        if owner is not None:
            for generator in present():
                if generator.owner is owner:
                    self.names.add(generator.name)
        if function is sys.setprofile and frame.f_globals is not globals():
            self.note_all()


class _Lock:
    """A bit generator's lock, which numpy takes to draw from it."""

    def __init__(self, bits: _Noting, lock: AbstractContextManager[object]):
        self._bits, self._lock = bits, lock

    def __enter__(self) -> object:
        self._bits.noted_by.note_numpys()
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> None:
        self._lock.__exit__(None, None, None)

    def __getattr__(self, name: str) -> object:
        return getattr(self._lock, name)


def _noting(base: type) -> type:
    """Returns a class of numpy's bit generators that notes what it is asked for."""
    own = {name: getattr(base, name) for name in ("state", "lock")}

    def get(self: _Noting) -> object:
        self.noted_by.note_numpys()
        return own["state"].__get__(self)

    def put(self: _Noting, state: object) -> None:
        self.noted_by.note_numpys()
        own["state"].__set__(self, state)

    def legacy_seeding(self: _Noting, seed: object) -> None:
        self.noted_by.note_numpys()
        base._legacy_seeding(self, seed)  # type: ignore[attr-defined]

    def reduce(self: _Noting) -> object:
        plain = base()
        plain.state = self.state
        return plain.__reduce__()

    methods = {
        "noted_by": Touching(),
        "state": property(get, put),
        "_legacy_seeding": legacy_seeding,
        "lock": property(lambda self: _Lock(self, own["lock"].__get__(self))),
        "__reduce__": reduce,
    }
    return type(base.__name__, (base,), methods)  # numpy compares the name with states'
