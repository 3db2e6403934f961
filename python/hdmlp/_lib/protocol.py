"""The frames between Python and the daemon: docs/FORMATS.md, version 4.

This module owns the byte layout and one connection's buffers. It never waits, except in
:meth:`Connection.wait`: reading takes what is there, writing queues what the socket does not take.
So a KeyboardInterrupt either strikes while waiting, and does no harm, or leaves the connection
marked as torn. It never leaves a frame that was read in part and would be taken for a whole one.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import struct
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ..errors import ProtocolError

PROTOCOL = 7
MAX_PAYLOAD = 16 << 20

HELLO, OPEN, ITERATE, ACK, WAIT, CALL, VIEW, GIVE, GONE, RAISED = range(1, 11)
WELCOME, OPENED, SEGMENT, BATCH, REPLY, ERROR, END, PROGRESS, DROP, RENEW = range(129, 139)

#: Types of the daemon's frames that carry a file descriptor.
WITH_FD = frozenset({WELCOME, SEGMENT})

#: A SEGMENT's flags.
WRITABLE, RETURNS, PRIVATE = 1, 2, 4

#: The epoch in an ACK that returns slots and nothing else.
NO_BATCH = 0xFFFFFFFF
#: The last epoch that there can be.
LAST_EPOCH = NO_BATCH - 1

HEADER = struct.Struct("<IB3x")
ITERATE_FRAME = struct.Struct("<IB3xQII")
GENERATION_FRAME = struct.Struct("<IB3xQ")
ACK_FRAME = struct.Struct("<IB3xQIIQQQI")
ACK_BODY = ACK_FRAME.size - HEADER.size
SEGMENT_BODY = struct.Struct("<IIQ")
BATCH_HEAD = struct.Struct("<QIIIIQ")
U64 = struct.Struct("<Q")
U32 = struct.Struct("<I")

_FD_SPACE = socket.CMSG_SPACE(64 * array.array("i").itemsize)
# As they are, they are enumerations, whose operators are Python code.
_CLOEXEC, _CUT = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CTRUNC)
#: Bytes that one read takes at most: some batches' messages, not a burst of a hundred.
_CHUNK = 32768

#: A frame that was read: type, payload, descriptor.
Frame = tuple[int, bytearray, Optional[int]]

#: Connections of this process, which a forked child must not share with it.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _abandon_all() -> None:
    for connection in list(_connections):
        connection.close()


os.register_at_fork(after_in_child=_abandon_all)


class Disconnected(Exception):
    """The other side closed the connection, or it can no longer be used."""


class Connection:
    """Frames over a Unix stream socket, with file descriptors beside them.

    A child process made by ``fork`` finds the connection closed, so that the other side sees this
    process end when it ends.

    Args:
        sock: A connected socket; the connection owns it.
        with_fd: The types of incoming frames that bring a file descriptor.

    Attributes:
        torn: Bytes are on their way between the kernel and the buffers. Set on entry, it means that
            an exception struck there, and that the connection is of no more use.
    """

    def __init__(self, sock: socket.socket, with_fd: frozenset[int] = WITH_FD):
        sock.setblocking(False)
        self._sock: socket.socket | None = sock
        self._with_fd = with_fd
        self._recv = sock.recvmsg_into
        self._send = sock.send
        self._buffer = bytearray(1 << 18)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._out = bytearray()
        self._fds: deque[int] = deque()
        self._eof = False
        self._drained = False  # the last read took all that was there
        self.torn = False
        _connections.add(self)

    @property
    def closed(self) -> bool:
        """Whether the connection was closed."""
        return self._sock is None

    @property
    def unusable(self) -> bool:
        """Whether the connection was closed, or an exception struck while it was in use."""
        return self._sock is None or self.torn

    @property
    def drained(self) -> bool:
        """Whether all that was there when it was read last has been taken."""
        return self._drained and self._start == self._end

    def fileno(self) -> int:
        """Returns the socket's descriptor."""
        if self._sock is None:
            raise Disconnected("the connection is closed")
        return self._sock.fileno()

    def close(self) -> None:
        """Closes the socket and the descriptors that were not taken. Idempotent."""
        sock = self._sock
        if sock is not None:
            # socket.close is Python's code: an exception of a signal's handler in it would leave
            # the socket open for as long as something refers to it.
            socket.SocketType.close(sock)
            self._sock = None
        while self._fds:
            os.close(self._fds.popleft())

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, contextlib may be gone before
            self.close()
        except Exception:
            pass

    # Reading.

    def fill(self) -> bool:
        """Reads what is there, without waiting.

        Returns:
            False if there is nothing.

        Raises:
            Disconnected: The other side hung up, and all that it sent has been read.
        """
        if self.torn or self._sock is None:
            raise Disconnected("the connection is closed" if not self.torn else "interrupted")
        if self._eof:
            raise Disconnected("the other side hung up")
        self.torn = True
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._buffer) - self._end < 4096:
            self._make_room()
        room = self._view[self._end : self._end + _CHUNK]
        try:
            n, ancillary, flags, _ = self._recv([room], _FD_SPACE, _CLOEXEC)
        except (BlockingIOError, InterruptedError):
            self.torn = False
            return False
        except OSError as error:
            self.torn = False
            self._eof = True
            raise Disconnected(str(error)) from None
        if ancillary or flags & _CUT:
            self._take_fds(ancillary, flags)
        self._end += n
        # A read ends early where descriptors begin.
        self._drained = n < len(room) and not ancillary
        self.torn = False
        if n == 0:
            self._eof = True
            raise Disconnected("the other side hung up")
        return True

    def _make_room(self) -> None:
        """Moves what was not taken yet to the front of the buffer.

        The buffer grows if that, or the frame that it begins with, needs more room.
        """
        size = self._end - self._start
        need = HEADER.size
        if size >= HEADER.size:
            need += HEADER.unpack_from(self._buffer, self._start)[0]
        need = max(need, size)
        if need > len(self._buffer) - 4096:
            fresh = bytearray(max(2 * len(self._buffer), need + 65536))
            fresh[:size] = self._view[self._start : self._end]
            self._buffer = fresh
            self._view = memoryview(fresh)
        else:
            self._buffer[:size] = self._buffer[self._start : self._end]
        self._start, self._end = 0, size

    def _take_fds(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)
        if flags & _CUT:
            raise ProtocolError(
                "file descriptors were lost in transit: too many open files (ulimit -n)?"
            )

    def frame(self) -> Frame | None:
        """Returns the next whole frame that has been read, or None if there is none.

        The payload is the caller's own. So is the descriptor: the caller closes it.
        """
        have = self._end - self._start
        if have < 8:
            return None
        length, kind = HEADER.unpack_from(self._buffer, self._start)
        if length > MAX_PAYLOAD:
            raise ProtocolError(f"a frame of {length} bytes; at most {MAX_PAYLOAD} are allowed")
        if have < 8 + length:
            return None
        begin = self._start + 8
        payload = self._buffer[begin : begin + length]
        fd = None
        if kind in self._with_fd:
            if not self._fds:
                raise ProtocolError(f"a frame of type {kind} came without its file descriptor")
            fd = self._fds.popleft()
        self._start = begin + length
        return kind, payload, fd

    # Writing.

    def send(self, frame: bytes) -> None:
        """Sends a whole frame; what the socket does not take now is queued.

        Raises:
            Disconnected: The other side hung up.
        """
        if self.torn or self._sock is None:
            raise Disconnected("the connection is closed")
        if self._out:
            self._out += frame
            self.flush()
            return
        self.torn = True
        try:
            n = self._send(frame)
        except (BlockingIOError, InterruptedError):
            n = 0
        except OSError as error:
            self.torn = False
            raise Disconnected(str(error)) from None
        if n != len(frame):
            self._out += memoryview(frame)[n:]
        self.torn = False

    def flush(self) -> bool:
        """Sends what is queued, as far as the socket takes it.

        Returns:
            True if nothing is left.
        """
        if not self._out:
            return True
        if self.torn or self._sock is None:
            raise Disconnected("the connection is closed")
        self.torn = True
        try:
            n = self._send(self._out)
        except (BlockingIOError, InterruptedError):
            n = 0
        except OSError as error:
            self.torn = False
            raise Disconnected(str(error)) from None
        del self._out[:n]
        self.torn = False
        return not self._out

    def send_fds(self, frame: bytes, fds: Sequence[int]) -> None:
        """Sends a frame with descriptors on its first byte, waiting until the socket takes it.

        Raises:
            Disconnected: The other side hung up.
        """
        while not self.flush():
            self.wait(None)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        while True:
            if self.torn or self._sock is None:
                raise Disconnected("the connection is closed")
            try:
                n = self._sock.sendmsg([frame], rights)
                break
            except (BlockingIOError, InterruptedError):
                select.select([], [self._sock], [], 1.0)
            except OSError as error:
                raise Disconnected(str(error)) from None
        self._out += frame[n:]
        self.flush()

    @property
    def writing(self) -> bool:
        """Whether there are bytes that the socket has not taken."""
        return bool(self._out)

    def wait(self, timeout: float | None) -> bool:
        """Waits until there is something to read, or to write if bytes are queued.

        That the other side hung up is something to read.

        Args:
            timeout: Seconds; None means no limit.

        Returns:
            False if the time is up.
        """
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN | (select.POLLOUT if self._out else 0))
        ready = poller.poll(None if timeout is None else max(0.0, timeout) * 1000)
        if ready and self._out and ready[0][1] & select.POLLOUT:
            with contextlib.suppress(Disconnected):
                self.flush()
        return bool(ready)


def encode(kind: int, payload: bytes | bytearray = b"") -> bytes:
    """Returns a whole frame."""
    return HEADER.pack(len(payload), kind) + payload


def encode_json(kind: int, value: Mapping[str, object]) -> bytes:
    """Returns a whole frame with a JSON payload."""
    return encode(kind, json.dumps(value, separators=(",", ":")).encode())


def decode_json(payload: bytes | bytearray) -> dict[str, Any]:
    """Returns a JSON payload.

    Raises:
        ProtocolError: It is no JSON object.
    """
    try:
        value = json.loads(bytes(payload))
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError("not a JSON object")
    return value


def mix64(x: int) -> int:
    """Returns what SplitMix64 draws from the state ``x``, an unsigned 64-bit integer."""
    x = (x + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return x ^ (x >> 31)


def audit_sum(epoch: int, ids: Iterable[int]) -> int:
    """Returns a batch's audit: the sum modulo 2^64 of mix64(epoch << 32 | ID) over its IDs."""
    base = epoch << 32
    return sum(mix64(base | i) for i in ids) & 0xFFFFFFFFFFFFFFFF
