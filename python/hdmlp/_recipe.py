"""From a sample's bytes to what the model gets: decode, transform, collate.

Transforms draw their random numbers from torch's, Python's and numpy's global
generators. Each sample seeds these with a key made of the job's seed, the epoch
and its ID, so that the result is the same whoever computes it: this process, or any
number of workers.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable

from ._protocol import BATCH_HEAD, mix64
from ._segments import Lease
from ._source import column

_MASK = 0xFFFFFFFFFFFFFFFF


def sample_key(seed: int, epoch: int, sample: int) -> int:
    """The 64-bit key of a sample's random numbers in an epoch."""
    return mix64((mix64(seed & _MASK) + mix64(epoch << 32 | sample)) & _MASK)


def position_key(seed: int, epoch: int, step: int, place: int) -> int:
    """The same for a sample that may come several times in an epoch: by its batch, and its place there."""
    return mix64((mix64(sample_key(seed, epoch, step)) + place) & _MASK)


def _numpy_random():
    numpy = sys.modules.get("numpy")
    return getattr(numpy, "random", None)


def seed_generators(key: int) -> None:
    """Seeds Python's generator, and torch's and numpy's where they are imported."""
    random.seed(key)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        torch.default_generator.manual_seed(key)
    numpy_random = _numpy_random()
    if numpy_random is not None:
        numpy_random.seed(key & 0xFFFFFFFF)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Leaves the process's generators as they were."""
    torch = sys.modules.get("torch")
    torch = torch if hasattr(torch, "default_generator") else None
    numpy_random = _numpy_random()
    state = random.getstate()
    torch_state = None if torch is None else torch.default_generator.get_state()
    numpy_state = None if numpy_random is None else numpy_random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        if torch is not None:
            torch.default_generator.set_state(torch_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_state)


class Undecodable(Exception):
    """A sample of which HDMLP's own decoder, and no code of the user's, can make nothing. Its text is what that said.

    Attributes:
        sample: the sample's ID.
    """

    sample: int


class Recipe:
    """How samples are made; goes to worker processes by fork or by pickle.

    Args:
        loader: from a sample's bytes, a read-only memoryview, to an object such as an image.
        transform: applied to that object; None: nothing.
        target_transform: applied to the label; None: nothing.
        collate: from a list of (object, label) to a batch.
        stack: a faster ``collate`` that writes where it is told, called with (batch,
            place); see :func:`hdmlp.torch.stack_into`. None: there is none.
        decodes: ``loader`` is HDMLP's own: where it fails, the file is the reason (:class:`Undecodable`).
    """

    def __init__(
        self,
        loader: Callable[[memoryview], Any],
        transform: Callable | None,
        target_transform: Callable | None,
        collate: Callable[[list[Any]], Any],
        stack: Callable | None = None,
        decodes: bool = False,
    ):
        self.loader = loader
        self.decodes = decodes
        self.transform = transform
        self.target_transform = target_transform
        self.collate = collate
        self.stack = stack

    def make(self, payload: bytearray, segments: dict[int, Any], seed: int, place: Any) -> Any:
        """The batch that a BATCH payload describes, in a worker.

        Args:
            payload: as the daemon sent it.
            segments: the shared memory where samples lie, by number.
            seed: the job's.
            place: where the batch may go.
        """
        _, epoch, _, n, _, _ = BATCH_HEAD.unpack_from(payload)
        unleased = Lease((), None)
        views = [
            segments[s].view(unleased)[o : o + length]
            for s, o, length in zip(
                column(payload, n, "segments"),
                column(payload, n, "offsets"),
                column(payload, n, "lengths"),
            )
        ]
        batch = self.samples(
            views, column(payload, n, "labels"), column(payload, n, "ids"), seed, epoch
        )
        return self.collate(batch) if self.stack is None else self.stack(batch, place)

    def samples(
        self,
        views: Sequence[memoryview],
        labels: Sequence[int],
        ids: Sequence[int],
        seed: int,
        epoch: int,
    ) -> list[Any]:
        """The batch's (object, label) pairs.

        An exception of the loader or a transform carries the sample's ID as ``sample``.

        Raises:
            Undecodable: see ``decodes``.
        """
        loader, transform, target_transform = (
            self._decoded if self.decodes else self.loader,
            self.transform,
            self.target_transform,
        )
        made = []
        for view, label, sample in zip(views, labels, ids):
            seed_generators(sample_key(seed, epoch, sample))
            try:
                value = loader(view)
                if transform is not None:
                    value = transform(value)
                if target_transform is not None:
                    label = target_transform(label)
            except Exception as error:
                try:
                    error.sample = sample
                except AttributeError:
                    pass
                raise
            made.append((value, label))
        return made

    def _decoded(self, view: memoryview) -> Any:
        try:
            return self.loader(view)
        except (MemoryError, ImportError):  # which say nothing of the file
            raise
        except Exception as error:
            # PIL names its file object, which says nothing.
            raise Undecodable(
                f"{type(error).__name__}: {re.sub(' <_io.BytesIO object at 0x[0-9a-f]+>', '', str(error))}"
            ) from error


class Composed:
    """Callables, one after the other."""

    def __init__(self, steps: Sequence[Callable]):
        self.steps = list(steps)

    def __call__(self, value: Any) -> Any:
        for step in self.steps:
            value = step(value)
        return value

    def __repr__(self) -> str:
        return f"Composed({self.steps!r})"
