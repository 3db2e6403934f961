"""What it takes to read files again that were read just before.

That is next to nothing if the page cache has them. Some file systems keep nothing there of files
that are opened again, such as FUSE mounts of object stores. What reads of them take is then no
preparation.
"""

from __future__ import annotations

import os
import statistics
import threading
import time

#: A file is in memory if opening and reading it takes no more than so many seconds, and those in
#: which so many bytes per second are read.
SOON, RATE = 0.5e-3, 300e6
#: Nothing is concluded from files of more bytes: samples may be parts of them, and only these were
#: read.
LARGEST = 64 << 20
#: How many files are read to know that, and for how many seconds they are read at most, once by one
#: thread, and once by each number of workers.
FILES, SECONDS = 16, 0.5
#: The least share of the time that was measured which is left as preparation.
LEAST = 0.05
_BLOCK = 1 << 20


def read(path: str) -> tuple[float, int]:
    """Returns how many seconds it takes to read a file, and how many bytes it has."""
    begin, size = time.perf_counter(), 0
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                size += len(block)
    except OSError:
        pass  # it is gone, or fails: that is soon
    return time.perf_counter() - begin, size


def _size(path: str) -> int:
    """Returns how many bytes a file has; 0 if it is gone."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class Reading:
    """Reads files again.

    Args:
        paths: The files of samples, all of which were just read.
        samples: How many samples these are.

    Attributes:
        uncached: The page cache does not have them. False if samples may be parts of files: there
            are fewer files than samples, or large ones.
    """

    def __init__(self, paths: list[str], samples: int):
        self._paths = paths
        self._per_sample = len(paths) / max(samples, 1)
        late = []
        if self._per_sample >= 1 and all(_size(path) <= LARGEST for path in paths):
            until = time.perf_counter() + SECONDS
            for path in paths[:FILES]:
                read(path)  # the whole of it: samples may have needed a part only
                seconds, size = read(path)
                late.append(seconds - size / RATE)
                if time.perf_counter() > until:
                    break
        self.uncached = bool(late) and statistics.median(late) > SOON

    def seconds(self, workers: int) -> float:
        """Returns how many seconds a worker reads for a sample while so many do."""
        if not self.uncached:
            return 0.0
        took: list[float] = []
        until = time.perf_counter() + SECONDS

        def work(first: int) -> None:
            for at in range(first, first + len(self._paths)):
                took.append(read(self._paths[at % len(self._paths)])[0])
                if time.perf_counter() > until:
                    return

        threads = [
            threading.Thread(target=work, args=(n * len(self._paths) // workers,))
            for n in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statistics.fmean(took) * self._per_sample


def without(deliveries: list[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """Returns deliveries, seconds and samples of each, as if no sample took so many seconds."""
    took, samples = sum(dt for dt, _ in deliveries), sum(n for _, n in deliveries)
    if not took:
        return deliveries
    left = max(1 - samples * seconds / took, LEAST)
    return [(dt * left, n) for dt, n in deliveries]
