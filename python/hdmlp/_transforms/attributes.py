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


class _Moving(Fill, Protocol):
    """What moves pixels."""

    interpolation: object


class RandAugment(_Moving, Protocol):
    """``RandAugment``."""

    num_ops: int
    magnitude: int
    num_magnitude_bins: int


class TrivialAugmentWide(_Moving, Protocol):
    """``TrivialAugmentWide``."""

    num_magnitude_bins: int


class AutoAugment(_Moving, Protocol):
    """``AutoAugment``; v1 has ``policies`` and v2 ``_policies``."""

    policy: object
    policies: Any
    _policies: Any


class RandomRotation(_Moving, Protocol):
    """``RandomRotation``."""

    degrees: Sequence[float]
    expand: bool
    center: Sequence[float] | None


class RandomAffine(_Moving, Protocol):
    """``RandomAffine``."""

    degrees: Sequence[float]
    translate: Sequence[float] | None
    scale: Sequence[float] | None
    shear: Sequence[float] | None
    center: Sequence[float] | None


class Chance(Protocol):
    """What changes an image with a probability."""

    p: float


class RandomPerspective(_Moving, Chance, Protocol):
    """``RandomPerspective``."""

    distortion_scale: float


class GaussianBlur(Protocol):
    """``GaussianBlur``."""

    kernel_size: Sequence[int]
    sigma: Sequence[float]


class RandomErasing(Chance, Protocol):
    """``RandomErasing``; in v2 a value of None is random."""

    scale: Sequence[float]
    ratio: Sequence[float]
    value: Any
    inplace: bool


class AugmentOp(Protocol):
    """timm's ``AugmentOp``."""

    name: str
    prob: float
    magnitude: float
    magnitude_std: float
    magnitude_max: float | None
    aug_fn: object
    level_fn: object
    hparams: dict[str, Any]
    kwargs: dict[str, Any]


class TimmRandAugment(Protocol):
    """timm's ``RandAugment``."""

    ops: Sequence[AugmentOp]
    num_layers: int
    choice_weights: object


class TimmAutoAugment(Protocol):
    """timm's ``AutoAugment``."""

    policy: Sequence[Sequence[AugmentOp]]


class TimmRandomErasing(Protocol):
    """timm's ``RandomErasing``."""

    probability: float
    min_area: float
    max_area: float
    log_aspect_ratio: Sequence[float]
    min_count: int
    max_count: int
    rand_color: bool
    per_pixel: bool
    device: object
