"""Batches on their way from a worker to the training process, without /dev/shm and without a copy.

The worker pickles the batch with its tensors and arrays out of band: their bytes lie in slots, each
a memfd that both processes map. The training process builds tensors and arrays on top of these. A
slot returns to the worker when the last of them is gone.

RESULT, the one frame per batch: u64 task, u32 number of buffers, u32 zero, then per buffer u32
slot, u32 zero, u64 offset, u64 length, then the pickle, or nothing if the last buffer is the pickle
because it is large.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import mmap
import os
import pickle
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Union

from .._batches.segments import Lease, Segment
from .._lib import memory as _memory
from .._lib.mapping import mapped

if TYPE_CHECKING:
    import torch

    Buffer = Union[bytes, bytearray, memoryview, pickle.PickleBuffer]


class Storage(Protocol):
    """A tensor's memory."""

    def data_ptr(self) -> int:
        """Returns its address."""

    def nbytes(self) -> int:
        """Returns its size."""


RESULT_HEAD = struct.Struct("<QII")
BUFFER = struct.Struct("<IIQQ")
SLOT_BODY = struct.Struct("<IIQ")

_ALIGN = 64
_INLINE = 16384
_IN_SLOT = 1 << 31


def _aligned(n: int) -> int:
    return (n + _ALIGN - 1) & -_ALIGN


def rebuild_tensor(
    buffer: Buffer,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    count: int,
) -> torch.Tensor:
    """Returns a tensor on ``count`` elements of ``buffer``, from this byte on."""
    import torch

    if not count:
        return torch.empty_strided(shape, stride, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
    made: torch.Tensor = flat.as_strided(shape, stride)
    return made


def rebuild_view(buffer: Buffer, read_only: bool) -> memoryview:
    """Returns a view of ``buffer``."""
    view = memoryview(buffer)
    return view.toreadonly() if read_only else view


class _Slot:
    """One memfd of a worker."""

    __slots__ = ("_owner", "address", "map", "number", "size", "used")

    def __init__(self, number: int, size: int, fd: int):
        self.number = number
        self.size = size
        self.map = mapped(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._owner = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self._owner)
        self.used = 0

    def place(self, nbytes: int) -> int:
        """Takes aligned room; returns its offset."""
        offset = self.used
        self.used = _aligned(offset + nbytes)
        return offset


class Slots:
    """A worker's slots.

    Args:
        announce: Called with (number, size, descriptor) of a new slot.
        forget: Called with the number of a slot that will not be used again.
    """

    #: Free slots beyond these are given up.
    SPARE = 8

    def __init__(self, announce: Callable[[int, int, int], None], forget: Callable[[int], None]):
        self._announce = announce
        self._forget = forget
        self._busy: dict[int, _Slot] = {}
        self._free: list[_Slot] = []
        self._count = 0

    def take(self, size: int) -> _Slot:
        """Returns a slot with at least ``size`` bytes."""
        fitting = [slot for slot in self._free if slot.size >= size]
        if fitting:
            slot = min(fitting, key=lambda slot: slot.size)
            self._free.remove(slot)
        else:
            size = max(_aligned(size), mmap.PAGESIZE)
            size = (size + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
            fd = _memory.create("hdmlp-batch", size)
            try:
                slot = _Slot(self._count, size, fd)
                self._count += 1
                self._announce(slot.number, size, fd)
            finally:
                os.close(fd)
        slot.used = 0
        self._busy[slot.number] = slot
        return slot

    def free(self, number: int) -> None:
        """Takes back a slot that the training process has returned."""
        self._free.append(self._busy.pop(number))
        if len(self._free) > self.SPARE:
            smallest = min(self._free, key=lambda slot: slot.size)
            self._free.remove(smallest)
            self._forget(smallest.number)


class Place:
    """Room in shared memory for one batch; a collate function may write into it directly."""

    #: Any number of bytes is better here than elsewhere, from which they would be copied.
    LEAST = 0

    def __init__(self, slots: Slots):
        self._slots = slots
        self.taken: list[_Slot] = []

    def reserve(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """Returns room for ``nbytes`` bytes: a writable buffer, and the offset in it."""
        slot = self.taken[-1] if self.taken else None
        if slot is None or slot.size - slot.used < nbytes:
            slot = self._slots.take(nbytes)
            self.taken.append(slot)
        return slot.map, slot.place(nbytes)

    def find(self, address: int, nbytes: int) -> tuple[_Slot, int] | None:
        """Returns the slot in which an address lies and its offset there, or None."""
        for slot in self.taken:
            offset = address - slot.address
            if offset >= 0 and offset + nbytes <= slot.size:
                return slot, offset
        return None

    def give_up(self) -> None:
        """Takes the room back, of which nothing was sent."""
        for slot in self.taken:
            self._slots.free(slot.number)
        self.taken.clear()


class Arena:
    """Memory for batches that are made in the training process itself, used again and again.

    Touching fresh memory costs more than stacking a batch. What :meth:`reserve` returns comes back
    when the last tensor on it is gone. Threads may use it at the same time: the one
    that removes a number from ``_free`` has the piece.
    """

    #: Free pieces that are kept.
    SPARE = 4
    #: Fewer bytes are faster in memory that malloc keeps.
    LEAST = 65536

    def __init__(self) -> None:
        self._pieces: dict[int, Segment] = {}
        self._freed: deque[tuple[int, ...]] = deque()
        self._free: list[int] = []
        self._numbers = itertools.count()

    def reserve(self, nbytes: int) -> tuple[memoryview, int]:
        """Returns room for ``nbytes`` bytes: a writable buffer, and the offset in it."""
        with suppress(IndexError):
            while True:
                self._free += self._freed.popleft()
        while len(self._free) > self.SPARE:
            spare = self._take(0)
            if spare is not None:
                del self._pieces[spare]
        number = self._take(nbytes)
        if number is None:
            number = next(self._numbers)
            size = (nbytes + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
            fd = _memory.create("hdmlp-batch", size)
            try:
                self._pieces[number] = Segment(fd, size, True)
            finally:
                os.close(fd)
        return self._pieces[number].view(Lease((number,), self._freed.append)), 0

    def give_up(self) -> None:
        """Does nothing: room comes back by itself when no tensor lies on it."""

    def _take(self, nbytes: int) -> int | None:
        """Takes the smallest free piece with this many bytes; returns its number, if there is one.

        None may also be due to another thread, which has taken that piece at the same time.
        """
        pieces = [(self._pieces.get(number), number) for number in tuple(self._free)]
        sizes = [(piece.size, number) for piece, number in pieces if piece is not None]
        fitting = min((size for size in sizes if size[0] >= nbytes), default=None)
        if fitting is None:
            return None
        try:
            self._free.remove(fitting[1])
        except ValueError:
            return None
        return fitting[1]


class _Pickler(pickle.Pickler):
    """Pickles with the bytes of tensors and arrays out of band.

    Attributes:
        buffers: These bytes, in order, and for tensors their addresses.
        storages: The storages that go as a whole, by address: the buffers of their bytes.
    """

    def __init__(self, file: io.BytesIO):
        buffers: list[tuple[memoryview, int | None]] = []
        addresses: dict[int, int] = {}

        # It does not refer to the pickler: a cycle would keep the batch until the collector runs,
        # and what torch's default_collate makes in a worker lies in /dev/shm.
        def note(buffer: pickle.PickleBuffer) -> bool:
            buffers.append((buffer.raw(), addresses.get(id(buffer))))
            return False

        super().__init__(file, protocol=5, buffer_callback=note)
        self.buffers, self._addresses = buffers, addresses
        self.storages: dict[int, pickle.PickleBuffer] = {}
        self._keep: list[object] = []

    def reducer_override(self, value: Any) -> Any:
        """Puts the bytes of plain CPU tensors out of band; has arrays arrive writable.

        So are those of views, such as samples that are passed on as they are.
        """
        if type(value) is memoryview and (value.format, value.ndim, value.contiguous) == (
            "B",
            1,
            True,
        ):
            return rebuild_view, (pickle.PickleBuffer(value), value.readonly)
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        arrays: Any = getattr(numpy, "ndarray", ())
        if isinstance(value, arrays):
            # With torch's workers arrays are writable afterwards, as those of protocol 4 are.
            return NotImplemented if value.flags.writeable else value.copy("A").__reduce_ex__(5)
        if torch is None or type(value) is not torch.Tensor:
            return NotImplemented
        if (
            value.device.type != "cpu"
            or value.layout is not torch.strided
            or value.requires_grad
            or value.is_quantized
        ):
            return NotImplemented
        # Memory has the values before conjugation and negation, which torch 1 pickles as they are.
        return self._reduce(value.resolve_conj().resolve_neg())

    def _reduce(self, tensor: torch.Tensor) -> tuple[object, ...]:
        """Describes a tensor by its bytes, or by its whole storage's if that is not much larger.

        Tensors of one storage then share memory afterwards, as they do with torch's workers.
        """
        storage = _storage(tensor)
        buffer, begin = self.storages.get(storage.data_ptr()), storage.data_ptr()
        span, size = _span(tensor), tensor.element_size()
        if buffer is None and span > 2 * tensor.numel():  # mostly others' elements
            tensor = tensor.contiguous()
            storage, span = _storage(tensor), tensor.numel()
        if buffer is None and span:
            whole = storage.nbytes() <= 2 * span * size
            begin = storage.data_ptr() if whole else tensor.data_ptr()
            buffer = self._buffer(begin, storage.nbytes() if whole else span * size)
            if whole:
                self.storages[begin] = buffer
        self._keep.append(tensor)
        offset = tensor.data_ptr() - begin if span else 0
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        return rebuild_tensor, (buffer if span else b"", tensor.dtype, shape, stride, offset, span)

    def _buffer(self, address: int, nbytes: int) -> pickle.PickleBuffer:
        raw = (ctypes.c_char * nbytes).from_address(address)
        buffer = pickle.PickleBuffer(memoryview(raw).cast("B"))
        self._addresses[id(buffer)] = address
        self._keep.append(buffer)
        return buffer


def _storage(tensor: torch.Tensor) -> Storage:
    untyped = getattr(tensor, "untyped_storage", None)  # from torch 2 on
    storage: Callable[[], Storage] = tensor.storage if untyped is None else untyped
    return storage()


def _span(tensor: torch.Tensor) -> int:
    """Returns how many elements there are from a tensor's first to its last in memory."""
    if not tensor.numel():
        return 0
    span = 1
    for n, step in zip(tensor.shape, tensor.stride()):
        span += (n - 1) * step
    return span


def encode(task: int, value: object, place: Place) -> bytes:
    """Returns the payload of a RESULT.

    Args:
        task: The task's number.
        value: The batch.
        place: Where its bytes go; what is not there yet is copied.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    table = []
    copied_to: dict[int | None, tuple[_Slot, int] | None] = {}  # by address of a storage
    for raw, address in pickler.buffers:
        nbytes = raw.nbytes
        found = place.find(address, nbytes) if address is not None and nbytes else None
        found = found or copied_to.get(address)
        if found is None:
            found = _copy(raw, nbytes, place)
            if address in pickler.storages:
                copied_to[address] = found
        table.append((found[0].number, found[1], nbytes) if found else (0, 0, 0))
    pickled: memoryview | bytes = file.getbuffer()
    copied = _copy(pickled, len(pickled), place) if len(pickled) > _INLINE else None
    if copied is not None:
        table.append((copied[0].number | _IN_SLOT, copied[1], len(pickled)))
        pickled = b""
    head = RESULT_HEAD.pack(task, len(table), 0)
    return b"".join([head, *(BUFFER.pack(s, 0, o, n) for s, o, n in table), pickled])


def _copy(raw: memoryview | bytes, nbytes: int, place: Place) -> tuple[_Slot, int] | None:
    if not nbytes:
        return None
    memory, offset = place.reserve(nbytes)
    memory[offset : offset + nbytes] = raw
    return place.taken[-1], offset


def _table(payload: bytearray) -> list[tuple[int, int, int, int]]:
    _, count, _ = RESULT_HEAD.unpack_from(payload)
    return list(
        BUFFER.iter_unpack(payload[RESULT_HEAD.size : RESULT_HEAD.size + BUFFER.size * count])
    )


def _numbers(table: list[tuple[int, int, int, int]]) -> tuple[int, ...]:
    return tuple({slot & ~_IN_SLOT for slot, _, _, nbytes in table if nbytes})


def slots_of(payload: bytearray) -> tuple[int, ...]:
    """Returns the slots that a RESULT occupies, to free them if the batch is not wanted."""
    return _numbers(_table(payload))


def decode(
    payload: bytearray, segments: dict[int, Segment], give_back: Callable[[tuple[int, ...]], None]
) -> object:
    """Returns the batch of a RESULT, its tensors and arrays writable and in place.

    Args:
        payload: The RESULT's payload.
        segments: The worker's slots by number.
        give_back: Called with a tuple of slot numbers when the last tensor on them is gone.
    """
    table = _table(payload)
    numbers = _numbers(table)
    lease = Lease(numbers, give_back)
    views = {number: segments[number].view(lease) for number in numbers}
    del lease
    buffers = [
        views[slot & ~_IN_SLOT][offset : offset + nbytes] if nbytes else bytearray()
        for slot, _, offset, nbytes in table
    ]
    pickled: bytes | memoryview
    if table and table[-1][0] & _IN_SLOT:
        pickled = bytes(buffers.pop())
    else:
        pickled = memoryview(payload)[RESULT_HEAD.size + BUFFER.size * len(table) :]
    return pickle.loads(pickled, buffers=buffers)
