"""The random numbers of a loader, for code that runs its transforms by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._lib.arguments import seed_of, whole_number
from ..errors import ConfigError
from .generators import generators_kept, seed_generators
from .keys import batch_transform_key, entry_key, item_key


def item_seed(seed: int, epoch: int, index: int, occurrence: int = 0, position: int = 0) -> int:
    """Returns the key from which a loader's random numbers for a transform of a sample follow.

    torch draws them after ``torch.manual_seed(key)``, Python after ``random.seed(key)``, and numpy
    after ``numpy.random.seed(key >> 32)``: :func:`seeded` does all three.

    Args:
        seed: The loader's; ``loader.seed`` if none was given.
        epoch: The epoch, from 0.
        index: The sample's index in the dataset; of a ``Subset``, in the dataset below it.
        occurrence: How often the epoch has the sample before, as a subset or a sampler repeats it.
            Where each rank's sampler draws an order of its own, occurrence k of rank r among n is
            k * n + r. Default: 0.
        position: The transform's position in the list, with lists in it flattened. (An
            ``ImgDecode`` does not count.) Of records of
            several fields, positions go on from one field's list to the next one's. Default: 0.

    Returns:
        64 bits.

    Raises:
        ConfigError: An argument is not a whole number of at least 0.
    """
    _check(seed, epoch=epoch, index=index, occurrence=occurrence, position=position)
    return entry_key(item_key(seed, epoch, index, occurrence), position)


def _check(seed: int, **numbers: int) -> None:
    if seed_of(seed) is None:
        raise ConfigError("seed=None: give the loader's seed, which loader.seed is")
    for name, value in numbers.items():
        whole_number(name, value, 0)


@contextmanager
def seeded(
    seed: int, epoch: int, index: int, occurrence: int = 0, position: int = 0
) -> Iterator[int]:
    """Has a transform draw what it draws for a sample in a loader's epoch.

    Within a ``with`` block the generators of torch, Python and numpy are those of that transform;
    afterwards they are as before. So this makes the tensor that the loader yields::

        image = PIL.Image.open(path).convert("RGB")
        for position, transform in enumerate(dataset.transform.transforms):
            with ht.seeded(42, epoch=3, index=17, position=position):
                image = transform(image)

    Args:
        seed: As for :func:`item_seed`, and so are the others.
        epoch: See there.
        index: See there.
        occurrence: See there. Default: 0.
        position: See there. Default: 0.

    Yields:
        The key.

    Raises:
        ConfigError: As :func:`item_seed`.
    """
    key = item_seed(seed, epoch, index, occurrence, position)
    with generators_kept():
        seed_generators(key)
        yield key


def batch_seed(seed: int, epoch: int, step: int, rank: int = 0) -> int:
    """Returns the key from which the random numbers of a loader's ``batch_transform`` follow.

    They follow from it as from :func:`item_seed`.

    Args:
        seed: The loader's; ``loader.seed`` if none was given.
        epoch: The epoch, from 0.
        step: The batch's number in the epoch, from 0.
        rank: The rank that gets the batch. Default: 0.

    Returns:
        64 bits.

    Raises:
        ConfigError: An argument is not a whole number of at least 0.
    """
    _check(seed, epoch=epoch, step=step, rank=rank)
    return batch_transform_key(seed, epoch, step, rank)


@contextmanager
def seeded_batch(seed: int, epoch: int, step: int, rank: int = 0) -> Iterator[int]:
    """Has a ``batch_transform`` draw what it draws for a batch of a loader's epoch.

    As :func:`seeded`, for what is done with whole batches::

        images, labels = torch.utils.data.default_collate([dataset[i] for i in indices])
        with ht.seeded_batch(42, epoch=3, step=5):
            images, labels = v2.MixUp(num_classes=1000)(images, labels)

    Args:
        seed: As for :func:`batch_seed`, and so are the others.
        epoch: See there.
        step: See there.
        rank: See there. Default: 0.

    Yields:
        The key.

    Raises:
        ConfigError: As :func:`batch_seed`.
    """
    key = batch_seed(seed, epoch, step, rank)
    with generators_kept():
        seed_generators(key)
        yield key
