"""Batches of the items that Python makes of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._batches.source import LeftBytes
from ..._lib import originals
from ..._records.form import Form
from .collation import torchs_default
from .joint import BoxesItem, collate_boxes


class Collated:
    """Collates items whose labels are objects, which become a list.

    Args:
        form: What items look like.
    """

    def __init__(self, form: Form):
        self.form = form

    def __call__(self, items: Sequence[Any]) -> object:
        if self.form.kind == "dict":
            labels = [item["label"] for item in items]
            rest = [{k: v for k, v in item.items() if k != "label"} for item in items]
            return {**collate_records(rest), "label": labels}
        made = [collate_records(column) for column in list(zip(*items))[:-1]]
        return [*made, [item[-1] for item in items]]


def collate_records(items: Sequence[Any]) -> Any:
    """Collates items as torch's ``default_collate``, but for what it cannot.

    Bytes, tensors of different shapes, images and other objects that it does not know become lists.
    """
    if not items:
        return []
    first = items[0]
    raw = isinstance(first, (bytes, bytearray, memoryview, LeftBytes))
    if raw or any(item is None for item in items):
        return list(items)
    if isinstance(first, BoxesItem):
        return collate_boxes(items)
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for item in items for name in item)
        return {name: collate_records([item.get(name) for item in items]) for name in names}
    if isinstance(first, (tuple, list)) and len({len(item) for item in items}) == 1:
        columns = [collate_records(column) for column in zip(*items)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    shapes = {tuple(item.shape) for item in items if hasattr(item, "shape")}
    if len(shapes) > 1:
        return list(items)
    try:
        if _are_views(items):
            import numpy

            stacked = numpy.empty((len(items), *first.shape), first.dtype)
            return torch.from_numpy(numpy.stack(items, out=stacked))
        return torchs_default()(list(items))
    except TypeError:  # it does not know the type
        return list(items)


def collate_targets(items: Sequence[Any]) -> Any:
    """Collates images and targets as :func:`collate_records`, but for targets of several parts.

    Lists and dicts, such as boxes, differ in their numbers from image to image: they become a
    list, with one for each image. Tuples are several targets.
    """
    if not items or any(type(item) is not tuple or len(item) != 2 for item in items):
        return collate_records(items)
    images, targets = zip(*items)
    return [collate_records(images), _of_targets(targets)]


def _of_targets(targets: Sequence[Any]) -> object:
    if all(type(target) is tuple for target in targets) and len(set(map(len, targets))) == 1:
        return [_of_targets(column) for column in zip(*targets)]
    if any(isinstance(target, (list, Mapping)) for target in targets):
        return list(targets)
    return collate_records(targets)


#: What collates items where the program does not.
DEFAULTS = (collate_records, collate_targets)


def none_of_labels(kind: str) -> object:
    """Returns the labels of a batch that has no samples.

    Args:
        kind: That of :class:`~hdmlp._records.labels.Labels`.
    """
    if kind == "object":
        return []
    types = {"float": torch.float64, "bool": torch.bool}
    return torch.empty(0, dtype=types.get(kind, torch.int64))


def _are_views(items: Sequence[Any]) -> bool:
    """Reports whether items are arrays that cannot be written to, as views of a cache are.

    torch's default function stacks such arrays of one type, but warns of them.
    """
    first = type(items[0])
    return (
        (first.__module__, first.__name__) == ("numpy", "ndarray")
        and all(type(item) is first and not item.flags.writeable for item in items)
        and len({item.dtype for item in items}) == 1
        and not originals.replaced("collation")
    )
