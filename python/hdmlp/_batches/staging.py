"""Shared memory as the training process maps it: where batches lie, and what to return."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .._lib import protocol
from ..errors import ProtocolError
from .fields import NO_FIELD, Field, fields_of
from .segments import Block, Copy, Lease, Returns, Segment, drop, forget_in_child
from .source import Left, LeftBytes

#: Bytes per sample before columns of a BATCH payload, after its head; see docs/FORMATS.md. The
#: columns after the labels are offsets, lengths, IDs, occurrences and segments.
_OFFSETS, _LENGTHS, _SEGMENTS, _COLUMNS = 8, 16, 32, 36
_HEAD = protocol.BATCH_HEAD.size


class Staging:
    """The segments of a stream: its staging buffer, and those of storage classes.

    Attributes:
        segments: By number. :meth:`add` and :meth:`drop` change it.
        freed: Slots that the program has given up, each entry as they stood in a BATCH. Any thread
            may append.
        gone: Numbers of segments that were dropped, and that no process of the program maps any
            more. Any thread may append.
        returns: Where the daemon looks for slots that are free; None where it does not.
    """

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.freed: deque[bytes] = deque()
        self.gone: deque[int] = deque()
        self.returns: Returns | None = None
        self._read_only: dict[int, memoryview] = {}  # whole segments of storage classes, by number
        # Blocks of private segments, by their slots: where they begin, and their sizes in bytes.
        # Their pages are dropped before the slots are returned.
        self._private: dict[bytes, list[tuple[Segment, int, int]]] = {}
        # Memory of a copied batch that the program has given up, for the next one: page faults of
        # new memory take longer than copying. Any thread may append.
        self._copies: deque[Copy] = deque(maxlen=1)
        self._n = 0
        self._longs = self._words = struct.Struct("")  # columns of a batch of n samples
        forget_in_child(self)

    def add(self, number: int, segment: Segment) -> None:
        """Adds a segment that later batches may name."""
        self.segments[number] = segment
        if segment.whole is not None:
            self._read_only[number] = segment.whole

    def drop(self, number: int) -> None:
        """Lets go of a segment that no later batch names; its views stay as they are."""
        self._read_only.pop(number, None)
        drop(self.segments.pop(number, None), number, self.gone.append)

    def forget(self) -> None:
        """Lets go of all segments; their views stay as they are."""
        self.segments.clear()
        self._read_only.clear()
        self._private.clear()
        self._copies.clear()

    def keep(self) -> None:
        """Makes batches that the program has independent of the daemon, before it is left.

        Those of private segments lie where it puts other batches once the connection has closed.
        """
        for blocks in self._private.values():
            for segment, begin, size in blocks:
                segment.own(begin, size)

    def free(self, slots: bytes) -> None:
        """Notes slots, as they stood in the BATCH, as free."""
        if slots:
            self.freed.append(slots)

    def drain(self) -> bytes:
        """Takes all slots that are free."""
        freed, slots = self.freed, []
        while freed:
            slots.append(freed.popleft())
            for segment, begin, size in self._private.pop(slots[-1], ()):
                segment.discard(begin, size)
        return b"".join(slots)

    def note(self) -> None:
        """Notes free slots where the daemon looks for them, as far as there is room."""
        if self.returns is not None:
            self.free(self.returns.note(self.drain()))

    def ends(self, position: int) -> bool:
        """Reports whether the stream ends before ``position`` or an earlier batch.

        It does where another rank's stream ended before it.
        """
        return self.returns is not None and self.returns.ends(position)

    def views(self, payload: bytearray, n: int, slots: bytes) -> Sequence[memoryview | None]:
        """Returns the samples of a batch one by one, None for records that do not have their field.

        They keep its slots.

        Args:
            payload: The BATCH payload.
            n: The number of samples.
            slots: The slots that the batch occupies.

        Raises:
            ProtocolError: The batch does not lie in the segments.
        """
        if not n:
            self.free(slots)
            return []
        lengths_at = _HEAD + _LENGTHS * n
        if NO_FIELD in payload[lengths_at : lengths_at + 8 * n]:
            parts = fields_of(payload, n, len(slots) // 4, 1)
            return self.fields(parts, n, slots, [0])[0]  # type: ignore[return-value]
        if slots:
            return self._leased(payload, n, Lease(slots, self.freed.append))
        if n != self._n:
            self._n = n
            self._longs, self._words = struct.Struct(f"<{n}Q"), struct.Struct(f"<{n}I")
        offsets = self._longs.unpack_from(payload, _HEAD + _OFFSETS * n)
        lengths = self._longs.unpack_from(payload, _HEAD + _LENGTHS * n)
        numbers = self._words.unpack_from(payload, _HEAD + _SEGMENTS * n)
        whole = self._read_only
        try:
            # Most of the time of next() is spent here. A slice is shorter if it would reach beyond
            # the segment; checked at once, which costs less than another pass.
            views = [
                view
                for number, offset, length in zip(numbers, offsets, lengths)
                if len(view := whole[number][offset : offset + length]) == length
            ]
        except KeyError:
            return self._leased(payload, n, Lease(slots, self.freed.append))
        if len(views) != n:
            raise _beyond()
        return views

    def fields(
        self, fields: Sequence[Field], n: int, slots: bytes, sizes: Sequence[int]
    ) -> list[Block | list[memoryview | None]]:
        """Returns the fields of a batch, which together keep its slots.

        Args:
            fields: The fields.
            n: The number of samples.
            slots: The slots that the batch occupies.
            sizes: For each field, the size of its results, which lie one after the other; 0: they
                vary, and views of them are returned, None where a sample does not have the field.
        """
        if not n:
            self.free(slots)
            return [[] for _ in fields]
        whole = Lease(slots, self.freed.append)
        contents: list[Any] = []
        for field, size in zip(fields, sizes):
            if size:
                contents.append(self._block(field.payload, n, (whole, _keep), size, slots))
                continue
            views: list[memoryview | None] = [None] * n
            if len(field.missing) < n:
                views = list(self._leased(field.payload, n, whole))
                for place in field.missing:
                    views[place] = None
            contents.append(views)
        return contents

    def _leased(self, payload: bytearray, n: int, lease: Lease) -> list[memoryview]:
        """Is :meth:`views` for a batch that lies in the staging buffer, wholly or in part."""
        columns = memoryview(payload)
        lengths_at, segments_at = _HEAD + _LENGTHS * n, _HEAD + _SEGMENTS * n
        offsets = columns[_HEAD + _OFFSETS * n : lengths_at].cast("Q").tolist()
        lengths = columns[lengths_at : lengths_at + 8 * n].cast("Q").tolist()
        segments = payload[segments_at : segments_at + 4 * n]
        first = segments[:4]
        try:
            if segments == first * n:
                number = int.from_bytes(first, "little")
                view = self.segments[number].view(lease).toreadonly()
                views = [view[o : o + length] for o, length in zip(offsets, lengths)]
            else:
                numbers = memoryview(segments).cast("I").tolist()
                whole = {s: self.segments[s].view(lease).toreadonly() for s in set(numbers)}
                views = [
                    whole[s][o : o + length] for s, o, length in zip(numbers, offsets, lengths)
                ]
        except KeyError as error:
            raise ProtocolError(f"a batch names segment {error}, which did not come") from None
        if sum(map(len, views)) != sum(lengths):
            raise _beyond()
        return views

    def block(
        self, payload: bytearray, n: int, slots: bytes, size: int
    ) -> Block | list[memoryview]:
        """Returns a batch of samples of ``size`` bytes each, which lie one after the other.

        It keeps the batch's slots. A batch without samples is an empty list. One that lies in
        several pieces of a private segment is copied, and its slots are free.
        """
        if not n:
            self.free(slots)
            return []
        return self._block(payload, n, (slots, self.freed.append), size, slots)

    def _block(
        self,
        payload: bytearray,
        n: int,
        lease: tuple[object, Callable[[Any], None]],
        size: int,
        slots: bytes,
    ) -> Block:
        """Is :meth:`block` for what a lease keeps: what it keeps, and who gets that back."""
        (begin,) = protocol.U64.unpack_from(payload, _HEAD + _OFFSETS * n)
        (last,) = protocol.U64.unpack_from(payload, _HEAD + _LENGTHS * n - 8)
        segments = payload[_HEAD + _SEGMENTS * n : _HEAD + _COLUMNS * n]
        lengths = payload[_HEAD + _LENGTHS * n : _HEAD + (_LENGTHS + 8) * n]
        segment = self.segments.get(int.from_bytes(segments[:4], "little"))
        if (
            segment is None
            or segments != segments[:4] * n
            or last != begin + (n - 1) * size
            or (segment.private and not _adjacent(payload, n, begin, size))
            or lengths != protocol.U64.pack(size) * n
        ):
            if segment is not None and segment.private:
                return self._joined(payload, n, lease, size)
            raise ProtocolError(f"a batch of {n} samples of {size} bytes does not lie in one piece")
        block = Block(*lease, segment, begin, n * size)
        if segment.private:
            segment.keep(begin, n * size)
            self._private.setdefault(slots, []).append((segment, begin, n * size))
        return block

    def left(self, entries: Sequence[Left]) -> dict[int, LeftBytes]:
        """Returns copies of the samples that a batch leaves to Python, by their places in it.

        It is called before the batch's slots can be free.
        """
        copies = {}
        for position, number, offset, length, usual in entries:
            segment = self.segments.get(number)
            if segment is None or offset + length > segment.size:
                raise _beyond()
            copy = LeftBytes(memoryview(segment.map)[offset : offset + length])
            copy.usual = usual
            copies[position] = copy
        return copies

    def _joined(
        self, payload: bytearray, n: int, lease: tuple[object, Callable[[object], None]], size: int
    ) -> Block:
        """Is :meth:`block` for a batch in a group's window that lies in several pieces."""
        columns = memoryview(payload)
        offsets = columns[_HEAD + _OFFSETS * n : _HEAD + _LENGTHS * n].cast("Q").tolist()
        numbers = columns[_HEAD + _SEGMENTS * n : _HEAD + _COLUMNS * n].cast("I").tolist()
        pieces: list[tuple[int, int, int]] = []  # segment, offset, bytes
        for number, offset in zip(numbers, offsets):
            if pieces and pieces[-1][0] == number and sum(pieces[-1][1:]) == offset:
                pieces[-1] = (number, pieces[-1][1], pieces[-1][2] + size)
            else:
                pieces.append((number, offset, size))
        try:
            places = [(self.segments[number], begin, length) for number, begin, length in pieces]
        except KeyError as error:
            raise ProtocolError(f"a batch names segment {error}, which did not come") from None
        copy = self._copies.pop() if self._copies else None
        if copy is None or copy.size < n * size:
            copy = Copy(n * size)
        at = 0
        for segment, begin, length in places:
            if begin + length > segment.size:
                raise _beyond()
            copy.map[at : at + length] = memoryview(segment.map)[begin : begin + length]
            at += length
        Lease(*lease)  # is over: the batch is copied
        return Block(copy, self._copies.append, copy, 0, at)


def _keep(_: object) -> None:
    """Returns nothing: what is kept goes back when the last that keeps it is gone."""


def _adjacent(payload: bytearray, n: int, begin: int, size: int) -> bool:
    """Reports whether all samples of a batch lie one after the other, from ``begin`` on.

    A batch of a group may consist of several pieces: its last sample may lie where it would if they
    were adjacent, and others elsewhere.
    """
    offsets = memoryview(payload)[_HEAD + _OFFSETS * n : _HEAD + _LENGTHS * n].cast("Q")
    return offsets.tolist() == list(range(begin, begin + n * size, size))


def _beyond() -> ProtocolError:
    return ProtocolError("a batch reaches beyond its segment")
