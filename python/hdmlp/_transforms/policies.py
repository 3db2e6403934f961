"""Our transforms for torchvision's policies of augmentation, and for what they are made of."""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Callable

from .. import _transforms as ours
from . import attributes
from .base import Description
from .image_state import Step, Unknown


def as_float32(number: float) -> float:
    """The closest float32."""
    return struct.unpack("f", struct.pack("f", number))[0]  # type: ignore[no-any-return]


def is_v2(t: object) -> bool:
    """Reports whether a transform of torchvision is one of its v2."""
    return ".v2." in type(t).__module__


def plain_fill(t: attributes.Fill) -> Any:
    """Returns the fill of a transform."""
    if isinstance(t.fill, dict):
        raise TypeError("fill differs between types of input")
    return t.fill


def logs_of(ratio: Sequence[float]) -> list[float] | None:
    """Returns the logarithms of two numbers as torch computes them; None: as the daemon does."""
    torch: Any = sys.modules["torch"]
    logs: list[float] = torch.log(torch.tensor([float(r) for r in ratio])).tolist()
    return None if logs == [as_float32(math.log(as_float32(r))) for r in ratio] else logs


def _drawing(step: Any, t: object) -> list[Step]:
    """Returns a step, which draws as torchvision's v1 or v2."""
    if is_v2(t):
        step._draws_as = "v2"
    return [step]


# Policies. Their magnitudes are those that the installed torch computes.

#: The share of an edge that the largest move of RandAugment and AutoAugment has.
_MOVE = 150.0 / 331.0


def _magnitudes(t: object, name: str, given: Any) -> list[float]:
    """Returns an operation's magnitudes as the daemon takes them, from torchvision's."""
    if given is None or given.ndim == 0:
        return []
    numbers: list[float] = given.tolist()
    if name.startswith("Shear"):
        return [math.degrees(math.atan(m)) for m in numbers]
    if name == "Solarize" and is_v2(t):
        return [255.0 * m for m in numbers]
    return [float(m) for m in numbers]


def _space(t: Any, bins: int, sizes: bool = True) -> dict[str, tuple[list[float], bool]]:
    """Returns the magnitudes of a policy's operations, and whether they have signs.

    Args:
        t: The policy.
        bins: The number of magnitudes.
        sizes: Whether moves depend on the image's size; then they are those of 1 pixel.
    """
    if is_v2(t):
        return {
            name: (_magnitudes(t, name, made(bins, 1, 1)), signed)
            for name, (made, signed) in t._AUGMENTATION_SPACE.items()
        }
    space = t._augmentation_space(bins, (1, 1)) if sizes else t._augmentation_space(bins)
    return {name: (_magnitudes(t, name, m), signed) for name, (m, signed) in space.items()}


def _index(bins: int, index: int) -> int:
    """Returns an index among magnitudes; one that is out of bounds raises torch's own error."""
    torch: Any = sys.modules["torch"]
    return torch.arange(bins)[index].item()  # type: ignore[no-any-return]


def _at(name: str, space: tuple[list[float], bool], index: int | None) -> Description:
    """Returns an operation with one of its magnitudes, whose moves depend on the image's size."""
    magnitudes, signed = space
    described: Description = {"name": name, "signed": signed}
    if magnitudes:
        if index is None:
            raise ValueError(f"{name} has no magnitude")
        bins = len(magnitudes)
        place = _index(bins, index)
        if name.startswith("Translate") and place > 0:
            described["share"] = _MOVE * place / (bins - 1)
        else:
            described["magnitudes"] = [magnitudes[place]]
    return described


def _rand_augment(t: attributes.RandAugment) -> list[Step]:
    space = _space(t, t.num_magnitude_bins)
    operations = [_at(name, space[name], t.magnitude) for name in space]
    magnitude = _index(t.num_magnitude_bins, t.magnitude)
    step = ours.RandAugment(
        t.num_ops, magnitude, t.num_magnitude_bins, t.interpolation, plain_fill(t)
    )
    step._operations = operations
    return _drawing(step, t)


def _trivial(t: attributes.TrivialAugmentWide) -> list[Step]:
    step = ours.TrivialAugmentWide(t.num_magnitude_bins, t.interpolation, plain_fill(t))
    space = _space(t, t.num_magnitude_bins, sizes=False)
    step._operations = [
        {"name": name, "magnitudes": magnitudes, "signed": signed}
        for name, (magnitudes, signed) in space.items()
    ]
    return _drawing(step, t)


def _auto_augment(t: attributes.AutoAugment) -> list[Step]:
    step = ours.AutoAugment(t.policy, t.interpolation, plain_fill(t))
    space = _space(t, 10)
    policies = t._policies if is_v2(t) else t.policies
    step._policies = [
        [{**_at(name, space[name], index), "p": float(p)} for name, p, index in policy]
        for policy in policies
    ]
    return _drawing(step, t)


# What moves pixels.


def _rotation(t: attributes.RandomRotation) -> list[Step]:
    return [ours.RandomRotation(t.degrees, t.interpolation, t.expand, t.center, plain_fill(t))]


def _affine(t: attributes.RandomAffine) -> list[Step]:
    fill = plain_fill(t)
    return [
        ours.RandomAffine(t.degrees, t.translate, t.scale, t.shear, t.interpolation, fill, t.center)
    ]


#: Corners, and the coefficients that releases which solve for them in float64 give.
_CORNERS = [[0, 0], [223, 0], [223, 223], [0, 223]], [[3, 40], [199, 7], [180, 190], [51, 213]]


@functools.cache
def _solves_in_float64() -> bool:
    """Reports whether torchvision computes the coefficients of perspectives in float64."""
    functional: Any = sys.modules["torchvision.transforms.functional"]
    torch: Any = sys.modules["torch"]
    found = functional._get_perspective_coeffs(*_CORNERS)
    rows: list[list[int]] = []
    for (u, v), (x, y) in zip(*_CORNERS):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    matrix = torch.tensor(rows, dtype=torch.float64)
    numbers = [float(n) for corner in _CORNERS[0] for n in corner]
    exact = torch.linalg.solve(matrix, torch.tensor(numbers, dtype=torch.float64))
    return [as_float32(n) for n in exact.tolist()] == found  # type: ignore[no-any-return]


def _perspective(t: attributes.RandomPerspective) -> list[Step]:
    if not _solves_in_float64():
        raise ValueError("this release of torchvision computes perspectives in float32")
    return [ours.RandomPerspective(t.distortion_scale, t.p, t.interpolation, plain_fill(t))]


def _blur(t: attributes.GaussianBlur) -> list[Step]:
    return _drawing(ours.GaussianBlur(list(t.kernel_size), list(t.sigma)), t)


# What changes an image with a probability.


def _p(t: attributes.Chance) -> float:
    """Returns the probability, as the library compares it with what it draws."""
    return as_float32(t.p) if is_v2(t) else t.p


def _erasing(t: attributes.RandomErasing) -> list[Step]:
    value = "random" if t.value is None else t.value
    step = ours.RandomErasing(t.p, t.scale, t.ratio, value, t.inplace)
    step._logs = logs_of(t.ratio)
    return [step]


MAPPINGS: dict[str, Callable[[Any], Sequence[Step]]] = {
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial,
    "AutoAugment": _auto_augment,
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "GaussianBlur": _blur,
    "RandomInvert": lambda t: [ours.RandomInvert(_p(t))],
    "RandomPosterize": lambda t: [ours.RandomPosterize(t.bits, _p(t))],
    "RandomSolarize": lambda t: [ours.RandomSolarize(t.threshold, _p(t))],
    "RandomAdjustSharpness": lambda t: [ours.RandomAdjustSharpness(t.sharpness_factor, _p(t))],
    "RandomAutocontrast": lambda t: [ours.RandomAutocontrast(_p(t))],
    "RandomEqualize": lambda t: [ours.RandomEqualize(_p(t))],
    "RandomGrayscale": lambda t: [ours.RandomGrayscale(t.p)],
    "RandomErasing": _erasing,
}


# Transforms within transforms.


def nested(t: Any, parts: Iterable[Sequence[Step]]) -> list[Step]:
    """Returns our transform for ``RandomApply``, ``RandomOrder`` or ``RandomChoice``.

    Args:
        t: torchvision's.
        parts: Our transforms for each of its transforms.
    """
    within = [_of_images(part) for part in parts]
    name = type(t).__name__
    if name == "RandomApply":
        return _drawing(
            ours.RandomApply([step for part in within for step in part] or [[]], t.p), t
        )
    if name == "RandomOrder":
        return _drawing(ours.RandomOrder(within), t)
    if is_v2(t):
        raise Unknown("it draws with torch.multinomial, which HDMLP does not; v1's draws otherwise")
    return [ours.RandomChoice(within, t.p)]


NESTED = ("RandomApply", "RandomOrder", "RandomChoice")


def _of_images(part: Sequence[Step]) -> list[ours.Transform]:
    made: list[ours.Transform] = []
    for step in part:
        if not isinstance(step, ours.Transform) or isinstance(
            step, (ours.ToTensor, ours.ConvertImageDtype, ours.Normalize, ours.RandomErasing)
        ):
            raise Unknown("only transforms of images may be within it")
        made.append(step)
    return made
