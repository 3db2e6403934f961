"""Splits a list of transforms into the daemon's part and Python's.

Known are our transforms, torchvision's (v1 and v2) and timm's, by their attributes. Neither
torchvision nor timm is ever imported: an object is one of their transforms if its class is the one
that the loaded module has under that name. Subclasses, objects with a method of their own, and what
the program has replaced in the libraries may do anything, and run in Python.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, NamedTuple

from .. import _transforms as ours
from .._lib import originals
from . import attributes, policies, scripts, timm
from .agreement import disagreement
from .entries import Entries, Entry
from .image_state import RGB, Convert, State, Step, Unknown
from .nested import has_callables
from .policies import is_v2, logs_of, plain_fill
from .recognition import (
    changed,
    class_name,
    converts,
    does_nothing,
    is_class,
    is_module,
    name_of,
    timm_class_name,
    used_by,
)
from .several import several
from .tail import find
from .trying import try_out

#: How the names begin of those known transforms that draw random numbers.
RANDOM = (
    "Random",
    "ColorJitter",
    "RandAugment",
    "TrivialAugment",
    "AutoAugment",
    "AugMix",
    "GaussianBlur",
)

_NO_SIZE = (
    "images have no fixed size {} it; add CenterCrop or RandomCrop, "
    "or resize to a height and a width"
)


class Split:
    """The daemon's part of a list of transforms, and what is left for Python.

    Unpacks as ``described, rest = split(...)``.

    Attributes:
        described: Transforms of :mod:`hdmlp.transforms`, in the order in which the daemon carries
            them out. Empty: it carries out none, and Python gets the sample's bytes.
        rest: The transforms that run in Python afterwards, as they were given. Where v2's
            ``ToImage`` comes earlier it is the first of them: it makes the
            ``tv_tensors.Image`` that the others expect.
        hands: What the first of ``rest`` gets. ``"bytes"``: the sample's bytes, as nothing is
            described. ``"image"``: a PIL image (mode L with 1 channel, otherwise RGB) of the
            daemon's uint8 array of shape (height, width, channels), or of what :meth:`for_images`
            gives. ``"ragged"``: the same, but each image has its own size. ``"tensor"``: the
            tensor as it is, or the array that Reshape made.
        why: Why there is a rest; empty if there is none.
        left: The transforms of the rest, the one which ``why`` is about first.
        done: The transforms that are described, as they were given.
        wraps: If there is no rest: v2's ``ToImage``, if torchvision's result is its
            ``tv_tensors.Image``. What is delivered one by one goes through it; in a batch that is
            stacked, torch's result is a plain tensor.
        first: The position of the first transform that was given: its random numbers, and those of
            the others, follow from their positions.
    """

    def __init__(
        self,
        described: list[ours.Transform],
        rest: list[Any],
        hands: str,
        why: str,
        left: Sequence[object] = (),
        done: Sequence[Any] = (),
        wraps: Sequence[Any] = (),
        first: int = 0,
        wrapped: int = 0,
    ):
        self.described = described
        self.rest = rest
        self.hands = hands
        self.why = why
        self.left = list(left)
        self.done = list(done)
        self.wraps = list(wraps)
        self.first = first
        self._wrapped = wrapped  # how many of the rest come from wraps

    @property
    def entries_done(self) -> list[Entry]:
        """``done``, with their positions."""
        return [Entry(i, t, draws(t)) for i, t in enumerate(self.done, self.first)]

    @property
    def entries(self) -> Entries:
        """What runs in Python: ``rest``, with their positions, or ``wraps``."""
        begin = self.first + len(self.done) - self._wrapped
        rest = [Entry(i, t, draws(t)) for i, t in enumerate(self.rest, begin)]
        return _in_one(rest or [Entry(begin, t, False) for t in self.wraps])

    @property
    def end(self) -> int:
        """The position after that of the last transform."""
        return self.first + len(self.done) + len(self.rest) - self._wrapped

    def __iter__(self) -> Iterator[list[Any]]:
        """``described``, then ``rest``."""
        return iter((self.described, self.rest))

    def for_images(self, encoded: bool) -> list[ours.Transform]:
        """Returns ``described`` for images that go on to Python, whatever follows there.

        They come with what their files say beside the pixels.

        Args:
            encoded: Files of which the daemon cannot make the same image come as they are.
        """
        if self.hands != "image" or isinstance(self.described[0], ours.Pixels):
            return self.described
        return [*self.described, ours.Ragged(ours.Ragged.MOST if encoded else 0)]

    def __repr__(self) -> str:
        return (
            f"Split(described={self.described}, rest={self.rest}, hands={self.hands!r}, "
            f"why={self.why!r})"
        )


class _Prefix(NamedTuple):
    """The daemon's part of a list.

    Attributes:
        length: Number of transforms of the list that it covers.
        described: The daemon's transforms for them.
        wraps: The ``ToImage`` that the rest has to begin with, if any.
        hands: See :class:`Split`.
    """

    length: int
    described: list[ours.Transform]
    wraps: list[object]
    hands: str


class _Stop(NamedTuple):
    """Why the daemon's part ends: the index of the transform that is to blame, and the reason."""

    cause: int
    why: str


def split(transforms: object, ragged: bool = False, first: int = 0, channels: int = 3) -> Split:
    """Splits a list of transforms into the daemon's part and what is left for Python.

    The daemon's part is the longest prefix of the list that the daemon can carry out and that
    gives every sample the same size. Its result is what torchvision would have passed to the rest.
    Where a list makes a tensor early, crops, flips and resizes that give the same result on the
    image (within 1 level for uint8 tensors that are resized) are moved before it.

    Args:
        transforms: A transform, a list, a ``Compose`` or a ``torch.nn.Sequential``, of our
            transforms, torchvision's (v1 or v2), timm's and any other callables.
        ragged: If True and no prefix gives every sample the same size, the daemon decodes, and
            applies what changes images up to the first transform that it does not know; images
            keep sizes of their own. Our own transforms are not among these. Default: False.
        first: The position of the first transform. The random numbers of each follow from its
            position in the flattened list, wherever the list is split. Default: 0.
        channels: Of images, as they are decoded. Default: 3.

    Returns:
        The two parts.

    Raises:
        TypeError: One of our transforms would have to run in Python, which it cannot.
    """
    given: list[Any] = list(flat(transforms))
    first -= _decodes(given)
    if given and all(map(_is_described, given)):
        stage = any(isinstance(t, (ours.ToTensor, ours.Reshape, ours.Views)) for t in given)
        placed: list[Any] = [at(t, i) for i, t in enumerate(given, first)]
        return Split(placed, [], "tensor" if stage else "image", "", (), given, first=first)
    prefix, stop = _longest_prefix(given, ragged, first, channels)
    done, described, wraps, hands = prefix
    rest = given[done:]
    if not rest:
        return Split(described, [], hands, "", (), given, wraps, first)
    cause, why = stop
    left = [given[cause], *given[done:cause], *given[cause + 1 :]]
    if _only_daemon(left[0]):
        raise TypeError(f"{left[0]!r} cannot stand here: {why}{left[0]._alternative('there')}")
    for i, t in enumerate(rest, done):
        if _only_daemon(t):
            place = "after" if i > cause else "before"
            raise _not_in_python(t, f"{place} {given[cause]!r}, which the daemon cannot do ({why})")
    done_too = given[:done]
    return Split(described, wraps + rest, hands, why, left, done_too, (), first, len(wraps))


def _is_described(t: object) -> bool:
    """Reports whether a transform describes all that the daemon is to do."""
    return t.described if isinstance(t, ours.Views) else isinstance(t, ours.Transform)


def _only_daemon(t: object) -> bool:
    """Reports whether a transform cannot run in Python."""
    return not t.callable if isinstance(t, ours.Views) else isinstance(t, ours.Transform)


def _decodes(given: Sequence[object]) -> int:
    """Returns 1 if a list begins with what makes images, which has no position; else 0."""
    return int(bool(given) and isinstance(given[0], (ours.ImgDecode, ours.Pixels)))


def at(step: Step, position: int) -> Step:
    """Returns a step of the daemon's at a position of the list, unless it has one."""
    if not isinstance(step, ours.Transform) or step._position is not None:
        return step
    return step.at(position)


def _longest_prefix(
    given: list[object], ragged: bool, first: int, channels: int
) -> tuple[_Prefix, _Stop]:
    """The daemon's part of a flat list, and why it ends there."""
    state = State()
    state.channels = channels
    best = _Prefix(0, [], [], "bytes")
    loose = _Prefix(0, [], [], "bytes")  # the same, of images without a fixed size
    wraps: list[object] = []  # the ToImage whose tv_tensors.Image is the current result
    why, cause = "", 0
    replaced = functools.lru_cache(maxsize=None)(originals.replaced)  # compared once for each list
    steps = functools.partial(steps_of, replaced=replaced)
    t: Any
    for i, t in enumerate(given):
        sized = state.size is not None
        try:
            made = several(t, state, flat, steps, _wraps)
            for step in steps(t) if made is None else [made.step]:
                state.take(at(step, first + i))
        except Unknown as e:
            if isinstance(e, _Refused):
                try_out(t, bool(state.tensor) and state.dtype, state.channels)
            why, cause = str(e), i
            break
        wraps = _wraps(t, wraps) if made is None else made.wraps
        if state.size is not None or state.array or state.views:
            hands = "tensor" if state.tensor or state.array or state.views else "image"
            best = _Prefix(i + 1, state.described(), wraps, hands)
            why = ""
        else:
            if i == 0 or sized or name_of(t) == "Resize" or isinstance(t, ours.Resize):
                cause = i
            why = _NO_SIZE.format("after")
            if loose.length == i and not state.tensor and not isinstance(t, ours.Transform):
                loose = _Prefix(i + 1, state.described(), [], "ragged")
    if ragged and best.length == 0:
        best = _Prefix(loose.length, [*loose.described, ours.Ragged()], [], "ragged")
        if cause < loose.length:
            # The cause is carried out after all; what follows needs the fixed size.
            cause, why = loose.length, _NO_SIZE.format("before")
    return best, _Stop(cause, why)


def _wraps(t: object, wraps: list[Any]) -> list[Any]:
    """Returns what makes torchvision's type of a result, after one more transform."""
    if name_of(t) == "ToPureTensor":
        return []
    return [t] if name_of(t) == "ToImage" else wraps


def in_python(transforms: object, why: str, first: int = 0) -> Split:
    """Leaves a whole list for Python.

    Args:
        transforms: As for :func:`split`.
        why: The end of the exception's message.
        first: As for :func:`split`.

    Raises:
        TypeError: One of our transforms is in the list.
    """
    given: list[Any] = list(flat(transforms))
    for t in given:
        if _only_daemon(t):
            raise _not_in_python(t, why)
    return Split([], given, "bytes", "", first=first)


def entries_of(transforms: object, first: int = 0) -> Entries:
    """Returns the entries of a list that runs in Python as it is.

    Args:
        transforms: As for :func:`split`.
        first: The same.
    """
    return _in_one([Entry(i, t, draws(t)) for i, t in enumerate(flat(transforms), first)])


def _in_one(entries: list[Entry]) -> Entries:
    """Returns entries, of which those that make a float tensor of an image are one pass."""

    def original(t: object) -> str:
        name = name_of(t) or ("" if changed(t) else timm_class_name(t))
        return "" if not name or replaced("images", *used_by(t)) else name

    replaced = functools.lru_cache(maxsize=None)(originals.replaced)
    steps = [entry.step for entry in entries]
    found = find([original(t) for t in steps], steps)
    return Entries(entries, found, [e._replace(step=_with_tails(e.step)) for e in entries])


def _with_tails(t: object) -> object:
    """Returns Views whose lists have such a pass as well; other transforms stay as they are."""
    if type(t) is not ours.Views or not t.callable:
        return t
    # Their own entry seeds for all of them.
    return t.mapped(lambda steps: _in_one([Entry(i, s, False) for i, s in enumerate(flat(steps))]))


def begins_with_rgb(transforms: object) -> bool:
    """Reports whether a list converts images to RGB first."""
    first = next(flat(transforms), None)
    return name_of(first) == "RGB" or converts(first)


def length_of(transforms: object) -> int:
    """Returns the number of entries of a flattened list; see :func:`split`."""
    given = list(flat(transforms))
    return len(given) - _decodes(given)


def entries_of_joint(transforms: object, first: int = 0) -> Entries:
    """Returns the entries of what is applied to several values together.

    Args:
        transforms: A v2 ``Compose``, which is a list; any other callable is one entry. None: there
            are no entries.
        first: As for :func:`split`.
    """
    if name_of(transforms) == "Compose" and ".v2." in type(transforms).__module__:
        return entries_of(transforms, first)
    return Entries([] if transforms is None else [Entry(first, transforms, True)])


def draws(t: object) -> bool:
    """Reports whether a transform may draw random numbers: one that HDMLP does not know may."""
    if isinstance(t, ours.Transform):
        return t._draws
    return type(t).__name__.startswith(RANDOM) or not (
        name_of(t) in _MAPPINGS
        or (_timm_mapping(t) is not None and not changed(t))
        or does_nothing(t)
    )


def may_draw(transforms: object) -> bool:
    """Reports whether transforms that run in Python may draw random numbers; see :func:`draws`.

    Args:
        transforms: As for :func:`split`.
    """
    return any(map(draws, flat(transforms)))


def _not_in_python(t: ours.Transform, why: str) -> TypeError:
    what = f"{t!r} describes what the daemon does, and cannot run in Python"
    return TypeError(f"{what} {why}{t._alternative('there')}")


def flat(transforms: Any) -> Iterator[object]:
    """The transforms of lists, Composes and Sequentials."""
    if transforms is None:
        return
    inner: Iterable[object]
    if isinstance(transforms, (list, tuple)):
        inner = transforms
    elif is_class(transforms, "hdmlp.transforms", "Compose") or name_of(transforms) == "Compose":
        inner = transforms.transforms
    elif is_module(transforms, "container", "Sequential"):
        inner = list(transforms)
    elif isinstance(transforms, type) and (
        issubclass(transforms, ours.Transform)
        or transforms.__module__.startswith("torchvision.transforms.")
    ):
        raise TypeError(
            f"{transforms.__name__} is a class, and not an instance of it: "
            f"write {transforms.__name__}(...)"
        )
    elif not callable(transforms):
        raise TypeError(f"{transforms!r} is not a transform: it cannot be called")
    else:
        yield transforms
        return
    for t in inner:
        yield from flat(t)


def _timm_mapping(t: object) -> Callable[[Any], Sequence[Step]] | None:
    """Our transforms for the timm transform whose class ``t`` has; None if it is none."""
    if timm_class_name(t) == "MaybeToTensor":
        return _to_tensor
    return timm.MAPPINGS.get(type(t).__module__, {}).get(timm_class_name(t))


def steps_of(t: object, replaced: Callable[..., str]) -> Sequence[Step]:
    """Our transforms for ``t``.

    Args:
        t: A transform.
        replaced: :func:`hdmlp._lib.originals.replaced`.

    Raises:
        Unknown: There are none.
    """
    if isinstance(t, ours.Transform):
        return [t]
    if does_nothing(t):
        return []
    if converts(t):
        why = replaced("images")
        if why:
            raise Unknown(why)
        return [RGB(of_image=True)]
    mapping = _MAPPINGS.get(class_name(t)) or _timm_mapping(t)
    if class_name(t) in policies.NESTED:
        mapping = functools.partial(_nested, replaced=replaced)
    why = "" if mapping is None else replaced(*used_by(t))
    if class_name(t) or timm_class_name(t):
        why = why or changed(t)
    if why:
        raise Unknown(why)
    if mapping is None:
        scripts_own = scripts.steps_of(t, _is_gray)
        why = replaced("images") or disagreement() if scripts_own else ""
        if not scripts_own or why:
            raise Unknown(why or "it is not a transform that HDMLP has" + _within(t))
        return scripts_own
    try:
        steps = mapping(t)
    except AttributeError as e:
        raise Unknown(f"its attributes are not those that HDMLP has ({e})") from None
    except (TypeError, ValueError) as e:
        raise (_Refused if _is_new(t) else Unknown)(str(e)) from None
    why = disagreement() if any(getattr(step, "_draws", False) for step in steps) else ""
    if why:
        raise Unknown(why)
    return steps


class _Refused(Unknown):
    """Ours refuses the arguments of a library's transform, and the library may do so as well."""


def _is_new(t: object) -> bool:
    """Reports whether a transform checks its arguments only when it is applied."""
    return (
        class_name(t) in policies.MAPPINGS
        or class_name(t) in policies.NESTED
        or bool(timm_class_name(t))
    )


def _is_gray(t: Any) -> bool:
    """Reports whether an object is torchvision's Grayscale to three channels."""
    return name_of(t) == "Grayscale" and t.num_output_channels == 3


def _nested(t: Any, replaced: Callable[..., str]) -> list[Step]:
    """Our transform for one that consists of others."""
    parts = []
    for inner in t.transforms:
        part: list[Step] = []
        for one in flat(inner):
            try:
                part += steps_of(one, replaced)
            except Unknown as e:
                raise type(e)(f"{type(one).__name__} within it: {e}") from None
        parts.append(part)
    return policies.nested(t, parts)


def _within(t: object) -> str:
    """Advice for an object of an unknown class with a Compose; empty for others.

    One of several parts in the place of the object would be another training.
    """
    if name_of(t):
        return ""
    own = getattr(t, "__dict__", {})
    own = {**own, **own.get("_modules", {})}
    parts = [name for name, value in own.items() if callable(value) or has_callables(value)]
    if not any(name_of(own[name]) == "Compose" for name in parts):
        return ""
    views = "if it makes several views of an image, give hdmlp.transforms.Views in its place"
    if len(parts) > 1:
        return f" ({views})"
    return f" ({views}; if all that it does is its {parts[0]}, give .{parts[0]} in its place)"


def _resize(t: attributes.Resize) -> list[Step]:
    step = ours.Resize(t.size, t.interpolation, t.max_size, t.antialias)
    if "exact" in str(t.interpolation) or t.antialias == "warn":
        step.antialias = None
    return [step]


def _random_crop(t: attributes.RandomCrop) -> list[Step]:
    padding = t.padding
    if is_v2(t) and padding is not None:
        if t.pad_if_needed and t.padding_mode in ("reflect", "symmetric"):
            raise ValueError("v2 mirrors once where padding and pad_if_needed meet")
        left, right, top, bottom = padding  # v2 keeps it in this order
        padding = [left, top, right, bottom]
    step = ours.RandomCrop(t.size, padding, t.pad_if_needed, plain_fill(t), t.padding_mode)
    if is_v2(t):
        step._draws_as = "v2"
    return [step]


def _resized_crop(t: attributes.AntialiasedCrop) -> list[Step]:
    step = ours.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias)
    step._logs = logs_of(t.ratio)
    return [step]


def _convert(t: attributes.ToType) -> list[Step]:
    scale = "multiply" if ".v2." in type(t).__module__ else "divide"
    scale = scale if getattr(t, "scale", True) else "none"
    return [Convert(ours.ConvertImageDtype(t.dtype).dtype, scale)]


def _to_tensor(_: object) -> list[Step]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_default_dtype() is not torch.float32:
        raise ValueError(f"torch's default type is {torch.get_default_dtype()}, and not float32")
    return [ours.ToTensor()]


def _preset(t: attributes.Preset) -> list[Step]:
    """The result of ``weights.transforms()`` of torchvision's classifiers, for PIL images."""
    return [
        ours.Resize(t.resize_size, t.interpolation),
        ours.CenterCrop(t.crop_size),
        ours.ToTensor(),
        ours.Normalize(t.mean, t.std),
    ]


_MAPPINGS: dict[str, Callable[[Any], Sequence[Step]]] = {
    "Resize": _resize,
    "CenterCrop": lambda t: [ours.CenterCrop(t.size)],
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _resized_crop,
    "RandomHorizontalFlip": lambda t: [ours.RandomHorizontalFlip(t.p)],
    "RandomVerticalFlip": lambda t: [ours.RandomVerticalFlip(t.p)],
    "Pad": lambda t: [ours.Pad(t.padding, plain_fill(t), t.padding_mode)],
    "ColorJitter": lambda t: [ours.ColorJitter(t.brightness, t.contrast, t.saturation, t.hue)],
    "RandomPhotometricDistort": lambda t: [
        ours.RandomPhotometricDistort(t.brightness, t.contrast, t.saturation, t.hue, t.p)
    ],
    "Grayscale": lambda t: [ours.Grayscale(t.num_output_channels)],
    "ToTensor": _to_tensor,
    "PILToTensor": lambda t: [ours.ToTensor(dtype="uint8")],
    "ToImage": lambda t: [ours.ToTensor(dtype="uint8")],  # v2's of a PIL image: a tensor
    "ToPureTensor": lambda t: [],
    "ConvertImageDtype": _convert,
    "ToDtype": _convert,
    "Normalize": lambda t: [ours.Normalize(t.mean, t.std)],
    "ImageClassification": _preset,
    "RGB": lambda t: [RGB()],
    **policies.MAPPINGS,
}
