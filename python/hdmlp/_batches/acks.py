"""Which batches were yielded and which slots are free, as the daemon is sent them."""

from __future__ import annotations

import time

from .._daemon.link import Link
from .._lib import protocol
from .staging import Staging

#: Batches that one ACK acknowledges at most; fewer where the daemon stages few batches ahead.
ACK_EVERY = 16
#: Nanoseconds after which the next ACK is sent in any case.
ACK_AFTER = 1_000_000_000
#: Batches of a generation of which each has an ACK of its own, during the daemon's slow start.
ACK_FIRST = 16


class Acks:
    """Tells the daemon what was yielded, in as few frames as possible.

    Most calls of :meth:`ack` send nothing. Slots are noted in the return ring, where the daemon
    looks for them, and one frame acknowledges several batches: those before its own had nothing to
    report. An epoch's first and last batch are acknowledged at once, because the epoch's time is
    measured between them.

    Args:
        link: Where ACKs are sent.
        staging: Whose free slots are returned.
        prefetch: Batches that the daemon stages ahead of the last ACK.
        steps: Batches per epoch.
    """

    def __init__(self, link: Link, staging: Staging, prefetch: int, steps: int):
        self._link = link
        self._staging = staging
        self._every = max(1, min(ACK_EVERY, prefetch // 4))
        self._last_step = steps - 1
        self._generation = 0
        self._deferred: tuple[int, int, int, int, int] | None = None  # of the last batch
        self._count = 0  # batches that it acknowledges
        self._sent_at = 0  # when the last ACK was sent, in ns
        self._first = 0  # batches that are still to be acknowledged one by one

    def begin(self, generation: int) -> None:
        """Starts a generation of batches."""
        self.flush()
        self._generation, self._first = generation, ACK_FIRST

    def ack(self, epoch: int, step: int, stall: int, python: int, audit: int) -> None:
        """Says that a batch was yielded, and returns the slots that are free.

        Args:
            epoch: The batch's epoch.
            step: Its number in the epoch.
            stall: Nanoseconds that ``next()`` blocked for it.
            python: Nanoseconds, of ``stall``, for which Python code was making it.
            audit: The sum of the epoch's audits up to and including it.
        """
        self._count += 1
        self._deferred = (epoch, step, stall, python, audit)
        staging = self._staging
        if staging.freed and staging.returns is not None:
            self._link.busy = True  # what is drained and not noted would be lost
            staging.note()
            self._link.busy = False
        if (
            stall
            or staging.freed
            or self._first
            or self._count >= self._every
            or step in (0, self._last_step)
            or time.monotonic_ns() - self._sent_at > ACK_AFTER
        ):
            if self._first:
                self._first -= 1
            self.flush()

    def flush(self) -> None:
        """Sends the ACK that :meth:`ack` has deferred, if there is one."""
        if self._deferred is not None:
            self._send(self._take_deferred())

    def _take_deferred(self) -> bytes:
        """Returns the ACK that was deferred, or, if there is none, one that only returns slots."""
        batch, self._deferred = self._deferred, None
        if batch is None:
            return self._frame(protocol.NO_BATCH, 0, 0, 0, 0)
        self._count, self._sent_at = 0, time.monotonic_ns()
        return self._frame(*batch)

    def say_waiting(self) -> None:
        """Says that ``next()`` blocks, after what it may be that it waits for: free slots.

        All of it is one message, as both processes pay for each.
        """
        wait = protocol.GENERATION_FRAME.pack(8, protocol.WAIT, self._generation)
        if self._deferred is not None or self._staging.freed:
            wait = self._take_deferred() + wait
        self._send(wait)

    def say_raised(self) -> None:
        """Says that the loop gets the error that ended the generation."""
        self.flush()
        self._send(protocol.GENERATION_FRAME.pack(8, protocol.RAISED, self._generation))

    def return_slots(self) -> None:
        """Returns the slots that are free, if there are any, without acknowledging a batch."""
        self._link.flush()
        if self._staging.freed:
            self._send(self._frame(protocol.NO_BATCH, 0, 0, 0, 0))
        elif self._staging.gone:
            self.say_gone()

    def say_gone(self) -> None:
        """Says which segments that were dropped are not mapped any more."""
        gone = self._staging.gone
        while gone:
            self._link.send(protocol.encode(protocol.GONE, protocol.U32.pack(gone.popleft())))

    def _frame(self, epoch: int, step: int, stall: int, python: int, audit: int) -> bytes:
        """Returns an ACK, which returns all slots that are free."""
        slots = self._staging.drain() if self._staging.freed else b""
        frame = protocol.ACK_FRAME.pack(
            protocol.ACK_BODY + len(slots),
            protocol.ACK,
            self._generation,
            epoch,
            step,
            stall,
            python,
            audit,
            len(slots) >> 2,
        )
        return frame + slots if slots else frame

    def _send(self, frame: bytes) -> None:
        self._link.send(frame)
        if self._staging.gone:
            self.say_gone()
