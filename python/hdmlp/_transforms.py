"""The transforms of :mod:`hdmlp.transforms`, one class each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._transform_arguments import (
    InterpolationMode,
    _dtype,
    _edge,
    _fill,
    _interpolation,
    _interpolations,
    _levels,
    _numbers,
    _padding,
    _padding_mode,
    _pillow,
    _probability,
    _range,
    _size,
    _span,
)


class Transform:
    """What all transforms have in common: they say what is to be done, and compare by it."""

    _in_torchvision = True  # it has a class of that name

    def describe(self) -> dict[str, Any]:
        """The transform as the daemon takes it: a JSON object with ``name`` and the arguments (docs/FORMATS.md)."""
        raise NotImplementedError

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"hdmlp.transforms.{type(self).__name__} describes what the daemon does, and can not be called, as dataset[i] "
            f"and torch's own DataLoader do: give the dataset to a DataLoader of hdmlp{self._theirs()}"
        )

    def _theirs(self) -> str:
        """For messages: what to use in Python in its place."""
        return (
            f"; or use torchvision.transforms.{type(self).__name__}" if self._in_torchvision else ""
        )

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(repr(sorted(self.describe().items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ImgDecode(Transform):
    """Decodes an image, as PIL's ``Image.open(f).convert(mode)``. It is implied where a list begins with another transform.

    Args:
        mode: ``"RGB"`` or ``"L"``: three channels or one.
        fast: decode a JPEG at a half, a quarter or an eighth of its size, if that still is more than twice what it is resized
            to: faster for large images, and not PIL's numbers any more (45 dB or better; 44 with bicubic, lanczos).
        orient: turn the image as its EXIF orientation says. torchvision's loader does not.
        max_pixels: an image with more is refused, before memory is taken for it; the default is where PIL refuses one.
    """

    _in_torchvision = False

    def __init__(
        self,
        mode: str = "RGB",
        fast: bool = False,
        orient: bool = False,
        max_pixels: int = 178956970,
    ):
        if mode not in ("RGB", "L"):
            raise ValueError(f"mode should be 'RGB' or 'L'. Got {mode!r}")
        self.mode, self.fast, self.orient = mode, bool(fast), bool(orient)
        self.max_pixels = _edge("max_pixels", max_pixels)

    def describe(self) -> dict[str, Any]:
        return {
            "name": "ImgDecode",
            "mode": self.mode,
            "fast": self.fast,
            "orient": self.orient,
            "max_pixels": self.max_pixels,
        }

    def __repr__(self) -> str:
        return f"ImgDecode(mode={self.mode!r}, fast={self.fast}, orient={self.orient}, max_pixels={self.max_pixels})"


class Resize(Transform):
    """Resizes an image, antialiased, as PIL does.

    Args:
        size: (height, width); or a number: the shorter edge's length, the other one in proportion.
        interpolation: an :class:`InterpolationMode`, torchvision's, or its name.
        max_size: the most that the longer edge may become; the shorter one gives way. Only where ``size`` is a number.
        antialias: of no effect, as with PIL images.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ):
        if isinstance(size, bool) or not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, (list, tuple)) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        for edge in size if isinstance(size, (list, tuple)) else [size]:
            _edge("size", edge)
        shorter = size if isinstance(size, int) else size[0] if len(size) == 1 else None
        if max_size is not None:
            _edge("max_size", max_size)
            if shorter is None:
                raise ValueError(
                    "max_size should only be passed if size specifies the length of the smaller edge"
                )
            if max_size <= shorter:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the smaller "
                    f"edge size = {size}"
                )
        self.size, self.max_size, self.antialias = size, max_size, antialias
        self.interpolation = _interpolation(interpolation)

    def describe(self) -> dict[str, Any]:
        size = self.size if isinstance(self.size, int) else list(self.size)
        return {
            "name": "Resize",
            "size": size,
            "interpolation": self.interpolation.value,
            "max_size": self.max_size,
            **_pillow(),
        }

    def __repr__(self) -> str:
        return (
            f"Resize(size={self.size}, interpolation={self.interpolation.value}, max_size={self.max_size}, "
            f"antialias={self.antialias})"
        )


class CenterCrop(Transform):
    """Cuts out the middle. Where the image is smaller, black is put around it first.

    Args:
        size: (height, width), or a number for both.
    """

    def __init__(self, size: int | Sequence[int]):
        self.size = _size(size)

    def describe(self) -> dict[str, Any]:
        return {"name": "CenterCrop", "size": list(self.size)}

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class RandomCrop(Transform):
    """Cuts out a part at a random place.

    Args:
        size: (height, width), or a number for both.
        padding: pixels put around the image first, as :class:`Pad`'s; None: none.
        pad_if_needed: put a border around images that are too small; otherwise they are errors.
        fill, padding_mode: as :class:`Pad`'s.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ):
        self.size = _size(size)
        if padding is not None:
            _padding(padding)
        self.padding, self.pad_if_needed = padding, bool(pad_if_needed)
        self.fill, self.padding_mode = _fill(fill), _padding_mode(padding_mode)

    def describe(self) -> dict[str, Any]:
        padding = None if self.padding is None else _padding(self.padding)
        return {
            "name": "RandomCrop",
            "size": list(self.size),
            "padding": padding,
            "pad_if_needed": self.pad_if_needed,
            "fill": _levels(self.fill),
            "padding_mode": self.padding_mode,
        }

    def __repr__(self) -> str:
        return f"RandomCrop(size={self.size}, padding={self.padding})"


class RandomResizedCrop(Transform):
    """Cuts out a part of random area and aspect ratio, and resizes it.

    Args:
        size: (height, width), or a number for both.
        scale: (least, most) of the part's area, as a share of the image's.
        ratio: (least, most) of width / height; its logarithm is uniform.
        interpolation: as :class:`Resize`'s; or a list or tuple of such, of which one is drawn for each sample, as in timm.
        antialias: as :class:`Resize`'s.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ):
        self.size = _size(size)
        _range("Scale", scale), _range("Ratio", ratio)
        self.scale, self.ratio = scale, ratio
        if self.scale[0] < 0:
            raise ValueError(f"Scale should be non negative. Got {scale}")
        if self.ratio[0] <= 0:
            raise ValueError(f"Ratio should be positive. Got {ratio}")
        self.interpolation, self.antialias = _interpolations(interpolation), antialias

    def describe(self) -> dict[str, Any]:
        several = isinstance(self.interpolation, tuple)
        return {
            "name": "RandomResizedCrop",
            "size": list(self.size),
            "scale": [float(s) for s in self.scale],
            "ratio": [float(r) for r in self.ratio],
            "interpolation": [m.value for m in self.interpolation]
            if several
            else self.interpolation.value,
            **_pillow(),
        }

    def __repr__(self) -> str:
        modes = self.describe()["interpolation"]
        return (
            f"RandomResizedCrop(size={self.size}, scale={tuple(round(s, 4) for s in self.scale)}, "
            f"ratio={tuple(round(r, 4) for r in self.ratio)}, interpolation={modes}, "
            f"antialias={self.antialias})"
        )


class RandomHorizontalFlip(Transform):
    """Mirrors left and right.

    Args:
        p: how probably.
    """

    def __init__(self, p: float = 0.5):
        self.p = _probability(p)

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "p": float(self.p)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Mirrors top and bottom.

    Args:
        p: how probably.
    """


class Pad(Transform):
    """Puts a border around an image.

    Args:
        padding: (left, top, right, bottom), (left and right, top and bottom), or a number for all; less than 0 cuts off.
        fill: the border's level, 0 to 255, or one for each channel.
        padding_mode: ``constant``: ``fill``; ``edge``: the outermost pixel; ``reflect``, ``symmetric``: the image mirrored
            at the outermost pixels, or at its edges.
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ):
        _padding(padding)
        self.padding, self.fill, self.padding_mode = (
            padding,
            _fill(fill),
            _padding_mode(padding_mode),
        )

    def describe(self) -> dict[str, Any]:
        return {
            "name": "Pad",
            "padding": _padding(self.padding),
            "fill": _levels(self.fill),
            "padding_mode": self.padding_mode,
        }

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue, in random order.

    Args:
        brightness, contrast, saturation: (least, most) of the factor, or how far it may be from 1.
        hue: (least, most) of the shift, within (-0.5, 0.5), the whole circle being 1; or how far it may be from 0.
    """

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0):
        self.brightness = _span("brightness", brightness)
        self.contrast = _span("contrast", contrast)
        self.saturation = _span("saturation", saturation)
        self.hue = _span("hue", hue, center=0.0, bound=(-0.5, 0.5))

    def describe(self) -> dict[str, Any]:
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
            f"ColorJitter(brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}, "
            f"hue={self.hue})"
        )


class Grayscale(Transform):
    """Takes the colour out of an image.

    Args:
        num_output_channels: 1, or 3 that are equal.
    """

    def __init__(self, num_output_channels: int = 1):
        if isinstance(num_output_channels, bool) or num_output_channels not in (1, 3):
            raise ValueError("num_output_channels should be either 1 or 3")
        self.num_output_channels = num_output_channels

    def describe(self) -> dict[str, Any]:
        return {"name": "Grayscale", "num_output_channels": int(self.num_output_channels)}

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"


class ToTensor(Transform):
    """Makes a tensor of an image: levels from 0 to 255 become numbers from 0 to 1.

    Args:
        layout: ``"NCHW"``, torch's, or ``"NHWC"``: the order of a batch's dimensions.
        dtype: ``float32``, ``float16`` or ``bfloat16``, a torch.dtype or its name; ``uint8``: the levels as they are, as
            torchvision's PILToTensor has them.

    A list without it gives images: uint8, NHWC.
    """

    def __init__(self, layout: str = "NCHW", dtype: Any = "float32"):
        if layout not in ("NCHW", "NHWC"):
            raise ValueError(f"layout should be 'NCHW' or 'NHWC'. Got {layout!r}")
        self.layout, self.dtype = layout, _dtype(dtype)

    def describe(self) -> dict[str, Any]:
        return {"name": "ToTensor", "layout": self.layout, "dtype": self.dtype}

    def __repr__(self) -> str:
        given = [f"layout={self.layout!r}"] if self.layout != "NCHW" else []
        given += [f"dtype={self.dtype!r}"] if self.dtype != "float32" else []
        return f"ToTensor({', '.join(given)})"


class ConvertImageDtype(Transform):
    """Changes a tensor's type, and levels to numbers from 0 to 1 or back.

    Args:
        dtype: a torch.dtype, or its name: ``uint8``, ``float16``, ``bfloat16`` or ``float32``.
    """

    def __init__(self, dtype: Any = "float32"):
        self.dtype = _dtype(dtype)

    def describe(self) -> dict[str, Any]:
        return {"name": "ConvertImageDtype", "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"ConvertImageDtype(dtype={self.dtype})"


class Normalize(Transform):
    """Takes ``mean`` from each channel of a tensor, and divides by ``std``.

    Args:
        mean, std: a number for each channel, or one for all; ``std`` not 0.
        inplace: of no effect.
    """

    def __init__(self, mean: Any, std: Any, inplace: bool = False):
        self.mean, self.std, self.inplace = mean, std, inplace
        if any(v == 0 for v in _numbers("std", std)):
            raise ValueError(f"std evaluated to zero, leading to division by zero: {std}")
        for name, value in (("mean", mean), ("std", std)):
            if len(_numbers(name, value)) not in (1, 3):
                raise ValueError(
                    f"{name} should have a number for each channel, 1 or 3. Got {value}"
                )

    def describe(self) -> dict[str, Any]:
        return {
            "name": "Normalize",
            "mean": _numbers("mean", self.mean),
            "std": _numbers("std", self.std),
        }

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class Ragged(Transform):
    """Ends a list whose images keep the sizes that they have: each comes with its height and width before its pixels, for transforms
    in Python. Not for users: :func:`hdmlp._torchvision.split` adds it.

    Args:
        largest: bytes that an image may become. A larger one comes as it is in its file; so does one of a format that the daemon does
            not decode, or with an EXIF orientation.
    """

    _in_torchvision = False

    def __init__(self, largest: int = 8 << 20):
        self.largest = largest

    def describe(self) -> dict[str, Any]:
        return {"name": "Ragged", "largest": self.largest}

    def __repr__(self) -> str:
        return f"Ragged(largest={self.largest})"


class Reshape(Transform):
    """Says that a sample is no image but the elements of an array, in C order, and nothing else. The thesis's.

    Args:
        w, h, c: the array's shape.
        dtype: of the elements, little-endian: ``float32``, ``int16``, ``uint16`` or ``uint8``.
    """

    _in_torchvision = False

    def __init__(self, w: int, h: int, c: int, dtype: Any = "float32"):
        for name, value in (("w", w), ("h", h), ("c", c)):
            _edge(name, value)
        self.w, self.h, self.c, self.dtype = (
            int(w),
            int(h),
            int(c),
            _dtype(dtype, ("float32", "int16", "uint16", "uint8")),
        )

    def describe(self) -> dict[str, Any]:
        return {"name": "Reshape", "w": self.w, "h": self.h, "c": self.c, "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"Reshape(w={self.w}, h={self.h}, c={self.c}, dtype={self.dtype!r})"


class ScaleShift16(Transform):
    """Makes ``(x - shift) * scale``, a float32, of every element x of an array. The thesis's, for 16 channels of climate data.

    Args:
        scale, shift: a number for each place along the array's last axis, or one for all. Give them by name: the original's
            own scripts have them the other way round.
    """

    _in_torchvision = False

    def __init__(self, scale: Any, shift: Any):
        self.scale, self.shift = _numbers("scale", scale), _numbers("shift", shift)

    def describe(self) -> dict[str, Any]:
        return {"name": "ScaleShift16", "scale": self.scale, "shift": self.shift}

    def __repr__(self) -> str:
        return f"ScaleShift16(scale={self.scale}, shift={self.shift})"
