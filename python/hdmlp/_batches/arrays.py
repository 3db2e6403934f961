"""Numpy arrays on the memory of a batch. Imported only if numpy is installed."""

from __future__ import annotations

from typing import Any

import numpy

from .segments import Block


class Leased(numpy.ndarray[Any, Any]):
    """An array on a :class:`Block`, which it holds.

    Numpy and torch keep it alive for as long as anything that was made of it without a copy: numpy
    follows bases only to the last one of another type. So it is made of the whole block, and only
    views of it are handed out.
    """

    __slots__ = ("lease",)
    lease: Block


def leased(block: Block, dtype: numpy.dtype[Any], shape: tuple[int, ...]) -> Leased:
    """Returns the block as an array.

    Args:
        block: The block.
        dtype: The elements' type.
        shape: The array's shape.

    Raises:
        TypeError: The shape reaches beyond the segment.
    """
    array = Leased(shape, dtype, block.segment.map, block.begin)
    array.lease = block
    return array


_INT64 = numpy.dtype(numpy.int64)


def labels(payload: bytearray, n: int) -> numpy.ndarray[object, numpy.dtype[numpy.int64]]:
    """Returns the labels of a BATCH payload, in place: int64, shape (n,), writable."""
    return numpy.ndarray((n,), _INT64, payload, 32)
