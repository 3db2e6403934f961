"""The entries of a list of transforms that run in Python, each with random numbers of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

from . import albumentations
from .generators import seed_generators
from .keys import entry_key
from .rows import Row
from .tail import Erasing, Found, Tail


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
    worker. albumentations' pipelines, which have generators of their own, are seeded as well.

    Args:
        entries: The entries.
        found: Those which a :class:`~hdmlp._transforms.tail.Tail` carries out; None: none.
        instead: What is called in the place of each. Default: None, they are.

    Attributes:
        stacked: A result may lie in a batch's memory: nothing keeps it.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        found: Found | None = None,
        instead: Sequence[Entry] | None = None,
    ):
        self.entries = list(entries)
        self._run = list(self.entries if instead is None else instead)
        self.stacked = found is not None and found.stacked
        if found is not None:
            replaced = self.entries[found.begin : found.end]
            tail = Tail([entry.step for entry in replaced])
            after = self.entries[found.end :]
            if found.stacked:
                after = [entry._replace(step=Erasing(entry.step)) for entry in after]
            first = Entry(replaced[0].position, tail, False)
            self._run[found.begin :] = [first, *after]
        self._seeders: dict[int, list[Callable[[int], None]]] | None = None  # by position

    def _seed(self, item: int | None, position: int, draws: bool) -> None:
        """Seeds everything that an entry draws from."""
        if not draws or item is None:
            return
        key = entry_key(item, position)
        seed_generators(key)
        if self._seeders is None:
            self._seeders = {p: albumentations.seeders(s) for p, s, d in self.entries if d}
        for seed in self._seeders[position]:
            seed(key)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_seeders": None}

    @property
    def steps(self) -> Sequence[Callable[..., object]]:
        """The transforms."""
        return [entry.step for entry in self.entries]

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __call__(self, value: object, item: int | None = None, row: Row | None = None) -> object:
        """Returns what the transforms make of a value.

        Args:
            value: What the first gets.
            item: The sample's key; see :func:`hdmlp._transforms.keys.item_key`. Default: None, the
                generators are left as they are.
            row: Where the result may lie, if ``stacked``; None: in memory of its own.
        """
        for position, step, draws in self._run:
            self._seed(item, position, draws)
            value = step(value, row) if isinstance(step, (Tail, Erasing)) else step(value)
        return value

    def jointly(self, values: Sequence[object], item: int | None) -> object:
        """Returns what the transforms make of several values, as v2's ``Compose`` does.

        Args:
            values: What the first gets.
            item: As for calling it.
        """
        made: Any = values
        for position, step, draws in self.entries:
            self._seed(item, position, draws)
            made = step(*values)
            values = made if len(values) > 1 else (made,)
        return made

    def __repr__(self) -> str:
        return f"Entries({self.steps!r})"
