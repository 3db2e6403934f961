"""Transforms which make tensors or arrays, and those of tensors and arrays."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from .arguments import as_dtype, as_edge, as_numbers, as_probability, check_range
from .base import Description, Transform


class ToTensor(Transform):
    """Converts an image to a tensor: levels from 0 to 255 become numbers from 0 to 1.

    A list without it makes uint8 images of layout NHWC.

    Args:
        layout: Order of a batch's dimensions: ``"NCHW"``, torch's, or ``"NHWC"``.
            Default: ``"NCHW"``.
        dtype: ``float32``, ``float16`` or ``bfloat16``, as a ``torch.dtype`` or by name; ``uint8``
            keeps the levels, as torchvision's ``PILToTensor`` does. Default: ``"float32"``.
        memory_format: ``"channels_last"``, or ``torch.channels_last``: batches have the layout
            NCHW, and lie in memory as NHWC. Default: ``"contiguous_format"``.

    Raises:
        ValueError: ``layout``, ``dtype`` or ``memory_format`` is unknown, or the latter is
            ``"channels_last"`` and the layout is NHWC.
    """

    def __init__(
        self,
        layout: str = "NCHW",
        dtype: object = "float32",
        memory_format: object = "contiguous_format",
    ):
        if layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout should be 'NCHW' or 'NHWC'. Got {layout!r}")
        self.layout, self.dtype = layout, as_dtype(dtype)
        self.memory_format = str(memory_format).replace("torch.", "")
        if self.memory_format not in ("contiguous_format", "channels_last"):
            raise ValueError(
                "memory_format should be 'contiguous_format' or 'channels_last'. "
                f"Got {memory_format!r}"
            )
        if self.memory_format == "channels_last" and layout == "NHWC":
            raise ValueError("memory_format='channels_last' is for the layout 'NCHW'")

    def describe(self) -> Description:
        described: Description = {"name": "ToTensor", "layout": self.layout, "dtype": self.dtype}
        if self.memory_format == "channels_last":
            described["memory_format"] = self.memory_format
        return described

    def __repr__(self) -> str:
        given = [f"layout={self.layout!r}"] if self.layout != "NCHW" else []
        given += [f"dtype={self.dtype!r}"] if self.dtype != "float32" else []
        if self.memory_format != "contiguous_format":
            given.append(f"memory_format={self.memory_format!r}")
        return f"ToTensor({', '.join(given)})"


class ConvertImageDtype(Transform):
    """Converts a tensor to another type; integer levels are scaled to numbers from 0 to 1, or back.

    Args:
        dtype: ``uint8``, ``float16``, ``bfloat16`` or ``float32``, as a ``torch.dtype`` or by name.
            Default: ``"float32"``.

    Raises:
        ValueError: ``dtype`` is unknown.
    """

    #: How levels are scaled: ``"divide"``, ``"multiply"`` as torchvision's v2, or ``"none"``.
    _scale = "divide"

    def __init__(self, dtype: object = "float32"):
        self.dtype = as_dtype(dtype)

    def scaling(self, scale: str) -> ConvertImageDtype:
        """Returns the same with another way to scale levels."""
        made = copy.copy(self)
        made._scale = scale
        return made

    def describe(self) -> Description:
        described: Description = {"name": "ConvertImageDtype", "dtype": self.dtype}
        if self._scale != "divide":
            described["scale"] = self._scale
        return described

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

    def describe(self) -> Description:
        return {
            "name": "Normalize",
            "mean": as_numbers("mean", self.mean),
            "std": as_numbers("std", self.std),
        }

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class RandomErasing(Transform):
    """Sets a random rectangle of a tensor to a value, with a probability.

    Args:
        p: The probability, in [0, 1]. Default: 0.5.
        scale: (minimum, maximum) of the rectangle's area, as a fraction of the image's.
            Default: (0.02, 0.33).
        ratio: (minimum, maximum) of height / width, whose logarithm is drawn uniformly.
            Default: (0.3, 3.3).
        value: A number, or one for each channel; or ``"random"``: each element is drawn from a
            normal distribution, within 1e-5 of torch's. Default: 0.
        inplace: Ignored.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _draws = True
    #: The logarithms of ratio as torch computes them; None: as the daemon does.
    _logs: list[float] | None = None

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | str | Sequence[float] = 0,
        inplace: bool = False,
    ):
        self.p, self.inplace = as_probability(p), inplace
        check_range("Scale", scale)
        check_range("Ratio", ratio)
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if ratio[0] <= 0:
            raise ValueError(f"Ratio should be positive. Got {ratio}")
        if isinstance(value, str):
            if value != "random":
                raise ValueError("If value is str, it should be 'random'")
        elif len(as_numbers("value", value)) not in (1, 3):
            raise ValueError(f"value should be a number, or one for each channel. Got {value}")
        self.scale, self.ratio, self.value = scale, ratio, value

    def describe(self) -> Description:
        value = self.value if isinstance(self.value, str) else as_numbers("value", self.value)
        return {
            "name": "RandomErasing",
            "p": float(self.p),
            "scale": [float(s) for s in self.scale],
            "ratio": [float(r) for r in self.ratio],
            "value": value,
            **({} if self._logs is None else {"log_ratio": self._logs}),
        }

    def __repr__(self) -> str:
        return (
            f"RandomErasing(p={self.p}, scale={tuple(self.scale)}, ratio={tuple(self.ratio)}, "
            f"value={self.value}, inplace={self.inplace})"
        )


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

    def describe(self) -> Description:
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

    def describe(self) -> Description:
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

    def describe(self) -> Description:
        return {"name": "ScaleShift16", "scale": self.scale, "shift": self.shift}

    def __repr__(self) -> str:
        return f"ScaleShift16(scale={self.scale}, shift={self.shift})"
