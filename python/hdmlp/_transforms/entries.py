"""The entries of a list of transforms that run in Python, each with random numbers of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

from .generators import seed_generators
from .keys import entry_key


class Entry(NamedTuple):
    """An entry of a flattened list.

    Attributes:
        position: Its position in the list, from which its random numbers follow.
        step: The transform.
        draws: Whether it may draw random numbers, so that the generators are seeded for it.
    """

    position: int
    step: Any
    draws: bool


class Entries:
    """Entries which are applied one after the other.

    Before each that may draw, the generators of torch, Python and numpy are seeded with its key.
    So nothing depends on what ran before it, nor where: in the daemon, in this process or in a
    worker.

    Args:
        entries: The entries.
    """

    def __init__(self, entries: Iterable[Entry]):
        self.entries = list(entries)

    @property
    def steps(self) -> Sequence[Callable[..., object]]:
        """The transforms."""
        return [entry.step for entry in self.entries]

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __call__(self, value: object, item: int | None) -> object:
        """Returns what the transforms make of a value.

        Args:
            value: What the first gets.
            item: The sample's key; see :func:`hdmlp._transforms.keys.item_key`. None: the
                generators are left as they are.
        """
        for position, step, draws in self.entries:
            if draws and item is not None:
                seed_generators(entry_key(item, position))
            value = step(value)
        return value

    def jointly(self, values: Sequence[object], item: int | None) -> object:
        """Returns what the transforms make of several values, as v2's ``Compose`` does.

        Args:
            values: What the first gets.
            item: As for calling it.
        """
        made: Any = values
        for position, step, draws in self.entries:
            if draws and item is not None:
                seed_generators(entry_key(item, position))
            made = step(*values)
            values = made if len(values) > 1 else (made,)
        return made

    def __repr__(self) -> str:
        return f"Entries({self.steps!r})"
