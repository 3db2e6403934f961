"""Batches of the daemon's results as tensors, with those samples that it leaves to Python."""

from __future__ import annotations

from ..._batches.source import Taken
from ..._batches.stream import Stream
from ..._transforms.generators import generators_kept
from ..._transforms.recipe import Batch, Recipe


class Tensors:
    """Makes a tensor of each of a stream's batches, or a list of them, one of each view.

    Args:
        stream: An open stream, whose samples become arrays of one shape.
        left: What makes the samples that the daemon leaves to Python; None: it leaves none.
    """

    def __init__(self, stream: Stream, left: Recipe | None):
        assert stream.output is not None
        self._output, self._left = stream.output, left
        self._seed = int(stream.opened["seed"])

    def of(self, taken: Taken) -> object:
        """Returns a batch's tensor of shape (n, ...), or the list of those of its views.

        An exception has the ID of a sample that was left to Python as ``sample``.

        Raises:
            Undecodable: PIL cannot decode such a sample, or its transforms fail.
        """
        batch = self._output.tensor(taken.content, taken.n)
        if taken.left:
            self._fill(batch, taken)
        return batch

    def _fill(self, batch: object, taken: Taken) -> None:
        """Makes the samples that the daemon left, in their places in the batch."""
        assert self._left is not None
        batch_of = Batch(self._seed, taken.epoch, taken.step)
        ids, keys = self._left.keys(taken.payload, batch_of, taken.outputs)
        with generators_kept():
            for place, data in taken.left.items():
                value = self._left.left(data, ids[place], keys[place])
                self._output.put(batch, place, value)
