"""A dataset's items, and batches of them, where the daemon does not make them."""

from __future__ import annotations

import functools
import logging
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Callable

import torch

from ..._batches.segments import Segment
from ..._transforms.recipe import name_sample
from ..._transforms.reseeding import LOOKED_AT, At, Reseeding, Seed
from ...data import Folder
from .collation import are_pairs, by_default, default_stacks, is_default, stack_into, torchs_default
from .interfaces import Indexed, Room
from .threads import Threads

log = logging.getLogger("hdmlp")

#: Begins a note that names the generators from which items draw.
_DRAWS = "draws: "


class Items:
    """How batches are made of a dataset's items; goes to worker processes by fork or by pickle.

    Args:
        dataset: Has ``__getitem__``, or ``__getitems__`` for a list of indices.
        collate: From a list of items to a batch, or from an item if not ``batched``.
        batched: The sampler yields lists of indices, and not indices.
        part: This rank, and the number of ranks that share the epochs: places in a batch count
            over all of them, so that ranks draw different random numbers.
        every: All of the global generators are seeded for each item, whether it uses them or not.
        threads: How many make a batch's items at a time, if the items draw from no generator.
    """

    def __init__(
        self,
        dataset: Indexed,
        collate: Callable[..., object],
        batched: bool,
        part: tuple[int, int] = (0, 1),
        every: bool = False,
        threads: int = 1,
    ):
        defaults = batched and is_default(collate)
        self.dataset, self.batched = dataset, batched
        self.collate = by_default if defaults else collate
        self._rank, self._world_size = part
        self._stacks = defaults and default_stacks()
        self._reseeding = Reseeding(every)
        self._said_late = False
        self._threads = Threads(threads) if threads > 1 else None
        self._told_draws = False

    def make(
        self, payload: bytes | bytearray, segments: Mapping[int, Segment], seed: int, place: Room
    ) -> object:
        """Makes the batch of a task, in a worker.

        See :meth:`hdmlp._transforms.recipe.Recipe.make`.
        """
        if self._threads is not None:
            self._reseeding.touching.attach()
        seed, epoch, step, indices = pickle.loads(payload)
        return self.batch(seed, epoch, step, indices, place)

    def batch(
        self, seed: int, epoch: int, step: int, indices: Any, place: Room, keep: bool = False
    ) -> object:
        """Makes the batch of the indices.

        An exception of an item has its index as ``sample``.

        Args:
            seed: The seed of the items' random numbers.
            epoch: The batch's epoch.
            step: The batch's number in the epoch.
            indices: What the sampler yielded.
            place: Where the batch may be written.
            keep: Restore the process's generators afterwards.
        """
        make = functools.partial(self._batch, indices, place)
        count = _count(indices) if self.batched else 1
        places = range(self._rank, self._rank + count * self._world_size, self._world_size)
        return self._reseeding.make(At(seed, epoch, step, places), make, keep)

    def _batch(self, indices: Any, place: Room, seed: Seed) -> object:
        if not self.batched:
            (item,) = self._items([indices], seed)
            return self.collate(item)
        whole = getattr(self.dataset, "__getitems__", None)
        if whole is None or (self._threads is not None and seed is None):
            items = self._items(indices, seed)
        else:
            if seed is not None:
                seed()
            items = whole(indices)
        if self._stacks and are_pairs(items):
            place.give_up()  # what was made of these items before
            return stack_into(items, place)
        return self.collate(items)

    def _items(self, indices: Iterable[object], seed: Seed) -> list[Any]:
        if self._threads is not None and seed is None:
            return self._threads.items(self.dataset, list(indices), self._reseeding.touching)
        dataset, made = self.dataset, []
        index = None
        try:
            for index in indices:
                if seed is not None:
                    seed()
                if self._threads is None:
                    made.append(dataset[index])
                    continue
                with self._reseeding.touching.noting():
                    made.append(dataset[index])
        except Exception as error:
            name_sample(error, index)
            raise
        return made

    def note(self) -> str:
        """Returns what making items has revealed of their random numbers, once; empty: nothing."""
        late, self._reseeding.late = self._reseeding.late, ""
        if late:
            self._told_draws = True
            return late
        draws = self._reseeding.draws if self._threads is not None else ""
        if not draws or self._told_draws:
            return ""
        self._told_draws = True
        return _DRAWS + draws

    def noted(self, late: str) -> None:
        """Has all generators seeded for each item from now on, if need be, and says so once.

        Args:
            late: What :meth:`note` returned, here or in a worker.
        """
        if late.startswith(_DRAWS):
            if not self._told_draws:
                self._told_draws = True
                log.warning(
                    "worker_threads has no effect: items of the %s draw from the generator of %s, "
                    "of which a process has one for all threads, so each worker makes one item at "
                    "a time; give more num_workers, or draw in batch_transform or collate_fn",
                    type(self.dataset).__name__,
                    late[len(_DRAWS) :],
                )
            return
        if self._said_late:
            return
        self._said_late = self._told_draws = self._reseeding.every = True
        log.warning(
            "%s: items began to draw from the generator of %s after the first %d of their epoch "
            "in a process had not, and so it had not been seeded: that batch was made again, and "
            "all generators are seeded for each item from now on%s; give reseed='all' to do so "
            "from the start, which matters if making an item has other effects",
            type(self.dataset).__name__,
            late,
            LOOKED_AT,
            "" if self._threads is None else ", and worker_threads has no effect any more",
        )


def _count(indices: Any) -> int:
    """Returns the number of a batch's indices, of whatever type a sampler yields."""
    return len(indices) if hasattr(indices, "__len__") else sum(1 for _ in indices)


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
