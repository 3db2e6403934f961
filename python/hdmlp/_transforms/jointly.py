"""Transforms of masks and boxes, which belong to an image, and those that only v2 has."""

from __future__ import annotations

from collections.abc import Sequence

from .arguments import as_factor_range, as_probability
from .base import Description, Transform

#: The formats of boxes: corners; left, top, width, height; the middle, width, height.
FORMATS = ("XYXY", "XYWH", "CXCYWH")

#: The types that masks are converted to.
MASK_TYPES = ("uint8", "int32", "int64", "float32")


class RandomPhotometricDistort(Transform):
    """Changes brightness, contrast, saturation and hue, and permutes channels, as SSD does.

    Args:
        brightness: (minimum, maximum) of the factor. Default: (0.875, 1.125).
        contrast: The same. Default: (0.5, 1.5).
        saturation: The same. Default: (0.5, 1.5).
        hue: (minimum, maximum) of the shift within [-0.5, 0.5]. Default: (-0.05, 0.05).
        p: The probability of each change. Default: 0.5.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _in_torchvision = False  # v1 does not have it
    _draws = True

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        p: float = 0.5,
    ):
        for name, span in (
            ("brightness", brightness),
            ("contrast", contrast),
            ("saturation", saturation),
        ):
            as_factor_range(name, span)
        as_factor_range("hue", hue, center=0.0, bound=(-0.5, 0.5))
        self.brightness, self.contrast = tuple(brightness), tuple(contrast)
        self.saturation, self.hue, self.p = tuple(saturation), tuple(hue), as_probability(p)

    def describe(self) -> Description:
        return {
            "name": "RandomPhotometricDistort",
            "brightness": [float(f) for f in self.brightness],
            "contrast": [float(f) for f in self.contrast],
            "saturation": [float(f) for f in self.saturation],
            "hue": [float(f) for f in self.hue],
            "p": float(self.p),
        }

    def __repr__(self) -> str:
        return (
            f"RandomPhotometricDistort(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue}, p={self.p})"
        )


class OfTargets(Transform):
    """A transform of masks or boxes alone: in a list with ``kinds=``."""

    _in_torchvision = False  # v1 has none


class SanitizeBoundingBoxes(OfTargets):
    """Removes boxes that are too small or reach outside of the image, with their labels.

    Args:
        min_size: The least width and height in pixels. Default: 1.
        min_area: The least area in pixels. Default: 1.

    Raises:
        ValueError: One of them is below 1.
    """

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0):
        for name, least in (("min_size", min_size), ("min_area", min_area)):
            if isinstance(least, bool) or not isinstance(least, (int, float)) or not least >= 1:
                raise ValueError(f"{name} must be >= 1, got {least}.")
        self.min_size, self.min_area = min_size, min_area

    def describe(self) -> Description:
        return {
            "name": "SanitizeBoundingBoxes",
            "min_size": float(self.min_size),
            "min_area": float(self.min_area),
        }

    def __repr__(self) -> str:
        return f"SanitizeBoundingBoxes(min_size={self.min_size}, min_area={self.min_area})"


class ClampBoundingBoxes(OfTargets):
    """Clamps boxes to the image."""

    def describe(self) -> Description:
        return {"name": "ClampBoundingBoxes"}


class ConvertBoundingBoxFormat(OfTargets):
    """Converts boxes to another format.

    Args:
        format: ``"XYXY"``, ``"XYWH"`` or ``"CXCYWH"``, or torchvision's enumeration.

    Raises:
        ValueError: There is no such format.
    """

    def __init__(self, format: object):
        self.format = as_format(format)

    def describe(self) -> Description:
        return {"name": "ConvertBoundingBoxFormat", "format": self.format}

    def __repr__(self) -> str:
        return f"ConvertBoundingBoxFormat(format={self.format!r})"


class ConvertMaskDtype(OfTargets):
    """Converts masks to another type, as v2's ``ToDtype`` with a dict.

    Args:
        dtype: ``"uint8"``, ``"int32"``, ``"int64"`` or ``"float32"``, or torch's type of that name.
            Default: ``"int64"``, of which losses take classes.

    Raises:
        ValueError: It is another type.
    """

    def __init__(self, dtype: object = "int64"):
        name = str(dtype).rpartition(".")[2]
        if name not in MASK_TYPES:
            raise ValueError(f"dtype should be one of {', '.join(MASK_TYPES)}. Got {dtype!r}")
        self.dtype = name

    def describe(self) -> Description:
        return {"name": "ConvertMaskDtype", "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"ConvertMaskDtype(dtype={self.dtype!r})"


def as_format(given: object) -> str:
    """Returns the name of a format of boxes.

    Raises:
        ValueError: There is no such format.
    """
    name = str(getattr(given, "name", given)).upper()
    if name not in FORMATS:
        raise ValueError(f"format should be one of {', '.join(FORMATS)}. Got {given!r}")
    return name
