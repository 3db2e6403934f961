"""Of which library's transform an object is, unless the program has changed what it does."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from .._lib import originals
from . import timm


def does_nothing(t: object) -> bool:
    return is_module(t, "linear", "Identity") or name_of(t) == "Identity"


def is_class(t: object, module: str, name: str) -> bool:
    return type(t).__module__ == module and type(t) is getattr(sys.modules.get(module), name, None)


def converts(t: object) -> bool:
    """Reports whether an object is a function of an image that converts it to RGB, and no more.

    That is ``lambda image: image.convert("RGB")``, maybe in torchvision's ``Lambda``.
    """
    function = getattr(t, "lambd", None) if name_of(t) == "Lambda" else t
    if type(function) is not FunctionType or function.__closure__ or function.__defaults__:
        return False
    code, known = function.__code__, _convert.__code__
    return (
        code.co_code == known.co_code
        and code.co_names == known.co_names
        and code.co_argcount == known.co_argcount
        and code.co_flags & _SIGNATURE == known.co_flags & _SIGNATURE
        and [c for c in code.co_consts if c is not None] == ["RGB"]
    )


#: The flags of code that say how a function is called.
_SIGNATURE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR


def _convert(image: Any) -> Any:
    return image.convert("RGB")


def is_module(t: object, module: str, name: str) -> bool:
    return is_class(t, f"torch.nn.modules.{module}", name) and not changed(t)


def changed(t: object) -> str:
    """Why an object may do something other than its class in the library; empty: it does not."""
    own = getattr(t, "__dict__", {})
    for name in own:
        if callable(getattr(type(t), name, None)):
            return f"it has a {name} of its own"
    if own.get("_forward_hooks") or own.get("_forward_pre_hooks"):
        return "it has hooks"
    module = "_forward_hooks" in own  # of torch
    return originals.replaced_in_class(type(t)) or (originals.replaced("modules") if module else "")


_MODULES = tuple(
    f"torchvision.transforms.{m}." for m in ("transforms", "autoaugment", "v2", "_presets")
)


def class_name(t: object) -> str:
    """The name of the torchvision transform whose class ``t`` has; empty if it is none."""
    module, name = type(t).__module__, type(t).__name__
    return name if f"{module}.".startswith(_MODULES) and is_class(t, module, name) else ""


def name_of(t: object) -> str:
    """The name of the torchvision transform that ``t`` is; empty if it is none."""
    name = class_name(t)
    return name if name and not changed(t) else ""


def timm_class_name(t: object) -> str:
    """The name of the timm transform whose class ``t`` has; empty if it is none."""
    module, name = type(t).__module__, type(t).__name__
    return name if module in timm.MAPPINGS and is_class(t, module, name) else ""


def used_by(t: object) -> Sequence[str]:
    """The rows of :data:`hdmlp._lib.originals.ORIGINALS` whose functions a known class uses."""
    module = type(t).__module__
    if module.startswith("timm."):
        return "transforms", "timm"
    return ("transforms", "transforms.v2") if ".v2." in module else ("transforms",)
