"""Batches that are ready: a few of the loader's, given again and again."""

from __future__ import annotations

import time
from typing import Any, Callable

from . import batches

#: How many batches are kept, and how many bytes they take at most unless one takes more.
KEPT, KEPT_BYTES = 4, 256 << 20


class Kept:
    """Batches of a loader.

    Attributes:
        full: No more are kept.
        since: When that became so, as ``time.perf_counter()``.
    """

    def __init__(self) -> None:
        self.full = False
        self.since = 0.0
        self._batches: list[Any] = []

    def next(self, number: int, own: Callable[[], Any]) -> Any:
        """Returns a copy of a batch, so that nothing the script does changes it.

        Args:
            number: Which one: they follow each other.
            own: Returns the next batch of the loader, of which one is kept in each call until there
                are enough.

        Raises:
            StopIteration: The loader has none.
        """
        if not self.full:
            try:
                batch = own()
            except StopIteration:
                if not self._batches:
                    raise
                self.full = True
            else:
                self._batches.append(batches.copied(batch))
                size, count = batches.size(self._batches), len(self._batches)
                self.full = count == KEPT or size + size / count > KEPT_BYTES
            if self.full:
                self.since = time.perf_counter()
        return batches.copied(self._batches[number % len(self._batches)])

    def clear(self) -> None:
        """Drops them."""
        self._batches.clear()
