"""Counts that a process and its workers add up."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping, Sequence
from multiprocessing import context, reduction
from typing import Protocol

from . import memory

_TEXT = 1024  # bytes for each count's example
_WORD = 8


class _Descriptor(Protocol):
    def detach(self) -> int:
        """Returns the descriptor."""


class Tally:
    """Counts by name, each with an example, in memory that worker processes share.

    Args:
        names: The names.
    """

    def __init__(self, names: Sequence[str], fd: int | None = None):
        self.names = list(names)
        size = len(self.names) * (_WORD + _TEXT)
        self._fd = memory.create("hdmlp-tally", size) if fd is None else fd
        self._map = mmap.mmap(self._fd, size)
        self._counts = memoryview(self._map)[: _WORD * len(self.names)].cast("Q")

    def __reduce__(self) -> tuple[object, ...]:
        if context.get_spawning_popen() is None:
            return Tally, (self.names,)  # a copy counts for itself
        return _received, (self.names, reduction.DupFd(self._fd))

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)
        if fd is not None:
            os.close(fd)

    def add(self, counts: Mapping[str, int], examples: Mapping[str, str]) -> None:
        """Adds counts. The first example of each stays."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            for place, name in enumerate(self.names):
                self._counts[place] += counts.get(name, 0)
                text = examples.get(name, "")
                at = self._at(place)
                if text and not self._map[at]:
                    data = os.fsencode(text)[: _TEXT - 1]
                    self._map[at : at + len(data)] = data
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _at(self, place: int) -> int:
        return _WORD * len(self.names) + _TEXT * place

    def counts(self) -> dict[str, int]:
        """Returns the counts."""
        return dict(zip(self.names, self._counts.tolist()))

    def example(self, name: str) -> str:
        """Returns a count's example; empty: there is none."""
        at = self._at(self.names.index(name))
        return os.fsdecode(self._map[at : at + _TEXT].rstrip(b"\0"))


def _received(names: Sequence[str], descriptor: _Descriptor) -> Tally:
    return Tally(names, descriptor.detach())
