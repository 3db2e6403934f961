"""Transforms which the daemon carries out: torchvision's, with its names, arguments and defaults.

Example::

    from hdmlp import transforms as T

    T.Compose([
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])

The classes are descriptions. The daemon decodes and augments, and writes finished batches to shared
memory; Python never touches a pixel. The result is that of torchvision on PIL images
(docs/SEMANTICS.md gives the tolerances). Random parameters follow from the seed, the epoch, the
sample and the transform's place in the list.

The list must give every sample the same size. Images are decoded to RGB, unless the list begins
with :class:`ImgDecode`, which has other options, or with :class:`Reshape`, for which samples are
arrays. Lists of torchvision's own transforms work as well: :func:`split` returns which of them the
daemon can carry out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._transforms import (
    AutoAugment,
    CenterCrop,
    ClampBoundingBoxes,
    ColorJitter,
    ConvertBoundingBoxFormat,
    ConvertImageDtype,
    ConvertMaskDtype,
    GaussianBlur,
    Grayscale,
    ImgDecode,
    InterpolationMode,
    Normalize,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSolarize,
    RandomVerticalFlip,
    Reshape,
    Resize,
    SanitizeBoundingBoxes,
    ScaleShift16,
    ToTensor,
    Transform,
    TrivialAugmentWide,
    Views,
)
from ._transforms.base import Description, descriptions
from ._transforms.split import Split, split

__all__ = [
    "AutoAugment",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "ConvertImageDtype",
    "ConvertMaskDtype",
    "GaussianBlur",
    "Grayscale",
    "ImgDecode",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Reshape",
    "Resize",
    "SanitizeBoundingBoxes",
    "ScaleShift16",
    "Split",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Views",
    "describe",
    "split",
]


class Compose(Transform):
    """A list of transforms which are applied one after the other.

    Args:
        transforms: Our transforms or torchvision's. Those from the first that the daemon cannot
            carry out run in Python.

    Raises:
        TypeError: ``transforms`` is not a list or tuple, or one of them is not callable.
    """

    def __init__(self, transforms: Sequence[object]):
        if not isinstance(transforms, (list, tuple)):
            raise TypeError(f"transforms should be a list. Got {type(transforms)}")
        for i, t in enumerate(transforms):
            if not callable(t) and not isinstance(t, (list, tuple)):
                raise TypeError(f"transforms[{i}] should be callable. Got {t!r}")
        self.transforms = transforms

    def describe(self) -> list[Description]:  # type: ignore[override]
        """Describes the transforms as the daemon takes them.

        Returns:
            One JSON object for each transform (see docs/FORMATS.md).

        Raises:
            ValueError: The daemon cannot carry out all of them.
        """
        return describe(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compose) and list(self.transforms) == list(other.transforms)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Compose(" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


def describe(transforms: object) -> list[Description]:
    """Describes a list of transforms as the daemon takes it.

    Args:
        transforms: Our transforms or torchvision's, as a list or a ``Compose``.

    Returns:
        One JSON object for each transform (see docs/FORMATS.md).

    Raises:
        ValueError: The daemon cannot carry out all of them; the message says which one, and why.
    """
    parts = split(transforms)
    if parts.rest:
        raise ValueError(f"the daemon cannot do {parts.left[0]!r}: {parts.why}")
    return descriptions(parts.described)
