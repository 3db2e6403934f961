"""The global generators of random numbers: of Python, torch and numpy.

Each can be seeded, and its state kept, restored and compared. The states of Python's and numpy's
are read where they lie in memory, because asking for them takes longer than most items: the same
words, in an order that is checked once against what the libraries say. If that fails they are
asked.
"""

from __future__ import annotations

import array
import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

#: Words of a Mersenne Twister, beside the one that counts those used.
_WORDS = 624
_BYTES = 4 * (_WORDS + 1)


class Generator(Protocol):
    """A global generator.

    Attributes:
        name: Whose it is.
        owner: The object whose methods draw from it, and read its state.
    """

    name: str
    owner: object

    @property
    def seed(self) -> Callable[[int], object]:
        """What seeds it with a 64-bit key."""

    def state(self) -> object:
        """Returns its state, which equals another if nothing was drawn or set between them."""

    def restore(self, state: Any) -> None:
        """Sets it to a state that :meth:`state` returned."""


def _memory(address: int, said: list[int]) -> ctypes.Array[ctypes.c_char] | None:
    """Returns a generator's memory, if its words are those that its library gives."""
    memory = (ctypes.c_char * _BYTES).from_address(address)
    return memory if array.array("I", memory.raw).tolist() == said else None


class _Pythons:
    """The generator of Python's ``random``: its object has the count, and then the words."""

    name = "Python"

    def __init__(self) -> None:
        self._random: Any = random
        self.owner: Any = getattr(random, "_inst", None)
        self._memory = self._found()

    def _found(self) -> ctypes.Array[ctypes.c_char] | None:
        head, whole = object.__basicsize__, random.Random.__mro__[1].__basicsize__
        if (
            sys.implementation.name != "cpython"
            or type(self.owner) is not random.Random
            or whole < head + _BYTES
        ):
            return None
        _, words, _ = random.getstate()
        return _memory(id(self.owner) + head, [words[-1], *words[:-1]])

    def seed(self, key: int) -> None:
        random.seed(key)

    def state(self) -> object:
        if self._memory is None or self._random._inst is not self.owner:
            return random.getstate()
        return self._memory.raw, self.owner.gauss_next

    def restore(self, state: Any) -> None:
        if len(state) == 2:
            used, *words = array.array("I", state[0])
            state = 3, (*words, used), state[1]
        random.setstate(state)


class _Torchs:
    """torch's generator of the CPU."""

    name = "torch"

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        self.owner: Any = self._torch.default_generator
        self.seed: Callable[[int], object] = self.owner.manual_seed

    def state(self) -> object:
        state = self.owner.get_state()
        return ctypes.string_at(state.data_ptr(), state.numel())

    def restore(self, state: Any) -> None:
        words = self._torch.frombuffer(bytearray(state), dtype=self._torch.uint8)
        self.owner.set_state(words)


class _Numpys:
    """numpy's legacy generator: where its bit generator points, it has the words, then the count.

    The second of two numbers that are drawn together lies elsewhere (``has_gauss``). It appears
    only when words are used, so that it need not be asked for while the words stay.
    """

    name = "numpy"

    def __init__(self) -> None:
        self._random: Any = sys.modules["numpy"].random
        self.owner = self._bits = self._memory = None
        self._without: bytes | None = None  # words with which there was no second number
        try:
            self.owner = self._random.mtrand._rand
            bits = self.owner._bit_generator
            kind, words, used, _, _ = self._random.get_state()
            address = bits.ctypes.state_address
        except (AttributeError, ValueError):  # another release, or another bit generator
            return
        if kind == "MT19937":
            self._bits, self._memory = bits, _memory(address, [*words.tolist(), used])

    def seed(self, key: int) -> None:
        # The other half than torch takes, as both seed the same generator with 32 bits.
        self._random.seed(key >> 32)
        if self._memory is not None:
            self._without = self._memory.raw

    def state(self) -> object:
        if self._memory is None or self._random.mtrand._rand._bit_generator is not self._bits:
            return pickle.dumps(self._random.get_state())
        words = self._memory.raw
        if words == self._without:
            return words, 0, 0.0
        *_, has, second = self._random.get_state()
        if not has:
            self._without = words
        return words, has, second

    def restore(self, state: Any) -> None:
        if not isinstance(state, tuple):
            self._random.set_state(pickle.loads(state))
            return
        words, has, second = state
        self._without = None if has else words
        numbers = sys.modules["numpy"].frombuffer(words, "uint32")
        self._random.set_state(("MT19937", numbers[:-1], int(numbers[-1]), has, second))


_found: dict[str, Generator] = {}


def present() -> list[Generator]:
    """Returns Python's generator, and torch's and numpy's if they are imported."""
    if len(_found) == 3:
        return list(_found.values())
    if not _found:
        _found["Python"] = _Pythons()
    if "torch" not in _found and hasattr(sys.modules.get("torch"), "default_generator"):
        _found["torch"] = _Torchs()
    if "numpy" not in _found and hasattr(sys.modules.get("numpy"), "random"):
        _found["numpy"] = _Numpys()
    return list(_found.values())


def forget_numpys() -> None:
    """Has numpy's generator looked for again, after its bit generator was replaced."""
    _found.pop("numpy", None)


def seed_generators(key: int) -> None:
    """Seeds Python's generator, and torch's and numpy's if they are imported.

    Args:
        key: 64 bits. Python's takes all, torch's the lower 32, numpy's the upper 32.
    """
    for generator in present():
        generator.seed(key)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restores the process's generators at the end of a ``with`` block."""
    states = [(generator, generator.state()) for generator in present()]
    try:
        yield
    finally:
        for generator, state in states:
            generator.restore(state)
