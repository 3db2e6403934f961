"""Our transforms for timm's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, Callable

from .. import _transforms as ours
from . import attributes
from .arguments import as_interpolations, pillow_release
from .base import Description
from .described import Erasing, Policy
from .image_state import Step


def _crop(t: attributes.RandomResizedCrop) -> list[Step]:
    step = ours.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, None)
    step._draws_as = "timm"
    return [step]


def _center(t: attributes.CenterCropOrPad) -> list[Step]:
    if t.padding_mode != "constant" or any(
        t.fill if isinstance(t.fill, (tuple, list)) else [t.fill]
    ):
        raise ValueError("HDMLP pads images that are too small with black; put Pad before it")
    return [ours.CenterCrop(t.size)]


#: By the name of an operation, timm's function, and what computes its argument from a level: a
#: function, or with numbers a partial of one.
_OPERATIONS: dict[str, tuple[str, str]] = {
    "AutoContrast": ("auto_contrast", ""),
    "Equalize": ("equalize", ""),
    "Invert": ("invert", ""),
    "Rotate": ("rotate", "_rotate_level_to_arg"),
    "Posterize": ("posterize", "_posterize_level_to_arg"),
    "PosterizeIncreasing": ("posterize", "_posterize_increasing_level_to_arg"),
    "PosterizeOriginal": ("posterize", "_posterize_original_level_to_arg"),
    "Solarize": ("solarize", "_solarize_level_to_arg"),
    "SolarizeIncreasing": ("solarize", "_solarize_increasing_level_to_arg"),
    "SolarizeAdd": ("solarize_add", "_solarize_add_level_to_arg"),
    **{
        name + kind: (function, f"_enhance{level}_level_to_arg")
        for name, function in (
            ("Color", "color"),
            ("Contrast", "contrast"),
            ("Brightness", "brightness"),
            ("Sharpness", "sharpness"),
        )
        for kind, level in (("", ""), ("Increasing", "_increasing"))
    },
    "ShearX": ("shear_x", "_shear_level_to_arg"),
    "ShearY": ("shear_y", "_shear_level_to_arg"),
    "TranslateX": ("translate_x_abs", "_translate_abs_level_to_arg"),
    "TranslateY": ("translate_y_abs", "_translate_abs_level_to_arg"),
    "TranslateXRel": ("translate_x_rel", "_translate_rel_level_to_arg"),
    "TranslateYRel": ("translate_y_rel", "_translate_rel_level_to_arg"),
    "Desaturate": ("desaturate", "_minmax_level_to_arg max_val=1.0 min_val=0.5"),
    "GaussianBlur": ("gaussian_blur", "_minmax_level_to_arg max_val=2.0 min_val=0.1"),
    "GaussianBlurRand": ("gaussian_blur_rand", "_minmax_level_to_arg"),
}


def _module() -> Any:
    return sys.modules["timm.data.auto_augment"]


def _shown(function: Any) -> str:
    """Returns a function as :data:`_OPERATIONS` names it."""
    if isinstance(function, functools.partial):
        given = [f"{k}={v}" for k, v in sorted(function.keywords.items())]
        return " ".join([_shown(function.func), *map(str, function.args), *given])
    if function is None:
        return ""
    name = str(getattr(function, "__name__", ""))
    return name if getattr(_module(), name, None) is function else f"another {name}"


#: The magnitude that timm's levels are relative to, as the daemon has it.
_DENOMINATOR = 10.0


def _operation(op: attributes.AugmentOp) -> Description:
    """Returns an ``AugmentOp`` as the daemon takes it."""
    if sys.modules["timm.data.auto_augment"]._LEVEL_DENOM != _DENOMINATOR:
        raise ValueError("timm.data.auto_augment._LEVEL_DENOM was changed")
    if type(op) is not _module().AugmentOp:
        raise ValueError(f"its operation {op.name} is of class {type(op).__name__}, not timm's")
    expected = _OPERATIONS.get(op.name)
    if expected != (_shown(op.aug_fn), _shown(op.level_fn)):
        raise ValueError(f"its operation {op.name} is not one that HDMLP has")
    std = float(op.magnitude_std)
    described: Description = {
        "name": op.name,
        "p": float(op.prob),
        "magnitude": float(op.magnitude),
        "std": -1.0 if std == float("inf") else std,
        "most": float(op.magnitude_max or _DENOMINATOR),
    }
    if op.name in ("TranslateX", "TranslateY"):
        described["translate"] = float(op.hparams["translate_const"])
    elif op.name.startswith("Translate"):
        described["translate"] = float(op.hparams.get("translate_pct", 0.45))
    if set(op.kwargs) != {"fillcolor", "resample"}:
        raise ValueError(f"its operation {op.name} has other arguments than timm gives it")
    if op.name.startswith(("Rotate", "Shear", "Translate")):
        fill, modes = op.kwargs["fillcolor"], as_interpolations(op.kwargs["resample"])
        described["fill"] = list(fill) if isinstance(fill, (list, tuple)) else [fill]
        several = modes if isinstance(modes, tuple) else (modes,)
        described["interpolation"] = [mode.value for mode in several]
    return described


def _rand_augment(t: attributes.TimmRandAugment) -> list[Step]:
    if t.choice_weights is not None:
        raise ValueError("it chooses by weights, which HDMLP does not draw")
    operations = [_operation(op) for op in t.ops]
    return [
        Policy(
            {
                "name": "TimmRandAugment",
                "operations": operations,
                "layers": t.num_layers,
                **pillow_release(),
            }
        )
    ]


def _auto_augment(t: attributes.TimmAutoAugment) -> list[Step]:
    policies = [[_operation(op) for op in policy] for policy in t.policy]
    return [Policy({"name": "TimmAutoAugment", "policies": policies, **pillow_release()})]


def _erasing(t: attributes.TimmRandomErasing) -> list[Step]:
    if str(t.device) != "cpu":
        raise ValueError(f"its values are made on {t.device}")
    modes = {(False, False): "const", (True, False): "rand", (False, True): "pixel"}
    return [
        Erasing(
            {
                "name": "TimmRandomErasing",
                "p": float(t.probability),
                "area": [float(t.min_area), float(t.max_area)],
                "log_aspect": [float(a) for a in t.log_aspect_ratio],
                "mode": modes[bool(t.rand_color), bool(t.per_pixel)],
                "count": [t.min_count, t.max_count],
            }
        )
    ]


#: Missing are timm's ToTensor, which keeps the levels, its ToNumpy, whose arrays are not tensors,
#: and crops that HDMLP does not have. By the name of the module, and then of the class.
MAPPINGS: dict[str, dict[str, Callable[[Any], Sequence[Step]]]] = {
    "timm.data.transforms": {
        "RandomResizedCropAndInterpolation": _crop,
        "CenterCropOrPad": _center,
        "MaybePILToTensor": lambda t: [ours.ToTensor(dtype="uint8")],
    },
    "timm.data.auto_augment": {"RandAugment": _rand_augment, "AutoAugment": _auto_augment},
    "timm.data.random_erasing": {"RandomErasing": _erasing},
}
