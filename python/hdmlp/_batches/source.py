"""What batches come from, and what they are when they have been taken."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .._lib.protocol import BATCH_HEAD
from .._lib.typing import Opened

#: Bytes of a BATCH payload before its columns.
HEAD_SIZE = BATCH_HEAD.size


#: After the slots: position, segment, offset, length of each sample that is left to Python.
_LEFT = struct.Struct("<IIQQ")
#: Set in such a position; see :class:`LeftBytes`.
_USUAL = 1 << 31


class LeftBytes(bytes):
    """The bytes of a file that the daemon leaves to Python, in place of what it makes of others.

    Attributes:
        usual: It is a file like others, of which only what is drawn is uncertain.
    """

    usual = False


_NONE: Mapping[int, LeftBytes] = {}


class Left(NamedTuple):
    """Where the bytes of a sample are that the daemon leaves to Python.

    Attributes:
        position: The sample's place in the batch.
        segment: The number of the segment.
        offset: Where in the segment.
        length: How many bytes.
        usual: See :class:`LeftBytes`.
    """

    position: int
    segment: int
    offset: int
    length: int
    usual: bool


def left_in(payload: bytes | bytearray, n: int, m: int) -> list[Left]:
    """Returns the samples of a BATCH payload that the daemon leaves to Python.

    Args:
        payload: The frame's payload.
        n: The number of samples.
        m: The number of slots.
    """
    return left_from(payload, HEAD_SIZE + 36 * n + 4 * m)


def left_from(payload: bytes | bytearray, begin: int) -> list[Left]:
    """Returns the same, where the entries begin in the payload."""
    return [
        Left(position & ~_USUAL, segment, offset, length, position >= _USUAL)
        for position, segment, offset, length in _LEFT.iter_unpack(memoryview(payload)[begin:])
    ]


def is_whole(payload: bytes | bytearray, end: int) -> bool:
    """Reports whether a BATCH payload whose slots end there has the length of one."""
    rest = len(payload) - end
    return rest >= 0 and rest % _LEFT.size == 0


class Taken:
    """A batch taken from a source.

    Not a tuple: replacing ``content``, which is done for each batch, would cost more than making
    it.

    Args:
        content: The samples' bytes, read-only and in shared memory. If the job has transforms that
            yield arrays of one shape, a :class:`~hdmlp._batches.segments.Block` of them. None if
            the stream maps no memory. Later what was made of it, in this process or by a worker.
        payload: The BATCH frame's payload; see :func:`column`.
        n: The number of samples.
        epoch: The batch's epoch, from 0.
        step: The batch's number in its epoch, from 0.
        audit: The daemon's audit of the batch.
        slots: The slots of the daemon's buffer that it occupies. Default: none.

    Attributes:
        left: The samples that the daemon leaves to Python, by their places in the batch; empty if
            the stream maps no memory. Where samples have several fields, of which ``content`` is a
            list, places count through the fields.
        outputs: Of how many fields ``payload`` has the places.
    """

    __slots__ = ("audit", "content", "epoch", "left", "n", "outputs", "payload", "slots", "step")

    def __init__(
        self,
        content: Any,
        payload: bytes | bytearray,
        n: int,
        epoch: int,
        step: int,
        audit: int,
        slots: bytes = b"",
    ):
        self.content = content
        self.payload = payload
        self.n = n
        self.epoch = epoch
        self.step = step
        self.audit = audit
        self.slots = slots
        self.left: Mapping[int, LeftBytes] = _NONE
        self.outputs = 1


#: Columns of a BATCH: bytes before it per sample, and per sample and output; bytes per entry;
#: format.
_COLUMNS = {
    "labels": (0, 0, 8, "q"),
    "offsets": (8, 0, 8, "Q"),
    "lengths": (8, 8, 8, "Q"),
    "ids": (8, 16, 4, "I"),
    "occurrences": (12, 16, 4, "I"),
    "segments": (16, 16, 4, "I"),
}


def column(payload: bytes | bytearray, n: int, name: str, outputs: int = 1) -> list[int]:
    """Returns a column of a BATCH payload of ``n`` samples.

    Args:
        payload: The frame's payload.
        n: The number of samples.
        name: ``"labels"``, ``"offsets"``, ``"lengths"``, ``"ids"``, ``"occurrences"`` or
            ``"segments"``; of several outputs, offsets, lengths and segments are those of the
            first.
        outputs: Of how many outputs the payload has the places.
    """
    before, each, size, kind = _COLUMNS[name]
    begin = HEAD_SIZE + (before + each * outputs) * n
    values = memoryview(payload)[begin : begin + size * n].cast(kind)  # type: ignore[call-overload]
    return values.tolist()  # type: ignore[no-any-return]


class BatchSource(Protocol):
    """A source of batches for one iteration at a time.

    The daemon's stream is one. So is what may stand in front of it:
    :class:`~hdmlp._loading.ahead.Ahead` makes batches before they are asked for,
    :class:`~hdmlp._workers.pool.Pool` has them made by worker processes.

    A position is a batch's number from the start of the run: ``epoch * steps + step``. A source
    is for one thread at a time.
    """

    @property
    def broken(self) -> bool:
        """Reports whether the source can no longer be used; its owner opens another one."""

    @property
    def position(self) -> int | None:
        """The position that :meth:`next` yields, or None if nothing is under way."""

    @property
    def stall(self) -> int:
        """Nanoseconds for which the last :meth:`next` blocked."""

    @property
    def python(self) -> int:
        """Nanoseconds, of :attr:`stall`, for which Python code was making the batch."""

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; does nothing if it already is."""

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""

    def take(self, position: int) -> Taken | None:
        """Returns the batch at ``position`` if it has been made already, else None.

        The batch's ``content`` is what the user gets. Calls nothing that may wait.
        """

    def next(self, timeout: float = 0.0) -> Taken:
        """Waits for the next batch and takes it.

        Args:
            timeout: Seconds to wait at most; 0 means no limit.

        Raises:
            StallTimeoutError: The time is up. The source stays usable.
            HDMLPError: The source ended here, and why.
        """

    def close(self) -> None:
        """Releases what the source holds; batches that were taken stay valid. Idempotent."""


class TaskSource(Protocol):
    """What a pool of workers takes its tasks from, without waiting.

    The daemon's stream is one; for datasets that the daemon does not serve, the drawn indices of
    an epoch are another.
    """

    @property
    def broken(self) -> bool:
        """Reports whether the source can no longer be used."""

    @property
    def opened(self) -> Opened:
        """The OPENED object, of which ``seed`` is read."""

    @property
    def steps(self) -> int:
        """Batches per epoch."""

    @property
    def position(self) -> int | None:
        """The position that :meth:`poll` yields, or None if nothing is under way."""

    def fileno(self) -> int:
        """Returns the descriptor that is readable when :meth:`poll` may yield a batch."""

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next."""

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""

    def poll(self) -> Taken | None:
        """Takes the next batch if it is there; returns None if it is not.

        Raises:
            HDMLPError: The source ended here, and why.
        """

    def ends(self, position: int) -> bool:
        """Reports whether the batch at ``position`` must not be yielded any more."""

    def free(self, slots: bytes) -> None:
        """Notes slots of the staging buffer as free."""

    def return_slots(self) -> None:
        """Returns free slots to the daemon, if there are any."""

    def say_waiting(self) -> None:
        """Tells the daemon that the process blocks in ``next()``."""
