"""Shared memory from the daemon or from a worker, and how long it lives.

A batch occupies slots of writable segments. The slots go back when the last view on the batch is
gone. What makes that safe is where the finaliser sits: on the *owner* of the buffer, which is made
for one batch and which every view leads back to: slices of its memoryview, ``numpy.frombuffer``,
``torch.frombuffer``, and what is derived from those (``.detach()``, ``.numpy()``, slices). A
finaliser on a tensor or array that is handed out would fire while such relatives still live. The
owner is a ctypes array over the whole segment, or, for a block that becomes one array, a numpy
array of a type of its own (:mod:`hdmlp._batches.arrays`), which is made twice as fast.

Maps are never closed explicitly: a map goes when the last object that refers to it goes, so memory
that was unmapped cannot be read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from typing import Any, Callable, Protocol

from .._lib.mapping import mapped
from .._lib.pages import Pages
from .._lib.protocol import U32
from ..errors import LimitError, ProtocolError


class _Forgets(Protocol):
    """What refers to shared memory for this process's sake."""

    def forget(self) -> None:
        """Lets go of it."""


#: What a forked child must not keep: it could not use it, since connections are closed there, and
#: memory that it maps is not freed.
_forgets: weakref.WeakSet[_Forgets] = weakref.WeakSet()


def forget_in_child(owner: _Forgets) -> None:
    """Has ``owner.forget`` called in children that are made by ``fork``.

    What the child itself refers to, such as views of samples, stays as it is.
    """
    _forgets.add(owner)


def _forget_all() -> None:
    for owner in list(_forgets):
        owner.forget()


os.register_at_fork(after_in_child=_forget_all)

#: The bit of a slot's number that is set if it lies in an extra segment.
_EXTRA = 1 << 31
#: The bit of a segment's number that is set if it belongs to a storage class.
_CLASS = 1 << 31
_PAGE = mmap.PAGESIZE
_RING = 4096  # bytes: words of 64 bits, of which the first counts the entries that were taken
_ENTRIES = _RING // 8 - 2
_END = _ENTRIES + 1  # the word that holds where the stream ends


class Lease:
    """The slots of one batch, which go back when the last owner is gone.

    Args:
        slots: The slots, in whatever form ``give_back`` takes.
        give_back: Called with the slots, in whatever thread drops the last view, so it must be as
            harmless as ``deque.append``.
    """

    __slots__ = ("give_back", "slots")

    def __init__(self, slots: Any, give_back: Callable[[Any], None]):
        self.give_back = give_back
        self.slots = slots  # last: __del__ takes them as a sign that give_back is there

    def __del__(self) -> None:
        slots = getattr(self, "slots", None)  # Ctrl-C may have interrupted __init__
        if slots:
            self.give_back(slots)


class Segment:
    """One mapped piece of shared memory.

    Args:
        fd: Descriptor of the memory; stays the caller's.
        size: Its size in bytes.
        writable: Map it for writing.
        private: Other processes are given the same batches: what is written is seen by this process
            only, on pages of its own.

    Attributes:
        map: Its memory.
        whole: Its bytes if it is read-only, else None.

    Raises:
        ProtocolError: The memory is shorter than ``size``; reading it would be a bus error.
        LimitError: It cannot be mapped.
    """

    __slots__ = ("_pages", "_shared", "_type", "map", "private", "size", "whole", "writable")

    def __init__(self, fd: int, size: int, writable: bool, private: bool = False):
        have = os.fstat(fd).st_size
        if have < size:
            raise ProtocolError(f"a segment of {size} bytes has only {have}")
        self.size = size
        self.writable = writable
        self.private = private
        self._shared: dict[int, int] = {}  # batches on pages that they may share with others
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            shared = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
            self.map = mapped(fd, size, shared, protection)
        except OSError as error:
            raise LimitError(f"cannot map {size} bytes of shared memory: {error}") from None
        if private:
            self._try_discard()
            self._pages = Pages(ctypes.addressof(ctypes.c_char.from_buffer(self.map)))
        # A ctypes array, of a type of its own for the lease.
        self._type: Any = type("Owner", (ctypes.c_char * size,), {}) if writable else None
        self.whole = None if writable else memoryview(self.map)

    def view(self, lease: Lease) -> memoryview:
        """Returns the segment's bytes for one batch, writable if the segment is.

        Args:
            lease: What every view derived from the result keeps alive. In a read-only segment
                nothing is leased: the bytes stay as they are for as long as they are mapped.
        """
        if self.whole is not None:
            return self.whole
        owner = self._type.from_buffer(self.map)
        owner.lease = lease
        return memoryview(owner).cast("B")

    def _try_discard(self) -> None:
        """Requires that :meth:`discard` will work."""
        try:
            self.map.madvise(mmap.MADV_DONTNEED)
        except OSError:  # and the kernel has made copies of all pages already
            raise LimitError(
                "this process locks its memory (mlockall), so that it cannot be given the batches "
                "of other jobs; leave share out, or do not lock memory"
            ) from None

    def own(self, begin: int, size: int) -> None:
        """Gives this process its own copies of a batch's pages, in a private segment, for good.

        The daemon may write there again. Bytes stay as they are.

        Args:
            begin: What :meth:`keep` was given.
            size: Likewise.
        """
        for page in range(begin // _PAGE, (begin + size - 1) // _PAGE + 1):
            self.map[page * _PAGE] = self.map[page * _PAGE]

    def keep(self, begin: int, size: int) -> None:
        """Notes that a batch lies here, in a private segment."""
        for page in _shared(begin, size):
            self._shared[page] = self._shared.get(page, 0) + 1

    def discard(self, begin: int, size: int) -> None:
        """Drops this process's own copies of a batch's pages, in a private segment.

        Until then they hide what the daemon writes there next. The first and the last page stay
        for as long as a neighbouring batch lies there, whose writes they may have as well. If the
        process has written to none of them they stay mapped, as the next batch's page faults take
        longer than to find that out.

        Args:
            begin: What :meth:`keep` was given.
            size: Likewise.
        """
        first, last = begin // _PAGE, (begin + size - 1) // _PAGE
        for page in _shared(begin, size):
            self._shared[page] -= 1
            if self._shared[page]:
                first, last = first + (page == first), last - (page == last)
            else:
                del self._shared[page]
        if first <= last and self._pages.may_be_written(first, last):
            self.map.madvise(
                mmap.MADV_DONTNEED,
                first * _PAGE,
                min((last + 1) * _PAGE, self.size) - first * _PAGE,
            )


def _shared(begin: int, size: int) -> Iterable[int]:
    """Returns the pages of a range that may have bytes of others, the first and the last one."""
    if not begin % _PAGE and not size % _PAGE:
        return ()
    return {begin // _PAGE, (begin + size - 1) // _PAGE}


class Copy(Segment):
    """Memory of this process alone, for a batch that does not lie in one piece.

    Args:
        size: Its size in bytes.
    """

    __slots__ = ()

    def __init__(self, size: int):
        self.size = size
        self.writable, self.private = True, False
        self.map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._type = type("Owner", (ctypes.c_char * size,), {})
        self.whole = None


def of_class(number: int) -> bool:
    """Reports whether a segment belongs to a storage class, whose end the daemon is notified of."""
    return bool(number & _CLASS)


def drop(segment: Segment | None, number: int, gone: Callable[[int], None]) -> None:
    """Lets go of a segment that no later batch names.

    Args:
        segment: The segment; the caller has removed it from its table. None means that this process
            has not mapped it.
        number: Its number.
        gone: Called with the number once the last view of the segment is gone from this process, in
            whatever thread drops it, so it must be as harmless as ``deque.append``. It is called
            only for segments of storage classes: those of the staging buffer end with their slots.
    """
    if not of_class(number):
        return
    if segment is None:
        gone(number)
        return
    # The map is unmapped before the finaliser runs.
    weakref.finalize(segment.map, gone, number).atexit = False


class Block(Lease):
    """The piece of a writable segment in which one batch lies, and the batch's slots.

    What is made of it keeps it alive.

    Args:
        slots: See :class:`Lease`.
        give_back: See :class:`Lease`.
        segment: Where it lies.
        begin: Its offset in the segment, in bytes.
        size: Its size in bytes.

    Raises:
        ProtocolError: It reaches beyond the segment.
    """

    __slots__ = ("begin", "segment", "size")

    def __init__(
        self,
        slots: Any,
        give_back: Callable[[Any], None],
        segment: Segment,
        begin: int,
        size: int,
    ):
        self.give_back = give_back
        self.slots = slots
        if begin + size > segment.size:
            raise ProtocolError("a batch reaches beyond its segment")
        self.segment = segment
        self.begin = begin
        self.size = size

    def view(self) -> memoryview:
        """Returns its bytes, writable."""
        return self.segment.view(self)[self.begin : self.begin + self.size]


class Returns:
    """The return ring: where slots are noted that the daemon may use again.

    docs/FORMATS.md, "Returns", has its layout. It is for one thread at a time.

    Args:
        fd: Descriptor of the memory; stays the caller's.
        offset: Bytes before the ring.
    """

    __slots__ = ("_noted", "_words")

    def __init__(self, fd: int, offset: int):
        if os.fstat(fd).st_size < offset + _RING:
            raise ProtocolError(f"a segment of {offset} bytes has no return ring after it")
        try:
            page = mmap.mmap(
                fd, _RING, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset
            )
        except OSError as error:
            raise LimitError(f"cannot map {_RING} bytes of shared memory: {error}") from None
        # An item of a cast memoryview is stored as one word, as the daemon reads it.
        self._words = memoryview(page).cast("Q")
        self._noted = 0

    def ends(self, position: int) -> bool:
        """Reports whether the stream ends at or before ``position``.

        It does where another rank has stopped there.
        """
        return 0 < self._words[_END] <= position + 1

    def note(self, slots: bytes) -> bytes:
        """Notes slots as free.

        Returns:
            The slots to be acknowledged instead: those of extra segments, and those for which the
            ring has no room.
        """
        words, n = self._words, self._noted
        last = words[0] + _ENTRIES
        rest = b""
        for (slot,) in U32.iter_unpack(slots):
            if slot & _EXTRA or n == last:
                rest += U32.pack(slot)
            else:
                n += 1
                words[1 + n % _ENTRIES] = (n & 0xFFFFFFFF) << 32 | slot
        self._noted = n
        return rest
