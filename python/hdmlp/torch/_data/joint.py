"""Images, masks and boxes of records, which one list of transforms is applied to jointly."""

from __future__ import annotations

import copy
import io
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from ..._batches.output import Output
from ..._batches.source import LeftBytes
from ..._records.boxes import FORMATS, HEAD, boxes_of
from ..._transforms.base import Transform
from ..._transforms.entries import Entries
from ..._transforms.generators import generators_kept, seed_generators
from ..._transforms.image_state import Unknown
from ..._transforms.in_python import leaving
from ..._transforms.joint import KINDS, Inputs, Joined, check, split_joint
from ..._transforms.keys import entry_key
from ..._transforms.recipe import Undecodable, decoded
from ..._transforms.recognition import class_name, name_of
from ..._transforms.split import entries_of, flat
from ...data import Jointly
from ...errors import ConfigError
from .folder import pil_loader

log = logging.getLogger("hdmlp")

#: The types of masks, by PIL's mode.
_TYPES = {"1": "bool", "L": "uint8", "P": "uint8", "I": "int32", "I;16": "uint16"}


class Picture(Protocol):
    """An image of PIL.

    Attributes:
        mode: Its mode.
        size: (width, height) in pixels.
    """

    mode: str
    size: tuple[int, int]


#: What there is of each field, by name.
Values = dict[str, Any]

_Step = Callable[..., object]


class BoxesItem(Values):
    """The boxes of an image: ``"boxes"`` (n, 4) and ``"labels"`` (n); a batch has lists of them.

    Attributes:
        format: That of the boxes.
    """

    format = ""


def raw_mask(data: bytes | memoryview) -> Picture:
    """Decodes a mask as it is in its file: numbers, and not colours.

    Raises:
        ValueError: It has colours.
    """
    from PIL import Image

    mask = Image.open(io.BytesIO(data))
    if mask.mode not in _TYPES and not mask.mode.startswith("I;16"):
        raise ValueError(
            f"the mask has colours (mode {mask.mode}), and a mask has numbers of classes: save "
            "masks as PNGs with a palette or in gray"
        )
    mask.load()
    found: Picture = mask
    return found


def mask_type(data: bytes) -> str:
    """Returns the type of masks like this one; of what cannot be decoded, that of bytes."""
    try:
        return _type_of(raw_mask(data))
    except Exception:  # the daemon, or the loader, reports what is wrong with it
        return "uint8"


def _type_of(mask: Picture) -> str:
    found = _TYPES.get(mask.mode, "uint16")
    return found if hasattr(torch, found) else "int32"


class Kinds(NamedTuple):
    """What ``kinds=`` and ``mask=`` of a dataset say.

    Attributes:
        of: The kinds, by the names of fields or values.
        pil: Masks are a second PIL image.
    """

    of: dict[str, str]
    pil: bool


def kinds_of(given: object, mask: object, names: Sequence[str], columns: Sequence[str]) -> Kinds:
    """Returns the kinds of fields, checked.

    Args:
        given: ``kinds``.
        mask: ``mask``.
        names: The fields that there are.
        columns: The values that there are.

    Raises:
        ConfigError: It names a kind or a field that there is not.
    """
    if mask not in ("tensor", "pil"):
        raise ConfigError(f"mask={mask!r}: allowed: 'tensor', 'pil'")
    pil = mask == "pil"
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"kinds={given!r}: must be a dict, such as {{'jpg': 'image'}}")
    kinds = {str(name): kind for name, kind in given.items()}
    for name, kind in kinds.items():
        if name not in (*names, *columns):
            raise ConfigError(
                f"kinds[{name!r}]: there is no field of that name; there are {', '.join(names)}"
            )
        if kind not in KINDS:
            raise ConfigError(
                f"kinds[{name!r}]={kind!r}: is no kind of field; allowed: {', '.join(KINDS)}"
            )
        if name in columns and kind != "boxes":
            raise ConfigError(f"kinds[{name!r}]: values are boxes, and images are fields")
    if list(kinds.values()).count("boxes") > 1:
        raise ConfigError("kinds: several fields are boxes; one may be")
    if set(kinds.values()) == {"boxes"}:
        raise ConfigError("kinds: boxes need an image or a mask, whose size they are in")
    if pil and "boxes" in kinds.values():
        raise ConfigError('mask="pil" is for torchvision.transforms, which takes no boxes')
    return Kinds(kinds, pil)


class Group:
    """What is made of the fields that a list of transforms is applied to jointly.

    Args:
        kinds: The kinds of the fields.
        types: The types of masks, by name.
        transform: The list; None: there is none.
        columns: Values by record ID, by name.
        wanted: The daemon does what it can.
        say: Log what it cannot do.
        first: The position of the first transform.
        strict: Refuse transforms which do not take such fields.

    Attributes:
        given: The transforms.
        joined: What the daemon does; None: Python does all but decode.

    Raises:
        ConfigError: The transforms do not take such fields.
    """

    def __init__(
        self,
        kinds: Kinds,
        types: Mapping[str, str],
        transform: object,
        columns: Mapping[str, Sequence[object]],
        wanted: bool,
        say: bool,
        first: int,
        strict: bool = True,
    ):
        self.given = list(flat(transform))
        self.kinds, self.pil, self.types = kinds.of, kinds.pil, dict(types)
        self.fields = [name for name in kinds.of if name not in columns]
        self.columns = {name: columns[name] for name in kinds.of if name in columns}
        self._masks = [name for name, kind in kinds.of.items() if kind == "mask"]
        self._image = next((n for n, kind in kinds.of.items() if kind == "image"), None)
        self.entries = Entries(
            entry._replace(step=_WithoutMasks(entry.step, self._masks))
            if name_of(entry.step) == "SanitizeBoundingBoxes"
            else entry
            for entry in entries_of(transform, first).entries
        )
        self.joined: Joined | None = None
        self.outputs: dict[str, Output | None] = {}
        steps = self.given
        own = [t for t in steps if isinstance(t, Transform)]
        inputs = Inputs(kinds.of, types, kinds.pil)
        if strict:
            check(steps, inputs)
        try:
            if self.columns:
                raise Unknown("boxes are values of the process", None)
            joined = split_joint(steps, inputs, first)
        except Unknown as error:
            self._refuse(error, own, wanted, say, bool(steps))
            return
        self._leaves = not own and (kinds.pil or "torchvision.tv_tensors" in sys.modules)
        if wanted:
            self.joined = joined

    def _refuse(
        self, error: Unknown, own: Sequence[object], wanted: bool, say: bool, some: bool
    ) -> None:
        """Says why the daemon does not carry the list out."""
        blamed = error.args[1]
        what = "the list" if blamed is None else f"{blamed!r:.200}"
        if own:
            raise ConfigError(
                f"transform: the daemon cannot carry out {what} ({error.args[0]}), and "
                f"{own[0]!r:.80} cannot run in Python: use torchvision.transforms.v2"
            )
        if say and wanted and some:
            log.warning(
                "the transforms of %s run in Python, on images that the daemon decodes, as it does "
                "not carry out %s: %s",
                ", ".join(self.kinds),
                what,
                error.args[0],
            )

    @property
    def described(self) -> Jointly:
        """What the daemon does, if it does."""
        assert self.joined is not None
        steps = self.joined.described
        inputs = []
        for name in self.fields:
            of = {"field": name, "kind": self.kinds[name]}
            inputs.append({**of, "type": self.types[name]} if name in self.types else of)
        mask = "pil" if self.pil else "tensor"
        return Jointly(inputs, leaving(steps) if self._leaves else list(steps), mask)

    def apart(self, name: str) -> bool:
        """Reports whether the daemon's results of a field are no tensor, but one by one."""
        return self.joined is not None and (self.joined.sized or self.kinds[name] == "boxes")

    # In Python, item by item.

    def values(self, given: Values, sample: int, key: int | None) -> Values:
        """Returns what becomes of the fields of a record.

        Args:
            given: What the daemon delivers of each, or its bytes.
            sample: The record's ID.
            key: The key of its random numbers; None: the generators are left as they are.

        Raises:
            Undecodable: A field is none of its kind.
        """
        if self.joined is not None and not any(isinstance(v, LeftBytes) for v in given.values()):
            return {name: self.result(name, value) for name, value in given.items()}
        return self.of_bytes(given, sample, key)

    def none(self, name: str) -> object:
        """Returns a batch of no values of a field."""
        return collate_boxes([]) if self.kinds[name] == "boxes" else torch.empty(0)

    def result(self, name: str, view: memoryview) -> object:
        """Returns one of the daemon's results, as the transforms return it."""
        joined = self.joined
        assert joined is not None
        kind = self.kinds[name]
        if kind == "boxes":
            return _boxes_in(view, joined.wraps)
        output = self.outputs[name]
        assert output is not None
        made = output.sample(view)
        if kind == "mask":
            return _tv_tensors().Mask(made) if joined.wraps else made
        return made if joined.image is None else joined.image(made)

    def of_bytes(self, given: Values, sample: int, key: int | None) -> Values:
        """Returns what Python makes of fields, from their bytes or decoded images."""
        loaded: Values = {}
        for name, kind in self.kinds.items():
            value = self.columns[name][sample] if name in self.columns else given[name]
            if value is None:
                raise ValueError(f"field {name}: the sample does not have it")
            if kind != "boxes" and isinstance(value, (bytes, bytearray, memoryview)):
                try:
                    view = value if isinstance(value, LeftBytes) else memoryview(value)
                    value = decoded(raw_mask if kind == "mask" else pil_loader, view, None)
                except Undecodable as error:
                    raise Undecodable(f"field {name}: {error}") from error.__cause__
            loaded[name] = value
        width, height = self._size(loaded)
        for name, kind in self.kinds.items():
            if kind == "boxes":
                try:
                    loaded[name] = boxes_of(loaded[name], width, height)
                except ValueError as error:
                    raise Undecodable(f"field {name}: {error}") from None
        if self.pil:
            return self._of_pil(loaded, key)
        return self._of_tensors(loaded, width, height, key)

    def _size(self, loaded: Values) -> tuple[int, int]:
        """Returns the image's width and height, which are those of masks.

        Raises:
            Undecodable: They are not, or a mask has other numbers than the first one.
        """
        first = self._image or next(n for n, kind in self.kinds.items() if kind == "mask")
        width, height = loaded[first].size
        for name, kind in self.kinds.items():
            if kind != "boxes" and loaded[name].size != (width, height):
                other = "x".join(map(str, loaded[name].size))
                raise Undecodable(
                    f"field {name}: the mask has {other} pixels (width x height), and its image "
                    f"{width}x{height}: one crop cannot fit both; correct the file"
                )
            found = _type_of(loaded[name]) if kind == "mask" else ""
            if found != self.types.get(name, ""):
                raise Undecodable(
                    f"field {name}: the mask is of type {found}, and the first one of the dataset "
                    f"of {self.types[name]}: save all in one form"
                )
        return width, height

    def _of_tensors(self, loaded: Values, width: int, height: int, key: int | None) -> Values:
        types = _tv_tensors()
        target: Values = {}
        for name, kind in self.kinds.items():
            value = loaded[name]
            if kind == "boxes":
                boxes = torch.tensor(value.boxes, dtype=torch.float32).reshape(-1, 4)
                target["boxes"] = types.BoundingBoxes(
                    boxes, format=value.format, canvas_size=(height, width)
                )
                target["labels"] = torch.tensor(value.labels, dtype=torch.int64)
            elif kind == "mask":
                target[name] = types.Mask(value)
            elif name != self._image:
                target[name] = value
        inputs = (target,) if self._image is None else (loaded[self._image], target)
        made = self.entries.jointly(inputs, key)
        pair = made if isinstance(made, (tuple, list)) else (made,)
        if len(pair) != len(inputs) or not isinstance(pair[-1], Mapping):
            raise TypeError(
                f"transform: the list returned {type(made).__name__}, and (image, target) is "
                "expected, as it was given; with kinds=, each transform is called with the image "
                "and a dict of the boxes, labels and masks"
            )
        target = dict(pair[-1])
        results = {}
        for name, kind in self.kinds.items():
            if kind == "boxes":
                results[name] = BoxesItem(boxes=target["boxes"], labels=target["labels"])
            else:
                results[name] = pair[0] if name == self._image else target[name]
        return results

    def _of_pil(self, loaded: Values, key: int | None) -> Values:
        """Applies v1's transforms, with the same random numbers for each of several PIL images."""
        names, values = list(self.kinds), [loaded[name] for name in self.kinds]
        with generators_kept():
            if key is None:
                key = int(torch.empty((), dtype=torch.int64).random_().item())
            for position, step, _ in self.entries.entries:
                seed = entry_key(key, position)
                seed_generators(seed)
                if not class_name(step):
                    values = list(step(*values)) if len(values) > 1 else [step(*values)]
                    continue
                for i, name in enumerate(names):
                    seed_generators(seed)
                    of = step if self.kinds[name] == "image" else _of_mask(step)
                    values[i] = values[i] if of is None else of(values[i])
        return dict(zip(names, values))


def of_raw(name: str, steps: Sequence[Any], kind: str, first: int) -> tuple[Jointly, bool]:
    """Returns what the daemon does for a field whose list begins with ``ImgDecode(mode="raw")``.

    Args:
        name: The field's name.
        steps: The list.
        kind: The type of its masks.
        first: The position of the first transform after it.

    Returns:
        That, and whether images keep sizes of their own.

    Raises:
        ConfigError: It cannot carry out all of the list.
    """
    inputs = Inputs({name: "mask"}, {name: kind}, False)
    check(steps[1:], inputs)
    try:
        joined = split_joint(steps[1:], inputs, first)
    except Unknown as error:
        raise ConfigError(
            f"transform[{name!r}]: the daemon cannot carry out {error.args[1]!r:.200} on a mask "
            f"({error.args[0]}), and {steps[0]!r} cannot run in Python"
        ) from None
    made = Jointly([{"field": name, "kind": "mask", "type": kind}], joined.described, "tensor")
    return made, joined.sized


class _WithoutMasks:
    """Sanitizes boxes, and leaves masks alone.

    torchvision takes a mask of one channel for that of the only box, and removes it with it.

    Args:
        step: ``SanitizeBoundingBoxes``.
        masks: The names of the masks.
    """

    def __init__(self, step: _Step, masks: Sequence[str]):
        self.step, self.masks = step, masks

    def __call__(self, *inputs: object) -> tuple[object, ...]:
        target = inputs[-1]
        assert isinstance(target, dict)
        masks = {name: target[name] for name in self.masks}
        made = self.step(*inputs[:-1], {k: v for k, v in target.items() if k not in masks})
        made = made if isinstance(made, tuple) else (made,)
        return (*made[:-1], {**made[-1], **masks})

    def __repr__(self) -> str:
        return repr(self.step)


def _of_mask(step: Any) -> _Step | None:
    """Returns what v1's transform is for a mask: with the nearest pixels; None: it is not for one.

    Raises:
        ValueError: It draws what depends on what it does to the image.
    """
    from torchvision import transforms

    name, made = class_name(step), step
    if name in ("ToTensor", "PILToTensor"):
        made = transforms.PILToTensor()
    if name in _COLOURS:
        return None
    if hasattr(step, "transforms"):
        parts = [_of_mask(t) for t in step.transforms]
        if None in parts:
            raise ValueError(f"{name} has transforms of colours, and masks have none")
        made = copy.copy(step)
        made.transforms = parts
    elif hasattr(step, "interpolation"):
        made = copy.copy(step)
        made.interpolation = transforms.InterpolationMode.NEAREST
    found: _Step = made
    return found


#: v1's transforms that do not move pixels.
_COLOURS = frozenset(
    (
        *("ColorJitter", "Grayscale", "GaussianBlur", "RandomInvert", "RandomPosterize"),
        *("RandomSolarize", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize"),
        *("RandomGrayscale", "Normalize", "ConvertImageDtype"),
    )
)


def _tv_tensors() -> Any:
    try:
        from torchvision import tv_tensors
    except ImportError:
        raise ConfigError(
            "kinds: transforms in Python need torchvision's v2 (torchvision 0.16 or newer): "
            "install it, or use hdmlp.transforms, which the daemon carries out"
        ) from None
    return tv_tensors


def _boxes_in(view: memoryview, wraps: bool) -> BoxesItem:
    """Returns the boxes that the daemon delivers of a record."""
    n, form, height, width = HEAD.unpack_from(view)
    whole = bytearray(view[HEAD.size :])
    if n:
        boxes = torch.frombuffer(whole, dtype=torch.float32, count=4 * n).view(n, 4)
        labels = torch.frombuffer(whole, dtype=torch.int64, count=n, offset=16 * n)
    else:
        boxes, labels = torch.empty((0, 4)), torch.empty(0, dtype=torch.int64)
    if wraps:
        boxes = _tv_tensors().BoundingBoxes(
            boxes, format=FORMATS[form], canvas_size=(height, width)
        )
    made = BoxesItem(boxes=boxes, labels=labels)
    made.format = FORMATS[form]
    return made


def collate_boxes(items: Sequence[BoxesItem]) -> dict[str, list[object]]:
    """Returns a batch of boxes: lists, with one tensor for each image.

    Raises:
        ValueError: They have several formats, of which plain tensors say nothing.
    """
    formats = sorted({item.format for item in items})
    if len(formats) > 1 and type(items[0]["boxes"]) is torch.Tensor:
        raise ValueError(
            f"the boxes of a batch have the formats {' and '.join(formats)}: add "
            "ConvertBoundingBoxFormat to the list"
        )
    names = items[0] if items else ("boxes", "labels")
    return {name: [item[name] for item in items] for name in names}
