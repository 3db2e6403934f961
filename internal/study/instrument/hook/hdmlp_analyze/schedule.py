"""When each phase begins: at the same iteration on all ranks.

Ranks that average gradients wait for each other in every step. If one left a phase a step before
another, they would wait for each other for ever. So rank 0 announces each change a few iterations
ahead, in memory that all ranks of a node map; commands.py does so for several nodes. Ranks that
wait for each other are at most one step apart and all see it in time; others change when they see
it.
"""

from __future__ import annotations

import mmap
import struct

from . import channel

_ENTRY = struct.Struct("<q")

#: How many iterations ahead a change is announced to other ranks.
AHEAD = 3


class Schedule:
    """The iterations at which phases begin.

    Args:
        ranks: The number of ranks, all of this node.

    Attributes:
        here: That number.
    """

    def __init__(self, ranks: int):
        self.here = ranks
        self._ahead = AHEAD if ranks > 1 else 0
        with open(channel.path("schedule"), "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def announce(self, phase: int, now: int) -> None:
        """Sets when a phase begins, if that is not set yet.

        Args:
            phase: The phase's number.
            now: The number of this iteration, from 1.
        """
        if not self._at(phase):
            _ENTRY.pack_into(self._map, phase * _ENTRY.size, now + self._ahead)

    def has_begun(self, phase: int, now: int) -> bool:
        """Reports whether a phase begins with this iteration or began before it."""
        at = self._at(phase)
        return bool(at) and now >= at

    def _at(self, phase: int) -> int:
        return int(_ENTRY.unpack_from(self._map, phase * _ENTRY.size)[0])
