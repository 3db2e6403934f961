"""hdmlp's loader in the place of torch's, which a validation measures."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from .channel import SETTINGS

#: hdmlp's loaders by torch's; None: the daemon does not serve its dataset.
_made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def of(loader: Any) -> Any:
    """Returns hdmlp's loader with the arguments of one of torch's, the same for each call.

    Args:
        loader: torch's.

    Returns:
        None if the daemon does not serve its dataset.
    """
    if loader not in _made:
        _made[loader] = _new(loader)
    return _made[loader]


def _new(loader: Any) -> Any:
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
            arguments["shuffle"] = True  # an order that the daemon knows ahead
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
