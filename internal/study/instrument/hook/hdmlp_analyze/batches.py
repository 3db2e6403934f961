"""Batches of any structure: how many samples are in one, and copies of them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any


def samples_in(batch: Any, usual: int | None) -> int | None:
    """Returns how many samples are in a batch.

    Args:
        batch: The batch.
        usual: The size of most of the loader's batches; None: not known.

    Returns:
        The usual size if an array or a list in the batch has it; otherwise the first array's first
        dimension or the first list's length. None if there is neither.
    """
    lengths = list(_lengths(batch))
    if usual in lengths:
        return usual
    return lengths[0] if lengths else None


def _lengths(batch: Any) -> Iterator[int]:
    """Returns the first dimensions of arrays and the lengths of lists, the innermost first."""
    shape = None if isinstance(batch, memoryview) else getattr(batch, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
        return
    if isinstance(batch, Mapping):
        for value in batch.values():
            yield from _lengths(value)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _lengths(part)
        yield len(batch)


def copied(batch: Any) -> Any:
    """Returns a copy of a batch; parts that cannot be copied are the same objects."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.is_pinned():
            return torch.empty_like(batch, pin_memory=True).copy_(batch)
        return batch.clone()
    if isinstance(batch, dict):
        parts = {key: copied(value) for key, value in batch.items()}
        try:
            return type(batch)(parts)
        except TypeError:
            return parts
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(copied(part) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)([copied(part) for part in batch])
    try:
        return copy.deepcopy(batch)
    except Exception:  # such as memoryviews
        return batch


def size(batch: Any) -> int:
    """Returns how many bytes the arrays of a batch take."""
    own = getattr(batch, "nbytes", None)
    if isinstance(own, int):
        return own
    if callable(getattr(batch, "element_size", None)):  # tensors of older releases
        return int(batch.element_size()) * int(batch.numel())
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(size(part) for part in batch)
    return 0
