"""Where the values of a column are in a Parquet file that stores them as they are."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from ..errors import ConfigError
from . import thrift

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
#: The longest footer that is read, in bytes.
_LONGEST = 1 << 28
#: Parquet's types, repetitions, encodings and pages.
BYTE_ARRAY = 6
_NAMES = {
    **{0: "booleans", 1: "int32", 2: "int64", 3: "int96", 4: "float", 5: "double"},
    **{BYTE_ARRAY: "bytes", 7: "bytes of one length"},
}
_REQUIRED, _REPEATED = 0, 2
_PLAIN, _RLE, _BIT_PACKED = 0, 3, 4
_DATA, _DATA_2 = 0, 3
#: Of values of more bytes than that, only the lengths are read.
_LARGE = 4096


class Leaf(NamedTuple):
    """A column of values.

    Attributes:
        path: The names from the root to it.
        kind: Parquet's type.
        levels: How many of the names may be null.
        repeated: A row may have several values, or none.
        text: The values are texts.
        other: They are neither texts nor plain bytes, but decimals, for example.
    """

    path: tuple[str, ...]
    kind: int
    levels: int
    repeated: bool
    text: bool
    other: bool

    @property
    def shown(self) -> str:
        """What its values are, for messages."""
        kind = _NAMES.get(self.kind, f"type {self.kind}")
        return "texts" if self.text else f"{kind} of another meaning" if self.other else kind


class Chunk(NamedTuple):
    """The values of a column in a row group.

    Attributes:
        begin, size: Where its pages are, in bytes.
        values: How many values it has, nulls included.
        why: Why its values do not lie in the file as they are; empty: they do.
    """

    begin: int
    size: int
    values: int
    why: str


class Footer(NamedTuple):
    """What the footer of a file says.

    Attributes:
        leaves: The columns.
        groups: Of each row group, its number of rows, and the chunk of each column.
        told: The file's own texts, by name.
    """

    leaves: list[Leaf]
    groups: list[tuple[int, list[Chunk]]]
    told: dict[str, str]

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return sum(rows for rows, _ in self.groups)

    def number(self, path: tuple[str, ...]) -> int:
        """Returns the number of the column with a path, which must be there."""
        return next(i for i, leaf in enumerate(self.leaves) if leaf.path == path)


def footer_of(path: str, descriptor: int) -> Footer:
    """Returns what the footer of a file says.

    Args:
        path: The file, for messages.
        descriptor: The same, open.

    Raises:
        ConfigError: It is no Parquet file, or is damaged or encrypted.
    """
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, 8, max(size - 8, 0))
    if size < 12 or end[4:] not in (_MAGIC, _ENCRYPTED):
        raise ConfigError(f"{path}: it is no Parquet file, or was cut off")
    length = int.from_bytes(end[:4], "little")
    if end[4:] == _ENCRYPTED:
        raise ConfigError(f"{path}: it is encrypted")
    if length > min(size - 12, _LONGEST):
        raise ConfigError(f"{path}: its footer has {length} bytes, and the file {size}")
    try:
        told, _ = thrift.struct(os.pread(descriptor, length, size - 8 - length))
        return _footer(told, size - 8 - length)
    except thrift.Cut:
        raise ConfigError(f"{path}: its footer is damaged: it is cut off") from None
    except thrift.Damaged as error:
        raise ConfigError(f"{path}: its footer is damaged: {error}") from None


def _int(told: dict[int, thrift.Value], number: int, otherwise: int | None = None) -> int:
    value = told.get(number, otherwise)
    if not isinstance(value, int):
        raise thrift.Damaged(f"field {number} is {type(value).__name__}, and no number")
    return value


def _list(told: dict[int, thrift.Value], number: int) -> list[thrift.Value]:
    value = told.get(number, [])
    if not isinstance(value, list):
        raise thrift.Damaged(f"field {number} is no list")
    return value


def _struct(value: thrift.Value | None) -> dict[int, thrift.Value]:
    if not isinstance(value, dict):
        raise thrift.Damaged("a structure is missing")
    return value


def _text(value: thrift.Value | None) -> str:
    if not isinstance(value, bytes):
        raise thrift.Damaged("a name is missing")
    return value.decode(errors="replace")


def _footer(told: dict[int, thrift.Value], end: int) -> Footer:
    leaves = _leaves([_struct(element) for element in _list(told, 2)])
    groups = []
    for value in _list(told, 4):
        group = _struct(value)
        chunks = [_chunk(_struct(column), end) for column in _list(group, 1)]
        rows = _int(group, 3)
        if len(chunks) != len(leaves) or rows < 0:
            raise thrift.Damaged(f"a row group of {rows} rows has {len(chunks)} columns")
        groups.append((rows, chunks))
    if _int(told, 3) != sum(rows for rows, _ in groups):
        raise thrift.Damaged(f"it has {_int(told, 3)} rows, and its row groups have others")
    pairs = [_struct(pair) for pair in _list(told, 5)]
    return Footer(leaves, groups, {_text(p.get(1)): _text(p.get(2, b"")) for p in pairs})


def _leaves(elements: Sequence[dict[int, thrift.Value]]) -> list[Leaf]:
    """Returns the columns of a schema, which is a tree in preorder."""
    leaves: list[Leaf] = []
    # Of each open node: how many children are left, its path, levels, and whether it repeats.
    open_: list[list[object]] = []
    for i, element in enumerate(elements):
        children, name = _int(element, 5, 0), _text(element.get(4))
        if i == 0:
            open_.append([children, (), 0, False])
            continue
        while open_ and open_[-1][0] == 0:
            open_.pop()
        if not open_ or children < 0:
            raise thrift.Damaged("its schema is no tree")
        parent = open_[-1]
        parent[0] = cast(int, parent[0]) - 1
        repetition = _int(element, 3, _REQUIRED)
        path = (*cast("tuple[str, ...]", parent[1]), name)
        levels = cast(int, parent[2]) + (repetition != _REQUIRED)
        repeated = bool(parent[3]) or repetition == _REPEATED
        if children or 1 not in element:
            open_.append([children, path, levels, repeated])
            continue
        text = element.get(6) == 0 or 1 in _struct(element.get(10, {}))
        other = not text and (6 in element or 10 in element)
        leaves.append(Leaf(path, _int(element, 1), levels, repeated, text, other))
    if any(left for left, *_ in open_) or not elements:
        raise thrift.Damaged("its schema is cut off")
    return leaves


def _chunk(column: dict[int, thrift.Value], end: int) -> Chunk:
    if 8 in column or 9 in column:
        return Chunk(0, 0, 0, "it is encrypted")
    if column.get(1):
        return Chunk(0, 0, 0, "it is in another file")
    told = _struct(column.get(3))
    data, dictionary = _int(told, 9), _int(told, 11, 0)
    begin = dictionary if 0 < dictionary < data else data
    size, values = _int(told, 7), _int(told, 5)
    if values < 0 or (values and (begin < 4 or size < 0 or begin + size > end)):
        raise thrift.Damaged(
            f"a column has {values} values in {size} bytes from byte {begin} on, and the footer "
            f"begins at byte {end}"
        )
    encodings = set(cast("list[int]", _list(told, 2)))
    why = ""
    if _int(told, 4, 0):
        why = "it is compressed"
    elif _int(told, 1) != BYTE_ARRAY:
        why = "it has no bytes"
    elif not encodings <= {_PLAIN, _RLE, _BIT_PACKED}:
        why = "it has a dictionary, or another encoding than PLAIN"
    return Chunk(begin, size, values, why)


def places_of(
    path: str, descriptor: int, leaf: Leaf, chunk: Chunk, rows: int
) -> Iterator[tuple[int, int] | None]:
    """Yields where the values of a chunk are: offset and length; None for null.

    Args:
        path: The file, for messages.
        descriptor: The same, open.
        leaf: The column, which repeats nothing.
        chunk: The chunk, whose values lie in it as they are.
        rows: The row group's number of rows.

    Raises:
        ConfigError: The pages are damaged, or not as the footer describes.
    """
    at, end, found = chunk.begin, chunk.begin + chunk.size, 0
    try:
        while found < chunk.values:
            told, begin = _header(descriptor, at, end)
            size = _int(told, 3)
            if size < 0 or begin + size > end:
                raise thrift.Damaged(f"a page of {size} bytes ends after its column")
            at = begin + size
            if _int(told, 1) not in (_DATA, _DATA_2):
                continue  # a dictionary of no value, or an index
            count = 0
            for place in _page(descriptor, leaf, told, begin, at):
                yield place
                count += 1
            found += count
            if not count:
                raise thrift.Damaged("a page without values")
    except thrift.Cut:
        raise ConfigError(f"{path}: column {'.'.join(leaf.path)}: its pages are cut off") from None
    except thrift.Damaged as error:
        raise ConfigError(f"{path}: column {'.'.join(leaf.path)}: {error}") from None
    if found != chunk.values or found != rows:
        raise ConfigError(
            f"{path}: column {'.'.join(leaf.path)} has {found} values in a row group of {rows} rows"
        )


def _header(descriptor: int, at: int, end: int) -> tuple[dict[int, thrift.Value], int]:
    """Returns the header of a page, and where its data begin."""
    size = 1 << 10
    while True:
        data = os.pread(descriptor, min(size, end - at), at)
        try:
            told, length = thrift.struct(data)
            return told, at + length
        except thrift.Cut:
            if size >= end - at or len(data) < size:
                raise
            size *= 16


def _page(
    descriptor: int, leaf: Leaf, told: dict[int, thrift.Value], begin: int, end: int
) -> Iterator[tuple[int, int] | None]:
    """Yields where the values of a page are."""
    width = leaf.levels.bit_length()
    if _int(told, 1) == _DATA:
        head = _struct(told.get(5))
        count, encoding = _int(head, 1), _int(head, 2)
        length = 0
        if width:
            if _int(head, 3) != _RLE:
                raise thrift.Damaged("levels of an encoding that is not RLE")
            length = int.from_bytes(os.pread(descriptor, 4, begin), "little")
            begin += 4
    else:
        head = _struct(told.get(8))
        count, encoding, length = _int(head, 1), _int(head, 4), _int(head, 5)
        if _int(head, 6):
            raise thrift.Damaged("values that repeat, in a column that does not")
    if encoding != _PLAIN:
        raise thrift.Damaged("a page that is not PLAIN, though the footer says so")
    if length < 0 or begin + length > end or not 0 <= count <= 1 << 31:
        raise thrift.Damaged(f"a page of {count} values has levels of {length} bytes")
    levels: Iterator[int] | None = None
    if width:
        levels = _levels(os.pread(descriptor, length, begin), width, count)
    yield from _values(descriptor, begin + length, end, count, levels, leaf.levels)


def _values(
    descriptor: int,
    begin: int,
    end: int,
    count: int,
    levels: Iterator[int] | None,
    most: int,
) -> Iterator[tuple[int, int] | None]:
    whole = b""
    if end - begin < count * _LARGE:
        whole = os.pread(descriptor, end - begin, begin)
        if len(whole) < end - begin:
            raise thrift.Cut
    at = begin
    for _ in range(count):
        if levels is not None and next(levels) < most:
            yield None
            continue
        if end - at < 4:
            raise thrift.Damaged("a page ends within a value")
        if whole:
            (length,) = struct.unpack_from("<I", whole, at - begin)
        else:
            length = int.from_bytes(os.pread(descriptor, 4, at), "little")
        if length > end - at - 4:
            raise thrift.Damaged(f"a value of {length} bytes ends after its page")
        yield at + 4, length
        at += 4 + length
    if at != end:
        raise thrift.Damaged("a page has bytes after its last value")


def _levels(data: bytes, width: int, count: int) -> Iterator[int]:
    """Yields numbers of so many bits, of runs and packed ones (RLE)."""
    at, left, mask = 0, count, (1 << width) - 1
    while left > 0:
        head = shift = 0
        while True:
            if at >= len(data) or shift > 35:
                raise thrift.Cut
            head |= (data[at] & 0x7F) << shift
            at += 1
            shift += 7
            if data[at - 1] < 0x80:
                break
        if head & 1:
            size = (head >> 1) * width
            if size > len(data) - at:
                raise thrift.Cut
            numbers = min((head >> 1) * 8, left)
            for i in range(numbers):
                if i % 8 == 0:
                    bits = int.from_bytes(data[at + i // 8 * width :][:width], "little")
                yield bits >> (i % 8 * width) & mask
            at += size
        else:
            size, numbers = (width + 7) // 8, min(head >> 1, left)
            if size > len(data) - at:
                raise thrift.Cut
            level = int.from_bytes(data[at : at + size], "little")
            at += size
            for _ in range(numbers):
                yield level
        if not numbers:
            raise thrift.Damaged("a run of no levels")
        left -= numbers
