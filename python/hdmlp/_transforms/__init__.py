"""The transforms of :mod:`hdmlp.transforms`, one class each: descriptions of what the daemon does.

``base`` has what they share, ``arguments`` the checks of their arguments, ``decode`` the one which
decodes images, ``images`` those which change them, ``tensors`` those which say what a batch
consists of.
"""

from .arguments import InterpolationMode
from .base import Transform
from .decode import ImgDecode
from .images import (
    CenterCrop,
    ColorJitter,
    Grayscale,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from .tensors import ConvertImageDtype, Normalize, Ragged, Reshape, ScaleShift16, ToTensor

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "ConvertImageDtype",
    "Grayscale",
    "ImgDecode",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "Ragged",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Reshape",
    "Resize",
    "ScaleShift16",
    "ToTensor",
    "Transform",
]
