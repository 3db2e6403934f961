"""The loader in the place of torch's which a validation measures.

That is hdmlp's, or torch's with more workers.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from .channel import SETTINGS

#: Worker processes of torch's loader; 0: hdmlp's takes its place.
WORKERS: int = SETTINGS["workers"]
#: The loaders by those that they replace; None: the daemon does not serve the dataset.
_made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def of(loader: Any) -> Any:
    """Returns a loader with the arguments of one of torch's, the same for each call.

    Args:
        loader: torch's.

    Returns:
        None if the daemon does not serve its dataset.
    """
    if loader not in _made:
        _made[loader] = _with_workers(loader) if WORKERS else _hdmlps(loader)
    return _made[loader]


def _with_workers(loader: Any) -> Any:
    if loader.batch_sampler is None:
        which = {"batch_size": None, "sampler": loader.sampler}
    else:
        which = {"batch_sampler": loader.batch_sampler}
    # Its class may be one of the script's own, with other arguments.
    return sys.modules["torch.utils.data"].DataLoader(
        loader.dataset,
        num_workers=WORKERS,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        **which,
    )


def _hdmlps(loader: Any) -> Any:
    if SETTINGS["package"] and SETTINGS["package"] not in sys.path:
        sys.path.append(SETTINGS["package"])
    import hdmlp.torch as ht
    from hdmlp.torch._analyzed import transforms_of

    transforms, left = transforms_of(loader)
    if not transforms and left:
        return None
    data: Any = sys.modules["torch.utils.data"]
    arguments: dict[str, Any] = {}
    if loader.batch_size is None and loader.batch_sampler is not None:
        arguments["batch_sampler"] = loader.batch_sampler
    else:  # without a size, items are given one by one
        arguments["batch_size"], arguments["drop_last"] = loader.batch_size, loader.drop_last
        if _is_shuffled(loader, data):
            arguments["shuffle"] = True  # an order that the daemon computes ahead
        elif type(loader.sampler) is not data.SequentialSampler:
            arguments["sampler"] = loader.sampler
    return ht.DataLoader(
        loader.dataset,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **arguments,
    )


def _is_shuffled(loader: Any, data: Any) -> bool:
    """Reports whether the loader gives each sample of the dataset once, at random."""
    sampler = loader.sampler
    return (
        type(sampler) is data.RandomSampler
        and not sampler.replacement
        and len(sampler) == len(loader.dataset)
    )
