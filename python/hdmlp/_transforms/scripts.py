"""Small classes of training scripts, which blur, solarize or gray an image with PIL.

Each script has a copy of its own, so an object is recognised by the code of its ``__call__``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .base import Description
from .described import Policy
from .image_state import Step
from .wrappers import attributes_of, call_of, has_form

_NUMBER = (int, float)


class _Known(NamedTuple):
    """A ``__call__`` that is known.

    Attributes:
        source: Its code.
        modules: The modules that it uses, by their global names.
        reads: The attributes that it reads, with the types that they must have.
        described: From the values of these to what the daemon does.
    """

    source: str
    modules: dict[str, str]
    reads: dict[str, tuple[type, ...]]
    described: Callable[..., Description]


def _blur(first: float, last: float, p: float | None = None) -> Description:
    if first > last:
        raise ValueError(f"{first} is above {last}")
    at_most = None if p is None else min(float(p), 1.0)
    return {"name": "PILGaussianBlur", "radius": [float(first), float(last)], "p": at_most}


def _below(p: float) -> float:
    """The largest number that a random one, which is to be below p, may be."""
    return min(max(math.nextafter(p, -math.inf), 0.0), 1.0)


_RANDOM = {"random": "random"}
_FILTER = {"ImageFilter": "PIL.ImageFilter"}
_OPS = {"ImageOps": "PIL.ImageOps"}

_KNOWN = [
    _Known(  # GaussianBlur of MoCo v2, MoCo v3 and SimSiam
        """
        sigma = random.uniform(self.sigma[0], self.sigma[1])
        x = x.filter(ImageFilter.GaussianBlur(radius=sigma))
        return x
        """,
        {**_RANDOM, **_FILTER},
        {"sigma": (list, tuple)},
        lambda sigma: _blur(*sigma),
    ),
    _Known(  # GaussianBlur of DINO
        """
        do_it = random.random() <= self.prob
        if not do_it:
            return x

        return x.filter(
            ImageFilter.GaussianBlur(
                radius=random.uniform(self.radius_min, self.radius_max)
            )
        )
        """,
        {**_RANDOM, **_FILTER},
        {"prob": _NUMBER, "radius_min": _NUMBER, "radius_max": _NUMBER},
        lambda p, first, last: _blur(first, last, p),
    ),
    _Known(  # GaussianBlur of DeiT
        """
        do_it = random.random() <= self.prob
        if not do_it:
            return x

        x = x.filter(
            ImageFilter.GaussianBlur(
                radius=random.uniform(self.radius_min, self.radius_max)
            )
        )
        return x
        """,
        {**_RANDOM, **_FILTER},
        {"prob": _NUMBER, "radius_min": _NUMBER, "radius_max": _NUMBER},
        lambda p, first, last: _blur(first, last, p),
    ),
    _Known(  # Solarize of MoCo v3
        """
        return ImageOps.solarize(x)
        """,
        _OPS,
        {},
        lambda: {"name": "PILSolarize"},
    ),
    _Known(  # Solarization of DINO and DeiT
        """
        if random.random() < self.p:
            return ImageOps.solarize(x)
        else:
            return x
        """,
        {**_RANDOM, **_OPS},
        {"p": _NUMBER},
        lambda p: {"name": "PILSolarize", "p": _below(p)},
    ),
    _Known(  # gray_scale of DeiT
        """
        if random.random() < self.p:
            return self.transf(x)
        else:
            return x
        """,
        _RANDOM,
        {"p": _NUMBER, "transf": (object,)},
        lambda p, gray: {"name": "PILGrayscale", "p": _below(p)},
    ),
]


def steps_of(t: object, is_gray: Callable[[object], bool]) -> Sequence[Step]:
    """Returns what the daemon does for an object of a training script; empty: it is not one.

    Args:
        t: The object.
        is_gray: Whether an object is torchvision's ``Grayscale`` to three channels.
    """
    call = call_of(t)
    if call is None:
        return []
    found = next((k for k in _KNOWN if has_form(call, k.source, ", ".join(k.modules))), None)
    if found is None:
        return []
    used = call.__globals__
    if any(used.get(name) is not sys.modules.get(module) for name, module in found.modules.items()):
        return []
    values = attributes_of(t, found.reads)
    if values is None or ("transf" in found.reads and not is_gray(values[-1])):
        return []
    numbers = [n for value in values for n in (value if _is_pair(value) else [value])]
    if any(isinstance(n, (int, float)) and not 0 <= n <= 1000 for n in numbers):
        return []
    try:
        return [Policy({k: v for k, v in found.described(*values).items() if v is not None})]
    except (TypeError, ValueError):  # sigma is no pair of numbers
        return []


def _is_pair(value: object) -> bool:
    return isinstance(value, (list, tuple))
