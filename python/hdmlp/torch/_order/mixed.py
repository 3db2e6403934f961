"""The order of several datasets that are mixed, as the daemon draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch.utils.data import Sampler

from ..._records.mixture import Mixture

_WORD = 2**64
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ROUNDS = 6
_LEAST_HALF = 16


def _mixed(z: int) -> int:
    """Returns SplitMix64's output for a state."""
    z = (z ^ z >> 30) * _FIRST % _WORD
    z = (z ^ z >> 27) * _SECOND % _WORD
    return z ^ z >> 31


def _signed(word: int) -> int:
    """Returns the int64 of the same bits."""
    return word - _WORD if word >> 63 else word


class _Bijection:
    """The daemon's keyed bijection on [0, ``count``): a Feistel network with cycle walking.

    Args:
        count: The number of elements.
        seed: The seed of its keys.
        number: Which of the bijections with this seed.
    """

    def __init__(self, count: int, seed: int, number: int):
        self.count = count
        self.a = max(_LEAST_HALF, int(math.sqrt(count)))
        self.b = max(_LEAST_HALF, -(-count // self.a))
        z = _mixed((_mixed((seed + _GOLDEN) % _WORD) + (number + 1) * _GOLDEN) % _WORD)
        self.keys = [_signed(_mixed((z + (i + 1) * _GOLDEN) % _WORD)) for i in range(_ROUNDS)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the images of elements, int64."""
        x = self._once(x)
        while True:
            outside = x.ge(self.count).nonzero().flatten()
            if not len(outside):
                return x
            x[outside] = self._once(x[outside])

    def _once(self, x: torch.Tensor) -> torch.Tensor:
        left = x.div(self.b, rounding_mode="floor")
        right = x.remainder(self.b)
        for i in range(0, _ROUNDS, 2):
            left = left.add(_hashed(right, self.keys[i], self.a)).remainder(self.a)
            right = right.add(_hashed(left, self.keys[i + 1], self.b)).remainder(self.b)
        image: torch.Tensor = left.mul(self.b).add(right)
        return image


def _hashed(half: torch.Tensor, key: int, below: int) -> torch.Tensor:
    """Returns keyed hashes of halves, in [0, ``below``); int64 wraps as the daemon's words do."""
    h = half.add(key).mul(_signed(_FIRST))
    h = h.bitwise_xor(_high(h)).mul(_signed(_SECOND))
    return _high(_high(h).mul(below))


def _high(words: torch.Tensor) -> torch.Tensor:
    high: torch.Tensor = words.bitwise_right_shift(32).bitwise_and(0xFFFFFFFF)
    return high


def order_of_mix(mixture: Mixture, seed: int, shuffle: bool, epoch: int) -> torch.Tensor:
    """Returns the samples of an epoch, in order, int64.

    Args:
        mixture: The datasets' shares.
        seed: The order's seed.
        shuffle: Passes, and which dataset comes when, are drawn; else both are in order.
        epoch: The epoch.
    """
    counts, taken, unit = mixture.counts(epoch), mixture.before(epoch), mixture.unit
    of_unit = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    if shuffle:
        units = torch.arange(len(of_unit))
        of_unit = of_unit[_Bijection(len(of_unit), seed, epoch)(units)]
    else:
        due = [torch.arange(n, dtype=torch.float64).add(0.5).div(n) for n in counts]
        of_unit = of_unit[torch.sort(torch.cat(due), stable=True).indices]
    of_sample = torch.repeat_interleave(of_unit, unit)
    made = torch.empty(len(of_sample), dtype=torch.int64)
    start = 0
    for dataset, size in enumerate(mixture.sizes):
        own = _mixed((seed + (dataset + 1) * _GOLDEN) % _WORD)
        first = taken[dataset] * unit
        places = torch.arange(first, first + counts[dataset] * unit)
        passes, at = places.div(size, rounding_mode="floor"), places.remainder(size)
        if shuffle:
            for number in torch.unique(passes).tolist():
                those = passes.eq(number)
                at[those] = _Bijection(size, own, number)(at[those])
        made[of_sample.eq(dataset)] = at.add(start)
        start += size
    return made


class IsMixed(Protocol):
    """A dataset that has an order of its own."""

    def mixture(self, global_batch: int) -> Mixture:
        """Returns what the order of epochs follows from."""


class Mixed(Sampler[int]):
    """The sampler of a :class:`~hdmlp.torch.Mix`, whose order the daemon draws as well.

    Args:
        dataset: The mix.
        settle: Returns rank and number of replicas; None: there is one.
        batch_size: Samples per batch of a rank.
        shuffle: The order is drawn.
        seed: The order's seed; None: it is drawn when the loader is iterated.
        drop_last: Leave samples out so that all ranks get the same number, rather than repeat some.

    Attributes:
        epoch: The epoch that the next iteration yields; each iteration adds 1.
        asked: The epoch that the program set; see ``known.asked_epoch``.
    """

    def __init__(
        self,
        dataset: IsMixed,
        settle: Callable[[], tuple[int, int]] | None,
        batch_size: int,
        shuffle: bool,
        seed: int | None,
        drop_last: bool,
    ):
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.seed, self.drop_last = seed, drop_last
        self.epoch = 0
        self.asked: int | None = None
        self._settle = settle

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration yields."""
        self.epoch = self.asked = epoch

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self._settle is None else self._settle()

    def _mixture(self) -> Mixture:
        return self.dataset.mixture(self.batch_size * self._place()[1])

    def __len__(self) -> int:
        entries, replicas = self._mixture().entries, self._place()[1]
        return entries // replicas if self.drop_last else -(-entries // replicas)

    def __iter__(self) -> Iterator[int]:
        rank, replicas = self._place()
        order = order_of_mix(self._mixture(), self.seed or 0, self.shuffle, self.epoch)
        self.epoch += 1
        count = len(self) * replicas
        places = torch.arange(rank, count, replicas).remainder(len(order))
        yield from order[places].tolist()
