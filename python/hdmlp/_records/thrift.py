"""Thrift's compact protocol, as Parquet's footers and page headers are written in."""

from __future__ import annotations

from typing import Union

#: What is read: numbers, truth values, bytes, lists, and structures by the numbers of their fields.
Value = Union[int, bool, float, bytes, "list[Value]", "dict[int, Value]"]

#: How deep structures may be nested.
_DEEPEST = 32

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 1, 2, 3, 7, 8
_INTEGERS = (4, 5, 6)
_LIST, _SET, _STRUCT = 9, 10, 12


class Cut(Exception):
    """The bytes end before the structure does."""


class Damaged(Exception):
    """The bytes are no structure of the protocol."""


def struct(data: bytes, at: int = 0) -> tuple[dict[int, Value], int]:
    """Returns the structure that begins there, and where it ends.

    Memory is bounded by the bytes.

    Args:
        data: The bytes.
        at: Where it begins.

    Raises:
        Cut: The bytes end before it does.
        Damaged: It is none.
    """
    reader = _Reader(data, at)
    return reader.struct(0), reader.at


class _Reader:
    def __init__(self, data: bytes, at: int):
        self.data, self.at = data, at

    def struct(self, depth: int) -> dict[int, Value]:
        if depth > _DEEPEST:
            raise Damaged(f"structures are nested more than {_DEEPEST} times")
        found: dict[int, Value] = {}
        number = 0
        while True:
            head = self.byte()
            if head == 0:
                return found
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self.integer()
            if kind in (_TRUE, _FALSE):
                found[number] = kind == _TRUE
            else:
                found[number] = self.value(kind, depth)

    def value(self, kind: int, depth: int) -> Value:
        if kind in _INTEGERS:
            return self.integer()
        if kind == _BINARY:
            return self.bytes(self.varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self.list(depth + 1)
        if kind in (_BYTE, _TRUE, _FALSE):
            return self.byte()
        if kind == _DOUBLE:
            self.bytes(8)
            return 0.0  # of which Parquet has none
        raise Damaged(f"a field of type {kind}")

    def list(self, depth: int) -> list[Value]:
        head = self.byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self.varint()
        if depth > _DEEPEST or count > len(self.data) - self.at:
            raise Cut if depth <= _DEEPEST else Damaged("lists are nested too deep")
        return [self.value(kind, depth) for _ in range(count)]

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise Cut
        self.at += 1
        return self.data[self.at - 1]

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise Cut
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise Damaged("a number of more than 64 bits")

    def integer(self) -> int:
        found = self.varint()
        return (found >> 1) ^ -(found & 1)
