"""What the daemon does with a loader's samples, for ``hdmlp analyze``."""

from __future__ import annotations

from typing import Any

import torch.utils.data

from ..data import described
from ..errors import HDMLPError
from ._data.datasets import Datasets
from ._data.making import making
from ._engine.content import users_collate


def transforms_of(
    loader: torch.utils.data.DataLoader[object],
) -> tuple[list[dict[str, Any]] | None, str]:
    """Returns what the daemon does, or would do, with the samples of any of torch's loaders.

    Args:
        loader: The loader.

    Returns:
        The transforms as the daemon takes them; None: it does nothing with the samples. And why
        it cannot do everything; empty if it can.
    """
    try:
        found = Datasets().samples(loader.dataset)
        if found.folder is None:
            return None, found.why or "the daemon does not serve this dataset"
        batched = loader.batch_sampler is not None
        arguments = getattr(loader, "_arguments", None)
        made = making(
            found.folder,
            getattr(arguments, "raw", None),
            "index",
            users_collate(loader.collate_fn, batched),
            getattr(arguments, "offload", True),
            say=False,
        )
    except HDMLPError as error:
        return None, str(error)
    left = "" if made.recipe is None else "part of the preparation runs in Python"
    transforms = described(made.transforms)
    if isinstance(transforms, dict):
        return None, "samples have several fields, whose preparation the analysis does not measure"
    return transforms, left
