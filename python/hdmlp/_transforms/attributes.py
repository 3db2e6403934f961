"""The attributes of torchvision's and timm's transforms, as far as HDMLP reads them.

Their values are checked where our own transforms take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Fill(Protocol):
    """What pads with a level, or with one for each type of input."""

    fill: Any


class Resize(Protocol):
    """``Resize``."""

    size: int | Sequence[int]
    interpolation: object
    max_size: int | None
    antialias: Any  # a bool, None, or "warn" in some releases


class RandomCrop(Fill, Protocol):
    """``RandomCrop``; of v2 ``padding`` is a list of four."""

    size: int | Sequence[int]
    padding: Any  # a number, or a list of 1, 2 or 4; in v2 always of 4; None: nothing
    pad_if_needed: bool
    padding_mode: str


class RandomResizedCrop(Protocol):
    """``RandomResizedCrop``, and timm's ``RandomResizedCropAndInterpolation``."""

    size: int | Sequence[int]
    scale: Sequence[float]
    ratio: Sequence[float]
    interpolation: object


class AntialiasedCrop(RandomResizedCrop, Protocol):
    """``RandomResizedCrop`` of torchvision."""

    antialias: bool | None


class CenterCropOrPad(Fill, Protocol):
    """timm's ``CenterCropOrPad``."""

    size: int | Sequence[int]
    padding_mode: str


class ToType(Protocol):
    """``ConvertImageDtype`` and ``ToDtype``."""

    dtype: object


class Preset(Protocol):
    """What ``weights.transforms()`` of torchvision's classifiers returns."""

    resize_size: Sequence[int]
    crop_size: Sequence[int]
    interpolation: object
    mean: Sequence[float]
    std: Sequence[float]
