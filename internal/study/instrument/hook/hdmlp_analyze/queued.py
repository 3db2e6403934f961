"""Batches that wait in a loader's queue.

They were prepared before anything was measured, and say nothing of how fast the loader is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

#: The queue is empty if an iteration waits for this share of its time.
EMPTY = 0.05


class Draining:
    """The beginning of a job.

    Its batches may have been queued while the script loaded its model, or warmed up.

    Args:
        most: Seconds until the job is taken to wait for nothing, whose queue is never empty.
    """

    def __init__(self, most: float):
        self._most = most
        self._until: float | None = None
        self._over = False

    def goes_on(self, now: float, waited: float, step: float) -> bool:
        """Reports whether an iteration's batch may have been queued.

        That which finds the queue empty counts as queued: it waits for a whole turn of the workers,
        whose other batches come at once.

        Args:
            now: When the iteration has ended, as ``time.perf_counter()``.
            waited: Seconds in which it waited for its batch.
            step: Seconds from then on.
        """
        if self._over:
            return False
        if self._until is None:
            self._until = now - waited - step + self._most
        self._over = now > self._until or waited > EMPTY * (waited + step)
        return True


def parts(given: list[Any], most: int) -> list[Any]:
    """Returns batches in parts of so many samples at most, as equal as they can be.

    Workers deliver in turns, so that one that got the smaller ones would wait for the others.
    Samples of different batches stay apart.
    """
    found: list[Any] = []
    for batch in given:
        count = max(-(-len(batch) // most), 1)
        ends = [len(batch) * part // count for part in range(count + 1)]
        found += [batch[begin:end] for begin, end in zip(ends, ends[1:])]
    return found


def in_turn(given: list[Any], workers: int) -> list[Any]:
    """Returns the batches without as many of the last ones as it takes for each worker to get each.

    If all are given again and again, in turns, one of two workers would always get the same half of
    an even number of batches.
    """
    count = len(given)
    while count > 1 and math.gcd(count, max(workers, 1)) > 1:
        count -= 1
    return given[:count]


class Delivered:
    """The batches of a loader, as they are delivered.

    Args:
        batches: The batches.
        samples: How many samples are in each; afterwards they begin again.
        workers: The number of workers; 0: the process itself prepares them.
    """

    def __init__(self, batches: Iterator[Any], samples: list[int], workers: int):
        self._batches, self._samples, self._workers = batches, samples, workers
        self._taken = 0
        self._last = time.perf_counter()

    def _next(self) -> tuple[float, int]:
        """Returns the seconds since the batch before, and how many samples the next one has."""
        next(self._batches)
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        self._taken += 1
        return seconds, self._samples[(self._taken - 1) % len(self._samples)]

    def drain(self, queued: int, alone: float) -> None:
        """Takes what was prepared before all workers prepared at the same time.

        Workers that start first queue batches while others still start: batches are taken until
        one is waited for, as its queue is empty then.

        Args:
            queued: How many batches of each worker wait in its queue at most.
            alone: Seconds that a worker takes for a sample while no other one works.
        """
        for _ in range(max(2 * self._workers, 1)):
            self._next()
        for _ in range(queued * self._workers):
            seconds, samples = self._next()
            if seconds > alone * samples / self._workers / 2:
                return

    def within(self, seconds: float) -> list[tuple[float, int]]:
        """Returns for each batch the seconds since the one before, and how many samples it has.

        Args:
            seconds: How long to take batches; until each worker has delivered one, and up to twice
                as long until each has delivered two.
        """
        found: list[tuple[float, int]] = []
        until = self._last + seconds
        turn = max(self._workers, 1)
        while (
            self._last < until
            or len(found) < turn
            or (len(found) < 2 * turn and self._last < until + seconds)
        ):
            found.append(self._next())
        return found
