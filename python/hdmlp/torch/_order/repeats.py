"""Samples which come several times in an epoch.

As in torch, Python's transforms of each occurrence draw random numbers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..._batches.output import Output
from ..._batches.segments import Segment
from ..._batches.source import LeftBytes, Taken
from ..._lib.protocol import BATCH_HEAD, mix64
from ..._transforms.recipe import Recipe, first_of

_MASK = 0xFFFFFFFFFFFFFFFF


class Repeating(Recipe):
    """A recipe whose random numbers follow from a sample's position in the epoch as well.

    No other occurrence of the sample has the same position.

    Args:
        recipe: What is done.
        rank: This rank, among those which share the epoch: positions count over all of them.
        world_size: Their number.
    """

    def __init__(self, recipe: Recipe, rank: int, world_size: int):
        self.__dict__.update(recipe.__dict__)
        self._recipe = recipe
        self._rank, self._world_size = rank, world_size

    def make(
        self, payload: bytearray, segments: Mapping[int, Segment], seed: int, place: object
    ) -> object:
        """Makes a batch; see :meth:`hdmlp._transforms.recipe.Recipe.make`."""
        return super().make(
            payload, segments, self.seed_of(seed, BATCH_HEAD.unpack_from(payload)[2]), place
        )

    def seed_of(self, seed: int, step: int) -> int:
        """Returns what takes the place of the job's seed in :meth:`samples` for a step's batch."""
        return mix64((mix64(seed & _MASK) + step) & _MASK)

    def left(self, data: LeftBytes, place: int, sample: int, seed: int, taken: Taken) -> object:
        """Makes a sample; see :meth:`hdmlp._transforms.recipe.Recipe.left`."""
        key = self._key(self.seed_of(seed, taken.step), place)
        return first_of(self._recipe.samples([data], [0], [sample], key, taken.epoch))

    def read(
        self, payload: bytearray, segments: Mapping[int, Segment]
    ) -> tuple[Sequence[object], Sequence[int], Sequence[int]]:
        """Returns a batch's samples; see :meth:`hdmlp._transforms.recipe.Recipe.read`."""
        return self._recipe.read(payload, segments)

    def taken(self, taken: Taken, outputs: Sequence[Output | None]) -> Sequence[object]:
        """Returns a batch's views; see :meth:`hdmlp._transforms.recipe.Recipe.taken`."""
        return self._recipe.taken(taken, outputs)

    def told(self, outputs: Sequence[Output | None]) -> None:
        """Takes the outputs; see :meth:`hdmlp._transforms.recipe.Recipe.told`."""
        self._recipe.told(outputs)

    def _key(self, seed: int, place: int) -> int:
        return mix64((seed + place * self._world_size + self._rank) & _MASK)

    def samples(
        self,
        views: Sequence[object],
        labels: Sequence[int],
        ids: Sequence[int],
        seed: int,
        epoch: int,
    ) -> list[object]:
        """Makes pairs; see :meth:`hdmlp._transforms.recipe.Recipe.samples`."""
        made: list[object] = []
        for place, (view, label, sample) in enumerate(zip(views, labels, ids)):
            key = self._key(seed, place)
            made += self._recipe.samples([view], [label], [sample], key, epoch)
        return made
