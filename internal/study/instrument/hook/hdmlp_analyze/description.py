"""What is to be known of a loader."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import batches

#: Configuration keys of hdmlp's loaders that say what a node prepares and keeps.
_KEYS = ("memory", "cache_dir", "cache_size", "transform_threads", "policy")


def dataset_of(loader: Any) -> Any:
    """Returns a loader's dataset; None: it has none."""
    found = getattr(loader, "dataset", None)
    return getattr(getattr(loader, "_session", None), "_dataset", None) if found is None else found


def short(loader: Any) -> str:
    """Returns a loader in a few words."""
    dataset = dataset_of(loader)
    name = f"{type(loader).__module__.split('.')[0]}'s {type(loader).__name__}"
    if dataset is None:
        return name
    samples_in = length(dataset)
    count = "" if samples_in is None else f" of {samples_in} samples"
    return f"{name} over {type(dataset).__name__}{count}"


def length(dataset: Any) -> int | None:
    """Returns how many samples a dataset has; None: it does not say."""
    try:
        return len(dataset)
    except Exception:  # the script's own code
        return None


def is_iterable(loader: Any) -> bool:
    """Reports whether only iterating the dataset reveals its samples."""
    data: Any = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(dataset_of(loader), data.IterableDataset)


def samples(loader: Any, batch: Any) -> int:
    """Returns how many samples are in a batch of a loader; as many as usual if it does not say."""
    if getattr(loader, "batch_size", 1) is None and getattr(loader, "batch_sampler", None) is None:
        return (is_iterable(loader) and batches.samples_in(batch, None)) or 1
    usual = _batch(loader)
    found = batches.samples_in(batch, usual) or usual or 1
    return min(found, usual) if usual else found  # the last batch may be short


def of(loader: Any, kind: str) -> dict[str, Any]:
    """Returns a loader's facts.

    Args:
        loader: The loader.
        kind: Whose it is.
    """
    keys, file = _configuration(loader) if kind == "hdmlp" else ({}, None)
    return {
        "kind": kind,
        "text": short(loader),
        "iterable": is_iterable(loader),
        "workers": int(getattr(loader, "num_workers", 0) or 0),
        "batch": int(_batch(loader) or 0),
        "samples": _epoch(loader),
        "keys": {key: keys[key] for key in _KEYS if keys.get(key) is not None},
        "config": os.path.abspath(os.path.expanduser(os.fsdecode(file))) if file else "",
    }


def _configuration(loader: Any) -> tuple[Any, Any]:
    """Returns the keys of hdmlp's loader, as it settled them, and its file of keys."""
    session = getattr(loader, "_session", None)  # of the one without torch
    if session is not None:
        return session._config, session._config_file
    own = getattr(loader, "_arguments", None)
    return getattr(own, "keys", {}), getattr(own, "config_file", None)


def _batch(loader: Any) -> int | None:
    size: int | None = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size


def _epoch(loader: Any) -> int:
    """Returns how many samples an epoch of this rank has; 0: it is not known."""
    try:
        steps, size = len(loader), _batch(loader) or 1
    except Exception:  # the script's own code
        return 0
    try:
        known = len(loader.sampler)
    except Exception:  # an iterable dataset's, or hdmlp's loader without torch, which has none
        known = length(dataset_of(loader)) or 0
    # Ranks share the samples, a batch sampler of the user's makes the sampler meaningless, and
    # drop_last leaves some out: then all batches are taken to be full.
    if 0 < known <= steps * size < known + size:
        return known
    return int(steps * size)
