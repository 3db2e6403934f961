"""The seeds of worker processes themselves, beside those of each item."""

from __future__ import annotations

from .._lib.protocol import mix64
from .._transforms.keys import item_key

#: Keeps these apart from the keys of items.
_WORKERS = 0x576F726B65727321


def base_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Returns the base seed of an epoch's workers, as torch's loader draws it: 63 bits.

    Args:
        seed: The job's.
        epoch: The epoch.
        rank: The rank whose workers they are.
    """
    return mix64(item_key(seed, epoch, rank) ^ _WORKERS) >> 1
