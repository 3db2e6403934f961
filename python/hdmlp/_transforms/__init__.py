"""The transforms of :mod:`hdmlp.transforms`, one class each: descriptions of what the daemon does.

``base`` has what they share, ``arguments`` the checks of their arguments, ``decode`` the one which
decodes images, ``images`` and ``augment`` those which change them, ``nested`` those which consist
of others, ``jointly`` those of masks and boxes, ``stored`` that of images which are not encoded,
``tensors`` those which say what a batch consists of, ``multiview`` that which makes several tensors
of an image.
"""

from .arguments import InterpolationMode
from .augment import (
    AutoAugment,
    GaussianBlur,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPerspective,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    TrivialAugmentWide,
)
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
from .jointly import (
    ClampBoundingBoxes,
    ConvertBoundingBoxFormat,
    ConvertMaskDtype,
    RandomPhotometricDistort,
    SanitizeBoundingBoxes,
)
from .multiview import Views
from .nested import RandomApply, RandomChoice, RandomOrder
from .stored import Pixels
from .tensors import (
    ConvertImageDtype,
    Normalize,
    Ragged,
    RandomErasing,
    Reshape,
    ScaleShift16,
    ToTensor,
)

__all__ = [
    "AutoAugment",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ColorJitter",
    "ConvertBoundingBoxFormat",
    "ConvertImageDtype",
    "ConvertMaskDtype",
    "GaussianBlur",
    "Grayscale",
    "ImgDecode",
    "InterpolationMode",
    "Normalize",
    "Pad",
    "Pixels",
    "Ragged",
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
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Views",
]
