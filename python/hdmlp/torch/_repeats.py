"""Samples that come several times in an epoch: what Python makes of each occurrence draws random numbers of its own, as in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._protocol import BATCH_HEAD, mix64
from .._recipe import Recipe

_MASK = 0xFFFFFFFFFFFFFFFF


class Repeating(Recipe):
    """A recipe whose random numbers follow from a sample's place in the epoch as well, which no other occurrence of it has.

    Args:
        recipe: what is done.
        rank, world_size: which of the ranks that share the epoch this is: places count over all of them.
    """

    def __init__(self, recipe: Recipe, rank: int, world_size: int):
        self.__dict__.update(recipe.__dict__)
        self._rank, self._world_size = rank, world_size

    def make(self, payload: bytearray, segments: dict[int, Any], seed: int, place: Any) -> Any:
        """See :meth:`Recipe.make`."""
        return super().make(
            payload, segments, self.seed_of(seed, BATCH_HEAD.unpack_from(payload)[2]), place
        )

    def seed_of(self, seed: int, step: int) -> int:
        """What :meth:`samples` is to be given for a step's batch, in place of the job's seed."""
        return mix64((mix64(seed & _MASK) + step) & _MASK)

    def samples(
        self,
        views: Sequence[memoryview],
        labels: Sequence[int],
        ids: Sequence[int],
        seed: int,
        epoch: int,
    ) -> list[Any]:
        """See :meth:`Recipe.samples`."""
        made: list[Any] = []
        for place, (view, label, sample) in enumerate(zip(views, labels, ids)):
            key = mix64((seed + place * self._world_size + self._rank) & _MASK)
            made += super().samples([view], [label], [sample], key, epoch)
        return made
