"""A dataset's items, and batches of them, where the daemon does not make them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Callable

import torch

from ..._batches.segments import Segment
from ..._transforms.recipe import name_sample, position_key, seed_generators
from ...data import Folder
from .collation import default_stacks, is_default, stack_into, torchs_default
from .interfaces import Indexed


class Items:
    """How batches are made of a dataset's items; goes to worker processes by fork or by pickle.

    Args:
        dataset: Has ``__getitem__``, or ``__getitems__`` for a list of indices.
        collate: From a list of items to a batch, or from an item if not ``batched``.
        batched: The sampler yields lists of indices, and not indices.
        part: This rank, and the number of ranks that share the epochs: places in a batch count
            over all of them, so that ranks draw different random numbers.
    """

    def __init__(
        self,
        dataset: Indexed,
        collate: Callable[..., object],
        batched: bool,
        part: tuple[int, int] = (0, 1),
    ):
        self.dataset, self.collate, self.batched = dataset, collate, batched
        self._rank, self._world_size = part
        self._stacks = batched and is_default(collate) and default_stacks()

    def make(
        self, payload: bytes | bytearray, segments: Mapping[int, Segment], seed: int, place: Any
    ) -> object:
        """Makes the batch of a task, in a worker.

        See :meth:`hdmlp._transforms.recipe.Recipe.make`.
        """
        seed, epoch, step, indices = pickle.loads(payload)
        return self.batch(seed, epoch, step, indices, place)

    def batch(self, seed: int, epoch: int, step: int, indices: Any, place: Any) -> object:
        """Makes the batch of the indices.

        An exception of an item has its index as ``sample``.

        Args:
            seed: The seed of the items' random numbers.
            epoch: The batch's epoch.
            step: The batch's number in the epoch.
            indices: What the sampler yielded.
            place: Where the batch may be written.
        """
        if not self.batched:
            self._seed(seed, epoch, step, 0)
            return self.collate(self._item(indices))
        whole = getattr(self.dataset, "__getitems__", None)
        if whole is not None:
            self._seed(seed, epoch, step, 0)
            items = whole(indices)
        else:
            items = []
            for place_in_batch, index in enumerate(indices):
                self._seed(seed, epoch, step, place_in_batch)
                items.append(self._item(index))
        if self._stacks and items and all(type(item) is tuple and len(item) == 2 for item in items):
            return stack_into(items, place)
        return self.collate(items)

    def _seed(self, seed: int, epoch: int, step: int, place: int) -> None:
        place = place * self._world_size + self._rank
        seed_generators(position_key(seed, epoch, step, place))

    def _item(self, index: object) -> object:
        try:
            return self.dataset[index]
        except Exception as error:
            name_sample(error, index)
            raise


def length_of(dataset: Any) -> int | None:
    """Returns the number of a dataset's items; None: it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


class Encoded:
    """A folder's samples as their bytes, read from the files.

    Args:
        folder: The dataset.
        target_transform: Applied to class numbers; None: nothing is.
    """

    def __init__(self, folder: Folder, target_transform: Callable[[int], object] | None):
        self.folder, self.target_transform = folder, target_transform

    def __getitem__(self, index: int) -> object:
        data, label = Folder.__getitem__(self.folder, index)
        return data, label if self.target_transform is None else self.target_transform(label)


def encoded_batch(items: list[tuple[bytes, object]]) -> object:
    """Collates items of :class:`Encoded`: (list of read-only memoryviews, labels)."""
    labels = torch.empty(0, dtype=torch.int64)
    if items:
        labels = torchs_default()([label for _, label in items])
    return [memoryview(data) for data, _ in items], labels


class Labelled:
    """A folder's items, with the labels of ``labels="name"``.

    Args:
        folder: An :class:`ImageFolder`.
        target_transform: Applied to class numbers, in place of the folder's own.
    """

    def __init__(self, folder: Any, target_transform: Callable[[int], object] | None):
        self.folder, self.target_transform = folder, target_transform

    def __getitem__(self, index: int) -> object:
        data, label = Folder.__getitem__(self.folder, index)
        value = self.folder.loader(data)
        if self.folder.transform is not None:
            value = self.folder.transform(value)
        return value, label if self.target_transform is None else self.target_transform(label)
