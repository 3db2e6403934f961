"""Ranges at equal distances: as an array's, whatever their number, in a few words."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ConfigError

#: The most records in runs that the daemon takes.
MOST = 1 << 28


class Run(NamedTuple):
    """Some records of a field, which lie at equal distances in one file.

    Attributes:
        samples: How many there are.
        object: The number of their file.
        offset: Where the first one begins, in bytes.
        stride: How far it is from each to the next, in bytes. Records may overlap.
        length: How many bytes each has.
    """

    samples: int
    object: int
    offset: int
    stride: int
    length: int


class Ranges(NamedTuple):
    """Where one field of all records is.

    Attributes:
        objects: The number of each record's file; -1: it does not have the field.
        offsets: Where its range begins, in bytes; None: each range is a whole file.
        lengths: The lengths of the ranges in bytes; -2: to the file's end. None as ``offsets``.
    """

    objects: Sequence[int]
    offsets: Sequence[int] | None = None
    lengths: Sequence[int] | None = None

    @property
    def runs(self) -> list[Run] | None:
        """The runs in which the records lie; None: their ranges are listed one by one."""
        return self.objects.runs if isinstance(self.objects, Regular) else None


class Regular(Sequence[int]):
    """One number per record, of runs of records: nothing is stored per record.

    Args:
        runs: The runs.
        first: The member of a run that its first record has.
        step: That which is added from record to record; None: all have the same.
    """

    def __init__(self, runs: Sequence[Run], first: str, step: str | None = None):
        self.runs = list(runs)
        self._ends = list(itertools.accumulate(run.samples for run in runs))
        self._values = [
            (getattr(run, first), 0 if step is None else getattr(run, step)) for run in runs
        ]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        number = bisect.bisect_right(self._ends, index)
        first, step = self._values[number]
        return first + step * (index - self._ends[number] + self.runs[number].samples)


def in_runs(runs: Sequence[Run]) -> Ranges:
    """Returns the ranges of a field, whose records lie in runs.

    Raises:
        ConfigError: There are more than the daemon takes.
    """
    runs = [run for run in runs if run.samples]
    count = sum(run.samples for run in runs)
    if count > MOST:
        raise ConfigError(
            f"{count} records: a dataset of arrays can have at most {MOST}; choose a larger stride"
        )
    return Ranges(
        Regular(runs, "object"), Regular(runs, "offset", "stride"), Regular(runs, "length")
    )


def of_offsets(objects: Sequence[int], offsets: Sequence[int], length: int) -> list[Run]:
    """Returns runs of ranges of one length: those at equal distances are one.

    Args:
        objects: The number of each record's file.
        offsets: Where each begins.
        length: How many bytes each has.
    """
    runs: list[Run] = []
    for number, offset in zip(objects, offsets):
        last = runs[-1] if runs else None
        if last is not None and last.object == number:
            step = offset - last.offset
            if last.samples == 1 and step >= 0:
                runs[-1] = last._replace(samples=2, stride=step)
                continue
            if last.samples > 1 and step == last.samples * last.stride:
                runs[-1] = last._replace(samples=last.samples + 1)
                continue
        runs.append(Run(1, number, offset, 0, length))
    return runs
