"""Frames: partial ones, descriptors, what must be refused."""

import os
import random
import socket
import struct

import pytest

from hdmlp import _protocol as protocol
from hdmlp.errors import ProtocolError


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    connection = protocol.Connection(ours)
    yield connection, theirs
    connection.close()
    theirs.close()


def frames(connection):
    got = []
    while connection.fill():
        frame = connection.frame()
        while frame is not None:
            got.append(frame)
            frame = connection.frame()
    return got


def test_any_cut_gives_the_same_frames(pair):
    connection, theirs = pair
    rng = random.Random(1)
    sent = [(rng.choice([132, 133, 135]), rng.randbytes(rng.choice([0, 1, 50, 3000]))) for _ in range(300)]
    stream = b"".join(protocol.encode(kind, payload) for kind, payload in sent)
    got = []
    while stream:
        n = rng.choice([1, 3, 7, 8, 9, 100, 5000])
        theirs.sendall(stream[:n])
        stream = stream[n:]
        got += frames(connection)
    assert [(kind, bytes(payload)) for kind, payload, _ in got] == sent


def test_a_frame_larger_than_the_buffer(pair):
    connection, theirs = pair
    theirs.setblocking(False)
    data = memoryview(protocol.encode(133, bytes(range(256)) * 4096 * 4))
    got = []
    while data:
        try:
            data = data[theirs.send(data):]
        except BlockingIOError:
            pass
        got += frames(connection)
    assert len(got) == 1 and got[0][1] == bytes(range(256)) * 4096 * 4


def test_descriptors_go_with_their_frames(pair):
    connection, theirs = pair
    fds = [os.memfd_create(str(i)) for i in range(3)]
    for i, fd in enumerate(fds):
        theirs.sendall(protocol.encode(135, b"x"))
        os.write(fd, str(i).encode())
        socket.send_fds(theirs, [protocol.encode(131, bytes([i]))], [fd])
    got = [(payload, fd) for kind, payload, fd in frames(connection) if kind == 131]
    for payload, fd in got:
        assert os.pread(fd, 9, 0) == str(payload[0]).encode()
        assert not os.get_inheritable(fd)
        os.close(fd)
    for fd in fds:
        os.close(fd)


def test_refused(pair):
    connection, theirs = pair
    theirs.sendall(struct.pack("<IB3x", protocol.MAX_PAYLOAD + 1, 132))
    connection.fill()
    with pytest.raises(ProtocolError, match="at most"):
        connection.frame()


def test_a_segment_without_its_descriptor_is_refused(pair):
    connection, theirs = pair
    theirs.sendall(protocol.encode(131, bytes(16)))
    connection.fill()
    with pytest.raises(ProtocolError, match="descriptor"):
        connection.frame()


def test_writing_does_not_wait(pair):
    connection, theirs = pair
    frame = protocol.encode(6, bytes(100_000))
    for _ in range(20):
        connection.send(frame)
    assert connection.writing
    received = 0
    while received < 20 * len(frame):
        received += len(theirs.recv(1 << 20))
        connection.flush()
    assert not connection.writing


def test_audit():
    assert protocol.mix64(0) == 0xE220A8397B1DCDAF  # SplitMix64's first output from state 0
    assert protocol.audit_sum(1, [2, 3]) == (protocol.mix64(1 << 32 | 2) + protocol.mix64(1 << 32 | 3)) % 2**64
