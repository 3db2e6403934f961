"""What this process counts of batches that it or its workers make."""

from __future__ import annotations

import time

from ..._launch.processors import would_bring
from ..._loading.reports import Report, Stats

#: Seconds of a loop after which it is said what workers would bring.
LONG_ENOUGH = 10.0
#: The share of them for which it must have waited.
WORTH_SAYING = 0.2


class Counted:
    """The counts of a loader, over all of its epochs."""

    def __init__(self) -> None:
        self._batches = self._samples = self._waits = self._stall = self._python = 0
        # Nanoseconds from asking for the epochs' first batches to yielding the last one so far.
        self._elapsed = 0

    def add(self, samples: int, stall: int, python: int, since: int) -> int:
        """Counts a batch which is handed over now.

        Args:
            samples: Its number of samples.
            stall: Nanoseconds for which ``next()`` blocked.
            python: The part of them in which Python made the batch.
            since: When the batch before it was handed over, in nanoseconds of the performance
                counter; 0: it is the first of its epoch.

        Returns:
            Now.
        """
        self._batches += 1
        self._samples += samples
        if stall:
            self._waits += 1
            self._stall += stall
            self._python += python
        now = time.perf_counter_ns()
        self._elapsed += now - (since or now - stall)
        return now

    @property
    def waits(self) -> str:
        """What workers would bring, if this process makes items for which the loop waits.

        Empty: that is not known yet, or too little.
        """
        seconds, waited = self._elapsed / 1e9, self._stall / 1e9
        if seconds < LONG_ENOUGH or waited < WORTH_SAYING * seconds:
            return ""
        return would_bring(waited, seconds)

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return Stats(
            self._batches, self._samples, self._waits, self._stall / 1e9, self._python / 1e9
        )

    def report(self) -> Report:
        """Returns what was counted so far as a report."""
        counted, seconds = self.stats, self._elapsed / 1e9
        utilisation = max(0.0, 1 - counted.stall / seconds) if seconds else 0.0
        sentence = (
            f"{counted.batches} batches of {counted.samples} items, made by this process or its "
            f"workers; next() was blocked for {counted.stall:.3f} s (utilisation "
            f"{100 * utilisation:.1f} %)"
        )
        if counted.stall > 0.001:
            sentence += (
                ", for Python's part of making batches (the dataset, collate_fn): give num_workers "
                "more processes"
            )
        return Report(
            {
                "batches": counted.batches,
                "samples": counted.samples,
                "seconds": seconds,
                "stall_seconds": counted.stall,
                "stall": {"python": counted.python},
                "utilisation": utilisation,
                "sentence": f"{sentence}.",
            }
        )
