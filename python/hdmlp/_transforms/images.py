"""Transforms of images."""

from __future__ import annotations

from collections.abc import Sequence

from .arguments import (
    InterpolationMode,
    as_edge,
    as_factor_range,
    as_fill,
    as_interpolation,
    as_interpolations,
    as_levels,
    as_mask_fill,
    as_padding,
    as_padding_mode,
    as_probability,
    as_size,
    check_range,
    pillow_release,
)
from .base import Description, Transform


class Resize(Transform):
    """Resizes an image, antialiased, as PIL does.

    Args:
        size: (height, width) in pixels; or one number, to which the shorter edge is resized while
            the aspect ratio is kept.
        interpolation: An :class:`InterpolationMode`, torchvision's or PIL's, or its name.
            Default: bilinear.
        max_size: The most pixels that the longer edge may have; if necessary the shorter one
            becomes shorter than ``size``. Only if ``size`` is one number. Default: None, no limit.
        antialias: Ignored, as torchvision ignores it for PIL images.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _same_on_tensor = True

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: object = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ):
        if isinstance(size, bool) or not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, (list, tuple)) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        for edge in size if isinstance(size, (list, tuple)) else [size]:
            as_edge("size", edge)
        shorter = size if isinstance(size, int) else size[0] if len(size) == 1 else None
        if max_size is not None:
            as_edge("max_size", max_size)
            if shorter is None:
                raise ValueError(
                    "max_size should only be passed if size specifies the length of "
                    "the smaller edge"
                )
            if max_size <= shorter:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size "
                    f"for the smaller edge size = {size}"
                )
        self.size, self.max_size, self.antialias = size, max_size, antialias
        self.interpolation = as_interpolation(interpolation)

    def describe(self) -> Description:
        size = self.size if isinstance(self.size, int) else list(self.size)
        return {
            "name": "Resize",
            "size": size,
            "interpolation": self.interpolation.value,
            "max_size": self.max_size,
            **pillow_release(),
        }

    def __repr__(self) -> str:
        return (
            f"Resize(size={self.size}, interpolation={self.interpolation.value}, "
            f"max_size={self.max_size}, antialias={self.antialias})"
        )


class CenterCrop(Transform):
    """Cuts out the centre of an image. A smaller image is padded with black first.

    Args:
        size: (height, width) in pixels, or one number for both.

    Raises:
        TypeError: ``size`` has the wrong type.
        ValueError: ``size`` is out of range.
    """

    _same_on_tensor = True

    def __init__(self, size: int | Sequence[int]):
        self.size = as_size(size)

    def describe(self) -> Description:
        return {"name": "CenterCrop", "size": list(self.size)}

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class RandomCrop(Transform):
    """Cuts out a part of an image at a random position.

    Args:
        size: (height, width) in pixels, or one number for both.
        padding: Pixels by which to pad the image first, as for :class:`Pad`. Default: None.
        pad_if_needed: If True, pad images that are smaller than ``size``; otherwise such an image
            is an error. Default: False.
        fill: As for :class:`Pad`. Default: 0.
        padding_mode: As for :class:`Pad`. Default: ``"constant"``.
        mask_fill: As for :class:`Pad`. Default: None.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _same_on_tensor = True
    _draws = True
    _draws_as = "v1"  # of torchvision, or "v2"

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
        mask_fill: int | None = None,
    ):
        self.size = as_size(size)
        self.mask_fill = as_mask_fill(mask_fill)
        if padding is not None:
            as_padding(padding)
        self.padding, self.pad_if_needed = padding, bool(pad_if_needed)
        self.fill, self.padding_mode = as_fill(fill), as_padding_mode(padding_mode)

    def describe(self) -> Description:
        padding = None if self.padding is None else as_padding(self.padding)
        return {
            "name": "RandomCrop",
            "size": list(self.size),
            "padding": padding,
            "pad_if_needed": self.pad_if_needed,
            "fill": as_levels(self.fill),
            "padding_mode": self.padding_mode,
            **({} if self._draws_as == "v1" else {"draws": self._draws_as}),
            **({} if self.mask_fill is None else {"mask_fill": self.mask_fill}),
        }

    def __repr__(self) -> str:
        return f"RandomCrop(size={self.size}, padding={self.padding})"


class RandomResizedCrop(Transform):
    """Cuts out a part of random area and aspect ratio, and resizes it.

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        scale: (minimum, maximum) of the part's area, as a fraction of the image's.
            Default: (0.08, 1.0).
        ratio: (minimum, maximum) of width / height, whose logarithm is drawn uniformly.
            Default: (3/4, 4/3).
        interpolation: As for :class:`Resize`; or a list or tuple of modes of which one is drawn for
            each sample, as in timm. Default: bilinear.
        antialias: Ignored, as for :class:`Resize`.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _same_on_tensor = True
    _draws = True
    _draws_as = "torchvision"  # or "timm"
    #: The logarithms of ratio as torch computes them; None: as the daemon does.
    _logs: list[float] | None = None

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: object = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        self.size = as_size(size)
        check_range("Scale", scale)
        check_range("Ratio", ratio)
        self.scale, self.ratio = scale, ratio
        if self.scale[0] < 0:
            raise ValueError(f"Scale should be non negative. Got {scale}")
        if self.ratio[0] <= 0:
            raise ValueError(f"Ratio should be positive. Got {ratio}")
        self.interpolation, self.antialias = as_interpolations(interpolation), antialias

    def describe(self) -> Description:
        mode = self.interpolation
        return {
            "name": "RandomResizedCrop",
            "size": list(self.size),
            "scale": [float(s) for s in self.scale],
            "ratio": [float(r) for r in self.ratio],
            "interpolation": ([m.value for m in mode] if isinstance(mode, tuple) else mode.value),
            **pillow_release(),
            **({} if self._draws_as == "torchvision" else {"draws": self._draws_as}),
            **({} if self._logs is None else {"log_ratio": self._logs}),
        }

    def __repr__(self) -> str:
        modes = self.describe()["interpolation"]
        return (
            f"RandomResizedCrop(size={self.size}, scale={tuple(round(s, 4) for s in self.scale)}, "
            f"ratio={tuple(round(r, 4) for r in self.ratio)}, interpolation={modes}, "
            f"antialias={self.antialias})"
        )


class RandomHorizontalFlip(Transform):
    """Flips an image left to right with a probability.

    Args:
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: ``p`` is not a number.
        ValueError: ``p`` is outside [0, 1].
    """

    _same_on_tensor = True
    _draws = True

    def __init__(self, p: float = 0.5):
        self.p = as_probability(p)

    def describe(self) -> Description:
        return {"name": type(self).__name__, "p": float(self.p)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Flips an image top to bottom with a probability.

    Args:
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: ``p`` is not a number.
        ValueError: ``p`` is outside [0, 1].
    """


class Pad(Transform):
    """Puts a border around an image.

    Args:
        padding: Pixels: (left, top, right, bottom), (left and right, top and bottom), or one number
            for all sides. A negative number crops.
        fill: Level of the border from 0 to 255, or one level for each channel. Default: 0.
        padding_mode: ``"constant"`` pads with ``fill``, ``"edge"`` with the outermost pixel;
            ``"reflect"`` mirrors the image without repeating the outermost pixel, ``"symmetric"``
            with repeating it. Default: ``"constant"``.
        mask_fill: The number that masks get there, in a list with ``kinds=``. Default: None,
            ``fill``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _same_on_tensor = True

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
        mask_fill: int | None = None,
    ):
        as_padding(padding)
        self.mask_fill = as_mask_fill(mask_fill)
        self.padding, self.fill, self.padding_mode = (
            padding,
            as_fill(fill),
            as_padding_mode(padding_mode),
        )

    def describe(self) -> Description:
        return {
            "name": "Pad",
            "padding": as_padding(self.padding),
            "fill": as_levels(self.fill),
            "padding_mode": self.padding_mode,
            **({} if self.mask_fill is None else {"mask_fill": self.mask_fill}),
        }

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue, in random order.

    Args:
        brightness: (minimum, maximum) of the factor, or how far it may be from 1. Default: 0.
        contrast: The same. Default: 0.
        saturation: The same. Default: 0.
        hue: (minimum, maximum) of the shift within [-0.5, 0.5], where 1 is the full colour circle;
            or how far it may be from 0. Default: 0.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _draws = True

    def __init__(
        self, brightness: object = 0, contrast: object = 0, saturation: object = 0, hue: object = 0
    ):
        self.brightness = as_factor_range("brightness", brightness)
        self.contrast = as_factor_range("contrast", contrast)
        self.saturation = as_factor_range("saturation", saturation)
        self.hue = as_factor_range("hue", hue, center=0.0, bound=(-0.5, 0.5))

    def describe(self) -> Description:
        spans = {
            "brightness": self.brightness,
            "contrast": self.contrast,
            "saturation": self.saturation,
            "hue": self.hue,
        }
        return {
            "name": "ColorJitter",
            **{k: None if v is None else [float(f) for f in v] for k, v in spans.items()},
        }

    def __repr__(self) -> str:
        return (
            f"ColorJitter(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue})"
        )


class Grayscale(Transform):
    """Converts an image to grey.

    Args:
        num_output_channels: 1, or 3 equal channels. Default: 1.

    Raises:
        ValueError: ``num_output_channels`` is neither 1 nor 3.
    """

    def __init__(self, num_output_channels: int = 1):
        if isinstance(num_output_channels, bool) or num_output_channels not in (1, 3):
            raise ValueError("num_output_channels should be either 1 or 3")
        self.num_output_channels = num_output_channels

    def describe(self) -> Description:
        return {"name": "Grayscale", "num_output_channels": int(self.num_output_channels)}

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"
