"""What becomes of samples on their way into a batch of torch's."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .._output import arrays_for
from .._segments import Block
from .._source import Taken, column

try:
    from torch.utils.data import default_collate, default_convert
except ImportError:
    from torch.utils.data._utils.collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert", "labels_of", "pinned", "stack_into"]

_arrays = arrays_for(torch)


def stack_into(batch: list[tuple[Any, Any]], place: Any) -> Any:
    """torch's default collate function, but images of one shape are stacked straight into memory that is used again.

    Args:
        batch: (object, label) pairs.
        place: where the batch goes, with ``reserve(nbytes)``.

    A batch of which nothing is left, because its samples cannot be read, has no shape to tell.
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
            and not x.requires_grad
            for x, _ in batch
        )
    ):
        return default_collate(batch)
    labels = default_collate([label for _, label in batch])
    count = len(batch) * first.numel()
    nbytes = count * first.element_size()
    memory, offset = place.reserve(nbytes)
    images = torch.frombuffer(memory, dtype=first.dtype, count=count, offset=offset)
    images = images.view(len(batch), *first.shape)
    torch.stack([x for x, _ in batch], out=images)
    return [images, labels]


def labels_of(taken: Taken, target_transform: Callable | None = None) -> Any:
    """The batch's labels: int64, shape (n,), writable; or as the default collate function makes them of what
    ``target_transform`` returns.
    """
    if not taken.n:
        return torch.empty(0, dtype=torch.int64)
    if target_transform is not None:
        return default_collate(
            tuple(target_transform(label) for label in column(taken.payload, taken.n, "labels"))
        )
    if _arrays is None or not isinstance(
        taken.content, Block
    ):  # else the samples are a numpy array, and its code is at hand
        return torch.frombuffer(taken.payload, dtype=torch.int64, count=taken.n, offset=32)
    return torch.from_numpy(_arrays.labels(taken.payload, taken.n))


def pinned(value: Any) -> Any:
    """``value`` with its tensors in pinned memory."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: pinned(v) for key, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(pinned, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(pinned, value))
    return value.pin_memory() if hasattr(value, "pin_memory") else value
