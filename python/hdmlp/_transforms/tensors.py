"""Transforms which make tensors or arrays, and those of tensors and arrays."""

from __future__ import annotations

from typing import Any

from .arguments import as_dtype, as_edge, as_numbers
from .base import Transform


class ToTensor(Transform):
    """Converts an image to a tensor: levels from 0 to 255 become numbers from 0 to 1.

    A list without it makes uint8 images of layout NHWC.

    Args:
        layout: Order of a batch's dimensions: ``"NCHW"``, torch's, or ``"NHWC"``.
            Default: ``"NCHW"``.
        dtype: ``float32``, ``float16`` or ``bfloat16``, as a ``torch.dtype`` or by name; ``uint8``
            keeps the levels, as torchvision's ``PILToTensor`` does. Default: ``"float32"``.

    Raises:
        ValueError: ``layout`` or ``dtype`` is unknown.
    """

    def __init__(self, layout: str = "NCHW", dtype: object = "float32"):
        if layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout should be 'NCHW' or 'NHWC'. Got {layout!r}")
        self.layout, self.dtype = layout, as_dtype(dtype)

    def describe(self) -> dict[str, Any]:
        return {"name": "ToTensor", "layout": self.layout, "dtype": self.dtype}

    def __repr__(self) -> str:
        given = [f"layout={self.layout!r}"] if self.layout != "NCHW" else []
        given += [f"dtype={self.dtype!r}"] if self.dtype != "float32" else []
        return f"ToTensor({', '.join(given)})"


class ConvertImageDtype(Transform):
    """Converts a tensor to another type; integer levels are scaled to numbers from 0 to 1, or back.

    Args:
        dtype: ``uint8``, ``float16``, ``bfloat16`` or ``float32``, as a ``torch.dtype`` or by name.
            Default: ``"float32"``.

    Raises:
        ValueError: ``dtype`` is unknown.
    """

    def __init__(self, dtype: object = "float32"):
        self.dtype = as_dtype(dtype)

    def describe(self) -> dict[str, Any]:
        return {"name": "ConvertImageDtype", "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"ConvertImageDtype(dtype={self.dtype})"


class Normalize(Transform):
    """Subtracts ``mean`` from each channel of a tensor and divides by ``std``.

    Args:
        mean: One number for each channel, or one for all.
        std: The same, without zeros.
        inplace: Ignored.

    Raises:
        TypeError: An argument is not made of numbers.
        ValueError: There are neither 1 nor 3 numbers, or one is not finite, or one of ``std`` is 0.
    """

    def __init__(self, mean: object, std: object, inplace: bool = False):
        self.mean, self.std, self.inplace = mean, std, inplace
        if any(v == 0 for v in as_numbers("std", std)):
            raise ValueError(f"std evaluated to zero, leading to division by zero: {std}")
        for name, value in (("mean", mean), ("std", std)):
            if len(as_numbers(name, value)) not in (1, 3):
                raise ValueError(
                    f"{name} should have a number for each channel, 1 or 3. Got {value}"
                )

    def describe(self) -> dict[str, Any]:
        return {
            "name": "Normalize",
            "mean": as_numbers("mean", self.mean),
            "std": as_numbers("std", self.std),
        }

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class Ragged(Transform):
    """Ends a list whose images are for transforms that run in Python afterwards.

    Each image comes with its height and width before its pixels, and with what its file says beside
    them. Not for users: :func:`hdmlp.transforms.split` and :class:`hdmlp.transforms.Split` add it.

    Args:
        largest: The most bytes that a decoded image may have. A larger one comes encoded, as it is
            in its file; so does one whose format the daemon does not decode. 0: none does, and one
            of another format is an error. Default: 8 MiB.
    """

    _in_torchvision = False
    #: The largest value of ``largest``.
    MOST = (1 << 30) - 8

    def __init__(self, largest: int = 8 << 20):
        self.largest = largest

    def describe(self) -> dict[str, Any]:
        return {"name": "Ragged", "largest": self.largest}

    def __repr__(self) -> str:
        return f"Ragged(largest={self.largest})"


class Reshape(Transform):
    """Interprets a sample as the elements of an array in C order instead of as an image.

    From the thesis on which HDMLP is based. Must be the first of its list.

    Args:
        w: The array's width.
        h: Its height.
        c: Its number of channels.
        dtype: Type of the elements, little-endian: ``float32``, ``int16``, ``uint16`` or ``uint8``.
            Default: ``"float32"``.

    Raises:
        TypeError: ``w``, ``h`` or ``c`` is not an integer.
        ValueError: ``w``, ``h`` or ``c`` is below 1, or ``dtype`` is unknown.
    """

    _in_torchvision = False

    def __init__(self, w: int, h: int, c: int, dtype: object = "float32"):
        for name, value in (("w", w), ("h", h), ("c", c)):
            as_edge(name, value)
        self.w, self.h, self.c, self.dtype = (
            int(w),
            int(h),
            int(c),
            as_dtype(dtype, ("float32", "int16", "uint16", "uint8")),
        )

    def describe(self) -> dict[str, Any]:
        return {"name": "Reshape", "w": self.w, "h": self.h, "c": self.c, "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"Reshape(w={self.w}, h={self.h}, c={self.c}, dtype={self.dtype!r})"


class ScaleShift16(Transform):
    """Converts every element x of an array to ``(x - shift) * scale``, as float32.

    From the thesis on which HDMLP is based, where it is for 16 channels of climate data. Pass the
    arguments by name: the original's own scripts have them in the opposite order.

    Args:
        scale: One number for each index of the array's last axis, or one for all.
        shift: The same.

    Raises:
        TypeError: An argument is not made of numbers.
        ValueError: An argument is empty, or a number is not finite.
    """

    _in_torchvision = False

    def __init__(self, scale: object, shift: object):
        self.scale, self.shift = as_numbers("scale", scale), as_numbers("shift", shift)

    def describe(self) -> dict[str, Any]:
        return {"name": "ScaleShift16", "scale": self.scale, "shift": self.shift}

    def __repr__(self) -> str:
        return f"ScaleShift16(scale={self.scale}, shift={self.shift})"
