"""Threads of a worker process that make the items of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from torch.utils.data import Subset

from ..._transforms.recipe import name_sample
from ..._transforms.touching import Touching
from .interfaces import Indexed


def makes_batches(dataset: object) -> bool:
    """Reports whether a dataset makes whole batches itself, and not only item by item.

    torch's ``Subset`` has ``__getitems__`` for the dataset that it is of.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


class Threads:
    """Threads that make items at the same time; goes to worker processes by fork or by pickle.

    They start with the first batch. Python runs one of them at a time, so they help where items
    wait for a disk or a network, or are made by libraries that release its lock, as decoders do.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int):
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_count": self._count, "_pool": None}

    def items(self, dataset: Indexed, indices: Sequence[object], touching: Touching) -> list[Any]:
        """Returns the items of these indices, in their order, after all have been made.

        An exception of the first item that failed has its index as ``sample``.

        Args:
            dataset: Makes them.
            indices: Which.
            touching: Notes the generators that they call.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, "hdmlp-items")
        with touching.noting():
            made: list[Future[Any]] = [
                self._pool.submit(_item, dataset, index, touching) for index in indices
            ]
            wait(made)  # none may draw, or write, once the batch counts as made
        return [item.result() for item in made]


def _item(dataset: Indexed, index: object, touching: Touching) -> Any:
    try:
        with touching.profiled():
            return dataset[index]
    except Exception as error:
        name_sample(error, index)
        raise
