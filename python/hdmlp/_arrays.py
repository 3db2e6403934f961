"""Numpy arrays where a batch lies. Imported only where numpy is there."""

from __future__ import annotations

import numpy

from ._segments import Block


class Leased(numpy.ndarray):
    """An array on a :class:`Block`, which holds its lease.

    Numpy and torch keep it alive for as long as anything that was made of it without copying: numpy goes no further than the
    last base of another type. So it is made of the whole block and not handed out; what is, is a view.
    """

    __slots__ = ("lease",)


def leased(block: Block, dtype: numpy.dtype, shape: tuple[int, ...]) -> Leased:
    """The block as an array.

    Numpy checks nothing less than ``memoryview`` does: a shape that reaches beyond the segment is a TypeError.
    """
    array = Leased(shape, dtype, block.segment.map, block.begin)
    array.lease = block
    return array


_INT64 = numpy.dtype(numpy.int64)


def labels(payload: bytearray, n: int) -> numpy.ndarray:
    """The labels of a BATCH payload of n samples, int64, where they lie; writable."""
    return numpy.ndarray((n,), _INT64, payload, 32)
