"""How epochs take samples from several datasets: what ``access.Mixture`` of the daemon does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from .._lib.arguments import whole_number
from ..errors import ConfigError

#: The most that the weights of an epoch may add up to, and the most samples of an epoch.
_MOST_WEIGHT = 2**32 - 1
_MOST_ENTRIES = 2**28

#: The golden ratio less 1, times 2^32.
_GOLDEN = 0x9E3779B9

STRATEGIES = ("first_exhausted", "all_exhausted")


class Mixture(NamedTuple):
    """Which shares of an epoch are of which dataset.

    Attributes:
        sizes: Samples of each dataset.
        weights: Whole numbers, by epoch and dataset; the last ones hold for all later epochs.
        entries: Samples of an epoch.
        single: Each global batch has samples of one dataset.
        unit: Samples that are taken together: 1, or a global batch.
    """

    sizes: list[int]
    weights: list[list[int]]
    entries: int
    single: bool = False
    unit: int = 1

    def request(self) -> dict[str, object]:
        """Returns OPEN's ``stream.mix`` object (docs/FORMATS.md)."""
        made = self._asdict()
        del made["unit"]
        return made

    def counts(self, epoch: int) -> list[int]:
        """Returns how many units an epoch has of each dataset.

        The borders between shares are rounded down after something less than 1 was added to all:
        the epoch's multiple of the golden ratio, less whole numbers.
        """
        row = self.weights[min(epoch, len(self.weights) - 1)]
        total, units = sum(row), self.entries // self.unit
        added = total * (epoch * _GOLDEN % 2**32) >> 32
        counts, border, before = [], 0, 0
        for weight in row:
            border += weight
            end = (border * units + added) // total
            counts.append(end - before)
            before = end
        return counts

    def before(self, epoch: int) -> list[int]:
        """Returns how many units all epochs before one took of each dataset."""
        taken = [0] * len(self.sizes)
        for e in range(epoch):
            taken = [n + more for n, more in zip(taken, self.counts(e))]
        return taken


class Weights(NamedTuple):
    """The weights of a mix, checked.

    Attributes:
        rows: Whole numbers, by epoch and dataset.
        several: There are some for each of several epochs.
    """

    rows: list[list[int]]
    several: bool


def checked_weights(given: object, names: Sequence[str] | None, sizes: Sequence[int]) -> Weights:
    """Returns the argument ``weights`` as whole numbers.

    Args:
        given: One per dataset, by position or by name; or a list of such, one per epoch; None: the
            datasets' numbers of samples.
        names: The datasets' names; None: they have none.
        sizes: Their numbers of samples.

    Raises:
        ConfigError: They are no weights of these datasets.
    """
    if given is None:
        return Weights([list(sizes)], False)
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, (str, bytes)) or not isinstance(given, (Sequence, Mapping)):
        raise ConfigError(
            f"weights={given!r:.200}: must be a list with a number for each dataset, or a list of "
            "such lists, one per epoch"
        )
    rows = isinstance(given, Sequence) and len(given) > 0 and _is_row(given[0])
    if not rows:
        return Weights([_row("weights", given, names, len(sizes))], False)
    made = [_row(f"weights[{e}]", row, names, len(sizes)) for e, row in enumerate(given)]
    return Weights(made, len(made) > 1)


def _is_row(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _row(what: str, given: object, names: Sequence[str] | None, count: int) -> list[int]:
    """Returns the weights of an epoch as whole numbers in the same proportions."""
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, Mapping):
        given = _by_name(what, given, names)
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise ConfigError(f"{what}={given!r:.200}: must be a list with a number for each dataset")
    if len(given) != count:
        raise ConfigError(f"{what} has {len(given)} numbers, and there are {count} datasets")
    exact = [_exact(f"{what}[{i}]", value) for i, value in enumerate(given)]
    total = sum(exact)
    if total <= 0:
        raise ConfigError(f"{what}={list(given)!r:.200}: all are 0: give one above 0")
    scale = math.lcm(*(value.denominator for value in exact))
    whole = [int(value * scale) for value in exact]
    shared = math.gcd(*whole)
    whole = [value // shared for value in whole]
    if sum(whole) <= _MOST_WEIGHT:
        return whole
    rounded = [round(value / total * (_MOST_WEIGHT - count)) for value in exact]
    for i, (value, near) in enumerate(zip(exact, rounded)):
        if value and not near:
            raise ConfigError(
                f"{what}[{i}]={given[i]!r}: less than 2^-32 of all weights: give 0, or more"
            )
    return rounded


def _by_name(
    what: str, given: Mapping[object, object], names: Sequence[str] | None
) -> list[object]:
    """Returns the weights of a dict in the order of the datasets."""
    if names is None:
        raise ConfigError(
            f"{what}: it is a dict, and the datasets have no names: give them as a dict as well, "
            "or the weights as a list"
        )
    for name in given:
        if name not in names:
            raise ConfigError(
                f"{what}[{name!r}]: there is no dataset of that name; there are {', '.join(names)}"
            )
    missing = [name for name in names if name not in given]
    if missing:
        raise ConfigError(f"{what}: it has no weight for {', '.join(missing)}; give one, or 0")
    return [given[name] for name in names]


def _exact(what: str, value: object) -> Fraction:
    """Returns a weight as it is written: 0.1 is a tenth."""
    try:
        if isinstance(value, (int, Fraction)):
            number = Fraction(value)
        else:
            number = Fraction(repr(float(value)))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{what}={value!r}: must be a finite number, 0 or more") from None
    if isinstance(value, bool) or number < 0:
        raise ConfigError(f"{what}={value!r}: must be a finite number, 0 or more")
    return number


def epoch_of(sizes: Sequence[int], weights: Weights, epoch_size: object, strategy: str) -> int:
    """Returns the number of samples of an epoch.

    Args:
        sizes: Samples of each dataset.
        weights: Their weights.
        epoch_size: The user's; None: the strategy decides.
        strategy: ``"first_exhausted"`` or ``"all_exhausted"``.

    Raises:
        ConfigError: An argument is wrong, or there is no such epoch.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(f"stopping_strategy={strategy!r}: allowed: {', '.join(STRATEGIES)}")
    if epoch_size is not None:
        entries = whole_number("epoch_size", epoch_size, 1)
        if entries > _MOST_ENTRIES:
            raise ConfigError(f"epoch_size={entries}: allowed: 1 to {_MOST_ENTRIES}")
        return entries
    if weights.several:
        raise ConfigError(
            "weights differ from epoch to epoch, and with them the length that stopping_strategy "
            "gives: give epoch_size=, which all epochs then have"
        )
    (row,) = weights.rows
    lengths = {d: Fraction(size * sum(row), row[d]) for d, size in enumerate(sizes) if row[d]}
    first = strategy == "first_exhausted"
    ends = (min if first else max)(lengths, key=lambda dataset: lengths[dataset])
    entries = math.floor(lengths[ends]) if first else math.ceil(lengths[ends])
    if entries > _MOST_ENTRIES:
        raise ConfigError(
            f"stopping_strategy={strategy!r}: an epoch would have {entries} samples, until dataset "
            f"{ends} is gone through once, and at most {_MOST_ENTRIES} are allowed: give "
            "epoch_size="
        )
    return entries
