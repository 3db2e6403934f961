"""What the daemon does of a list of transforms for an image, its masks and its boxes."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .. import _transforms as ours
from .._lib import originals
from ..errors import ConfigError
from . import attributes, split
from .image_state import Convert, State, Step, Unknown
from .jointly import MASK_TYPES, OfTargets
from .nested import Nested
from .policies import is_v2
from .recognition import class_name, does_nothing, name_of, timm_class_name

_Replaced = Callable[..., str]

#: The kinds of fields.
KINDS = ("image", "mask", "boxes")

#: The transforms that move pixels, or that change an image and leave masks and boxes alone.
_ALLOWED = (
    ours.Resize,
    ours.CenterCrop,
    ours.RandomCrop,
    ours.RandomResizedCrop,
    ours.RandomHorizontalFlip,
    ours.RandomVerticalFlip,
    ours.Pad,
    ours.ColorJitter,
    ours.RandomPhotometricDistort,
    ours.Grayscale,
    ours.GaussianBlur,
    ours.RandomInvert,
    ours.RandomPosterize,
    ours.RandomSolarize,
    ours.RandomAdjustSharpness,
    ours.RandomAutocontrast,
    ours.RandomEqualize,
    ours.RandomGrayscale,
    ours.ToTensor,
    ours.ConvertImageDtype,
    ours.Normalize,
    ours.ImgDecode,
)


class Joined(NamedTuple):
    """The daemon's part of a list, which is all of it.

    Attributes:
        described: The daemon's transforms.
        sized: Images keep sizes of their own.
        image: The ``ToImage`` that makes torchvision's type of an image; None: it has none.
        wraps: Masks and boxes are torchvision's types.
    """

    described: list[ours.Transform]
    sized: bool
    image: Callable[[object], object] | None
    wraps: bool


class Inputs(NamedTuple):
    """What a list is applied to.

    Attributes:
        kinds: The kinds of the fields, by name.
        types: The types of masks, by name.
        pil: Masks are a second PIL image, as for v1's functions.
    """

    kinds: Mapping[str, str]
    types: Mapping[str, str]
    pil: bool

    def has(self, kind: str) -> bool:
        """Reports whether a field is of a kind."""
        return kind in self.kinds.values()


def check(transforms: object, inputs: Inputs) -> None:
    """Checks that the transforms of libraries take such fields.

    Raises:
        ConfigError: They do not.
    """
    for t in split.flat(transforms):
        if timm_class_name(t):
            raise ConfigError(f"transform: {t!r:.80} takes an image alone, and kinds= has others")
        if not class_name(t):
            continue
        if not is_v2(t) and (inputs.has("boxes") or (inputs.has("mask") and not inputs.pil)):
            what = "boxes" if inputs.has("boxes") else "masks"
            more = "" if inputs.has("boxes") else ', or mask="pil" for masks as a second PIL image'
            raise ConfigError(
                f"transform: {t!r:.80} is of torchvision.transforms, which takes no {what}: use "
                f"torchvision.transforms.v2{more}"
            )
        if is_v2(t) and inputs.pil:
            raise ConfigError(
                f'transform: {t!r:.80} is of v2, which takes masks as they are: leave mask="pil" '
                "out, which is for torchvision.transforms"
            )


def split_joint(transforms: object, inputs: Inputs, first: int = 0) -> Joined:
    """Returns what the daemon does of a list that is applied to several fields.

    Args:
        transforms: As for :func:`~hdmlp._transforms.split.split`.
        inputs: The fields.
        first: As for it.

    Raises:
        Unknown: The daemon cannot carry out all of it; ``args[1]`` is the transform.
    """
    given = list(split.flat(transforms))
    first -= int(bool(given) and isinstance(given[0], ours.ImgDecode))
    images = [name for name, kind in inputs.kinds.items() if kind == "image"]
    if len(images) > 1:
        raise Unknown("the daemon takes one image", given[0] if given else None)
    if not images and not inputs.has("mask"):
        raise Unknown("there is neither an image nor a mask", given[0] if given else None)
    state, wraps = State(), False
    image: Any = None
    replaced = functools.lru_cache(maxsize=None)(originals.replaced)
    for i, t in enumerate(given):
        try:
            for step in _steps(t, inputs, state, replaced):
                _check(step, inputs)
                placed = split.at(step, first + i)
                if isinstance(placed, OfTargets):
                    state.image = [*state.image, placed]
                else:
                    state.take(placed)
        except Unknown as error:
            raise Unknown(str(error), t) from None
        if name_of(t) == "ToPureTensor":
            image, wraps = None, False
        elif name_of(t) == "ToImage":
            image = t
        wraps = wraps or (bool(name_of(t)) and is_v2(t) and name_of(t) != "ToPureTensor")
    wraps = wraps and not inputs.pil  # of a PIL image, v2 makes plain tensors
    if images and not state.tensor:
        raise Unknown("there is no ToTensor or ToImage for the images", None)
    return Joined(state.described(), state.size is None, image, wraps)


def _check(step: Step, inputs: Inputs) -> None:
    """Raises Unknown if the daemon cannot apply a transform to such fields."""
    if isinstance(step, OfTargets):
        if not isinstance(step, ours.ConvertMaskDtype) and not inputs.has("boxes"):
            raise Unknown("there are no boxes")
        return
    if isinstance(step, Nested):
        for part in step.parts:
            for inner in part:
                _check(inner, inputs)
        return
    if not isinstance(step, ours.Transform):
        return
    if not isinstance(step, _ALLOWED):
        raise Unknown("it is for images alone")
    if isinstance(step, ours.ImgDecode) and step.orient:
        raise Unknown("orient=True would turn images, and not what belongs to them")
    if not isinstance(step, (ours.Pad, ours.RandomCrop)):
        return
    if inputs.has("boxes") and step.padding_mode != "constant":
        raise Unknown("torchvision pads boxes with constant only")
    if inputs.has("mask") and step.mask_fill is None and not isinstance(step.fill, (int, float)):
        raise Unknown("fill has several numbers, and masks have one")


def _steps(t: Any, inputs: Inputs, state: State, replaced: _Replaced) -> Iterator[Step]:
    """Our transforms for one, where they differ from those for an image alone."""
    if isinstance(t, ours.Transform) or does_nothing(t) or not is_v2(t) or not name_of(t):
        yield from split.steps_of(t, replaced)
        return
    name = name_of(t)
    own = _OWN.get(name)
    if own is not None:
        why = replaced("transforms", "transforms.v2")
        if why:
            raise Unknown(why)
        yield from own(t, inputs, state)
        return
    if name in ("Pad", "RandomCrop"):
        yield from _filled(t, inputs, state, replaced)
        return
    if inputs.has("mask") and "exact" in str(getattr(t, "interpolation", "")):
        raise Unknown("nearest-exact is another rule for masks")
    yield from split.steps_of(t, replaced)


def _tensors(name: str) -> Any:
    return getattr(sys.modules["torchvision.tv_tensors"], name)


def _fill(t: attributes.Fill, kind: type, default: object) -> object:
    """Returns the fill that v2 takes for a type of input."""
    if not isinstance(t.fill, dict):
        return t.fill
    return t.fill.get(kind, t.fill.get("others", default))


def _filled(t: Any, inputs: Inputs, state: State, replaced: _Replaced) -> Iterator[Step]:
    """Pad or RandomCrop, whose fill may be one for each type."""
    plain = copy.copy(t)
    kind = _tensors("Image") if state.tensor else sys.modules["PIL.Image"].Image
    plain.fill = _fill(t, kind, 0)
    if plain.fill is None:
        plain.fill = 0
    of_mask = _fill(t, kind if inputs.pil else _tensors("Mask"), 0) or 0
    if not isinstance(of_mask, (int, float)) or of_mask not in range(1 << 16):
        if inputs.has("mask"):
            raise Unknown("its fill of masks is no number of theirs")
        of_mask = 0
    for step in split.steps_of(plain, replaced):
        assert isinstance(step, (ours.Pad, ours.RandomCrop))
        if inputs.has("mask"):
            step.mask_fill = int(of_mask)
        yield step


def _to_dtype(t: Any, inputs: Inputs, state: State) -> Iterator[Step]:
    """v2's ToDtype, whose types may be one for each type of input."""
    given = t.dtype
    if not isinstance(given, dict):
        yield Convert(ours.ConvertImageDtype(given).dtype, "multiply" if t.scale else "none")
        return

    def of(*kinds: object) -> object:
        for kind in (*kinds, "others"):
            if kind in given:
                return given[kind]
        raise Unknown("its dtype names no type for some of the fields")

    if inputs.has("image") and state.tensor:
        dtype = of(_tensors("Image"))
        if dtype is not None:
            yield Convert(ours.ConvertImageDtype(dtype).dtype, "multiply" if t.scale else "none")
    if inputs.has("boxes") and str(of(_tensors("BoundingBoxes"))) not in ("None", "torch.float32"):
        raise Unknown("its type of boxes is not float32")
    dtype = of(_tensors("Mask")) if inputs.has("mask") else None
    if dtype is None:
        return
    name = str(dtype).rpartition(".")[2]
    wide = any(kind in ("uint16", "int32") for kind in inputs.types.values())
    if name not in MASK_TYPES or (wide and name == "uint8"):
        raise Unknown(f"masks do not become {name} in the daemon")
    yield ours.ConvertMaskDtype(name)


def _sanitize(t: Any, _: Inputs, __: State) -> Iterator[Step]:
    if t.labels_getter != "default":
        raise Unknown("its labels_getter is a function")
    yield ours.SanitizeBoundingBoxes(t.min_size, t.min_area)


def _clamp(t: Any, _: Inputs, __: State) -> Iterator[Step]:
    if getattr(t, "clamping_mode", "auto") not in ("auto", "soft", "hard"):
        raise Unknown("its clamping_mode is None")
    yield ours.ClampBoundingBoxes()


def _format(t: Any, _: Inputs, __: State) -> Iterator[Step]:
    try:
        yield ours.ConvertBoundingBoxFormat(t.format)
    except ValueError as error:
        raise Unknown(str(error)) from None


_OWN: dict[str, Callable[[Any, Inputs, State], Iterator[Step]]] = {
    "ToDtype": _to_dtype,
    "SanitizeBoundingBoxes": _sanitize,
    "ClampBoundingBoxes": _clamp,
    "ConvertBoundingBoxFormat": _format,
}
