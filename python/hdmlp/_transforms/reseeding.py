"""Which of the global generators are seeded for each item of a dataset of the program's own.

Seeding all takes longer than many items, and most items draw from one generator or none. Those
that the first items leave alone are watched from then on, and not seeded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Optional, TypeVar

from .._lib.interrupts import interrupts
from .generators import Generator, present, seed_generators
from .keys import batch_key, place_key
from .touching import Touching

_Batch = TypeVar("_Batch")
_States = list[tuple[Generator, object]]

#: Called before each item; None: nothing is seeded.
Seed = Optional[Callable[[], object]]

#: The items of a process, in each epoch, from which it is found which generators are used.
LOOKED_AT = 32


class At(NamedTuple):
    """Which batch it is.

    Attributes:
        seed: The seed of the items' random numbers.
        epoch: The epoch.
        step: The batch's number in the epoch.
        places: The places of its items in the step, over the batches of all ranks.
    """

    seed: int
    epoch: int
    step: int
    places: range


class Reseeding:
    """Has items draw what they would draw if all generators were seeded for each of them.

    A generator is *unknown* at first: it is seeded for each item, its states before and after are
    compared, and calls of its methods are noted, as an item may ask for its seed. If an item uses
    it, it is *used*, and seeded for each item for good. If the first :data:`LOOKED_AT` items of an
    epoch do not, it is *watched* until the epoch's end: it is not seeded, and must be where it was
    when a batch is complete. If it is not, the batch is made again with all generators seeded, as
    are those of all batches after it.

    Args:
        every: All generators are seeded for each item.

    Attributes:
        every: Whether they are.
        late: The names of those from which an item drew while they were watched.
        touching: Notes what items have called, which counts as drawn from.
    """

    def __init__(self, every: bool = False):
        self.every = every
        self.late = ""
        self.touching = Touching()
        self._used: set[str] = set()
        self._epoch: int | None = None
        self._left = LOOKED_AT  # items of the epoch that are still to be looked at

    @property
    def draws(self) -> str:
        """The names of the generators that are seeded for each item, once they are found."""
        return " and ".join(sorted(self._used)) if self._left <= 0 else ""

    def make(self, batch: At, make: Callable[[Seed], _Batch], keep: bool) -> _Batch:
        """Returns the batch that ``make`` makes.

        Args:
            batch: Which batch it is.
            make: Makes it; called twice if items draw from a generator that is watched.
            keep: Restore the generators afterwards.
        """
        if batch.epoch != self._epoch:
            self._epoch, self._left = batch.epoch, LOOKED_AT
        self.touching.names.clear()
        generators = present()
        watched: list[Generator] = []
        if not self.every and self._left <= 0:
            watched = [g for g in generators if g.name not in self._used]
        seeded = [g for g in generators if g not in watched]
        kept = [(g, g.state()) for g in seeded] if keep else []
        states = [(g, g.state()) for g in watched]
        try:
            if watched:
                return self._watch(batch, make, seeded, states)
            if self.every or self._left <= 0:
                return make(_seed(batch))
            return self._look(batch, make)
        finally:
            _restore(kept)
            if keep and self.every:
                _restore(states)

    def _look(self, batch: At, make: Callable[[Seed], _Batch]) -> _Batch:
        """Makes a batch with all generators seeded, and notes those that are used.

        The last item is looked at in any case, and collating with it.
        """
        seed, left, made = _seed(batch), self._left, 0
        before: _States = []
        touching = self.touching

        def note() -> None:
            if before:
                touching.end()
            self._used.update(generator.name for generator, _ in _moved(before))
            self._used.update(touching.names)
            before.clear()

        def looking() -> None:
            nonlocal made
            note()
            seed()
            made += 1
            if made <= left or made == len(batch.places):
                before.extend((g, g.state()) for g in present() if g.name not in self._used)
            if before:
                touching.begin()

        with touching.in_new_threads():
            try:
                return make(looking)
            finally:
                note()
                self._left = left - len(batch.places)

    def _watch(
        self,
        batch: At,
        make: Callable[[Seed], _Batch],
        seeded: list[Generator],
        states: _States,
    ) -> _Batch:
        """Makes a batch with some generators seeded, and again with all if one of others moves."""
        known = len(seeded) + len(states)
        try:
            made = make(_seed(batch, seeded) if seeded else None)
        except BaseException as error:
            moved = self._moved(states)
            _restore(moved)
            if interrupts(error) or not moved:
                raise
        else:
            moved = self._moved(states)
            if not moved and len(present()) == known:
                return made
            del made
            _restore(moved)
        self.every = True
        self.late = " and ".join(g.name for g, _ in moved) or present()[-1].name
        return make(_seed(batch))

    def _moved(self, states: _States) -> _States:
        """Returns the generators from which items drew, with their states before."""
        moved = _moved(states)
        touched = self.touching.names
        return [one for one in states if one in moved or one[0].name in touched]


def _seed(batch: At, generators: list[Generator] | None = None) -> Callable[[], object]:
    """Returns what seeds generators for one item after the other; None: all imported ones."""
    key = batch_key(batch.seed, batch.epoch, batch.step)
    # All at once, which is faster than one between each two items.
    keys = [place_key(key, place) for place in batch.places]
    seeds = [seed_generators] if generators is None else [one.seed for one in generators]
    if len(seeds) == 1:
        return map(seeds[0], keys).__next__
    left = iter(keys)

    def seed() -> None:
        own = next(left)
        for one in seeds:
            one(own)

    return seed


def _moved(states: _States) -> _States:
    """Returns the generators that are no longer in their states, with these."""
    return [(generator, state) for generator, state in states if generator.state() != state]


def _restore(states: _States) -> None:
    for generator, state in states:
        generator.restore(state)
