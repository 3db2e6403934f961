"""From a sample's bytes to what the model gets: decode, transform, collate.

Transforms draw their random numbers from the global generators of torch, Python and numpy. These
are seeded before each of them, with a key made of the job's seed, the epoch, the sample's ID and
occurrence, and the transform's position, so that the result is the same in this process, in any
number of workers, and wherever the list is split between Python and the daemon.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable, NamedTuple, TypeVar

from .._batches.fields import fields_of
from .._batches.output import Handed, Keyed, Output, grouped, places_of
from .._batches.segments import Lease, Segment
from .._batches.source import Left, LeftBytes, Taken, column, left_in
from .._lib.interrupts import interrupts
from .._lib.protocol import BATCH_HEAD
from .entries import Entries
from .generators import seed_generators
from .keys import LOADER, TARGET, collate_key, entry_key, item_key
from .rows import Row, Rows

#: How PIL names a file that it was given as bytes: an address.
FILE_OBJECT = re.compile(" <_io.BytesIO object at 0x[0-9a-f]+>")


class Undecodable(Exception):
    """HDMLP's own decoder, and not the user's code, cannot decode a sample.

    The message is the decoder's.

    Attributes:
        sample: The sample's ID.
    """

    sample: int


def name_sample(error: Exception, sample: object) -> None:
    """Sets ``sample`` on an exception of the user's code, if it takes attributes."""
    with suppress(AttributeError):
        error.sample = sample  # type: ignore[attr-defined]


_Recipe = TypeVar("_Recipe", bound="Recipe")


class Batch(NamedTuple):
    """Which batch it is.

    Attributes:
        seed: The job's.
        epoch: The epoch.
        step: The batch's number in the epoch.
    """

    seed: int
    epoch: int
    step: int


class Recipe:
    """How samples are made; goes to worker processes by fork or by pickle.

    Args:
        loader: From a sample's bytes, a read-only memoryview, to an object such as an image.
        transform: Applied to that object; None: nothing is.
        target_transform: Applied to the label; None: nothing is.
        collate: From a list of (object, label) to a batch.
        stack: A faster ``collate`` which is called with (batch, place) and writes where the place
            says, and draws no random numbers; see :func:`hdmlp.torch.stack_into`. None: there is
            none.
        decodes: ``loader`` is HDMLP's own, so where it fails the file is the reason
            (:class:`Undecodable`). One that is a :class:`Keyed` gets the sample's key as well.
        in_rows: ``stack`` takes a :class:`~hdmlp._transforms.rows.Rows` as the place, in which
            samples lie already.

    Attributes:
        rank: The rank whose batches it makes.
        world_size: The number of ranks which share epochs.
    """

    def __init__(
        self,
        loader: Callable[..., object],
        transform: Entries | None,
        target_transform: Callable[..., object] | None,
        collate: Callable[..., object],
        stack: Callable[..., object] | None = None,
        decodes: bool = False,
        in_rows: bool = False,
    ):
        self.loader = loader
        self.decodes = decodes
        self.transform = transform
        self.target_transform = target_transform
        self.collate = collate
        self.stack = stack
        self.in_rows = in_rows and transform is not None and transform.stacked
        self.rank, self.world_size = 0, 1

    def placed(self: _Recipe, rank: int, world_size: int) -> _Recipe:
        """Returns the same for one of the ranks which share epochs."""
        made = copy.copy(self)
        made.rank, made.world_size = rank, world_size
        return made

    def make(
        self, payload: bytearray, segments: Mapping[int, Segment], seed: int, place: object
    ) -> object:
        """Makes the batch which a BATCH payload describes, in a worker.

        Args:
            payload: As the daemon sent it.
            segments: The shared memory in which samples are, by number.
            seed: The job's.
            place: Where the batch may be written.
        """
        _, epoch, step, _, _, _ = BATCH_HEAD.unpack_from(payload)
        batch = Batch(seed, epoch, step)
        views, labels = self.read(payload, segments)
        ids, keys = self.keys(payload, batch, self.count)
        return self.batch(views, labels, ids, keys, batch, place)

    def batch(
        self,
        views: Sequence[Any],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
        batch: Batch,
        place: object,
    ) -> object:
        """Makes a batch of samples; see :meth:`samples` and :meth:`collated`."""
        if not self.in_rows:
            return self.collated(self.samples(views, labels, ids, keys), batch, place)
        rows = Rows(place, len(views))
        return self.collated(self._samples(views, labels, ids, keys, rows), batch, rows)

    def collated(self, made: list[object], batch: Batch, place: object) -> object:
        """Collates what :meth:`samples` returned.

        Args:
            made: That.
            batch: Which batch it is.
            place: Where it may be written.
        """
        if self.stack is not None:
            return self.stack(made, place)
        seed_generators(collate_key(*batch, self.rank))
        return self.collate(made)

    def read(
        self, payload: bytearray, segments: Mapping[int, Segment]
    ) -> tuple[Sequence[object], Sequence[int]]:
        """Returns the samples of a BATCH payload, in a worker: their views and labels.

        Args:
            payload: As the daemon sent it.
            segments: The shared memory in which samples are, by number.
        """
        [views] = self.fields(payload, segments)
        return views, column(payload, len(views), "labels")

    def fields(self, payload: bytearray, segments: Mapping[int, Segment]) -> list[Sequence[object]]:
        """Returns for each field the samples of a BATCH payload, in a worker; None: one has none.

        Args:
            payload: As the daemon sent it.
            segments: The shared memory in which samples are, by number.
        """
        _, _, _, n, m, _ = BATCH_HEAD.unpack_from(payload)
        if self.count == 1 and not _has_views(self.outputs[0]):
            return [views_in(payload, n, segments, left_in(payload, n, m))]
        columns = []
        for field in fields_of(payload, n, m, self.count):
            found = views_in(field.payload, n, segments, field.left)
            for place in field.missing:
                found[place] = None
            columns.append(found)
        return [
            _samples(found) if _has_views(output) else found
            for output, found in zip(self.outputs, grouped(self.outputs, columns))
        ]

    #: What the daemon delivers of each field; None: the field as it is.
    outputs: Sequence[Output | None] = (None,)
    #: Of how many fields, and views of them, the daemon's BATCH payloads have the places.
    count = 1

    def keys(
        self, payload: bytes | bytearray, batch: Batch, outputs: int
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Returns the IDs of a batch's samples, and the keys of their random numbers.

        Args:
            payload: The BATCH payload.
            batch: Which batch it is.
            outputs: Of how many fields the payload has the places.
        """
        _, _, _, n, _, _ = BATCH_HEAD.unpack_from(payload)
        return keys_in(payload, n, batch, outputs)

    def taken(self, taken: Taken, outputs: Sequence[Output | None]) -> Sequence[object]:
        """Returns the views of a batch's samples, in the process that has taken it.

        Args:
            taken: The batch.
            outputs: What the daemon delivers of each field.
        """
        views = taken.content if outputs[0] is None else outputs[0].split(taken.content, taken.n)
        for place, data in taken.left.items():
            views[place] = data
        return views

    def told(self, outputs: Sequence[Output | None]) -> None:
        """Takes what the daemon delivers of each field, once the job is open."""
        self.outputs = list(outputs)
        self.count = sum(map(places_of, outputs))
        if isinstance(self.loader, Handed):
            self.loader.output = outputs[0]

    def samples(
        self, views: Sequence[Any], labels: Sequence[int], ids: Sequence[int], keys: Sequence[int]
    ) -> list[object]:
        """Makes the batch's (object, label) pairs.

        An exception of the loader or a transform has the sample's ID as ``sample``.

        Args:
            views: The samples' bytes, or what the daemon made of them.
            labels: Their class numbers.
            ids: Their IDs.
            keys: The keys of their random numbers.

        Raises:
            Undecodable: See ``decodes``.
        """
        return self._samples(views, labels, ids, keys, None)

    def _samples(
        self,
        views: Sequence[Any],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
        rows: Rows | None,
    ) -> list[object]:
        transform, target_transform = self.transform, self.target_transform
        made: list[object] = []
        label: object
        for number, (view, label, sample, key) in enumerate(zip(views, labels, ids, keys)):
            try:
                value = self._loaded(view, key)
                if transform is not None:
                    row = None if rows is None else Row(rows, number)
                    value = transform(value, key, row)
                if target_transform is not None:
                    seed_generators(entry_key(key, TARGET))
                    label = target_transform(label)
            except Exception as error:
                name_sample(error, sample)
                raise
            made.append((value, label))
        return made

    def _loaded(self, view: memoryview | LeftBytes, key: int) -> object:
        if self.decodes:
            return decoded(self.loader, view, key)
        seed_generators(entry_key(key, LOADER))
        return self.loader(view)

    def note(self) -> str:
        """Returns what workers have to say: nothing."""
        return ""

    def noted(self, note: str) -> None:
        """Takes nothing."""

    def left(self, data: LeftBytes, sample: int, key: int) -> object:
        """Makes a sample that the daemon leaves to Python.

        Args:
            data: The file's bytes.
            sample: Its ID.
            key: The key of its random numbers.

        Raises:
            Undecodable: See ``decodes``.
        """
        made: Any = self.samples([data], [0], [sample], [key])
        return made[0][0]


def _has_views(output: Output | None) -> bool:
    return output is not None and len(output.views) > 0


def _samples(columns: Sequence[Sequence[object]]) -> list[object]:
    """Returns the samples of which there are several views; one that was left is its bytes."""
    return [views[0] if isinstance(views[0], LeftBytes) else views for views in zip(*columns)]


def decoded(loader: Callable[..., object], view: memoryview | LeftBytes, key: int | None) -> object:
    """Returns what one of HDMLP's own decoders makes of a file.

    Args:
        loader: The decoder.
        view: The file's bytes, or what the daemon made of them.
        key: The key of the sample's random numbers, which a :class:`Keyed` gets.

    Raises:
        Undecodable: It fails.
    """
    try:
        return loader(view, key) if isinstance(loader, Keyed) else loader(view)
    except (MemoryError, ImportError):  # not due to the file
        raise
    except Exception as error:
        if interrupts(error):
            raise
        # PIL's messages contain the address of its file object.
        raise Undecodable(f"{type(error).__name__}: {FILE_OBJECT.sub('', str(error))}") from error


def keys_in(
    payload: bytes | bytearray, n: int, batch: Batch, outputs: int = 1
) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the IDs of a batch's samples, and the keys of their random numbers.

    Args:
        payload: The BATCH payload.
        n: The number of samples.
        batch: Which batch it is.
        outputs: Of how many fields the payload has the places.
    """
    ids = column(payload, n, "ids", outputs)
    occurrences = column(payload, n, "occurrences", outputs)
    seed, epoch, _ = batch
    return ids, [item_key(seed, epoch, id, o) for id, o in zip(ids, occurrences)]


def views_in(
    payload: bytearray, n: int, segments: Mapping[int, Segment], left: Iterable[Left]
) -> list[Any]:
    """Returns the samples of a BATCH payload of one output, in a worker.

    Args:
        payload: The payload.
        n: The number of samples.
        segments: The shared memory in which samples are, by number.
        left: Which samples the daemon leaves to Python.
    """
    unleased = Lease(b"", _keep)  # the training process returns the slots
    views: list[memoryview | LeftBytes] = [
        segments[s].view(unleased)[o : o + length]
        for s, o, length in zip(
            column(payload, n, "segments"),
            column(payload, n, "offsets"),
            column(payload, n, "lengths"),
        )
    ]
    for position, number, offset, length, _ in left:
        view = segments[number].view(unleased)
        views[position] = LeftBytes(view[offset : offset + length])
    return views


class Unchanged(Recipe):
    """Gives samples as they are to the user's collate function.

    Args:
        target_transform: As for :class:`Recipe`.
        collate: The same.
    """

    def __init__(
        self,
        target_transform: Callable[..., object] | None,
        collate: Callable[..., object],
    ):
        super().__init__(_as_it_is, None, target_transform, collate, decodes=True)

    def samples(
        self,
        views: Sequence[object],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
    ) -> list[object]:
        """Makes pairs; see :meth:`Recipe.samples`."""
        if self.target_transform is not None:
            return super().samples(views, labels, ids, keys)
        return list(zip(views, labels))


def _as_it_is(value: object) -> object:
    return value


def _keep(_: object) -> None:
    """Returns no slots."""


class Composed:
    """Callables which are applied one after the other.

    Args:
        steps: The callables.
    """

    def __init__(self, steps: Sequence[Callable[..., object]]):
        self.steps = list(steps)

    def __call__(self, value: object) -> object:
        for step in self.steps:
            value = step(value)
        return value

    def __repr__(self) -> str:
        return f"Composed({self.steps!r})"
