"""From a sample's bytes to what the model gets: decode, transform, collate.

Transforms draw their random numbers from the global generators of torch, Python and numpy. Each
sample seeds these with a key made of the job's seed, the epoch and its ID, so that the result is
the same in this process and in any number of workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable

from .._batches.output import Handed, Output
from .._batches.segments import Lease, Segment
from .._batches.source import Left, LeftBytes, Taken, column, left_in
from .._lib.interrupts import interrupts
from .._lib.protocol import BATCH_HEAD, mix64
from .generators import seed_generators

_MASK = 0xFFFFFFFFFFFFFFFF

#: What PIL says of a file that it was given as bytes: an address.
FILE_OBJECT = re.compile(" <_io.BytesIO object at 0x[0-9a-f]+>")


def sample_key(seed: int, epoch: int, sample: int) -> int:
    """Returns the 64-bit key of a sample's random numbers in an epoch."""
    return mix64((mix64(seed & _MASK) + mix64(epoch << 32 | sample)) & _MASK)


def batch_key(seed: int, epoch: int, step: int) -> int:
    """Returns what the keys of a batch's items are made of, if samples may come several times."""
    return mix64(sample_key(seed, epoch, step))


def place_key(batch: int, place: int) -> int:
    """Returns the key of the item at a place of a batch, instead of that of its ID."""
    return mix64((batch + place) & _MASK)


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


class Recipe:
    """How samples are made; goes to worker processes by fork or by pickle.

    Args:
        loader: From a sample's bytes, a read-only memoryview, to an object such as an image.
        transform: Applied to that object; None: nothing is.
        target_transform: Applied to the label; None: nothing is.
        collate: From a list of (object, label) to a batch.
        stack: A faster ``collate`` which is called with (batch, place) and writes where the place
            says; see :func:`hdmlp.torch.stack_into`. None: there is none.
        decodes: ``loader`` is HDMLP's own, so where it fails the file is the reason
            (:class:`Undecodable`).
    """

    def __init__(
        self,
        loader: Callable[..., object],
        transform: Callable[..., object] | None,
        target_transform: Callable[..., object] | None,
        collate: Callable[..., object],
        stack: Callable[..., object] | None = None,
        decodes: bool = False,
    ):
        self.loader = loader
        self.decodes = decodes
        self.transform = transform
        self.target_transform = target_transform
        self.collate = collate
        self.stack = stack

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
        epoch = BATCH_HEAD.unpack_from(payload)[1]
        batch = self.samples(*self.read(payload, segments), seed, epoch)
        return self.collate(batch) if self.stack is None else self.stack(batch, place)

    def read(
        self, payload: bytearray, segments: Mapping[int, Segment]
    ) -> tuple[Sequence[object], Sequence[int], Sequence[int]]:
        """Returns the samples of a BATCH payload, in a worker: their views, labels and IDs.

        Args:
            payload: As the daemon sent it.
            segments: The shared memory in which samples are, by number.
        """
        _, _, _, n, m, _ = BATCH_HEAD.unpack_from(payload)
        views = views_in(payload, n, segments, left_in(payload, n, m))
        return views, column(payload, n, "labels"), column(payload, n, "ids")

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
        if isinstance(self.loader, Handed):
            self.loader.output = outputs[0]

    def seed_of(self, seed: int, step: int) -> int:
        """Returns what takes the place of the job's seed in :meth:`samples` for a step's batch."""
        return seed

    def samples(
        self,
        views: Sequence[Any],
        labels: Sequence[int],
        ids: Sequence[int],
        seed: int,
        epoch: int,
    ) -> list[object]:
        """Makes the batch's (object, label) pairs.

        An exception of the loader or a transform has the sample's ID as ``sample``.

        Args:
            views: The samples' bytes, or what the daemon made of them.
            labels: Their class numbers.
            ids: Their IDs.
            seed: The job's.
            epoch: The batch's.

        Raises:
            Undecodable: See ``decodes``.
        """
        loader = self._decoded if self.decodes else self.loader
        transform, target_transform = self.transform, self.target_transform
        made: list[object] = []
        label: object
        for view, label, sample in zip(views, labels, ids):
            seed_generators(sample_key(seed, epoch, sample))
            try:
                value = loader(view)
                if transform is not None:
                    value = transform(value)
                if target_transform is not None:
                    label = target_transform(label)
            except Exception as error:
                name_sample(error, sample)
                raise
            made.append((value, label))
        return made

    def note(self) -> str:
        """Returns what workers have to say: nothing."""
        return ""

    def noted(self, note: str) -> None:
        """Takes nothing."""

    def left(self, data: LeftBytes, place: int, sample: int, seed: int, taken: Taken) -> object:
        """Makes a sample that the daemon leaves to Python; the arguments are its own.

        Args:
            data: The file's bytes.
            place: The sample's place in its batch.
            sample: Its ID.
            seed: The job's.
            taken: The batch.

        Raises:
            Undecodable: See ``decodes``.
        """
        return first_of(self.samples([data], [0], [sample], seed, taken.epoch))

    def _decoded(self, view: memoryview | LeftBytes) -> object:
        return decoded(self.loader, view)


def decoded(loader: Callable[..., object], view: memoryview | LeftBytes) -> object:
    """Returns what one of HDMLP's own decoders makes of a file.

    Raises:
        Undecodable: It fails.
    """
    try:
        return loader(view)
    except (MemoryError, ImportError):  # not due to the file
        raise
    except Exception as error:
        if interrupts(error):
            raise
        # PIL's messages contain the address of its file object.
        raise Undecodable(f"{type(error).__name__}: {FILE_OBJECT.sub('', str(error))}") from error


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
    for position, number, offset, length in left:
        view = segments[number].view(unleased)
        views[position] = LeftBytes(view[offset : offset + length])
    return views


def first_of(made: Sequence[object]) -> object:
    """Returns the object of the first of (object, label) pairs."""
    value: object = made[0][0]  # type: ignore[index]
    return value


class Unchanged(Recipe):
    """Gives samples as they are to the user's collate function.

    Only that can draw random numbers, so they are seeded once for a batch, with the key of its last
    sample, as after the samples of any recipe.

    Args:
        target_transform: As for :class:`Recipe`.
        collate: The same.
    """

    def __init__(
        self,
        target_transform: Callable[..., object] | None,
        collate: Callable[..., object],
    ):
        super().__init__(_as_it_is, None, target_transform, collate)

    def samples(
        self,
        views: Sequence[object],
        labels: Sequence[int],
        ids: Sequence[int],
        seed: int,
        epoch: int,
    ) -> list[object]:
        """Makes pairs; see :meth:`Recipe.samples`."""
        if self.target_transform is not None:
            return super().samples(views, labels, ids, seed, epoch)
        if ids:
            seed_generators(sample_key(seed, epoch, ids[-1]))
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
