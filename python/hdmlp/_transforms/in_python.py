"""The daemon's part of a list of transforms, in Python: for files that only Pillow decodes.

Our own transforms are replaced by torchvision's of the same name, which is imported when the first
of such files comes.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from typing import Any, Callable

from .. import _transforms as ours

Step = Callable[[Any], Any]


def in_python(done: Sequence[Any]) -> Callable[[bytes], Any] | None:
    """Returns what the daemon's part of a list makes of a file, in Python.

    Args:
        done: The transforms, as they were given: ours, torchvision's or timm's.

    Returns:
        From a file's bytes to a PIL image or a tensor; None: it cannot be done, as samples are no
        images, or torchvision is missing.
    """
    own = [t for t in done if isinstance(t, ours.Transform)]
    if any(isinstance(t, (ours.Reshape, ours.ScaleShift16)) for t in own):
        return None
    if own and importlib.util.find_spec("torchvision") is None:
        return None
    return InPython(done)


def leaving(described: list[ours.Transform]) -> list[ours.Transform]:
    """Returns the daemon's transforms, which leave to Python what only Pillow decodes as Pillow."""
    return [_Leaving(described[0]), *described[1:]]


class _Leaving(ours.Transform):
    """The first transform of a list; images that only Pillow decodes as Pillow are left to Python.

    Args:
        first: The transform.
    """

    def __init__(self, first: ours.Transform):
        self._first = first

    def describe(self) -> dict[str, Any]:
        described = self._first.describe()
        if isinstance(self._first, ours.ImgDecode):
            return {**described, "leave": True}
        return {**described, "decode": {"leave": True}}


class InPython:
    """See :func:`in_python`."""

    def __init__(self, done: Sequence[Any]):
        self._decode: ours.ImgDecode | None = None  # as torchvision's loader does
        if done and isinstance(done[0], ours.ImgDecode):
            self._decode, done = done[0], done[1:]
        self._done = list(done)
        self._last = any(isinstance(t, ours.ToTensor) and t.layout == "NHWC" for t in done)
        self._steps: list[Step] | None = None

    def __call__(self, data: bytes) -> Any:
        """Returns what becomes of a file's bytes."""
        if self._steps is None:
            self._steps = [
                _equivalent(t) if isinstance(t, ours.Transform) else t for t in self._done
            ]
        value = self._decoded(data)
        for step in self._steps:
            value = step(value)
        return value.permute(1, 2, 0) if self._last else value

    def _decoded(self, data: bytes) -> Any:
        from PIL import Image, ImageOps

        image: Any = Image.open(io.BytesIO(data))
        decode = self._decode
        if decode is None:
            return image.convert("RGB")
        most = decode.max_pixels
        if most is not None and image.width * image.height > most:
            raise ValueError(
                f"{image.width} x {image.height} pixels, and max_pixels of ImgDecode is {most}"
            )
        if decode.orient:
            image = ImageOps.exif_transpose(image)
        return image.convert(decode.mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


def _equivalent(t: ours.Transform) -> Step:
    """Returns torchvision's transform that does what one of ours describes."""
    from torchvision import transforms

    made: Callable[[ours.Transform, Any], Step] = _EQUIVALENTS[type(t)]
    return made(t, transforms)


def _mode(mode: ours.InterpolationMode, v: Any) -> Any:
    return v.InterpolationMode(mode.value)


def _random_resized_crop(t: Any, v: Any) -> Step:
    modes = t.interpolation if isinstance(t.interpolation, tuple) else (t.interpolation,)
    crops: list[Step] = [
        v.RandomResizedCrop(t.size, tuple(t.scale), tuple(t.ratio), _mode(mode, v))
        for mode in modes
    ]
    choice: Step = v.RandomChoice(crops)
    return crops[0] if len(crops) == 1 else choice


def _to_tensor(t: Any, v: Any) -> Step:
    step: Step = v.PILToTensor()
    if t.dtype != "uint8":
        step = v.Compose([v.ToTensor(), v.ConvertImageDtype(_dtype(t.dtype))])
    return step


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


_EQUIVALENTS: dict[type, Callable[[Any, Any], Any]] = {
    ours.Resize: lambda t, v: v.Resize(t.size, _mode(t.interpolation, v), t.max_size),
    ours.CenterCrop: lambda t, v: v.CenterCrop(t.size),
    ours.RandomCrop: lambda t, v: v.RandomCrop(
        t.size, t.padding, t.pad_if_needed, t.fill, t.padding_mode
    ),
    ours.RandomResizedCrop: _random_resized_crop,
    ours.RandomHorizontalFlip: lambda t, v: v.RandomHorizontalFlip(t.p),
    ours.RandomVerticalFlip: lambda t, v: v.RandomVerticalFlip(t.p),
    ours.Pad: lambda t, v: v.Pad(t.padding, t.fill, t.padding_mode),
    ours.ColorJitter: lambda t, v: v.ColorJitter(
        *(
            0 if span is None else tuple(span)
            for span in (t.brightness, t.contrast, t.saturation, t.hue)
        )
    ),
    ours.Grayscale: lambda t, v: v.Grayscale(t.num_output_channels),
    ours.ToTensor: _to_tensor,
    ours.ConvertImageDtype: lambda t, v: v.ConvertImageDtype(_dtype(t.dtype)),
    ours.Normalize: lambda t, v: v.Normalize(t.mean, t.std),
}
