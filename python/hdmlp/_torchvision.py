"""Which of a list of transforms the daemon can carry out: ours, torchvision's (v1 and v2) and timm's, by their attributes.

Neither torchvision nor timm is ever imported: an object is one of their transforms if its class is the one that the loaded module has under
that name. Subclasses, and objects with a method put over the class's, may do anything, and run in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from . import _transforms as ours
from ._image_state import _NO_SIZE, Convert, State, Unknown


class Split:
    """What the daemon does with a sample, and what is left for Python. Unpacks as ``described, rest = split(...)``.

    Attributes:
        described: transforms of :mod:`hdmlp.transforms`, in the order in which the daemon carries them out. Empty: it does
            nothing, and Python gets the sample's bytes.
        rest: what runs in Python after it, as it was given; where v2's ToImage is before it, that first, which makes of the
            tensor the ``tv_tensors.Image`` that the rest expects.
        hands: what the first of ``rest`` is to be given: ``"bytes"`` where nothing is described; ``"image"``: a PIL image (mode L
            with one channel, else RGB) of the daemon's uint8 array of height, width, channels; ``"ragged"``: the same, where each
            image has its own size; ``"tensor"``: the tensor as it is, or the array that Reshape made.
        why: why there is a rest; empty where there is none.
        left: the transforms of the rest, the one that ``why`` is about first.
        done: the transforms that are described, as they were given.
    """

    def __init__(
        self,
        described: list[Any],
        rest: list[Any],
        hands: str,
        why: str,
        left: Sequence[Any] = (),
        done: Sequence[Any] = (),
    ):
        self.described, self.rest, self.hands, self.why, self.left, self.done = (
            described,
            rest,
            hands,
            why,
            list(left),
            list(done),
        )

    def __iter__(self) -> Iterator[list[Any]]:
        return iter((self.described, self.rest))

    def __repr__(self) -> str:
        return f"Split(described={self.described}, rest={self.rest}, hands={self.hands!r}, why={self.why!r})"


def split(transforms: Any, ragged: bool = False) -> Split:
    """Splits a list of transforms into what the daemon does and what is left for Python.

    Args:
        transforms: one transform, a list, a Compose, or an nn.Sequential; ours, torchvision's (v1 or v2), and any callable.
        ragged: where no such beginning gives every sample the same size, the daemon decodes, and does what of the list changes images,
            up to the first that it does not know: images come with sizes of their own. Transforms of ours are not among them.

    The daemon gets the longest beginning of the list that it can carry out and that gives every sample the same size. What
    it makes is what torchvision would have handed to the rest. Where a list makes a tensor early, crops, flips and resizes
    that give the same on the image (within one grey level for uint8 tensors that are resized) are moved before it.

    Raises:
        TypeError: a transform of ours has to run in Python, which it can not.
    """
    given = list(_flat(transforms))
    if given and all(isinstance(t, ours.Transform) for t in given):
        stage = any(isinstance(t, (ours.ToTensor, ours.Reshape)) for t in given)
        return Split(given, [], "tensor" if stage else "image", "")
    state = State()
    best: tuple[int, list[Any], list[Any], str] = (0, [], [], "bytes")
    loose: tuple[int, list[Any]] = (0, [])  # the same, of images that have no fixed size
    wraps: list[Any] = []  # the ToImage whose tv_tensors.Image there is
    why, cause = "", 0
    for i, t in enumerate(given):
        try:
            for step in _steps(t):
                state.take(step)
        except Unknown as e:
            why, cause = str(e), i
            break
        if _name(t) in ("ToImage", "ToPureTensor"):
            wraps = [t] if _name(t) == "ToImage" else []
        if state.size is not None or state.array:
            best = (
                i + 1,
                state.described(),
                wraps,
                "tensor" if state.tensor or state.array else "image",
            )
            why = ""
        else:
            if i == 0 or _name(t) == "Resize" or isinstance(t, ours.Resize):
                cause = i
            why = _NO_SIZE.format("after")
            if loose[0] == i and not state.tensor and not isinstance(t, ours.Transform):
                loose = i + 1, state.described()
    if ragged and best[0] == 0:
        best = loose[0], loose[1] + [ours.Ragged()], [], "ragged"
        if (
            cause < loose[0]
        ):  # it is done, and what follows cannot be, as images keep sizes of their own
            cause, why = loose[0], _NO_SIZE.format("before")
    done, described, wraps, hands = best
    rest = given[done:]
    if not rest:
        return Split(described, [], hands, "", (), given)
    left = [given[cause], *given[done:cause], *given[cause + 1 :]]
    if isinstance(left[0], ours.Transform):
        raise TypeError(f"{left[0]!r} can not stand here: {why}{_there(left[0])}")
    for i, t in enumerate(rest, done):
        _refuse_ours(
            [t],
            lambda: (
                f"{'after' if i > cause else 'before'} {given[cause]!r}, which the daemon can not do ({why})"
            ),
        )
    return Split(described, wraps + rest, hands, why, left, given[:done])


def in_python(transforms: Any, why: str) -> Split:
    """All of a list left for Python.

    Raises:
        TypeError: a transform of ours is in it; the message ends with ``why``.
    """
    _refuse_ours(_flat(transforms), lambda: why)
    return Split([], [] if transforms is None else [transforms], "bytes", "")


def _refuse_ours(rest: Iterable[Any], why: Callable[[], str]) -> None:
    for t in rest:
        if isinstance(t, ours.Transform):
            raise TypeError(
                f"{t!r} describes what the daemon does, and can not run in Python {why()}{_there(t)}"
            )


def _there(t: Any) -> str:
    """What to use in place of one of ours, for messages."""
    return f": use torchvision.transforms.{type(t).__name__} there" if t._in_torchvision else ""


def _flat(transforms: Any) -> Iterator[Any]:
    """The transforms of lists, Composes and Sequentials, without those that do nothing."""
    if transforms is None:
        return
    if isinstance(transforms, (list, tuple)) or (
        isinstance(transforms, ours.Transform) and hasattr(transforms, "transforms")
    ):
        inner = getattr(transforms, "transforms", transforms)
    elif _name(transforms) == "Compose":
        inner = transforms.transforms
    elif _is(transforms, "torch.nn.modules.container", "Sequential") and not _changed(transforms):
        inner = list(transforms)
    elif _is(transforms, "torch.nn.modules.linear", "Identity") or _name(transforms) == "Identity":
        return
    elif isinstance(transforms, type) and (
        issubclass(transforms, ours.Transform)
        or transforms.__module__.startswith("torchvision.transforms.")
    ):
        raise TypeError(
            f"{transforms.__name__} is a class, and not one of its objects: write {transforms.__name__}(...)"
        )
    else:
        yield transforms
        return
    for t in inner:
        yield from _flat(t)


def _is(t: Any, module: str, name: str) -> bool:
    return type(t).__module__ == module and type(t) is getattr(sys.modules.get(module), name, None)


def _changed(t: Any) -> bool:
    """True if an object does not do what its class says: methods of its own, or hooks."""
    own = getattr(t, "__dict__", {})
    methods = (
        "forward",
        "__call__",
        "get_params",
        "make_params",
        "_get_params",
        "transform",
        "_transform",
        "_call_kernel",
    )
    return (
        any(m in own for m in methods)
        or bool(own.get("_forward_hooks"))
        or bool(own.get("_forward_pre_hooks"))
    )


_MODULES = tuple(f"torchvision.transforms.{m}." for m in ("transforms", "v2", "_presets"))


def _name(t: Any) -> str:
    """The name of torchvision's transform that t is, or nothing."""
    module, name = type(t).__module__, type(t).__name__
    if not f"{module}.".startswith(_MODULES):
        return ""
    return name if _is(t, module, name) and not _changed(t) else ""


def _timm(t: Any) -> str:
    """The name of timm's transform that t is, or nothing."""
    name = type(t).__name__
    return name if _is(t, "timm.data.transforms", name) and not _changed(t) else ""


def _steps(t: Any) -> list[Any]:
    """What transforms of ours do what t does; or Unknown."""
    if isinstance(t, ours.Transform):
        return [t]
    mapping = _MAPPINGS.get(_name(t)) or _TIMM.get(_timm(t))
    if mapping is None:
        raise Unknown("it is not a transform that HDMLP knows" + _within(t))
    try:
        return mapping(t)
    except AttributeError as e:
        raise Unknown(f"it has other attributes than HDMLP knows ({e})") from None
    except (TypeError, ValueError) as e:
        raise Unknown(str(e)) from None


def _within(t: Any) -> str:
    """What a user can do where an object of an unknown class holds torchvision's transforms."""
    own = getattr(t, "__dict__", {})
    for name, value in {**own, **own.get("_modules", {})}.items():
        if _name(value) == "Compose" and not _name(t):
            return f" (if all that it does is its {name}, give .{name} in its place)"
    return ""


def _plain_fill(t: Any) -> Any:
    if isinstance(t.fill, dict):
        raise ValueError("fill differs between types of input")
    return t.fill


def _resize(t: Any) -> list[Any]:
    step = ours.Resize(t.size, t.interpolation, t.max_size, t.antialias)
    if "exact" in str(t.interpolation) or t.antialias == "warn":
        step.antialias = None
    return [step]


def _random_crop(t: Any) -> list[Any]:
    if (
        ".v2." in type(t).__module__
        and t.padding is not None
        and t.pad_if_needed
        and t.padding_mode in ("reflect", "symmetric")
    ):
        raise ValueError("v2 mirrors once where padding and pad_if_needed meet")
    return [ours.RandomCrop(t.size, t.padding, t.pad_if_needed, _plain_fill(t), t.padding_mode)]


def _convert(t: Any) -> list[Any]:
    step = ours.ConvertImageDtype(t.dtype)
    return [Convert(step.dtype, bool(getattr(t, "scale", True)))]


def _preset(t: Any) -> list[Any]:
    """What ``weights.transforms()`` of torchvision's classifiers gives, carried out on images."""
    return [
        ours.Resize(t.resize_size, t.interpolation),
        ours.CenterCrop(t.crop_size),
        ours.ToTensor(),
        ours.Normalize(t.mean, t.std),
    ]


_MAPPINGS: dict[str, Callable[[Any], list[Any]]] = {
    "Resize": _resize,
    "CenterCrop": lambda t: [ours.CenterCrop(t.size)],
    "RandomCrop": _random_crop,
    "RandomResizedCrop": lambda t: [
        ours.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias)
    ],
    "RandomHorizontalFlip": lambda t: [ours.RandomHorizontalFlip(t.p)],
    "RandomVerticalFlip": lambda t: [ours.RandomVerticalFlip(t.p)],
    "Pad": lambda t: [ours.Pad(t.padding, _plain_fill(t), t.padding_mode)],
    "ColorJitter": lambda t: [ours.ColorJitter(t.brightness, t.contrast, t.saturation, t.hue)],
    "Grayscale": lambda t: [ours.Grayscale(t.num_output_channels)],
    "ToTensor": lambda t: [ours.ToTensor()],
    "PILToTensor": lambda t: [ours.ToTensor(dtype="uint8")],
    "ToImage": lambda t: [ours.ToTensor(dtype="uint8")],  # v2's of a PIL image: a tensor
    "ToPureTensor": lambda t: [],
    "ConvertImageDtype": _convert,
    "ToDtype": _convert,
    "Normalize": lambda t: [ours.Normalize(t.mean, t.std)],
    "ImageClassification": _preset,
}


def _timm_crop(t: Any) -> list[Any]:
    return [ours.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, None)]


def _timm_center(t: Any) -> list[Any]:
    if t.padding_mode != "constant" or any(
        t.fill if isinstance(t.fill, (tuple, list)) else [t.fill]
    ):
        raise ValueError("HDMLP puts black around images that are too small; put Pad before it")
    return [ours.CenterCrop(t.size)]


#: timm has a ToTensor of its own, which leaves levels as they are; a ToNumpy, whose arrays are no tensors; and crops that HDMLP has not.
_TIMM: dict[str, Callable[[Any], list[Any]]] = {
    "RandomResizedCropAndInterpolation": _timm_crop,
    "CenterCropOrPad": _timm_center,
    "MaybeToTensor": lambda t: [ours.ToTensor()],
    "MaybePILToTensor": lambda t: [ours.ToTensor(dtype="uint8")],
}
