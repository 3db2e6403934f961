"""Collation of samples into batches, as torch does it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import AbstractContextManager
from typing import Any, Callable

import torch

from ..._batches.output import arrays_for
from ..._batches.segments import Block
from ..._batches.source import Taken, column
from .interfaces import Room

try:
    from torch.utils.data import default_collate, default_convert
except ImportError:
    # Before torch 1.11.
    from torch.utils.data._utils.collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert", "labels_of", "pinned", "stack_into"]

_arrays = arrays_for(torch)


def stack_into(batch: list[tuple[Any, Any]], place: Room) -> Any:
    """Collates like torch's default function, but stacks images into memory which is used again.

    A batch without samples, because none of them can be read, becomes empty tensors.

    Args:
        batch: (object, label) pairs. Tensors on the CPU of one shape and type, which need no
            gradient, are stacked; other objects are collated by torch.
        place: Where the batch is written; has ``reserve(nbytes)``, which returns a buffer and an
            offset.

    Returns:
        ``[images, labels]``: a tensor of shape (n, ...), and the labels as torch collates them.
    """
    if not batch:
        return [torch.empty(0), torch.empty(0, dtype=torch.int64)]
    first = batch[0][0]
    if (
        not isinstance(first, torch.Tensor)
        or first.device.type != "cpu"
        or not first.numel()
        or not all(
            isinstance(x, torch.Tensor)
            and x.shape == first.shape
            and x.dtype == first.dtype
            and type(x) is torch.Tensor
            and x.layout is torch.strided
            and not x.is_quantized
            and not x.requires_grad
            for x, _ in batch
        )
    ):
        return default_collate(batch)
    labels: Any = tuple(label for _, label in batch)  # strings stay a tuple
    labels = default_collate(labels)
    count = len(batch) * first.numel()
    nbytes = count * first.element_size()
    memory, offset = place.reserve(nbytes)
    images = torch.frombuffer(memory, dtype=first.dtype, count=count, offset=offset)
    images = images.view(len(batch), *first.shape)
    torch.stack([x for x, _ in batch], out=images)
    return [images, labels]


def labels_of(taken: Taken, target_transform: Callable[[int], object] | None = None) -> object:
    """Returns a batch's labels.

    Args:
        taken: The batch.
        target_transform: Applied to each class number. Default: None.

    Returns:
        A writable int64 tensor of shape (n,); or what ``target_transform`` returned, collated.
    """
    if not taken.n:
        return torch.empty(0, dtype=torch.int64)
    if target_transform is not None:
        labels: Any = tuple(map(target_transform, column(taken.payload, taken.n, "labels")))
        return default_collate(labels)
    if _arrays is None or not isinstance(taken.content, Block):
        return torch.frombuffer(taken.payload, dtype=torch.int64, count=taken.n, offset=32)
    # The samples are a numpy array as well, so its code is in the processor's caches.
    return torch.from_numpy(_arrays.labels(taken.payload, taken.n))


def for_training(make: Callable[[Taken], object]) -> Callable[[Taken], object]:
    """Returns ``make`` with inference mode off: what is made ahead may be used after its end.

    No gradient could be computed from a tensor that was made in inference mode.
    """
    inference_mode: Callable[[bool], AbstractContextManager[None]] = torch.inference_mode

    def outside(taken: Taken) -> object:
        if not torch.is_inference_mode_enabled():
            return make(taken)
        with inference_mode(False):
            return make(taken)

    return outside


def pinned(value: object) -> Any:
    """Returns ``value`` with its tensors in pinned memory, as torch's loader does it.

    Types of containers stay, as in newer releases of torch; so do bytes, even as a memoryview.
    """
    if isinstance(value, torch.Tensor) or hasattr(value, "pin_memory"):
        return value.pin_memory()
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return value
    if isinstance(value, Mapping):
        return _pinned_mapping(value)
    if isinstance(value, tuple):
        made = map(pinned, value)
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return _pinned_sequence(value) if isinstance(value, Sequence) else value


def _pinned_mapping(value: Mapping[object, object]) -> object:
    items = {key: pinned(v) for key, v in value.items()}
    try:
        if not isinstance(value, MutableMapping):
            return type(value)(items)  # type: ignore[call-arg]
        clone = copy.copy(value)  # with what else it holds
        clone.update(items)
    except TypeError:  # it takes no mapping, or cannot be copied
        return items
    return clone


def _pinned_sequence(value: Sequence[object]) -> object:
    items = list(map(pinned, value))
    try:
        if not isinstance(value, MutableSequence):
            return type(value)(items)  # type: ignore[call-arg]
        clone = copy.copy(value)
        for i, item in enumerate(items):
            clone[i] = item
    except TypeError:  # as a range, for instance
        return items
    return clone
