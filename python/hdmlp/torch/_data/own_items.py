"""Items of datasets of the program's own, made while the daemon has their files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.utils.data

from ..._batches.fields import fields_of
from ..._batches.output import Output
from ..._batches.segments import Lease, Segment, of_class
from ..._batches.source import Taken, column
from ..._lib.protocol import BATCH_HEAD
from ..._records.copies import Copying
from ..._records.declared import Declared
from ..._records.file_dataset import FileDataset as PlainFileDataset
from ..._transforms.generators import seed_generators
from ..._transforms.keys import batch_key, place_key
from ..._transforms.recipe import Batch, Recipe, name_sample
from .collated import collate_records
from .collation import by_default, stack_into, torchs_default
from .interfaces import Room

Contents = Sequence["memoryview | None"]


class FileDataset(PlainFileDataset, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Base class of datasets whose items are made of the contents of files.

    A subclass has ``__len__`` and two methods::

        class Pairs(ht.FileDataset):
            def __init__(self, pairs):
                self.pairs = pairs

            def __len__(self):
                return len(self.pairs)

            def files_of(self, i):
                return self.pairs[i]  # the paths of an image and a mask

            def make(self, i, image, mask):
                return decode(image), decode(mask)

    ``dataset[i]`` reads the files itself, so that the class works with any loader. A loader of
    HDMLP asks ``files_of`` once for all items when it is made; then the daemon reads ahead and
    caches the files, and ``make`` runs in this process, or in workers.

    An item may be anything. A batch is what ``default_collate`` makes of items, except that bytes,
    and tensors of different shapes, are lists.
    """


class OwnItems(Recipe):
    """How items are made of records; goes to worker processes by fork or by pickle.

    Random numbers follow from an item's position, as those of other datasets of the program's own.

    Args:
        files: The files of the dataset's items.
        collate: From a list of items to a batch.
        stack: As for :class:`~hdmlp._transforms.recipe.Recipe`.
    """

    def __init__(
        self,
        files: Declared,
        collate: Callable[..., object],
        stack: Callable[..., object] | None,
    ):
        super().__init__(_unused, None, None, collate, stack)
        self.files, self.count = files, len(files.fields)

    def keys(
        self, payload: bytes | bytearray, batch: Batch, outputs: int
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Returns a batch's IDs, and the keys of their places; see :meth:`Recipe.keys`."""
        _, _, _, n, _, _ = BATCH_HEAD.unpack_from(payload)
        base, end = batch_key(*batch), self.rank + n * self.world_size
        places = range(self.rank, end, self.world_size)
        return column(payload, n, "ids", outputs), [place_key(base, place) for place in places]

    def read(
        self, payload: bytearray, segments: Mapping[int, Segment]
    ) -> tuple[Sequence[Contents], Sequence[int]]:
        """Returns the contents of a batch's files; see :meth:`Recipe.read`.

        Those in the staging buffer are copies, as its memory is used again after the batch.
        """
        _, _, _, n, m, _ = BATCH_HEAD.unpack_from(payload)
        unleased = Lease(b"", _keep)
        count = len(self.files.fields)
        views: list[list[memoryview | None]] = []
        for field in fields_of(payload, n, m, count):
            places = (column(field.payload, n, name) for name in ("segments", "offsets", "lengths"))
            missing = set(field.missing)
            found: list[memoryview | None] = []
            for i, (number, offset, length) in enumerate(zip(*places)):
                if i in missing:
                    found.append(None)
                    continue
                view = segments[number].view(unleased)[offset : offset + length]
                found.append(view if of_class(number) else memoryview(bytes(view)))
            views.append(found)
        return list(zip(*views)), [0] * n

    def taken(self, taken: Taken, outputs: Sequence[Output | None]) -> Sequence[Contents]:
        """Returns the contents of a batch's files; see :meth:`Recipe.taken`."""
        several = len(outputs) > 1 or self.files.leaves
        return list(zip(*(taken.content if several else [taken.content])))

    def told(self, outputs: Sequence[Output | None]) -> None:
        """Does nothing: files are delivered as they are."""

    def samples(
        self,
        views: Sequence[Contents],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
    ) -> list[object]:
        """Makes the batch's items; see :meth:`Recipe.samples`."""
        made: list[object] = []
        for contents, sample, key in zip(views, ids, keys):
            seed_generators(key)
            try:
                made.append(self.item(sample, contents))
            except Exception as error:
                name_sample(error, sample)
                raise
        return made

    def item(self, index: int, contents: Contents) -> object:
        """Makes an item of the contents of its files; None: there are none of one of them."""
        raise NotImplementedError


class MadeItems(OwnItems):
    """Items that a :class:`FileDataset` makes.

    Args:
        files: Its files.
        collate: The user's; None: :func:`collate_made`.
    """

    def __init__(self, files: Declared, collate: Callable[..., object] | None):
        super().__init__(files, collate or collate_made, None if collate else _stack_made)

    def item(self, index: int, contents: Contents) -> object:
        """Makes an item; see :class:`OwnItems`."""
        dataset = self.files.of
        assert isinstance(dataset, PlainFileDataset)
        return dataset.make(index, *(view for view in contents if view is not None))


class OpenedItems(OwnItems):
    """Items of any dataset, whose files are opened while it makes them.

    Args:
        copying: The copies of these files.
        collate: The user's; None: torch's default.
    """

    def __init__(self, copying: Copying, collate: Callable[..., object] | None):
        super().__init__(
            copying.files, collate or torchs_default(), None if collate else _stack_opened
        )
        self.copying = copying

    def samples(
        self,
        views: Sequence[Contents],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
    ) -> list[object]:
        """Makes the batch's items; see :meth:`Recipe.samples`."""
        self.copying.batch(ids)
        try:
            whole = getattr(self.files.of, "__getitems__", None)
            if whole is None or not ids:
                return super().samples(views, labels, ids, keys)
            seed_generators(keys[0])
            with self.copying.items(ids, views):
                return whole(list(ids))  # type: ignore[no-any-return]
        finally:
            self.copying.end()

    def item(self, index: int, contents: Contents) -> object:
        """Makes an item; see :class:`OwnItems`."""
        with self.copying.items([index], [contents]):
            return self.files.of[index]  # type: ignore[index]


def collate_made(items: Sequence[Any]) -> object:
    """Collates items as torch's default, but for what that cannot: see :class:`FileDataset`."""
    return collate_records(items) if items else []


def _stack_made(items: list[Any], place: Room) -> object:
    """Is :func:`collate_made`; tensors of one shape in pairs may be stacked where the place is."""
    if items and type(items[0]) is tuple and len(items[0]) == 2:
        value, label = items[0]
        if isinstance(value, torch.Tensor) and isinstance(label, (int, float, torch.Tensor)):
            with contextlib.suppress(TypeError, RuntimeError):  # other items, or other shapes
                return _stack_opened(items, place)
    return collate_made(items)


def _stack_opened(items: list[Any], place: Room) -> object:
    """Collates as torch's default; pairs, of which the first may be stacked where the place is."""
    if items and all(type(item) is tuple and len(item) == 2 for item in items):
        return stack_into(items, place)
    return by_default(items)


def _unused(value: object) -> object:
    return value


def _keep(_: object) -> None:
    """Returns no slots: the training process does."""
