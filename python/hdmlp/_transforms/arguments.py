"""Checks of the transforms' arguments, with torchvision's exceptions and messages.

An ``as_`` function returns the argument in the form in which a transform keeps or describes it.
"""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any


class InterpolationMode(enum.Enum):
    """How to resize, with torchvision's names.

    All modes except ``NEAREST`` are antialiased, as with PIL images.
    """

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def pillow_release() -> dict[str, object]:
    """The part of a description that selects the Pillow release whose pixels a resize matches.

    Release 13 changed the order of the two passes; earlier ones need no entry.
    """
    try:
        from PIL import __version__
    except ImportError:
        return {}
    return {"pillow": 13} if int(__version__.split(".")[0]) >= 13 else {}


def as_whole_number(name: str, value: object) -> int:
    """An integer, without bools."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} should be int. Got {value!r}")
    return int(value.__index__())


def as_edge(name: str, value: object) -> int:
    """A length in pixels, at least 1."""
    whole = as_whole_number(name, value)
    if whole < 1:
        raise ValueError(f"{name} should be positive. Got {value}")
    return whole


def as_size(size: object) -> tuple[int, int]:
    """(height, width), from a pair or from one number for both."""
    if isinstance(size, numbers.Number):
        size = (size, size)
    if not isinstance(size, (list, tuple)):
        raise TypeError(f"Size should be int or sequence. Got {type(size)}")
    if len(size) == 1:
        size = (size[0], size[0])
    if len(size) != 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return as_edge("size", size[0]), as_edge("size", size[1])


def check_range(name: str, value: object) -> None:
    """Checks that ``value`` is (minimum, maximum)."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} should be a sequence")
    if len(value) != 2 or not all(_is_finite(v) for v in value) or value[0] > value[1]:
        raise ValueError(f"{name} should be of kind (min, max). Got {value}")


def _is_finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def as_probability(p: object) -> float:
    """A number in [0, 1], as it was given."""
    if not isinstance(p, numbers.Real) or isinstance(p, bool):
        raise TypeError(f"p should be a number. Got {type(p)}")
    if not 0.0 <= float(p) <= 1.0:
        raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
    return p  # type: ignore[return-value]  # an int stays one, as in torchvision


def as_factor_range(
    name: str, value: object, center: float = 1.0, bound: tuple[float, float] = (0.0, math.inf)
) -> Sequence[float] | None:
    """(minimum, maximum) of a factor of :class:`ColorJitter`; None if it changes nothing."""
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


def as_range(name: str, value: object) -> list[float]:
    """Two finite numbers."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} should be a sequence of length 2.")
    if len(value) != 2 or not all(_is_finite(v) for v in value):
        raise ValueError(f"{name} should be a sequence of length 2. Got {value!r}")
    return [float(v) for v in value]


def as_angles(name: str, value: object, lengths: tuple[int, ...]) -> list[float]:
    """(minimum, maximum), from these or from one number for both directions.

    Args:
        name: The argument's.
        value: Its value.
        lengths: How many numbers there may be.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        value = [-value, value]
    msg = " or ".join(map(str, lengths))
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {msg}.")
    if len(value) not in lengths or not all(_is_finite(v) for v in value):
        raise ValueError(f"{name} should be a sequence of length {msg}.")
    return [float(v) for v in value]


def as_padding(padding: object) -> int | list[int]:
    """Pixels on each side: one number, or a list of 1, 2 or 4."""
    if isinstance(padding, numbers.Number):
        return as_whole_number("padding", padding)
    if not isinstance(padding, (list, tuple)):
        raise TypeError("Got inappropriate padding arg")
    if len(padding) not in (1, 2, 4):
        raise ValueError(
            "Padding must be an int or a 1, 2, or 4 element tuple, "
            f"not a {len(padding)} element tuple"
        )
    return [as_whole_number("padding", p) for p in padding]


def as_padding_mode(mode: object) -> str:
    """One of torchvision's padding modes."""
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    return str(mode)


def as_fill(fill: object) -> Any:
    """A level from 0 to 255, or 1 or 3 of them, as they were given; 0 for None."""
    if fill is None:
        return 0
    if not isinstance(fill, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate fill arg")
    levels: list[Any] = list(fill) if isinstance(fill, (tuple, list)) else [fill]
    if len(levels) not in (1, 3) or not all(_is_finite(v) and 0 <= v <= 255 for v in levels):
        raise ValueError(
            f"fill should be a level from 0 to 255, or one for each channel. Got {fill}"
        )
    return fill


def as_mask_fill(fill: int | None) -> int | None:
    """Returns the number of a mask's border; None: as the image's.

    Raises:
        ValueError: It is no number of a mask.
    """
    if fill is None:
        return None
    if isinstance(fill, bool) or not isinstance(fill, int) or not 0 <= fill < 1 << 16:
        raise ValueError(f"mask_fill should be a whole number from 0 to 65535. Got {fill!r}")
    return fill


def as_levels(fill: Any) -> int | list[int]:
    """What :func:`as_fill` returned, as integers."""
    return [int(v) for v in fill] if isinstance(fill, (tuple, list)) else int(fill)


def as_numbers(name: str, value: object) -> list[float]:
    """A list of finite floats, from one number or from any iterable of them."""
    if isinstance(value, numbers.Number) or getattr(value, "ndim", None) == 0:
        value = [value]
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} should be a number or a sequence. Got {type(value)}")
    try:
        floats = [float(v) for v in value]
    except (TypeError, ValueError):
        raise TypeError(f"{name} should be numbers. Got {value!r}") from None
    if not floats or not all(math.isfinite(v) for v in floats):
        raise ValueError(f"{name} should be finite numbers, and at least one. Got {value!r}")
    return floats


#: PIL's resampling filters, by their numbers.
_PIL_MODES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def as_interpolation(mode: object) -> InterpolationMode:
    """The mode, from ours, torchvision's or PIL's, or its name."""
    name = getattr(mode, "value", mode)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(_PIL_MODES):
        name = _PIL_MODES[name]
    if name == "nearest-exact":  # the same as nearest for PIL images
        name = "nearest"
    try:
        return InterpolationMode(name)
    except ValueError:
        known = ", ".join(m.value for m in InterpolationMode)
        raise ValueError(f"interpolation should be one of {known}. Got {mode!r}") from None


#: The most modes that a list of them may have.
_MOST_MODES = 16


def as_interpolations(modes: object) -> InterpolationMode | tuple[InterpolationMode, ...]:
    """One mode, or a tuple of modes of which one is drawn for each sample."""
    if not isinstance(modes, (list, tuple)):
        return as_interpolation(modes)
    if not 1 <= len(modes) <= _MOST_MODES:
        raise ValueError(
            f"interpolation should be one, or a list of 1 to {_MOST_MODES}. Got {modes!r}"
        )
    several = tuple(map(as_interpolation, modes))
    return several if len(several) > 1 else several[0]


def as_dtype(
    dtype: object, known: Sequence[str] = ("uint8", "float16", "bfloat16", "float32")
) -> str:
    """The name of a dtype of torch or numpy, or of what already is a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    name = {"float": "float32", "half": "float16"}.get(name, name)
    if name not in known:
        raise ValueError(f"dtype should be one of {', '.join(known)}. Got {dtype!r}")
    return name
