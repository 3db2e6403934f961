"""A dataset's items, and what batches are made of them, where the daemon does not make them."""

from __future__ import annotations

import pickle
from typing import Any, Callable

import torch

from .._recipe import position_key, seed_generators
from ..data import Folder
from ._batch import default_collate, stack_into


class Items:
    """How batches are made of a dataset's items; goes to worker processes by fork or by pickle.

    Args:
        dataset: with ``__getitem__``, or with ``__getitems__`` for a list of indices.
        collate: from a list of items to a batch, or, where ``batched`` is False, from an item.
        batched: what the sampler yields is a list of indices, and not an index.
    """

    def __init__(self, dataset: Any, collate: Callable, batched: bool):
        self.dataset, self.collate, self.batched = dataset, collate, batched

    def make(
        self, payload: bytes | bytearray, segments: dict[int, Any], seed: int, place: Any
    ) -> Any:
        """The batch of a task, in a worker; see :meth:`Recipe.make`."""
        return self.batch(*pickle.loads(payload), place)

    def batch(self, seed: int, epoch: int, step: int, indices: Any, place: Any) -> Any:
        """The batch of the indices. An exception of an item carries its index as ``sample``."""
        if not self.batched:
            seed_generators(position_key(seed, epoch, step, 0))
            return self.collate(self._item(indices))
        whole = getattr(self.dataset, "__getitems__", None)
        if whole is not None:
            seed_generators(position_key(seed, epoch, step, 0))
            items = whole(indices)
        else:
            items = []
            for place_in_batch, index in enumerate(indices):
                seed_generators(position_key(seed, epoch, step, place_in_batch))
                items.append(self._item(index))
        if (
            self.collate is default_collate
            and items
            and all(type(item) is tuple and len(item) == 2 for item in items)
        ):
            return stack_into(items, place)
        return self.collate(items)

    def _item(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            try:
                error.sample = index
            except AttributeError:
                pass
            raise


def length_of(dataset: Any) -> int | None:
    """How many items a dataset has; None: it does not say."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


class Encoded:
    """A folder's samples as their bytes, read from the files.

    Args:
        folder: the dataset.
        target_transform: applied to class numbers; None: nothing.
    """

    def __init__(self, folder: Folder, target_transform: Callable | None):
        self.folder, self.target_transform = folder, target_transform

    def __getitem__(self, index: int) -> Any:
        data, label = Folder.__getitem__(self.folder, index)
        return data, label if self.target_transform is None else self.target_transform(label)


def encoded_batch(items: list[Any]) -> Any:
    """(list of read-only memoryviews, labels) of items of :class:`Encoded`."""
    return [memoryview(data) for data, _ in items], default_collate(
        [label for _, label in items]
    ) if items else torch.empty(0, dtype=torch.int64)


class Labelled:
    """A folder's items, with what ``labels="name"`` makes of their labels.

    Args:
        folder: an ImageFolder.
        target_transform: applied to class numbers, in place of the folder's own.
    """

    def __init__(self, folder: Any, target_transform: Callable):
        self.folder, self.target_transform = folder, target_transform

    def __getitem__(self, index: int) -> Any:
        data, label = Folder.__getitem__(self.folder, index)
        value = self.folder.loader(data)
        return value if self.folder.transform is None else self.folder.transform(
            value
        ), self.target_transform(label)
