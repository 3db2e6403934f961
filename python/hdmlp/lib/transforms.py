"""The thesis's integrated transformations (4.4), with the arguments that it prints.

They are those of :mod:`hdmlp.transforms`, but for the order of edges: the thesis has (w, h), and
torchvision, whose names these are, (height, width).

    job = Job(data_dir, batch_size, epochs, "uniform", False, [ImgDecode(), Resize(256, 224),
        ToTensor(), Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])])
"""

from __future__ import annotations

from .. import transforms as _transforms
from .._lib.arguments import whole_number
from ..transforms import (
    ImgDecode,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Reshape,
    ScaleShift16,
    ToTensor,
)

__all__ = [
    "CenterCrop",
    "ImgDecode",
    "Normalize",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Reshape",
    "Resize",
    "ScaleShift16",
    "ToTensor",
]


class Resize(_transforms.Resize):
    """Resizes an image.

    Args:
        w: Its new width in pixels.
        h: Its new height in pixels.

    Raises:
        ConfigError: An edge is no whole number of 1 or more.
    """

    def __init__(self, w: int, h: int):
        super().__init__((whole_number("Resize: h", h, 1), whole_number("Resize: w", w, 1)))


class CenterCrop(_transforms.CenterCrop):
    """Cuts out the centre of an image.

    Args:
        w: Its width in pixels.
        h: Its height in pixels.

    Raises:
        ConfigError: An edge is no whole number of 1 or more.
    """

    def __init__(self, w: int, h: int):
        edges = whole_number("CenterCrop: h", h, 1), whole_number("CenterCrop: w", w, 1)
        super().__init__(edges)
