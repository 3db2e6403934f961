"""The daemon's end of a stream, which a test controls frame by frame in one thread: what it sends
is in the socket before the stream reads."""

import contextlib
import os
import socket
import struct
import uuid

from hdmlp._batches.stream import Stream
from hdmlp._daemon import connecting
from hdmlp._lib import protocol

PAGE = 4096


def memory(content=b""):
    """Returns a descriptor of a memfd with this content, and its unique name."""
    name = uuid.uuid4().hex
    fd = os.memfd_create(name)
    os.pwrite(fd, content, 0)
    return fd, name


def descriptors(name):
    """The number of descriptors of the memfd of that name that this process has."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed by another thread
            count += os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{name} ")
    return count


class Peer:
    """Opens a stream, and answers it as the test defines.

    Args:
        folder: any directory.
        on_segment, on_drop: what the stream is given.
        **opened: keys of OPENED.

    Attributes:
        stream: the stream.
        segments: the content of each segment that was sent, by number; names: of their memfds.
    """

    def __init__(self, folder, on_segment=None, on_drop=None, **opened):
        ours, self.socket = socket.socketpair()
        self.segments, self.names, self._fds = {}, {}, []
        self._unread = b""
        self.say_json(
            protocol.OPENED,
            {
                "samples": 100,
                "classes": ["a"],
                "seed": 1,
                "steps": 100,
                "fingerprint": "f",
                "outputs": [{"field": "", "shape": None, "type": ""}],
                **opened,
            },
        )
        client = connecting.Client(protocol.Connection(ours), {"pid": os.getpid()}, None)
        request = {"dataset": {"path": folder}, "arguments": {}, "environment": {}}
        self.stream = Stream(client, request, on_segment=on_segment, on_drop=on_drop)
        self.heard()

    def close(self):
        self.stream.close()
        self.socket.close()
        for fd in self._fds:
            os.close(fd)

    def say(self, kind, payload=b"", fd=None):
        frame = protocol.encode(kind, payload)
        if fd is None:
            self.socket.sendall(frame)
        else:
            socket.send_fds(self.socket, [frame], [fd])

    def say_json(self, kind, value):
        self.say(kind, protocol.encode_json(kind, value)[protocol.HEADER.size :])

    def segment(self, number, size, flags=protocol.WRITABLE):
        """Sends a segment of so many bytes, whose content gives their place."""
        content = bytes((i * 7 % 251 ^ number) & 0xFF for i in range(size))
        fd, self.names[number] = memory(content)
        self._fds.append(fd)
        os.ftruncate(fd, size + (PAGE if flags & protocol.RETURNS else 0))
        self.segments[number] = content
        self.say(protocol.SEGMENT, protocol.SEGMENT_BODY.pack(number, flags, size), fd)
        return fd

    def batch(self, generation, position, places, slots=()):
        """Sends a batch of the samples at these places: (segment, offset, length)."""
        epoch, step = divmod(position, self.stream.steps)
        n, m = len(places), len(slots)
        segments, offsets, lengths = zip(*places) if n else ((), (), ())
        self.say(
            protocol.BATCH,
            protocol.BATCH_HEAD.pack(generation, epoch, step, n, m, 0)
            + struct.pack(
                f"<{n}q{n}Q{n}Q{n}I{n}I{n}I{m}I",
                *range(n),
                *offsets,
                *lengths,
                *range(n),
                *[0] * n,
                *segments,
                *slots,
            ),
        )

    def content(self, places):
        """The content of the samples at these places."""
        return [self.segments[s][o : o + length] for s, o, length in places]

    def fail(self, generation, message):
        """Sends the error that ends a generation."""
        self.say_json(
            protocol.ERROR, {"kind": "sample", "message": message, "generation": generation}
        )

    def heard(self):
        """What the stream has said since: ("ITERATE", generation, epoch, step), ("ACK", generation,
        epoch, step, slots), ("WAIT", generation), ("RAISED", generation), ("CALL", method)."""
        self.socket.setblocking(False)
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 8)
                for fd in fds:
                    os.close(fd)
                if not data:
                    break
                self._unread += data
        except BlockingIOError:
            pass
        self.socket.setblocking(True)
        said = []
        while len(self._unread) >= protocol.HEADER.size:
            length, kind = protocol.HEADER.unpack_from(self._unread)
            payload, self._unread = self._unread[8 : 8 + length], self._unread[8 + length :]
            if kind == protocol.ITERATE:
                said.append(("ITERATE", *struct.unpack("<QII", payload)))
            elif kind == protocol.ACK:
                generation, epoch, step, _, _, _, n = struct.unpack_from("<QIIQQQI", payload)
                said.append(
                    (
                        "ACK",
                        generation,
                        epoch,
                        step,
                        list(struct.unpack_from(f"<{n}I", payload, 44)),
                    )
                )
            elif kind == protocol.WAIT:
                said.append(("WAIT", *struct.unpack("<Q", payload)))
            elif kind == protocol.RAISED:
                said.append(("RAISED", *struct.unpack("<Q", payload)))
            elif kind == protocol.CALL:
                said.append(("CALL", protocol.decode_json(payload)["method"]))
            else:
                said.append((kind,))
        return said
