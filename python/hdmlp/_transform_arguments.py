"""Checks of transforms' arguments, which are torchvision's: what is wrong is named, with what is allowed."""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any


class InterpolationMode(enum.Enum):
    """Ways to resize, with torchvision's names. All but ``NEAREST`` are antialiased, as with PIL."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def _pillow() -> dict[str, Any]:
    """Whose pixels a resize is to give: those of the Pillow that is installed, where it is one that resizes in the order of release 13."""
    try:
        from PIL import __version__
    except ImportError:
        return {}
    return {"pillow": 13} if int(__version__.split(".")[0]) >= 13 else {}


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} should be int. Got {value!r}")
    return value.__index__()


def _edge(name: str, value: Any) -> int:
    if _whole(name, value) < 1:
        raise ValueError(f"{name} should be positive. Got {value}")
    return value.__index__()


def _size(size: Any) -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        size = (size, size)
    if not isinstance(size, (list, tuple)):
        raise TypeError(f"Size should be int or sequence. Got {type(size)}")
    if len(size) == 1:
        size = (size[0], size[0])
    if len(size) != 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return _edge("size", size[0]), _edge("size", size[1])


def _range(name: str, value: Any) -> None:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} should be a sequence")
    if len(value) != 2 or not all(_real(v) for v in value) or value[0] > value[1]:
        raise ValueError(f"{name} should be of kind (min, max). Got {value}")


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _probability(p: Any) -> float:
    if not isinstance(p, numbers.Real) or isinstance(p, bool):
        raise TypeError(f"p should be a number. Got {type(p)}")
    if not 0.0 <= p <= 1.0:
        raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
    return p  # type: ignore[return-value]


def _span(
    name: str, value: Any, center: float = 1.0, bound: tuple[float, float] = (0.0, math.inf)
) -> Sequence[float] | None:
    """(least, most) of a factor, or None where it changes nothing."""
    if value is None:
        return None
    span: Sequence[float]
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        least = center - float(value)
        span = [max(least, 0.0) if center == 1.0 else least, center + float(value)]
    elif (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(v, numbers.Real) for v in value)
    ):
        span = value
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not bound[0] <= span[0] <= span[1] <= bound[1] or math.isinf(span[1]):
        raise ValueError(f"{name} values should be between {bound}. Got {value}")
    return None if span[0] == span[1] == center else span


def _padding(padding: Any) -> int | list[int]:
    if isinstance(padding, numbers.Number):
        return _whole("padding", padding)
    if not isinstance(padding, (list, tuple)):
        raise TypeError("Got inappropriate padding arg")
    if len(padding) not in (1, 2, 4):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple"
        )
    return [_whole("padding", p) for p in padding]


def _padding_mode(mode: Any) -> str:
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    return mode


def _fill(fill: Any) -> Any:
    if fill is None:
        return 0
    if not isinstance(fill, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate fill arg")
    levels = fill if isinstance(fill, (tuple, list)) else [fill]
    if len(levels) not in (1, 3) or not all(_real(v) and 0 <= v <= 255 for v in levels):
        raise ValueError(
            f"fill should be a level from 0 to 255, or one for each channel. Got {fill}"
        )
    return fill


def _levels(fill: Any) -> int | list[int]:
    return [int(v) for v in fill] if isinstance(fill, (tuple, list)) else int(fill)


def _numbers(name: str, value: Any) -> list[float]:
    if isinstance(value, numbers.Number) or getattr(value, "ndim", None) == 0:
        value = [value]
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} should be a number or a sequence. Got {type(value)}")
    try:
        out = [float(v) for v in value]
    except (TypeError, ValueError):
        raise TypeError(f"{name} should be numbers. Got {value!r}") from None
    if not out or not all(math.isfinite(v) for v in out):
        raise ValueError(f"{name} should be finite numbers, and at least one. Got {value!r}")
    return out


_PIL_MODES = (
    "nearest",
    "lanczos",
    "bilinear",
    "bicubic",
    "box",
    "hamming",
)  # PIL's numbers of them


def _interpolation(mode: Any) -> InterpolationMode:
    name = getattr(mode, "value", mode)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(_PIL_MODES):
        name = _PIL_MODES[name]
    if name == "nearest-exact":  # the same, for PIL images
        name = "nearest"
    try:
        return InterpolationMode(name)
    except ValueError:
        known = ", ".join(m.value for m in InterpolationMode)
        raise ValueError(f"interpolation should be one of {known}. Got {mode!r}") from None


#: How many ways to resize a list of them may have.
_MODES = 16


def _interpolations(modes: Any) -> InterpolationMode | tuple[InterpolationMode, ...]:
    """One way to resize, or those of which one is drawn."""
    if not isinstance(modes, (list, tuple)):
        return _interpolation(modes)
    if not 1 <= len(modes) <= _MODES:
        raise ValueError(f"interpolation should be one, or a list of 1 to {_MODES}. Got {modes!r}")
    several = tuple(map(_interpolation, modes))
    return several if len(several) > 1 else several[0]


def _dtype(dtype: Any, known: Sequence[str] = ("uint8", "float16", "bfloat16", "float32")) -> str:
    """The name of a dtype of torch or numpy, or what already is a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = {"float": "float32", "half": "float16"}.get(
        name.rpartition(".")[2], name.rpartition(".")[2]
    )
    if name not in known:
        raise ValueError(f"dtype should be one of {', '.join(known)}. Got {dtype!r}")
    return name
