"""One rank's stream of batches from the daemon.

A position is the number of a batch from the start of the run: ``epoch * steps + step``. The stream
delivers batches in order of position. :meth:`Stream.seek` to any other position than the next one
starts a new generation: batches of earlier generations are discarded, and their slots returned.

All work except waiting is done while the link's ``busy`` is set. If an exception interrupts it,
such as KeyboardInterrupt, ``busy`` stays set and the stream is :attr:`Stream.broken`, because its
record of slots may differ from the daemon's. Its owner then opens another stream at the same
position.

One thread at a time may use a stream, but any thread may return slots.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from .._daemon import connecting
from .._daemon.link import Link
from .._daemon.view import View, seconds
from .._daemon.view import answer as answer_renew
from .._lib import protocol
from .._lib.typing import Opened
from ..errors import EndError, HDMLPError, ProtocolError, from_answer
from .acks import Acks
from .fields import fields_of
from .output import grouped, outputs_of
from .segments import Returns, Segment
from .source import HEAD_SIZE, Taken, is_whole, left_in
from .staging import Staging
from .stall import causes, stalled

log = logging.getLogger("hdmlp")

#: Seconds after which a waiting stream checks again for slots that other threads returned.
_TICK = 0.05
#: Seconds of waiting after which a warning is logged.
_WARN_AFTER = 10.0

_HEAD = protocol.BATCH_HEAD.unpack_from


class _Drop(NamedTuple):
    segment: int


class _End(NamedTuple):
    generation: int


class _Failure(NamedTuple):
    generation: int | None  # None: of the stream
    error: HDMLPError


class Stream:
    """Opens a job as one rank, and takes its batches.

    Args:
        client: A greeted connection; the stream owns it.
        request: The OPEN object of docs/FORMATS.md.
        progress: Called with PROGRESS objects, and with None when no more come.
        on_segment: Called with (number, descriptor, size) of every segment. If it is given, the
            stream maps no segments itself.
        on_drop: Called with the number of every segment that no later batch names, and a function
            to be called with the number once no process maps it.
        fds: Descriptors that come with the request, after those of the dataset's view: a subset's
            list, or orders that are given.

    Attributes:
        daemon: The daemon that the stream comes from.
        opened: The OPENED object.
        outputs: What is delivered of each of a sample's fields; None: the field as it is.
        output: That of the only field; None: it is as it is, or there are several.
        fields: The names of the fields that are delivered; one is empty: samples have none.
        steps: Batches per epoch.
        position: What comes next, or None if the daemon sends nothing.
        stall: Nanoseconds for which the last :meth:`next` blocked.
        python: Nanoseconds, of ``stall``, for which Python made the batch: always 0.
        ack, return_slots, say_waiting: See :class:`hdmlp._batches.acks.Acks`.
        ends, free: See :class:`hdmlp._batches.staging.Staging`.

    Raises:
        HDMLPError: The daemon refuses the job.
    """

    def __init__(
        self,
        client: connecting.Client,
        request: dict[str, Any],
        progress: Callable[[dict[str, object] | None], None] | None = None,
        on_segment: Callable[[int, int, int], None] | None = None,
        on_drop: Callable[[int, Callable[[int], None]], None] | None = None,
        fds: Sequence[int] = (),
    ):
        self._link = Link(client, nodes="cluster" in request)
        self.daemon = client
        self._connection = client.connection
        self._staging = Staging()
        self._progress = progress
        self._on_segment = on_segment
        self._on_drop = on_drop
        # BATCH payloads, and what else counts in the order in which it came.
        self._items: deque[bytearray | _Drop | _End | _Failure] = deque()
        self._replies: dict[int, dict[str, Any]] = {}
        self._calls = 0
        self._generation = 0
        self._opened: Opened | None = None
        self._path: str = request["dataset"]["path"]
        self._leaves = bool(request.get("leave"))
        # What ended the generation. It is the loop's, with its traceback.
        self._failure: weakref.ref[HDMLPError] | None = None
        self.position: int | None = None
        self.stall = self.python = 0
        self.opened = self._open(request, fds)
        answers = self.opened["outputs"]
        self.fields = [answer["field"] for answer in answers if not answer.get("view")]
        self.outputs = outputs_of(answers)
        self.output = self.outputs[0] if len(self.outputs) == 1 else None
        # Of each result: the field that it is of, and its bytes in a batch that is mapped in one
        # piece; 0: views of samples.
        self._results = [
            (i, 0 if output is None or output.ragged else output.nbytes)
            for i, of in enumerate(self.outputs)
            for output in (of.views if of is not None and of.views else [of])
        ]
        one = len(answers) == 1 and "view" not in answers[0]
        self._sample_size = self._results[0][1] if one and on_segment is None else 0
        self._several = not one or self._leaves
        self.steps = int(self.opened["steps"])
        prefetch = int(self.opened.get("prefetch_batches", 64))
        self._acks = Acks(self._link, self._staging, prefetch, self.steps)
        self.ack, self.return_slots = self._acks.ack, self._acks.return_slots
        self.say_waiting = self._acks.say_waiting
        self.ends, self.free = self._staging.ends, self._staging.free

    @property
    def broken(self) -> bool:
        """Whether the stream can no longer be used."""
        return self._link.busy or self._connection.unusable

    @property
    def closed(self) -> bool:
        """Whether the connection is closed, as in children that are forked."""
        return self._connection.closed

    def fileno(self) -> int:
        """Returns the connection's descriptor."""
        return self._connection.fileno()

    def close(self) -> None:
        """Closes the connection; batches that the program keeps stay valid. Idempotent."""
        self._staging.keep()
        self._link.close()
        self._items.clear()
        self._staging.forget()
        self.position = None

    def __del__(self) -> None:
        # The connection closes with the stream.
        staging = getattr(self, "_staging", None)
        if staging is not None:
            staging.keep()

    # Frames.

    def _open(self, request: dict[str, Any], fds: Sequence[int]) -> Opened:
        """Sends OPEN; returns the OPENED object."""
        timeout = request["arguments"].get("source_timeout") or request["environment"].get(
            "HDMLP_SOURCE_TIMEOUT"
        )
        with View(self._path, seconds(timeout)) as view:
            frame = protocol.encode_json(protocol.OPEN, request)
            self._link.send_fds(frame, (*view.fds, *fds))
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

    def pump(self) -> bool:
        """Reads and sorts the next frame, without waiting.

        Returns:
            False if there is none.

        Raises:
            DaemonDiedError: The daemon has ended, and everything it sent has been sorted.
        """
        connection, link = self._connection, self._link
        if link.busy:
            raise link.interrupted()
        link.busy = True
        frame = connection.frame()
        while frame is None:
            try:
                if not connection.fill():
                    link.busy = False
                    return False
            except protocol.Disconnected:
                error = link.ended()
                self.position = None
                link.busy = False
                raise error from None
            frame = connection.frame()
        kind, payload, fd = frame
        if kind == protocol.BATCH:
            self._items.append(payload)
        else:
            self._sort(kind, payload, fd)
        link.busy = False
        return True

    def _sort(self, kind: int, payload: bytearray, fd: int | None) -> None:
        """Takes a frame that is no batch."""
        if kind == protocol.SEGMENT and fd is not None:
            try:
                self._take_segment(payload, fd)
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
            self._opened = cast("Opened", protocol.decode_json(payload))
        else:
            raise ProtocolError(f"the daemon sent a frame of unknown type {kind}")

    def _take_segment(self, payload: bytearray, fd: int) -> None:
        number, flags, size = protocol.SEGMENT_BODY.unpack(payload)
        if flags & protocol.RETURNS:
            self._staging.returns = Returns(fd, size)
        if self._on_segment is not None:
            self._on_segment(number, fd, size)
        else:
            writable, private = flags & protocol.WRITABLE, flags & protocol.PRIVATE
            self._staging.add(number, Segment(fd, size, bool(writable), bool(private)))

    # Batches.

    def restart(self) -> None:
        """Has the next :meth:`seek` ask the daemon, even for the position that is next."""
        self.position = None

    def seek(self, position: int) -> None:
        """Makes ``position`` what comes next; does nothing if it already is."""
        if position == self.position:
            return
        self._generation += 1
        self._acks.begin(self._generation)
        epoch, step = divmod(position, self.steps)
        self._link.send(
            protocol.ITERATE_FRAME.pack(16, protocol.ITERATE, self._generation, epoch, step)
        )
        self.position = position

    def raised(self, error: HDMLPError) -> None:
        """Tells the daemon that the loop gets an error, if it is what ended the generation.

        The stream, and what makes batches ahead of the loop, may have met it long before.
        """
        if self._failure is not None and self._failure() is error and not self.broken:
            self._failure = None
            self._acks.say_raised()

    def give(self, epoch: int, entries: int, fd: int, apart: str = "") -> None:
        """Gives the order of an epoch whose batches are as large as those of the first.

        Args:
            epoch: The epoch's number.
            entries: Samples in it.
            fd: Descriptor of memory that holds their IDs, int32.
            apart: Why the rank gives no order; empty if it gives one.
        """
        answer = {"epoch": epoch, "entries": entries, "apart": apart}
        self._link.send_fds(protocol.encode_json(protocol.GIVE, answer), [fd])

    @property
    def drained(self) -> bool:
        """Whether nothing more was there when the last batch was read."""
        return not self._items and self._connection.drained

    def take(self, position: int) -> Taken | None:
        """Returns None: no batch is made ahead."""
        return None

    def poll(self) -> Taken | None:
        """Takes the next batch if it is there; returns None if it is not.

        Raises:
            EndError: The last batch of the last epoch has been taken.
            HDMLPError: The stream ended here, and why.
        """
        link = self._link
        while self._items or self.pump():
            if link.busy:
                raise link.interrupted()
            link.busy = True
            taken = self._take()
            link.busy = False
            if taken is not None:
                if isinstance(taken, HDMLPError):
                    raise taken
                return taken
            if self._staging.gone:
                self._acks.say_gone()
        return None

    def _take(self) -> Taken | HDMLPError | None:
        """Returns the next batch of this generation, an exception to raise, or None.

        Frees the slots of batches of older generations, and of those that must not be yielded
        because another rank's stream ended before them.
        """
        items = self._items
        while items:
            item = items.popleft()
            if type(item) is bytearray:
                generation, epoch, step, n, m, audit = _HEAD(item)
                outputs = len(self._results)
                begin = HEAD_SIZE + (16 + 20 * outputs) * n
                end = begin + 4 * m
                if len(item) != end and not is_whole(item, end):
                    raise ProtocolError(f"a batch of {n} samples in {len(item)} bytes")
                slots = bytes(item[begin:end]) if m else b""
                position = epoch * self.steps + step
                if generation != self._generation or self.ends(position):
                    self.free(slots)
                    continue
                if position != self.position:
                    raise ProtocolError(f"batch {step} of epoch {epoch} came out of order")
                self.position = position + 1
                content: object = None
                if self._several and self._on_segment is None:
                    return self._of_fields(item, n, m, slots)
                if self._sample_size:
                    content = self._staging.block(item, n, slots, self._sample_size)
                elif self._on_segment is None:
                    content = self._staging.views(item, n, slots)
                taken = Taken(content, item, n, epoch, step, audit, slots)
                taken.outputs = outputs
                if len(item) != end and self._on_segment is None:
                    taken.left = self._staging.left(left_in(item, n, m))
                return taken
            if type(item) is _Drop:
                if self._on_drop is not None:
                    self._on_drop(item.segment, self._staging.gone.append)
                else:
                    self._staging.drop(item.segment)
                return None  # poll reports that it is gone, if it is
            if type(item) is _Failure:
                if item.generation is None or item.generation == self._generation:
                    self.position = None
                    self._failure = weakref.ref(item.error)
                    return item.error
            elif item.generation == self._generation:  # type: ignore[union-attr]
                self.position = None
                return EndError("the loader's last epoch is over: give a larger epochs=")
        return None

    def _of_fields(self, item: bytearray, n: int, m: int, slots: bytes) -> Taken:
        """Returns a batch of samples of several fields or views, or with some that were left.

        Its content is a list, one per field. One field of several views is the content.
        """
        _, epoch, step, _, _, audit = _HEAD(item)
        parts = fields_of(item, n, m, len(self._results))
        sizes = [size for _, size in self._results]
        contents = grouped(self.outputs, self._staging.fields(parts, n, slots, sizes))
        content = contents if self.output is None or self._leaves else contents[0]
        taken = Taken(content, parts[0].payload, n, epoch, step, audit, slots)
        if any(part.left for part in parts):
            taken.left = {
                field * n + place: data
                for (field, _), part in zip(self._results, parts)
                for place, data in self._staging.left(part.left).items()
            }
        return taken

    def next(self, timeout: float = 0.0) -> Taken:
        """Takes the next batch, waiting for it; :attr:`stall` is for how long.

        Args:
            timeout: Seconds to wait at most; 0 means no limit.

        Raises:
            StallTimeoutError: The time is up. The stream stays usable.
            HDMLPError: What :meth:`poll` raises.
        """
        taken = self.poll()
        if taken is not None:
            self.stall = 0
            return taken
        begin = time.perf_counter_ns()
        self.say_waiting()
        logged = False
        while True:
            self._connection.wait(_TICK)
            taken = self.poll()
            waited = time.perf_counter_ns() - begin
            if taken is not None:
                self.stall = waited
                return taken
            self.return_slots()
            if timeout and waited > timeout * 1e9:
                raise stalled(timeout, daemon=self.daemon.peer)
            if not logged and waited > _WARN_AFTER * 1e9:
                logged = True
                log.warning("no batch for %.0f s: %s", waited / 1e9, causes(self.daemon.peer))

    def call(self, method: str, params: Mapping[str, object] | None = None) -> Any:
        """Calls a method of the daemon on the stream's connection; keeps batches that come.

        Args:
            method: One of docs/FORMATS.md.
            params: Its parameters.

        Returns:
            The call's result.

        Raises:
            HDMLPError: The daemon's answer is an error.
        """
        self._acks.flush()
        self._calls = number = self._calls + 1
        call = {"id": number, "method": method, "params": params or {}}
        self._link.send(protocol.encode_json(protocol.CALL, call))
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
