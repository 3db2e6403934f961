"""Collation of samples into batches, as torch does it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence, Sized
from contextlib import AbstractContextManager
from typing import Any, Callable

import torch

from ..._batches.output import arrays_for
from ..._batches.segments import Block
from ..._batches.source import Taken, column
from ..._lib import originals
from ..._lib.interrupts import interrupts
from ..._transforms.rows import Rows
from .interfaces import Room

_arrays = arrays_for(torch)
_torchs: Any = torch.utils.data._utils.collate


def torchs_default() -> Callable[..., Any]:
    """Returns torch's default collate function, which the program may have replaced."""
    return _torchs.default_collate  # type: ignore[no-any-return]


def by_default(batch: Any) -> Any:
    """Collates as torch's default function does outside a worker, also in one.

    In a worker torch's function makes room in shared memory before it stacks. For tensors of
    several sizes this fails with a message that names no size, and for conjugated ones it fails
    although they can be stacked. It is then called again as outside a worker.
    """
    worker: Any = torch.utils.data._utils.worker
    info = worker._worker_info
    try:
        return torchs_default()(batch)
    except RuntimeError as error:
        if info is None or interrupts(error):
            raise
    worker._worker_info = None
    try:
        return torchs_default()(batch)
    finally:
        worker._worker_info = info


def is_default(collate: object, batched: bool = True) -> bool:
    """Reports whether a loader's ``collate_fn`` is torch's default, or stands for it (None)."""
    default = "default_collate" if batched else "default_convert"
    return collate is None or collate is getattr(_torchs, default)


def default_stacks() -> bool:
    """Reports whether torch's default makes of pairs of tensors and numbers what it always does.

    It does not if the program has replaced it, or has given ``default_collate_fn_map`` functions of
    its own for tensors, numbers or tuples. Then it is called, as any function of the user's.
    """
    table: dict[Any, Any] = getattr(_torchs, "default_collate_fn_map", {})  # since torch 1.13
    return not originals.replaced("collation") and all(
        originals.is_original(function, _torchs.__name__, _PAIR.get(kind, ""))
        for kind in (torch.Tensor, int, tuple)
        for function in _registered(kind, table)
    )


#: The functions of ``default_collate_fn_map`` for what pairs consist of.
_PAIR = {torch.Tensor: "collate_tensor_fn", int: "collate_int_fn"}


def _registered(kind: type, table: dict[Any, Any]) -> list[Any]:
    """Returns the function which collates values of a type, if there is one."""
    if kind in table:
        return [table[kind]]
    return [function for known, function in table.items() if issubclass(kind, known)][:1]


_dtype = operator.attrgetter("dtype")


def are_pairs(items: Sequence[Sized]) -> bool:
    """Reports whether there are items, and all are tuples of two."""
    return set(map(type, items)) == {tuple} and set(map(len, items)) == {2}


def stack_into(batch: list[tuple[Any, Any]], place: Room) -> Any:
    """Collates like torch's default function, but stacks images into memory which is used again.

    A batch without samples, because none of them can be read, becomes empty tensors.

    Args:
        batch: (object, label) pairs. Tensors on the CPU of one shape and type, which need no
            gradient, are stacked; other objects are collated by torch.
        place: Where the batch is written; has ``reserve(nbytes)``, which returns a buffer and an
            offset; or the rows in which images lie already.

    Returns:
        ``[images, labels]``: a tensor of shape (n, ...), and the labels as torch collates them.
    """
    if not batch:
        return [torch.empty(0), torch.empty(0, dtype=torch.int64)]
    images, labels = zip(*batch)  # labels which are strings stay a tuple
    if isinstance(place, Rows) and place.used:
        return _stacked_in(place, batch, images, labels)
    first = images[0]
    if not _is_plain(first):
        return by_default(batch)
    count = len(images) * first.numel()
    nbytes = count * first.element_size()
    if nbytes < place.LEAST or set(map(type, images)) != {torch.Tensor}:
        return by_default(batch)
    if len(set(map(_dtype, images))) > 1:
        return by_default(batch)
    collated = by_default(labels)
    memory, offset = place.reserve(nbytes)
    stacked = torch.frombuffer(memory, dtype=first.dtype, count=count, offset=offset)
    stacked = stacked.view(len(images), *first.shape)
    try:
        torch.stack(images, out=stacked)
    except (RuntimeError, TypeError) as error:
        # Some have another shape, layout or device, or need a gradient. Asking each takes longer.
        if interrupts(error):
            raise
        place.give_up()
        return by_default(batch)
    return [stacked, collated]


def _stacked_in(rows: Rows, batch: Sequence[Any], images: Any, labels: Any) -> Any:
    """Collates images of which some, or all, lie in the batch's memory already."""
    stacked = rows.stacked(images)
    if stacked is not None:
        return [stacked, by_default(labels)]
    collated = by_default(batch)
    rows.give_up()  # only now: images lie there
    return collated


def _is_plain(image: object) -> bool:
    """Reports whether an object is a tensor with elements that can be stacked in memory."""
    return (
        type(image) is torch.Tensor
        and image.device.type == "cpu"
        and image.layout is torch.strided
        and not image.is_quantized
        and image.numel() > 0
    )


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
        return by_default(labels)
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
