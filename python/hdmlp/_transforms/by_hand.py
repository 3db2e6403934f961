"""The random numbers of a loader's samples, for code that runs the transforms by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._lib.arguments import seed_of, whole_number
from ..errors import ConfigError
from .generators import generators_kept, seed_generators
from .keys import entry_key, item_key


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
    if seed_of(seed) is None:
        raise ConfigError("seed=None: give the loader's seed, which loader.seed is")
    given = {"epoch": epoch, "index": index, "occurrence": occurrence, "position": position}
    for name, value in given.items():
        whole_number(name, value, 0)
    return entry_key(item_key(seed, epoch, index, occurrence), position)


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
