"""One rank's stream of batches from the daemon.

A position is a batch's number from the start of the run: ``epoch * steps + step``.
The stream knows which position comes next; :meth:`Stream.seek` does nothing if that is
the one asked for, and else starts a new generation, after which batches of older
generations are passed over and their slots returned.

Everything but the waiting happens in sections marked by ``_busy``. A section that an
exception cuts short (a KeyboardInterrupt, in practice) leaves the mark, and the
stream is then :attr:`broken`: its books may not match the daemon's. Its owner
opens another one, at the same position.

A stream is for one thread at a time; slots may be returned from any.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _daemon
from . import _protocol as protocol
from ._output import Output
from ._segments import Block, Lease, Returns, Segment
from ._source import HEAD_SIZE, Taken
from ._view import View, seconds
from ._view import answer as answer_renew
from .errors import ClosedError, EndError, HDMLPError, ProtocolError, StallTimeout, from_answer

log = logging.getLogger("hdmlp")

#: Seconds between two looks at slots that other threads return while we wait.
_TICK = 0.05
#: Seconds of waiting after which the log says so.
_PATIENCE = 10.0
#: Batches that one ACK speaks for, at the most (fewer where the daemon stages few batches ahead of the last ACK), and ns after which the next one is sent; and with how many batches of a
#: generation, while the daemon feels its way, each has its own.
_ACK_EVERY, _ACK_AFTER, _ACK_FIRST = 16, 1_000_000_000, 16

_HEAD = protocol.BATCH_HEAD.unpack_from


class _Drop(NamedTuple):
    segment: int


class _End(NamedTuple):
    generation: int


class _Failure(NamedTuple):
    generation: Optional[int]
    error: HDMLPError


class Stream:
    """Opens a job as one rank, and takes its batches.

    Args:
        client: a greeted connection; the stream owns it.
        request: the OPEN object of docs/FORMATS.md.
        progress: called with PROGRESS objects, and with None when there will be no more.
        on_segment: called with (number, descriptor, size) of every segment, and on_drop with the
            number of every one that is dropped; the stream then maps nothing itself.
        fds: descriptors that come with the request, after those of the dataset's view: a subset's list, or orders that are given.

    Attributes:
        opened: the OPENED object.
        output: what every sample becomes; None: it stays as it is.
        steps: batches per epoch.
        position: what comes next, or None if the daemon sends nothing.
        stall: ns that the last :meth:`next` was blocked; python: the part of them in which Python made the batch, which is none.

    Raises:
        HDMLPError: what the daemon answered.
    """

    def __init__(
        self,
        client: _daemon.Client,
        request: Dict[str, Any],
        progress=None,
        on_segment: Optional[Callable[[int, int, int], None]] = None,
        on_drop: Optional[Callable[[int], None]] = None,
        fds: Sequence[int] = (),
    ):
        self._client = client
        self._connection = client.connection
        self._progress = progress
        self._on_segment = on_segment
        self._on_drop = on_drop
        self._segments: Dict[int, Segment] = {}
        self._items: Deque[Any] = deque()
        self._freed: Deque[bytes] = deque()
        self._returns: Optional[Returns] = None
        self._replies: Dict[int, Dict[str, Any]] = {}
        self._opened: Optional[Dict[str, Any]] = None
        self._generation = 0
        self._calls = 0
        self._unsaid: Optional[Tuple[int, int, int, int, int]] = None  # the ACK that was put off
        self._told = 0  # batches that it speaks for
        self._told_at = 0  # when the last one was sent, in ns
        self._first = 0  # batches that are still to be told of one by one
        self._busy = False
        self._dead = False  # the daemon is gone, and the reader knows it
        self.position: Optional[int] = None
        self.stall = self.python = 0
        self.output: Optional[Output] = None
        self.opened = self._open(request, fds)
        if self.opened.get("output"):
            self.output = Output(self.opened["output"])
        self.steps = int(self.opened["steps"])
        self._ack_every = max(1, min(_ACK_EVERY, int(self.opened.get("prefetch_batches", 64)) // 4))

    @property
    def broken(self) -> bool:
        """True if the stream cannot be used any more."""
        return self._busy or self._connection.closed or self._connection.torn

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        """Closes the connection; the batches that the program keeps stay valid. Idempotent."""
        self._client.close()
        self._items.clear()
        self._segments.clear()
        self.position = None

    # Frames.

    def _open(self, request: Dict[str, Any], fds: Sequence[int]) -> Dict[str, Any]:
        self._path = request["dataset"]["path"]
        timeout = request["arguments"].get("source_timeout") or request["environment"].get(
            "HDMLP_SOURCE_TIMEOUT"
        )
        with View(self._path, seconds(timeout)) as view:
            try:
                self._connection.send_fds(
                    protocol.encode_json(protocol.OPEN, request), (*view.fds, *fds)
                )
            except protocol.Disconnected as error:  # what it said before comes first
                log.debug("cannot send to the daemon: %s", error)
        try:
            while self._opened is None:
                if not self.pump():
                    self._connection.wait(None)
                for item in self._items:
                    if isinstance(item, _Failure):
                        raise item.error
        except BaseException:
            self.close()
            raise
        finally:
            if self._progress is not None:
                self._progress(None)
        return self._opened

    def _send(self, frame) -> None:
        """Sends a frame. That the daemon is gone is for the reader to find: what it said before comes first."""
        if self._dead:
            return
        if self.broken:
            raise self._interrupted()
        try:
            self._connection.send(frame)
        except protocol.Disconnected as error:
            log.debug("cannot send to the daemon: %s", error)

    def _died(self) -> HDMLPError:
        if self._connection.closed or self._connection.torn:
            return self._interrupted()
        error = self._client.died()
        self._connection.close()
        self._dead = True
        self.position = None
        return error

    @staticmethod
    def _interrupted() -> HDMLPError:
        return ClosedError(
            "the loader was closed or interrupted, or two threads took batches from it at once: "
            "iterate again, and in one thread; a loader for each thread is well"
        )

    def pump(self) -> bool:
        """Reads and sorts the next frame, without waiting; False if there is none.

        Raises:
            DaemonDied: the daemon is gone and everything it said has been sorted.
        """
        connection = self._connection
        if self._busy:
            raise self._interrupted()
        self._busy = True
        frame = connection.frame()
        while frame is None:
            try:
                if not connection.fill():
                    self._busy = False
                    return False
            except protocol.Disconnected:
                error = self._died()
                self._busy = False
                raise error from None
            frame = connection.frame()
        kind, payload, fd = frame
        if kind == protocol.BATCH:
            self._items.append(payload)
        else:
            self._sort(kind, payload, fd)
        self._busy = False
        return True

    def _sort(self, kind: int, payload: bytearray, fd: Optional[int]) -> None:
        if kind == protocol.SEGMENT:
            try:
                number, flags, size = protocol.SEGMENT_BODY.unpack(payload)
                if flags & protocol.RETURNS:
                    self._returns = Returns(fd, size)
                if self._on_segment is not None:
                    self._on_segment(number, fd, size)
                else:
                    self._segments[number] = Segment(fd, size, bool(flags & protocol.WRITABLE))
            finally:
                os.close(fd)
        elif kind == protocol.DROP:
            # Batches that came before it and were not taken yet still name it.
            self._items.append(_Drop(protocol.U32.unpack(payload)[0]))
        elif kind == protocol.END:
            self._items.append(_End(protocol.U64.unpack(payload)[0]))
        elif kind == protocol.ERROR:
            answer = protocol.decode_json(payload)
            self._items.append(_Failure(answer.get("generation") or None, from_answer(answer)))
        elif kind == protocol.REPLY:
            answer = protocol.decode_json(payload)
            self._replies[answer.get("id", 0)] = answer
        elif kind == protocol.PROGRESS:
            if self._progress is not None:
                self._progress(protocol.decode_json(payload))
        elif kind == protocol.RENEW:
            answer_renew(self._connection, self._path)
        elif kind == protocol.OPENED:
            self._opened = protocol.decode_json(payload)
        else:
            raise ProtocolError(f"the daemon sent a frame of unknown type {kind}")

    # Batches.

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, whatever was to come."""
        self.position = None

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; costs nothing if it is."""
        if position == self.position:
            return
        self.tell()
        self._generation += 1
        epoch, step = divmod(position, self.steps)
        self._send(protocol.ITERATE_FRAME.pack(16, protocol.ITERATE, self._generation, epoch, step))
        self.position = position
        self._first = _ACK_FIRST

    def give(self, epoch: int, entries: int, fd: int, apart: str = "") -> None:
        """Says the order of an epoch whose batches are as large as those of the first: ``fd`` holds the samples, i32 each. ``apart``: why there is none."""
        try:
            self._connection.send_fds(
                protocol.encode_json(
                    protocol.GIVE, {"epoch": epoch, "entries": entries, "apart": apart}
                ),
                [fd],
            )
        except protocol.Disconnected as error:  # which is for the reader to find, as in _send
            log.debug("cannot send to the daemon: %s", error)

    def take(self, position: int) -> Optional[Taken]:
        """None: no batch is made ahead."""
        return None

    def poll(self) -> Optional[Taken]:
        """Takes the next batch if it is there; None if it is not.

        Raises:
            DaemonDied, SampleError and the like: the stream ended here.
            EndError: the last epoch's last batch has been taken.
        """
        while self._items or self.pump():
            if self._busy:
                raise self._interrupted()
            self._busy = True
            taken = self._take()
            self._busy = False
            if taken is not None:
                if isinstance(taken, HDMLPError):
                    raise taken
                return taken
        return None

    def _take(self):
        """The next batch of this generation, an exception to raise, or None."""
        items = self._items
        while items:
            item = items.popleft()
            if type(item) is bytearray:
                generation, epoch, step, n, m, audit = _HEAD(item)
                if len(item) != HEAD_SIZE + 32 * n + 4 * m:
                    raise ProtocolError(
                        f"a batch of {n} samples and {m} slots in {len(item)} bytes"
                    )
                slots = bytes(item[HEAD_SIZE + 32 * n :]) if m else b""
                position = epoch * self.steps + step
                if generation != self._generation or self.ends(position):
                    if m:
                        self._freed.append(slots)
                    continue
                if position != self.position:
                    raise ProtocolError(f"batch {step} of epoch {epoch} came out of order")
                self.position += 1
                views = None
                if self._on_segment is None:
                    views = self._views(item, n, slots)
                return Taken(views, item, n, epoch, step, audit)
            if type(item) is _Drop:
                self._segments.pop(item.segment, None)
                if self._on_drop is not None:
                    self._on_drop(item.segment)
            elif type(item) is _Failure:
                if item.generation is None or item.generation == self._generation:
                    self.position = None
                    return item.error
            elif item.generation == self._generation:
                self.position = None
                return EndError("the loader's last epoch is over: give a larger epochs=")
        return None

    def ends(self, position: int) -> bool:
        """True if the batch at ``position`` is not to be yielded, although it may be here: another rank's stream ended before it."""
        return self._returns is not None and self._returns.ends(position)

    def _views(self, payload: bytearray, n: int, slots: bytes) -> Union[List[memoryview], Block]:
        if not n:
            self.free(slots)
            return []
        if self.output is not None and not self.output.ragged:
            return self._block(payload, n, slots)
        lease = Lease(slots, self._freed.append)
        columns = memoryview(payload)
        offsets = columns[32 + 8 * n : 32 + 16 * n].cast("Q").tolist()
        lengths = columns[32 + 16 * n : 32 + 24 * n].cast("Q").tolist()
        segments = payload[32 + 28 * n : 32 + 32 * n]
        first = segments[:4]
        try:
            if segments == first * n:
                view = self._segments[int.from_bytes(first, "little")].view(lease).toreadonly()
                views = [view[o : o + length] for o, length in zip(offsets, lengths)]
            else:
                numbers = columns[32 + 28 * n : 32 + 32 * n].cast("I").tolist()
                whole = {s: self._segments[s].view(lease).toreadonly() for s in set(numbers)}
                views = [
                    whole[s][o : o + length] for s, o, length in zip(numbers, offsets, lengths)
                ]
        except KeyError as error:
            raise ProtocolError(f"a batch names segment {error}, which did not come") from None
        if sum(map(len, views)) != sum(lengths):
            raise ProtocolError("a batch reaches beyond its segment")
        return views

    def _block(self, payload: bytearray, n: int, slots: bytes) -> Block:
        """A batch of what transforms made, which lies in one piece."""
        size = self.output.nbytes
        (begin,) = protocol.U64.unpack_from(payload, 32 + 8 * n)
        (last,) = protocol.U64.unpack_from(payload, 24 + 16 * n)
        segments = payload[32 + 28 * n : 32 + 32 * n]
        segment = self._segments.get(int.from_bytes(segments[:4], "little"))
        if (
            segment is None
            or segments != segments[:4] * n
            or last != begin + (n - 1) * size
            or payload[32 + 16 * n : 32 + 24 * n] != protocol.U64.pack(size) * n
        ):
            raise ProtocolError(f"a batch of {n} samples of {size} bytes does not lie in one piece")
        return Block(slots, self._freed.append, segment, begin, n * size)

    def next(self, timeout: float = 0.0) -> Taken:
        """Takes the next batch, waiting for it; :attr:`stall` says for how long.

        Args:
            timeout: seconds to wait at most; 0: for ever.

        Raises:
            StallTimeout: the time is up. The stream stays usable.
            and what :meth:`poll` raises.
        """
        taken = self.poll()
        if taken is not None:
            self.stall = 0
            return taken
        begin = time.perf_counter_ns()
        self.return_slots()
        self.say_waiting()
        said = False
        while True:
            self._connection.wait(_TICK)
            taken = self.poll()
            waited = time.perf_counter_ns() - begin
            if taken is not None:
                self.stall = waited
                return taken
            self.return_slots()
            if timeout and waited > timeout * 1e9:
                raise StallTimeout(f"no batch within timeout={timeout:g} seconds")
            if not said and waited > _PATIENCE * 1e9:
                said = True
                log.warning(
                    "waiting for a batch since %.0f s: `hdmlp stats`, or the daemon's log, says what for: the source, another rank that has "
                    "not begun the epoch, or room, if the program keeps many batches (keep bytes(sample) instead)",
                    waited / 1e9,
                )

    def say_waiting(self) -> None:
        """Tells the daemon that the process blocks in ``next()`` now, and which batches were yielded before."""
        self.tell()
        self._send(protocol.WAIT_FRAME.pack(8, protocol.WAIT, self._generation))

    def free(self, slots: bytes) -> None:
        """Notes slots, as they stood in the BATCH, as free; they go back with the next frame."""
        if slots:
            self._freed.append(slots)

    def _drain(self) -> bytes:
        freed = self._freed
        slots = []
        while freed:
            slots.append(freed.popleft())
        return b"".join(slots)

    def return_slots(self) -> None:
        """Returns the slots that are free to the daemon, if there are any."""
        if self._connection.writing:
            try:
                self._connection.flush()
            except protocol.Disconnected as error:
                log.debug("cannot send to the daemon: %s", error)
        if not self._freed:
            return
        slots = self._drain()
        self._send(
            protocol.ACK_FRAME.pack(
                protocol.ACK_BODY + len(slots),
                protocol.ACK,
                self._generation,
                protocol.NO_BATCH,
                0,
                0,
                0,
                0,
                len(slots) >> 2,
            )
            + slots
        )

    def ack(self, epoch: int, step: int, stall: int, python: int, audit: int) -> None:
        """Says that a batch was yielded, and returns the slots that are free.

        Most calls send nothing. Slots are noted where the daemon looks for them, and one frame may speak for several
        batches: one that there is nothing to say about is told with a later one. An epoch's first and last batch are
        told at once: its time is measured between them.

        Args:
            stall: ns blocked for it in ``next()``; python: the part of them in which Python made the batch.
            audit: the sum of the epoch's audits up to and including it.
        """
        self._told += 1
        self._unsaid = (epoch, step, stall, python, audit)
        if self._freed and self._returns is not None:
            self._busy = True  # what is drained and not noted would be lost
            rest = self._returns.note(self._drain())
            if rest:
                self._freed.append(rest)
            self._busy = False
        if (
            stall
            or self._freed
            or self._first
            or self._told >= self._ack_every
            or step in (0, self.steps - 1)
            or time.monotonic_ns() - self._told_at > _ACK_AFTER
        ):
            if self._first:
                self._first -= 1
            self.tell()

    def tell(self) -> None:
        """Sends the ACK that :meth:`ack` has put off, if there is one."""
        if self._unsaid is None:
            return
        epoch, step, stall, python, audit = self._unsaid
        self._unsaid, self._told, self._told_at = None, 0, time.monotonic_ns()
        slots = self._drain() if self._freed else b""
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
        self._send(frame + slots if slots else frame)

    def call(self, method: str, params: Optional[Dict[str, Any]] = None) -> Any:
        """A call on the stream's connection; batches that come meanwhile are kept.

        Returns:
            the call's result.

        Raises:
            HDMLPError: what the daemon answered.
        """
        self.tell()
        self._calls += 1
        number = self._calls
        self._send(
            protocol.encode_json(
                protocol.CALL, {"id": number, "method": method, "params": params or {}}
            )
        )
        try:
            while number not in self._replies:
                if not self.pump():
                    self._connection.wait(_TICK)
                    self.return_slots()
        finally:
            if self._progress is not None:
                self._progress(None)
        answer = self._replies.pop(number)
        if answer.get("error"):
            raise from_answer(answer["error"])
        return answer.get("result")
