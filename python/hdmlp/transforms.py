"""Transforms that the daemon carries out: torchvision's, under its names, with its arguments and defaults.

    from hdmlp import transforms as T
    T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
               T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

They only describe. The daemon decodes and augments, and writes finished batches into shared memory; Python never
touches a pixel. What comes out is what torchvision makes of PIL images (docs/SEMANTICS.md says how near), and its random
parameters follow from the seed, the epoch, the sample and the transform's place in the list.

The list must give every sample the same size. Images are decoded to RGB; a list that begins with :class:`ImgDecode` says
otherwise, one that begins with :class:`Reshape` takes samples for arrays. Lists of torchvision's own
transforms do as well: :func:`split` says which of them the daemon can carry out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._torchvision import Split, split
from ._transforms import (
    CenterCrop,
    ColorJitter,
    ConvertImageDtype,
    Grayscale,
    ImgDecode,
    InterpolationMode,
    Normalize,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Reshape,
    Resize,
    ScaleShift16,
    ToTensor,
    Transform,
)

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "Grayscale",
    "ImgDecode",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Reshape",
    "Resize",
    "ScaleShift16",
    "Split",
    "ToTensor",
    "Transform",
    "describe",
    "split",
]


class Compose(Transform):
    """A list of transforms, one after the other.

    Args:
        transforms: ours or torchvision's; what the daemon can not do runs in Python after it.
    """

    def __init__(self, transforms: Sequence[Any]):
        if not isinstance(transforms, (list, tuple)):
            raise TypeError(f"transforms should be a list. Got {type(transforms)}")
        self.transforms = transforms

    def describe(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The transforms as the daemon takes them.

        Raises:
            ValueError: it can not do all of them.
        """
        return describe(self)

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and list(self.transforms) == list(other.transforms)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Compose(" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


def describe(transforms: Any) -> list[dict[str, Any]]:
    """A list of transforms as the daemon takes it (docs/FORMATS.md).

    Args:
        transforms: ours or torchvision's, a list or a Compose.

    Raises:
        ValueError: the daemon can not do all of them; the message says which, and why.
    """
    parts = split(transforms)
    if parts.rest:
        raise ValueError(f"the daemon can not do {parts.left[0]!r}: {parts.why}")
    return [t.describe() for t in parts.described]
