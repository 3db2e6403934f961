"""What the bytes of a record of an array are: numbers of one type, in one shape."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple


class Window(NamedTuple):
    """A part of a sequence, with what is to be predicted of it.

    Attributes:
        length: How many places of the sequence it has.
        shift: How many places later the targets begin, which are as many; None: there are none.
    """

    length: int
    shift: int | None


class Elements:
    """Makes arrays of bytes.

    Args:
        dtype: numpy's type of the elements.
        shape: The shape of a record.
        window: The record is a window of a sequence: it becomes two arrays, of inputs and targets,
            and integers become int64. None: it is one array.

    Attributes:
        nbytes: How many bytes a record has.
    """

    def __init__(self, dtype: Any, shape: Sequence[int], window: Window | None = None):
        # A text, as workers may have copies of what has no objects of others as attributes.
        self._type: str = dtype.str
        self.shape, self.window = tuple(shape), window
        self.nbytes: int = dtype.itemsize
        for edge in self.shape:
            self.nbytes *= edge

    @property
    def dtype(self) -> Any:
        """The type of the elements, one of numpy's."""
        import numpy

        return numpy.dtype(self._type)

    def of_one(self, data: object) -> Any:
        """Returns what the bytes of a record are: an array, or (inputs, targets).

        The array is a view of the bytes, unless its numbers have another order of bytes.

        Raises:
            ValueError: There are not so many bytes.
        """
        made = self.of_many(data, 1)
        return made[0] if self._pair is None else (made[0][0], made[1][0])

    def of_many(self, data: Any, n: int) -> Any:
        """Returns what records are whose bytes lie together; see :meth:`of_one`.

        Args:
            data: The bytes, or an array of them.
            n: The number of records.
        """
        import numpy

        flat = numpy.frombuffer(data, "u1")
        if len(flat) != n * self.nbytes:
            raise ValueError(f"{len(flat)} bytes, and {n} arrays have {n * self.nbytes}")
        whole = flat.view(self.dtype).reshape(n, *self.shape)
        if self.window is None:
            native = self.dtype.newbyteorder("=")
            return whole if self.dtype.isnative else whole.astype(native)
        kind = numpy.int64 if self.dtype.kind in "iu" else self.dtype.newbyteorder("=")
        length, shift = self.window
        inputs = whole[:, :length].astype(kind, "C")
        if shift is None:
            return inputs
        return inputs, whole[:, shift : shift + length].astype(kind, "C")

    def __repr__(self) -> str:
        of = "" if self.window is None else f", {self.window}"
        return f"{self.dtype} of shape {self.shape}{of}"

    def npy(self, data: bytes) -> bytes:
        """Returns the bytes of a record as an npy file, as ``numpy.save`` writes one."""
        import numpy

        file = io.BytesIO()
        numpy.save(file, numpy.frombuffer(data, self.dtype).reshape(self.shape))
        return file.getvalue()

    @property
    def _pair(self) -> bool | None:
        return None if self.window is None or self.window.shift is None else True

    def stacked(self, contents: Sequence[Any]) -> Any:
        """Returns the arrays of records whose bytes lie apart, as one."""
        import numpy

        whole = numpy.empty((len(contents), self.nbytes), "u1")
        for row, data in zip(whole, contents):
            row[:] = numpy.frombuffer(data, "u1")
        return self.of_many(whole.reshape(-1), len(contents))
