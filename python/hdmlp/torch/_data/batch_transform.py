"""What a loader's ``batch_transform`` does with each batch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from types import FunctionType
from typing import Callable

from ..._transforms.generators import generators_kept, seed_generators
from ..._transforms.keys import batch_transform_key
from .mixing import fast, known, unpacks

log = logging.getLogger("hdmlp")


class BatchTransform:
    """Applies the user's transform to batches, in the process that iterates the loader.

    Args:
        transform: The transform.
        owned: Batches are HDMLP's own, and may be written to.

    Attributes:
        identity: Equal values do the same.
    """

    def __init__(self, transform: Callable[..., object], owned: bool):
        self._call, self._unpacks = fast(transform, owned), unpacks(transform)
        self.identity = id(transform), owned, self._call is transform

    def __call__(self, batch: object, seed: int, epoch: int, step: int, rank: int) -> object:
        """Returns what becomes of a batch.

        Args:
            batch: What the collate function returned.
            seed: The seed of the loader's random numbers.
            epoch: The epoch.
            step: The batch's number in the epoch.
            rank: The rank that gets it.
        """
        with generators_kept():
            seed_generators(batch_transform_key(seed, epoch, step, rank))
            if self._unpacks and isinstance(batch, (list, tuple)):
                return self._call(*batch)
            return self._call(batch)


def say_mixes(collate: object) -> None:
    """Logs that a collate function mixes batches, if it refers to what does so."""
    name = next((type(value).__name__ for value in _referred(collate) if known(value)), None)
    if name is not None:
        log.warning(
            "collate_fn runs %s in Python: batch_transform= does the same in fewer passes over "
            "memory; give it there, and leave collate_fn out",
            name,
        )


def _referred(function: object) -> Iterator[object]:
    """Yields what a function refers to by its closure and its globals, or an object by attributes.

    What a ``functools.partial`` is given counts as well.
    """
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
        function = function.func
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType):
        names = function.__code__.co_names
        yield from (function.__globals__[n] for n in names if n in function.__globals__)
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    else:
        yield from vars(function).values() if hasattr(function, "__dict__") else ()
