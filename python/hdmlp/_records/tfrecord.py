"""TFRecord files that are not compressed: where the features of each ``tf.train.Example`` are."""

from __future__ import annotations

import array
import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .._lib.arguments import is_url
from ..errors import ConfigError
from .arrays import Indexed, paths_in, unreadable
from .form import check_chosen
from .manifest import located
from .parquet import Ordered
from .runs import Ranges

#: Before and after the data of a record: its length and a checksum; a checksum.
_BEFORE, _AFTER = 12, 4
#: Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: Numbers of fields are below that.
_FIELDS = 1 << 29
#: The kinds of features, by their numbers.
_KINDS = {1: "bytes", 2: "floats", 3: "integers"}
_TABLE: list[int] = []


class Feature(NamedTuple):
    """A feature of a record.

    Attributes:
        kind: ``"bytes"``, ``"floats"`` or ``"integers"``.
        places: Where its lists begin and end in the record. Several are one after the other.
    """

    kind: str
    places: tuple[tuple[int, int], ...]


class TFRecord(Indexed):
    """Records of TFRecord files, each a ``tf.train.Example``, of which features are fields.

    The files are read once, when this object is made: nothing lists where their records begin. The
    checksums of lengths are compared, those of data are not.

    Args:
        paths: A file, or a list of files, which follow one another.
        *names: The features that items have. Each record must have one value of each: bytes, or a
            number, which is kept in the process.

    An item is a dict by feature: bytes, integers and floats.

    Attributes:
        fields: The names of the features of bytes.

    Raises:
        ConfigError: A file is none of these or compressed, or a record has no such feature.
    """

    def __init__(self, paths: object, *names: str):
        self._open(paths, names)

    def _open(self, paths: object, names: Sequence[str]) -> None:
        files = paths_in("paths", paths, None)
        if any(map(is_url, files)):
            raise ConfigError("paths: TFRecord files are read where they are files, not at URLs")
        if not names:
            raise ConfigError("names: give the features that items have, such as 'image', 'label'")
        check_chosen("names", names, names)
        self._note(files)
        where = located(files, None)
        kinds: dict[str, str] = {}
        objects = {name: array.array("i") for name in names}
        offsets = {name: array.array("q") for name in names}
        lengths = {name: array.array("q") for name in names}
        values: dict[str, list[float]] = {name: [] for name in names}
        for path, number in zip(files, where.numbers):
            for begin, data in _records(path):
                try:
                    found = features(data)
                    for name in names:
                        if name not in found:
                            raise ValueError(
                                f"no feature {name!r}; it has {', '.join(sorted(found))}"
                            )
                        feature = found[name]
                        if kinds.setdefault(name, feature.kind) != feature.kind:
                            raise ValueError(
                                f"feature {name!r} of {feature.kind}, and others of {kinds[name]}"
                            )
                        if feature.kind == "bytes":
                            first, last = _only(data, feature, name)
                            objects[name].append(number)
                            offsets[name].append(begin + first)
                            lengths[name].append(last - first)
                        else:
                            values[name].append(_number(data, feature, name))
                except (ValueError, struct.error) as error:
                    raise ConfigError(f"{path}: the record at byte {begin} has {error}") from None
        mine = [name for name in names if kinds.get(name) == "bytes"]
        if not kinds:
            raise ConfigError(f"{files[0]}: there are no records")
        if not mine:
            raise ConfigError(
                f"names: {', '.join(names)}: these features are numbers, which this process has "
                "read now and keeps, so that the daemon would read nothing: name a feature of "
                "bytes as well"
            )
        columns = {name: values[name] for name in names if name not in mine}
        ranges = [Ranges(objects[name], offsets[name], lengths[name]) for name in mine]
        self._set(where, Ordered(names, mine, columns), ranges, None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} records below {self._path!r})"


def _records(path: str) -> Iterator[tuple[int, bytes]]:
    """Yields where the data of each record begin in a file, and the data.

    Raises:
        ConfigError: It is no TFRecord file, or is damaged.
    """
    try:
        with open(path, "rb") as file:
            size, at = os.fstat(file.fileno()).st_size, 0
            while at < size:
                head = file.read(_BEFORE)
                length = int.from_bytes(head[:8], "little")
                if len(head) < _BEFORE or masked(head[:8]) != int.from_bytes(head[8:], "little"):
                    packed = at == 0 and head[:2] in (b"\x1f\x8b", b"\x78\x9c", b"\x78\x01")
                    raise ConfigError(
                        f"{path}: it is compressed, so that no part can be read alone: write it "
                        "without compression"
                        if packed
                        else f"{path}: no record begins at byte {at}: it is no TFRecord file, or "
                        "is damaged"
                    )
                if length > size - at - _BEFORE - _AFTER:
                    raise ConfigError(f"{path}: the record at byte {at} is cut off")
                yield at + _BEFORE, file.read(length)
                file.seek(_AFTER, os.SEEK_CUR)
                at += _BEFORE + length + _AFTER
    except OSError as error:
        raise unreadable(path, error) from error


def masked(data: bytes) -> int:
    """Returns the checksum of TFRecord files: a masked CRC-32C."""
    if not _TABLE:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            _TABLE.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    found = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & (1 << 64) - 1, at
        shift += 7
    raise ValueError("a number that is cut off")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the fields of a message: number, wire type, begin and end of its content."""
    while at < end:
        tag, at = _varint(data, at, end)
        kind, begin = tag & 7, at
        if not 0 < tag >> 3 < _FIELDS:
            raise ValueError(f"a field of number {tag >> 3}")
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            length, begin = _varint(data, at, end)
            at = begin + length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field of wire type {kind}")
        if at > end:
            raise ValueError("a field that is cut off")
        yield tag >> 3, kind, begin, at


def features(data: bytes) -> dict[str, Feature]:
    """Returns the features of a ``tf.train.Example``, by name.

    As of protobuf's own library, fields that the message does not have are left out, and of those
    that are there twice, lists are joined, and texts the last one.

    Raises:
        ValueError: It is none, or has no features.
    """
    found: dict[str, Feature] = {}
    for of_example, kind, begin, end in _fields(data, 0, len(data)):
        if (of_example, kind) != (1, _BYTES):
            continue
        for number, entry_kind, entry, entry_end in _fields(data, begin, end):
            if (number, entry_kind) != (1, _BYTES):
                continue
            name, feature = _entry(data, entry, entry_end)
            found.pop(name, None)
            if feature is not None:
                found[name] = feature
    if not found:
        raise ValueError("no tf.train.Example with features")
    return found


def _entry(data: bytes, at: int, end: int) -> tuple[str, Feature | None]:
    """Returns the name and the feature of an entry; None: it is of no kind."""
    name, kind = "", ""
    places: tuple[tuple[int, int], ...] = ()
    for number, wire, begin, last in _fields(data, at, end):
        if wire != _BYTES:
            continue
        if number == 1:
            name = data[begin:last].decode()
        for of, own_wire, first, after in _fields(data, begin, last) if number == 2 else ():
            if of in _KINDS and own_wire == _BYTES:
                places = (*(places if kind == _KINDS[of] else ()), (first, after))
                kind = _KINDS[of]
    return name, Feature(kind, places) if kind else None


def _only(data: bytes, feature: Feature, name: str) -> tuple[int, int]:
    places = [
        (begin, end)
        for first, last in feature.places
        for number, kind, begin, end in _fields(data, first, last)
        if (number, kind) == (1, _BYTES)
    ]
    if len(places) != 1:
        raise ValueError(f"{len(places)} values of the feature {name!r}, and not one")
    return places[0]


def _number(data: bytes, feature: Feature, name: str) -> float:
    """Returns the number of a feature; lists of them are packed, or are fields one by one."""
    found: list[float] = []
    plain = _FIXED32 if feature.kind == "floats" else _VARINT
    for first, last in feature.places:
        for number, kind, begin, end in _fields(data, first, last):
            if number != 1 or kind not in (plain, _BYTES):
                continue
            if feature.kind == "floats":
                found += [x for (x,) in struct.iter_unpack("<f", data[begin:end])]
                continue
            while begin < end:
                value, begin = _varint(data, begin, end)
                found.append(value - (1 << 64) if value >> 63 else value)
    if len(found) != 1:
        raise ValueError(f"{len(found)} values of the feature {name!r}, and not one")
    return found[0]
