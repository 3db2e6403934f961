"""Batches of samples of several fields: each field as a batch of its own.

A BATCH payload has the places of all fields, those of the first one before those of the second
(docs/FORMATS.md). Here it becomes one payload per field, of the form that a batch of samples of one
field has, so that all that works on such a batch works on each field.
"""

from __future__ import annotations

from typing import NamedTuple

from .._lib.protocol import BATCH_HEAD
from .source import Left, left_from

_HEAD = BATCH_HEAD.size
#: The length of a field that a sample does not have.
NO_FIELD = b"\xff" * 8


class Field(NamedTuple):
    """One field of a batch.

    Attributes:
        payload: Its BATCH payload, without slots.
        missing: The places of samples which do not have it. They are of length 0 in ``payload``.
        left: What the daemon leaves to Python of it.
    """

    payload: bytearray
    missing: list[int]
    left: list[Left]


def fields_of(payload: bytearray, n: int, m: int, count: int) -> list[Field]:
    """Returns the fields of a batch.

    Args:
        payload: The BATCH payload.
        n: The number of samples.
        m: The number of slots.
        count: The number of fields.
    """
    offsets = _HEAD + 8 * n
    lengths = offsets + 8 * n * count
    ids = lengths + 8 * n * count
    segments = ids + 8 * n  # after IDs and occurrences
    end = segments + 4 * n * count + 4 * m
    head = payload[:offsets]  # with the labels
    head[_SLOTS : _SLOTS + 4] = bytes(4)
    fields = []
    for field in range(count):
        long, word = 8 * n * field, 4 * n * field
        sizes = payload[lengths + long : lengths + long + 8 * n]
        missing = []
        if NO_FIELD in sizes:
            missing = [i for i in range(n) if sizes[8 * i : 8 * i + 8] == NO_FIELD]
        places = payload[segments + word : segments + word + 4 * n]
        there = next((i for i in range(n) if i not in missing), 0) if missing else 0
        for i in missing:  # it lies nowhere: of a segment that there is, no byte
            sizes[8 * i : 8 * i + 8] = bytes(8)
            places[4 * i : 4 * i + 4] = places[4 * there : 4 * there + 4]
        part = head + payload[offsets + long : offsets + long + 8 * n] + sizes
        part += payload[ids:segments] + places
        fields.append(Field(part, missing, []))
    for left in left_from(payload, end):
        field, at = divmod(left.position, n)
        fields[field].left.append(left._replace(position=at))
    return fields


#: Where a payload has the number of its slots.
_SLOTS = 20
