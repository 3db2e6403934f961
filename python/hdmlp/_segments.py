"""Shared memory from the daemon or from a worker, and how long it lives.

A batch occupies slots of writable segments. The slots go back when the last view on
the batch is gone. What makes that safe is where the finaliser sits: on the *owner* of
the buffer, a ctypes array over the whole segment that is made for one batch and
that every view leads back to: slices of its memoryview, ``numpy.frombuffer``,
``torch.frombuffer``, and what is derived from those (``.detach()``, ``.numpy()``,
slices). A finaliser on a tensor or array would fire while such relatives still live.

Maps are never closed by hand: a map goes when the last object that refers to it
goes, so nobody can read memory that is no longer there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Callable, Sequence

from .errors import LimitError, ProtocolError


class Lease:
    """The slots of one batch; hands them to ``give_back`` when the last owner is gone.

    The call happens in whatever thread drops the last view, so ``give_back`` must be
    as harmless as ``deque.append``.
    """

    __slots__ = ("slots", "give_back")

    def __init__(self, slots: Sequence[int], give_back: Callable[[Any], None]):
        self.slots = slots
        self.give_back = give_back

    def __del__(self) -> None:
        if self.slots:
            self.give_back(self.slots)


class Segment:
    """One mapped piece of shared memory.

    Args:
        fd: descriptor of the memory; stays the caller's.
        size: bytes.
        writable: map it for writing.

    Raises:
        ProtocolError: the memory is shorter than ``size``; reading it would be a bus error.
    """

    __slots__ = ("size", "writable", "map", "_type", "_whole")

    def __init__(self, fd: int, size: int, writable: bool):
        have = os.fstat(fd).st_size
        if have < size:
            raise ProtocolError(f"a segment of {size} bytes has only {have}")
        self.size = size
        self.writable = writable
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            self.map = mmap.mmap(fd, size, mmap.MAP_SHARED, protection)
        except OSError as error:
            raise LimitError(f"cannot map {size} bytes of shared memory: {error}") from None
        self._type = type("Owner", (ctypes.c_char * size,), {}) if writable else None
        self._whole = None if writable else memoryview(self.map)

    def view(self, lease: Lease) -> memoryview:
        """The segment's bytes, unsigned and writable if the segment is, for one batch.

        Every view derived from it keeps ``lease`` alive. In a read-only segment
        nothing is leased: the bytes stay as they are for as long as they are mapped.
        """
        if self._whole is not None:
            return self._whole
        owner = self._type.from_buffer(self.map)
        owner.lease = lease
        return memoryview(owner).cast("B")
