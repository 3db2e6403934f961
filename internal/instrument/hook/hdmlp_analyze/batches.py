"""Batches of any structure: how many samples are in one, and copies of them."""

from __future__ import annotations

import copy
import sys
from typing import Any


def samples_in(batch: Any) -> int | None:
    """Returns the first dimension of the first array in a batch, or a list's length.

    Returns:
        None if there is neither.
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            if isinstance(part, (list, tuple, dict)) or hasattr(part, "shape"):
                found = samples_in(part)
                if found is not None:
                    return found
        return len(batch)
    return None


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
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(size(part) for part in batch)
    return 0
