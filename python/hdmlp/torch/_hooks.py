"""Has frameworks make our loader where they would make torch's over HDMLP's datasets."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Callable

import torch.utils.data

from ..errors import ConfigError
from ._data.datasets import Datasets
from ._loader import DataLoader
from ._order.drawn import parts

_Torch: Any = torch.utils.data.DataLoader

_PACKAGES = ("accelerate", "transformers")


def use_in(package: ModuleType | str) -> None:
    """Has accelerate make :class:`DataLoader` over the datasets that HDMLP serves.

    transformers' Trainer has accelerate make its loaders. The new loader gets what torch's would
    get, and HDMLP's own arguments (``epochs``, ``seed``, ``verify``, ``memory`` and so on, except
    ``name``) of the loader which it replaces. Loaders of other datasets remain torch's. It applies
    to the whole process; further calls change nothing. Lightning and Fabric need no such call.

    Args:
        package: ``accelerate`` or ``transformers``, as a module or by name.

    Raises:
        ConfigError: It is another package, or a release of accelerate which makes loaders in
            another way.
        ImportError: accelerate is not installed.
    """
    name = package if isinstance(package, str) else package.__name__
    if name not in _PACKAGES:
        raise ConfigError(
            f"use_in({name}): must be {' or '.join(_PACKAGES)}; Lightning and Fabric need no such "
            "call, and other code can make hdmlp.torch.DataLoader instead of torch's"
        )
    module: Any = importlib.import_module("accelerate.data_loader")
    if module.__dict__.get("DataLoader") is _made:
        return
    adapter = getattr(module, "DataLoaderAdapter", None)
    if module.__dict__.get("DataLoader") is not _Torch or adapter is None:
        version = importlib.import_module("accelerate").__version__
        raise ConfigError(
            f"use_in({name}): accelerate {version} makes loaders in a way that HDMLP does not "
            "know; known to work is 1.15"
        )
    module.DataLoader = _made
    adapter.__init__ = _stateful(adapter.__init__)


def _is_served(dataset: object) -> bool:
    """Reports whether our loader is to be made over a dataset.

    That is so for HDMLP's datasets, torchvision's folders and parts of them; if the daemon cannot
    serve one of these, our loader reports why.
    """
    found = Datasets().samples(dataset)
    return found.folder is not None or bool(found.why)


def _left(kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Returns the arguments that our loader has left with its sampler."""
    sampler = kwargs.get("batch_sampler")
    if sampler is None:
        sampler = kwargs.get("sampler")
    left = (getattr(part, "hdmlp_arguments", None) for _, part in parts(sampler))
    return dict(next((arguments for arguments in left if arguments is not None), {}))


def _made(dataset: object, *args: Any, **kwargs: Any) -> torch.utils.data.DataLoader[object]:
    """Takes the place of torch's class in accelerate."""
    own = _left(kwargs)
    if "files" not in own and not _is_served(dataset):
        return _Torch(dataset, *args, **kwargs)  # type: ignore[no-any-return]
    if own.pop("shard", False):
        raise ConfigError(
            "shard=True: accelerate gives each rank its batches of this loader itself; leave "
            "shard, rank and world_size out"
        )
    return DataLoader(dataset, *args, **{**own, **kwargs})


def _stateful(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps the constructor of accelerate's adapter.

    torchdata's loader is not needed where ours is made, which can be resumed as well.
    """

    @functools.wraps(init)
    def made(
        self: Any, dataset: object, use_stateful_dataloader: bool = False, **kwargs: Any
    ) -> None:
        init(
            self,
            dataset,
            use_stateful_dataloader=use_stateful_dataloader
            and "files" not in _left(kwargs)
            and not _is_served(dataset),
            **kwargs,
        )
        self.use_stateful_dataloader = use_stateful_dataloader

    return made
