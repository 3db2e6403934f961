"""Frameworks that make loaders of torch's: over HDMLP's datasets there they make ours."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any, Callable

import torch.utils.data

from ..errors import ConfigError
from ._datasets import Datasets
from ._drawn import parts
from ._loader import DataLoader

_Torch = torch.utils.data.DataLoader

_PACKAGES = ("accelerate", "transformers")


def use_in(package: ModuleType | str) -> None:
    """Has accelerate use :class:`DataLoader` where it makes a loader of torch's over a dataset that HDMLP serves; transformers' Trainer has accelerate make its own.

    The new loader gets what torch's would get, and what the loader in whose place it is made was given of HDMLP's own arguments (``epochs``, ``seed``,
    ``verify``, ``memory`` and so on, but for ``name``). Loaders of other datasets are torch's as before. It holds for the whole process; calling
    it again changes nothing. Lightning and Fabric need no such call.

    Args:
        package: ``accelerate`` or ``transformers``, the module or its name.

    Raises:
        ConfigError: another package, or a release of accelerate that makes loaders in another way.
        ImportError: accelerate is not installed.
    """
    name = package if isinstance(package, str) else package.__name__
    if name not in _PACKAGES:
        raise ConfigError(
            f"use_in({name}): must be {' or '.join(_PACKAGES)}; Lightning and Fabric need no such call, and other code can make "
            "hdmlp.torch.DataLoader in the place of torch's"
        )
    module = importlib.import_module("accelerate.data_loader")
    if module.__dict__.get("DataLoader") is _made:
        return
    adapter = getattr(module, "DataLoaderAdapter", None)
    if module.__dict__.get("DataLoader") is not _Torch or adapter is None:
        version = importlib.import_module("accelerate").__version__
        raise ConfigError(
            f"use_in({name}): accelerate {version} makes loaders in a way that HDMLP does not know; known to work is 1.15"
        )
    module.DataLoader = _made
    adapter.__init__ = _stateful(adapter.__init__)


def _is_served(dataset: Any) -> bool:
    """True of HDMLP's datasets and torchvision's folders, and parts of them; of those that the daemon cannot serve our loader says why."""
    found = Datasets().samples(dataset)
    return found.folder is not None or bool(found.why)


def _made(dataset: Any, *args: Any, **kwargs: Any) -> _Torch:
    """What stands for torch's class: makes ours over a dataset that the daemon serves."""
    if not _is_served(dataset):
        return _Torch(dataset, *args, **kwargs)
    sampler = kwargs.get("batch_sampler")
    if sampler is None:
        sampler = kwargs.get("sampler")
    own = dict(
        next(
            (
                part.hdmlp_arguments
                for _, part in parts(sampler)
                if hasattr(part, "hdmlp_arguments")
            ),
            {},
        )
    )
    if own.pop("shard", False):
        raise ConfigError(
            "shard=True: accelerate gives each rank its batches of this loader itself; leave shard, rank and world_size out"
        )
    return DataLoader(dataset, *args, **{**own, **kwargs})


def _stateful(init: Callable) -> Callable:
    """Of accelerate's adapter: torchdata's loader is not needed where ours is made, which can be resumed as well."""

    @functools.wraps(init)
    def made(self: Any, dataset: Any, use_stateful_dataloader: bool = False, **kwargs: Any) -> None:
        init(
            self,
            dataset,
            use_stateful_dataloader=use_stateful_dataloader and not _is_served(dataset),
            **kwargs,
        )
        self.use_stateful_dataloader = use_stateful_dataloader

    return made
