"""What the numbers of arrays become: tensors, and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._records.elements import Elements, Window
from ..._transforms import Pixels, Reshape, Transform
from ...errors import ConfigError


class Tensors(Elements):
    """Makes tensors of bytes: of a record's when called, of a batch's by :meth:`batch`.

    Args:
        dtype: numpy's type of the elements.
        shape: The shape of a record.
        window: See :class:`~hdmlp._records.elements.Elements`.

    Raises:
        ConfigError: torch has no such type.
    """

    def __init__(self, dtype: Any, shape: Sequence[int], window: Window | None = None):
        super().__init__(dtype, shape, window)
        import numpy

        try:
            self.of_many(numpy.zeros(self.nbytes, "u1"), 1)
            if window is None:
                torch.from_numpy(numpy.zeros(1, dtype.newbyteorder("=")))
        except TypeError:
            raise ConfigError(
                f"dtype={dtype}: this torch has no such type: convert the file, or use a newer one"
            ) from None

    @property
    def described(self) -> list[Transform]:
        """What the daemon does for batches."""
        return [Reshape(1, 1, self.nbytes, "uint8")]

    def __call__(self, data: Any) -> object:
        """Returns what the bytes of a record are; see :meth:`Elements.of_one`.

        The tensors are copies, as transforms may write to them.
        """
        made = self.of_one(data)
        if isinstance(made, tuple):
            return tuple(map(torch.from_numpy, made))
        import numpy

        return torch.from_numpy(numpy.array(made))

    def batch(self, whole: Any, n: int) -> object:
        """Returns a batch of the daemon's bytes: a tensor, or a list of inputs and targets."""
        made = self.of_many(whole.numpy(), n) if n else self._empty()
        if isinstance(made, tuple):
            return list(map(torch.from_numpy, made))
        return torch.from_numpy(made)

    def _empty(self) -> Any:
        import numpy

        return self.of_many(numpy.empty(0, "u1"), 0)


class Numbers(Tensors):
    """The same, but that a record is what numpy makes of it: an array, or a number.

    Args:
        dtype: numpy's type of the elements.
        shape: The shape of a record.
        plain: A number is Python's.
    """

    def __init__(self, dtype: Any, shape: Sequence[int], plain: bool = False):
        super().__init__(dtype, shape)
        self.plain = plain

    def __call__(self, data: object) -> object:
        """Returns what the bytes of a record are: a view of them, or a number."""
        made = self.of_one(data)
        return made.item() if self.plain else made


class OfPixels:
    """Makes images of bytes that are their levels.

    Args:
        stored: How they are stored.
    """

    def __init__(self, stored: Pixels):
        self.stored = stored

    def __call__(self, data: Any) -> object:
        """Returns a PIL image, of mode L if it has 1 channel, else RGB."""
        import numpy
        from PIL import Image

        s = self.stored
        levels = numpy.frombuffer(data, "u1")
        if s.channels == 1:
            return Image.fromarray(levels.reshape(s.height, s.width))
        if s.layout == "CHW":
            levels = levels.reshape(3, s.height, s.width).transpose(1, 2, 0)
        return Image.fromarray(numpy.ascontiguousarray(levels.reshape(s.height, s.width, 3)))


def pixels_of(name: str, elements: Elements) -> OfPixels:
    """Returns what makes images of arrays of uint8.

    Raises:
        ConfigError: They are of another type, or have no shape of images.
    """
    shape = elements.shape
    if elements.dtype != "u1" or elements.window is not None or len(shape) not in (2, 3):
        raise ConfigError(
            f"images: the samples of {name!r} are {elements.dtype} of shape {shape}, and images "
            "are uint8 of (height, width), (height, width, channels) or (channels, height, width)"
        )
    if len(shape) == 2:
        return OfPixels(Pixels(shape[1], shape[0], 1, "HWC"))
    for channels, (height, width), layout in (
        (shape[2], shape[:2], "HWC"),
        (shape[0], shape[1:], "CHW"),
    ):
        if channels in (1, 3):
            return OfPixels(Pixels(width, height, channels, layout))
    raise ConfigError(
        f"images: the samples of {name!r} have shape {shape}, and not 1 or 3 channels"
    )
