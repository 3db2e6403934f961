"""The memory of a batch whose samples are made in place, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    #: An array of any type of elements.
    Array = numpy.ndarray[Any, Any]
    Elements = numpy.dtype[Any]


class Row:
    """The memory of one sample of a batch.

    Args:
        rows: That of the batch.
        number: The sample's number in it.

    Attributes:
        taken: The sample lies there.
    """

    def __init__(self, rows: Rows, number: int):
        self._rows, self._number = rows, number
        self.taken = False

    def take(self, shape: tuple[int, ...], dtype: Elements) -> Array | None:
        """Returns the memory; None: a sample of this shape and type does not belong there."""
        row = self._rows.row(self._number, shape, dtype)
        self.taken = row is not None
        return row


class Rows:
    """Memory for the samples of one batch, reserved when the first of them is to be made.

    Args:
        place: Where the batch may be written; has ``LEAST``, ``reserve`` and ``give_up``.
        count: The number of samples.

    Attributes:
        LEAST: Fewer bytes are faster written elsewhere.
    """

    def __init__(self, place: Any, count: int):
        self._place, self._count = place, count
        self.LEAST: int = place.LEAST
        self._whole: Array | None = None

    def row(self, number: int, shape: tuple[int, ...], dtype: Elements) -> Array | None:
        """Returns memory for a sample; None: it does not belong there.

        Args:
            number: The sample's number in the batch.
            shape: Its shape, which has to be that of the others.
            dtype: The type of its elements; the same.
        """
        import numpy

        if self._whole is None:
            elements = self._count * math.prod(shape)
            nbytes = elements * dtype.itemsize
            if nbytes < self.LEAST:
                return None
            memory, offset = self._place.reserve(nbytes)
            flat = numpy.frombuffer(memory, dtype, elements, offset)
            self._whole = flat.reshape(self._count, *shape)
        whole = self._whole
        if whole.shape[1:] != shape or whole.dtype != dtype:
            return None
        row: Array = whole[number]
        return row

    @property
    def used(self) -> bool:
        """Reports whether memory is reserved."""
        return self._whole is not None

    def stacked(self, images: Sequence[Any]) -> Any:
        """Returns the batch, into which those samples that lie elsewhere are copied.

        Args:
            images: All samples of the batch.

        Returns:
            A tensor; None: some are no tensors, or of other shapes or types.
        """
        import torch

        whole = torch.from_numpy(self._whole)
        for row, image in zip(whole, images):
            if (
                type(image) is not torch.Tensor
                or image.shape != row.shape
                or image.dtype != row.dtype
                or image.requires_grad
                or image.device != row.device
                or image.layout is not torch.strided
            ):
                return None
            if image.data_ptr() != row.data_ptr():
                row.copy_(image)
        return whole

    def reserve(self, nbytes: int) -> tuple[Any, int]:
        """Returns other memory of the batch's place."""
        memory, offset = self._place.reserve(nbytes)
        return memory, offset

    def give_up(self) -> None:
        """Takes all memory back that was reserved, of which nothing is used."""
        self._place.give_up()
