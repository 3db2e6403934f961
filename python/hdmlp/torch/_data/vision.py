"""torchvision's VOC, COCO and Cityscapes datasets, whose files the daemon reads and decodes.

torchvision is never imported: an object is one of its datasets if its class is the one that the
loaded module has.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._lib import originals
from ..._records.labels import Labels
from ..._transforms.entries import Entries, Entry
from ..._transforms.recognition import class_name, name_of
from ..._transforms.split import entries_of, entries_of_joint, flat, length_of
from .collated import collate_records, collate_targets
from .fields import Fields, Part, Step, part_of
from .folder import pil_loader
from .joint import Group, Kinds, mask_type
from .reasons import ITEMS, overrides, own_attributes, own_methods, revealed_by_calling
from .records import Files

log = logging.getLogger("hdmlp")

_MODULES = {
    "VOCSegmentation": "torchvision.datasets.voc",
    "VOCDetection": "torchvision.datasets.voc",
    "CocoDetection": "torchvision.datasets.coco",
    "Cityscapes": "torchvision.datasets.cityscapes",
}


class Found(NamedTuple):
    """One of torchvision's datasets.

    Attributes:
        name: The name of its class.
        inner: The dataset.
        wrapper: What ``wrap_dataset_for_transforms_v2`` applies to (index, item); None: nothing.
        why: Why only calling its methods reveals its items; empty: they are known.
    """

    name: str
    inner: Any
    wrapper: Step | None
    why: str


_WRAPPER = "torchvision.tv_tensors._dataset_wrapper"


def vision(dataset: Any) -> Found | None:
    """Returns one of torchvision's datasets of images with targets; None: it is none."""
    known: Any = getattr(sys.modules.get(_WRAPPER), "VisionDatasetTVTensorWrapper", None)
    wraps = type(dataset).__bases__[:1] == (known,)
    inner = vars(dataset).get("_dataset") if wraps else dataset
    kind = _known(type(inner)) if wraps else type(inner)
    if kind is None or _known(kind) is not kind:
        return None
    wrapper = vars(dataset).get("_wrapper") if wraps else None
    why = _why_not(kind, inner) or (_why_not_wrapped(known, dataset) if wraps else "")
    return Found(kind.__name__, inner, wrapper, why)


def _known(of: type) -> type | None:
    """Returns which of torchvision's classes a class is, or is derived from; None: none."""
    for base in of.__mro__:
        module = sys.modules.get(_MODULES.get(base.__name__, ""))
        known: object = getattr(module, base.__name__, None)
        if known is base:
            return base
    return None


def _why_not(kind: type, inner: Any) -> str:
    """Returns why only calling the methods of one of the datasets reveals its items."""
    if type(inner) is not kind:  # which is wrapped
        return f"{type(inner).__name__} is derived from {kind.__name__}, and makes its items itself"
    own = {*own_methods(kind, inner, *ITEMS), *own_attributes(inner)}
    if own:
        return overrides(inner, sorted(own))
    return revealed_by_calling(
        originals.replaced("torchvision's datasets", "torchvision's loader")
        or originals.open_replaced(kind.__module__)
    )


def _why_not_wrapped(known: type, dataset: object) -> str:
    """Returns the same of what ``wrap_dataset_for_transforms_v2`` returned."""
    own = {*own_methods(known, dataset, *ITEMS), *own_attributes(dataset)} - {"_wrapper"}
    wrapper = vars(dataset)["_wrapper"]
    if not originals.is_original(wrapper, _WRAPPER, getattr(wrapper, "__qualname__", "")):
        own.add("_wrapper")
    return overrides(dataset, sorted(own)) if own else ""


def collation_of(dataset: Any) -> Step | None:
    """Returns what collates items of one of the datasets whose methods have to be called."""
    found = vision(dataset)
    if found is None or type(found.inner).__name__ != found.name:
        return None
    return _collation(found.wrapper, dataset.transforms)


def _collation(wrapper: Step | None, transforms: Any) -> Step:
    """Returns what collates items: what a function makes of targets is as by torch's loader."""
    standard = getattr(sys.modules["torchvision.datasets.vision"], "StandardTransform", None)
    plain = transforms is None or (type(transforms) is standard and not transforms.target_transform)
    return collate_targets if wrapper is not None or plain else collate_records


def _opened(data: bytes) -> object:
    """Returns an image as PIL opens it."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def _annotation(data: bytes) -> object:
    """Returns the annotation of VOC, as its class does."""
    voc = sys.modules["torchvision.datasets.voc"]
    return voc.VOCDetection.parse_voc_xml(voc.ET_parse(io.BytesIO(bytes(data))).getroot())


def _json(data: bytes) -> object:
    return json.loads(bytes(data))


class _Wrapped:
    """Applies what ``wrap_dataset_for_transforms_v2`` does to an item.

    Args:
        wrapper: That.
        indexed: The target is (index, target).
    """

    def __init__(self, wrapper: Step, indexed: bool):
        self.wrapper, self.indexed = wrapper, indexed

    def __call__(self, image: object, target: tuple[int, object]) -> object:
        if self.indexed:
            return self.wrapper(target[0], (image, target[1]))
        return self.wrapper(0, (image, target))


class _Several:
    """Makes (image, targets) of an image and several targets."""

    def __call__(self, image: object, *targets: object) -> tuple[object, object]:
        return image, targets


class _OfTarget:
    """Applies a transform to the target alone.

    Args:
        transform: That; None: nothing is.
    """

    def __init__(self, transform: Step | None):
        self.transform = transform

    def __call__(self, image: object, target: object) -> tuple[object, object]:
        return image, target if self.transform is None else self.transform(target)


class VisionFiles(Files):
    """The files of one of torchvision's datasets; what is made of them follows from the object.

    Args:
        dataset: The object, as the loader got it.
        found: What it is.

    Attributes:
        of: The object.
    """

    def __init__(self, dataset: Any, found: Found):
        self.of, self._found = dataset, found
        self._listed_as = _listing(found)
        self._steps: tuple[object, Entries] | None = None
        self._said = False
        self._loaders: list[Step] = []
        labels = None
        paths: list[object]
        inner = found.inner
        if found.name == "CocoDetection":
            entries = [inner.coco.loadImgs(i)[0]["file_name"] for i in inner.ids]
            paths = [os.path.join(inner.root, name) for name in entries]
            targets = [inner._load_target(i) for i in inner.ids]
            wraps = found.wrapper is not None
            labels = list(enumerate(targets)) if wraps else targets
        elif found.name == "Cityscapes":
            paths = [(image, *of) for image, of in zip(inner.images, inner.targets)]
            kinds = {"polygon": _json}
            self._loaders = [kinds.get(kind, _opened) for kind in inner.target_type]
        else:
            paths = list(zip(inner.images, inner.targets))
            self._loaders = [_opened if found.name == "VOCSegmentation" else _annotation]
        super().__init__(paths)
        if labels is not None:
            self._labels = Labels.of_objects(labels)

    def current(self, found: Found) -> bool:
        """Reports whether the dataset is what it was, and lists the files that it had."""
        return self._found == found and self._listed_as == _listing(found)

    def _collation(self) -> Step:
        return _collation(self._found.wrapper, self.of.transforms)

    @property
    def _segments(self) -> bool:
        """Whether the target is one mask with numbers of classes."""
        inner = self._found.inner
        return self._found.name == "VOCSegmentation" or (
            self._found.name == "Cityscapes" and inner.target_type == ["semantic"]
        )

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        """Returns what is made of the files; see :meth:`hdmlp.torch.Files._plan`."""
        transforms: Any = self.of.transforms
        if raw:
            return Fields(
                [Part(n, [], None, None) for n in self.fields], self._form, None, None, None
            )
        standard = getattr(sys.modules["torchvision.datasets.vision"], "StandardTransform", None)
        separate = type(transforms) is standard
        wrapper, names = self._found.wrapper, self.fields
        group = None
        if self._segments and wrapper is not None and transforms is not None and not separate:
            group = self._group_of({"0": "image", "1": "mask"}, transforms, wanted, False, 0)
        if group is not None:
            parts = [Part(name, [], None, None) for name in names]
            return Fields(parts, self._form, None, None, None, group=group)
        of_image = transforms.transform if separate and wrapper is None else None
        first = length_of(of_image)
        parts = [part_of("0", pil_loader, of_image, wanted, say)]
        joint: Entries | None
        if separate and wrapper is None and len(self._loaders) == 1:
            target = transforms.target_transform
            if self._segments and _of_nearest(target):
                group = self._group_of({"1": "mask"}, target, wanted, True, first)
            loader = None if group is not None else self._loaders[0]
            of_target = entries_of(target, first) or None
            parts.append(Part("1", [], loader, None if group is not None else of_target))
            joint = None
        else:
            parts += [Part(n, [], load, None) for n, load in zip(names[1:], self._loaders)]
            joint = self._jointly(transforms, separate, say)
        labelled = separate and wrapper is None and self._labels is not None
        of_label = transforms.target_transform if labelled else None
        return Fields(parts, self._form, self._labels, of_label, joint, end=first, group=group)

    def _group_of(
        self, kinds: dict[str, str], transforms: object, wanted: bool, pil: bool, first: int
    ) -> Group | None:
        """Returns what the daemon does of a list, all of it; None: it does not."""
        if "mask" not in self._mask_types:
            data = self._first_bytes(1)
            self._mask_types["mask"] = "uint8" if data is None else mask_type(data)
        types = {"1": self._mask_types["mask"]}
        group = Group(Kinds(kinds, pil), types, transforms, {}, wanted, False, first, strict=False)
        return group if group.joined is not None else None

    def _jointly(self, transforms: Any, separate: bool, say: bool) -> Entries | None:
        """Returns what Python applies to the image and the target; None: nothing."""
        wrapper, several = self._found.wrapper, len(self._loaders) > 1
        if transforms is None and wrapper is None and not several:
            return None
        if separate and wrapper is None and not several:
            return None  # the target is the label
        plain = separate and wrapper is None
        if say and not self._said and transforms is not None and not plain:
            self._said = True
            log.warning(
                "the transforms of the %s run in Python, on images that the daemon reads and "
                "decodes: it carries out those given with transform=, and lists of v2 for "
                "segmentation after wrap_dataset_for_transforms_v2",
                self._found.name,
            )
        if self._steps is None or self._steps[0] is not transforms:
            before: list[Entry] = []
            if several:
                before.append(Entry(0, _Several(), False))
            if wrapper is not None:
                indexed = self._found.name == "CocoDetection"
                before.append(Entry(0, _Wrapped(wrapper, indexed), False))
            if plain:
                first = length_of(transforms.transform)
                after = [Entry(first, _OfTarget(transforms.target_transform), True)]
            else:
                after = entries_of_joint(transforms, 0).entries
            self._steps = transforms, Entries([*before, *after])
        return self._steps[1]


#: Transforms of the libraries that move the pixels of any image, whatever its mode.
_MOVES = frozenset(
    (
        *("Resize", "CenterCrop", "RandomCrop", "RandomResizedCrop", "Pad"),
        *("RandomHorizontalFlip", "RandomVerticalFlip", "PILToTensor"),
    )
)


def _of_nearest(transforms: object) -> bool:
    """Reports whether a list makes a tensor of a mask and takes the nearest of its pixels."""
    steps = list(flat(transforms))
    if not steps or name_of(steps[-1]) != "PILToTensor":
        return False
    return all(
        class_name(t)
        and name_of(t) in _MOVES
        and str(getattr(getattr(t, "interpolation", None), "value", "nearest")) == "nearest"
        for t in steps
    )


def _listing(found: Found) -> Sequence[object]:
    """Returns what lists the files of a dataset."""
    inner = found.inner
    if found.name == "CocoDetection":
        return list(inner.ids)
    return [*inner.images, *inner.targets]
