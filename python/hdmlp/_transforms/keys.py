"""The keys of random numbers: 64-bit numbers that follow from where in a run something is made.

A key seeds the generators of torch, Python and numpy (:mod:`hdmlp._transforms.generators`).
docs/SEMANTICS.md specifies the keys; the daemon's are equal.
"""

from __future__ import annotations

from .._lib.protocol import mix64

#: The number of the scheme, which states contain. 0.2 had none.
SCHEME = 2

_MASK = 0xFFFFFFFFFFFFFFFF

#: Positions of what is no entry of a list of transforms: the program's own loader of each field,
#: which comes before them, and the transform of labels.
LOADER, TARGET = 1 << 32, (1 << 32) - 1

#: Keeps the keys of batches apart from those of samples.
_BATCHES = 0x4261746368657321


def item_key(seed: int, epoch: int, sample: int, occurrence: int = 0) -> int:
    """Returns the key of all random numbers of a sample in an epoch.

    Args:
        seed: The job's.
        epoch: The epoch.
        sample: The sample's ID.
        occurrence: How often the epoch has the sample before, without what padding repeats.
    """
    return mix64(mix64(mix64(mix64(seed & _MASK) ^ epoch) ^ sample) ^ occurrence)


def entry_key(item: int, position: int) -> int:
    """Returns the key of the random numbers of an entry of a list of transforms.

    Args:
        item: The sample's; see :func:`item_key`.
        position: The entry's, in the flattened list.
    """
    return mix64(item ^ position)


def collate_key(seed: int, epoch: int, step: int, rank: int) -> int:
    """Returns the key of what a ``collate_fn`` draws for a batch.

    Args:
        seed: The job's.
        epoch: The epoch.
        step: The batch's number in the epoch.
        rank: The rank whose batch it is.
    """
    return item_key(seed ^ _BATCHES, epoch, step, rank)


def batch_transform_key(seed: int, epoch: int, step: int, rank: int) -> int:
    """Returns the key of what a ``batch_transform`` draws; see :func:`collate_key`."""
    return entry_key(collate_key(seed, epoch, step, rank), 1)


def batch_key(seed: int, epoch: int, step: int) -> int:
    """Returns what the keys of a batch's items are made of, for datasets of the program's own."""
    return item_key(seed, epoch, step)


def place_key(batch: int, place: int) -> int:
    """Returns the key of the item at a place of a batch, over all ranks; see :func:`batch_key`."""
    return mix64((batch + place) & _MASK)
