"""The daemon's part of a list of transforms, in Python: for files that only Pillow decodes.

Our own transforms are replaced by torchvision's of the same name, which is imported when the first
of such files comes.
"""

from __future__ import annotations

import importlib.util
import io
import random
from collections.abc import Sequence
from typing import Any, Callable

from .. import _transforms as ours
from .._batches.output import Keyed
from .entries import Entries, Entry
from .nested import Nested

Step = Callable[[object], object]


def in_python(done: Sequence[Entry], load: Step | None = None) -> Keyed | None:
    """Returns what the daemon's part of a list makes of a file, in Python.

    Args:
        done: Its entries, as they were given: ours, torchvision's or timm's.
        load: Decodes images, if the list does not say how. Default: as torchvision's loader.

    Returns:
        From a file's bytes, and the sample's key, to a PIL image or a tensor; None: it cannot be
        done, as samples are no files of images, or torchvision is missing.
    """
    own = [t for _, t, _ in done if isinstance(t, ours.Transform)]
    if any(isinstance(t, (ours.Reshape, ours.ScaleShift16, ours.Pixels)) for t in own):
        return None
    if own and importlib.util.find_spec("torchvision") is None:
        return None
    return InPython(done, load)


def leaving(described: list[ours.Transform]) -> list[ours.Transform]:
    """Returns the daemon's transforms, which leave to Python what only Pillow decodes as Pillow."""
    return decoding(described, {"leave": True})


def decoding(described: list[ours.Transform], arguments: dict[str, object]) -> list[ours.Transform]:
    """Returns the daemon's transforms, of which the first determines how images are decoded.

    Args:
        described: The transforms.
        arguments: Those of the decoding; of a first ``ImgDecode``, which has arguments of its own,
            ``leave`` alone counts.
    """
    return [_Decoding(described[0], arguments), *described[1:]] if arguments else described


class _Decoding(ours.Transform):
    """The first transform of a list; see :func:`decoding`."""

    def __init__(self, first: ours.Transform, arguments: dict[str, object]):
        self._first, self._arguments = first, arguments
        self._position, self._draws = first._position, first._draws

    def describe(self) -> dict[str, Any]:
        described = self._first.describe()
        if isinstance(self._first, ours.ImgDecode):
            return {**described, "leave": self._arguments.get("leave", False)}
        return {**described, "decode": self._arguments}


class InPython(Keyed):
    """See :func:`in_python`."""

    def __init__(self, done: Sequence[Entry], load: Step | None = None):
        self._load = load
        self._decode: ours.ImgDecode | None = None  # as torchvision's loader does
        if done and isinstance(done[0].step, ours.ImgDecode):
            self._decode, done = done[0].step, done[1:]
        self._done = list(done)
        self._entries: Entries | None = None

    def __call__(self, view: memoryview | bytes, key: int | None) -> object:
        """Returns what becomes of a file's bytes; see :class:`Keyed`."""
        if self._entries is None:
            self._entries = Entries(e._replace(step=_in_torchvision(e.step)) for e in self._done)
        value: Any = self._entries(self._decoded(view), key)
        return _laid_out([t for _, t, _ in self._done], value)

    def _decoded(self, data: memoryview | bytes) -> object:
        from PIL import Image, ImageOps

        if self._decode is None and self._load is not None:
            return self._load(data)
        image = Image.open(io.BytesIO(data))
        decode = self._decode
        if decode is None:
            return image.convert("RGB")
        most = decode.max_pixels
        if most is not None and image.width * image.height > most:
            raise ValueError(
                f"{image.width} x {image.height} pixels, and max_pixels of ImgDecode is {most}"
            )
        turned = ImageOps.exif_transpose(image) if decode.orient else image
        return (turned or image).convert(decode.mode)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_entries": None}


def _laid_out(steps: Sequence[object], value: Any) -> Any:
    """Returns a tensor that transforms made in the layout that one of ours asks for."""
    if any(isinstance(t, ours.ToTensor) and t.layout == "NHWC" for t in steps):
        return value.permute(1, 2, 0)
    return value


def _view(steps: Sequence[object]) -> Step:
    """Returns what makes a view, in torchvision's transforms."""
    made = list(map(_in_torchvision, steps))

    def view(value: object) -> object:
        for step in made:
            value = step(value)
        return _laid_out(steps, value)

    return view


def _in_torchvision(t: object) -> Step:
    """Returns torchvision's transform that does what one of ours describes; others stay."""
    if isinstance(t, ours.Views):
        return t.mapped(_view)
    if not isinstance(t, ours.Transform):
        return t  # type: ignore[return-value]
    import torch
    from torchvision import transforms

    if isinstance(t, ours.ToTensor):
        dtype = getattr(torch, t.dtype)
        if dtype is torch.uint8:
            return transforms.PILToTensor()  # type: ignore[no-any-return]
        both = [transforms.ToTensor(), transforms.ConvertImageDtype(dtype)]
        return transforms.Compose(both)  # type: ignore[no-any-return]
    if isinstance(t, ours.RandomResizedCrop) and isinstance(t.interpolation, tuple):
        crops = [
            _in_torchvision(ours.RandomResizedCrop(t.size, t.scale, t.ratio, mode))
            for mode in t.interpolation
        ]
        return lambda image: random.choice(crops)(image)
    if isinstance(t, ours.RandomPhotometricDistort):
        from torchvision.transforms import v2

        span = t.brightness, t.contrast, t.saturation, t.hue
        return v2.RandomPhotometricDistort(*span, p=t.p)  # type: ignore[no-any-return]
    arguments = _ARGUMENTS[type(t)](t)
    if isinstance(t, Nested):
        arguments["transforms"] = [
            part[0] if len(part) == 1 else transforms.Compose(part)
            for part in [[_in_torchvision(inner) for inner in part] for part in t.parts]
        ]
    if isinstance(t, ours.AutoAugment):
        arguments["policy"] = transforms.AutoAugmentPolicy(t.policy)
    if "interpolation" in arguments:
        mode = transforms.InterpolationMode(arguments["interpolation"].value)
        arguments["interpolation"] = mode
    if "dtype" in arguments:
        arguments["dtype"] = getattr(torch, arguments["dtype"])
    step: Step = getattr(transforms, type(t).__name__)(**arguments)
    return step


#: From a transform to arguments.
_Arguments = Callable[[object], "dict[str, Any]"]


def _named(*names: str) -> _Arguments:
    """Returns what returns those arguments of a transform, which are its attributes."""
    return lambda t: {name: getattr(t, name) for name in names}


def _jitter(t: object) -> dict[str, object]:
    spans = _named("brightness", "contrast", "saturation", "hue")(t)
    return {name: 0 if span is None else tuple(span) for name, span in spans.items()}


_MOVING = ("interpolation", "fill")

#: The arguments of torchvision's transforms, by our class of the same name.
_ARGUMENTS: dict[type, _Arguments] = {
    ours.Resize: _named("size", "interpolation", "max_size"),
    ours.CenterCrop: _named("size"),
    ours.RandomCrop: _named("size", "padding", "pad_if_needed", "fill", "padding_mode"),
    ours.RandomResizedCrop: _named("size", "scale", "ratio", "interpolation"),
    ours.RandomHorizontalFlip: _named("p"),
    ours.RandomVerticalFlip: _named("p"),
    ours.Pad: _named("padding", "fill", "padding_mode"),
    ours.ColorJitter: _jitter,
    ours.Grayscale: _named("num_output_channels"),
    ours.ConvertImageDtype: _named("dtype"),
    ours.Normalize: _named("mean", "std"),
    ours.RandAugment: _named("num_ops", "magnitude", "num_magnitude_bins", *_MOVING),
    ours.TrivialAugmentWide: _named("num_magnitude_bins", *_MOVING),
    ours.AutoAugment: _named(*_MOVING),
    ours.RandomRotation: _named("degrees", "expand", "center", *_MOVING),
    ours.RandomAffine: _named("degrees", "translate", "scale", "shear", "center", *_MOVING),
    ours.RandomPerspective: _named("distortion_scale", "p", *_MOVING),
    ours.GaussianBlur: _named("kernel_size", "sigma"),
    ours.RandomInvert: _named("p"),
    ours.RandomPosterize: _named("bits", "p"),
    ours.RandomSolarize: _named("threshold", "p"),
    ours.RandomAdjustSharpness: _named("sharpness_factor", "p"),
    ours.RandomAutocontrast: _named("p"),
    ours.RandomEqualize: _named("p"),
    ours.RandomGrayscale: _named("p"),
    ours.RandomErasing: _named("p", "scale", "ratio", "value"),
    ours.RandomApply: _named("p"),
    ours.RandomOrder: _named(),
    ours.RandomChoice: _named("p"),
}
