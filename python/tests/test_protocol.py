"""Frames: partial ones, descriptors, and what must be refused."""

import contextlib
import os
import random
import resource
import signal
import socket
import struct

import pytest
from hdmlp._lib import protocol
from hdmlp.errors import ProtocolError
from peer import descriptors, memory


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


def test_frames_do_not_depend_on_how_bytes_arrive(pair):
    connection, theirs = pair
    rng = random.Random(1)
    sent = [
        (rng.choice([132, 133, 135]), rng.randbytes(rng.choice([0, 1, 50, 3000])))
        for _ in range(300)
    ]
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
        with contextlib.suppress(BlockingIOError):
            data = data[theirs.send(data) :]
        got += frames(connection)
    assert len(got) == 1
    assert got[0][1] == bytes(range(256)) * 4096 * 4


@pytest.mark.parametrize("size", [1000, 100_000, 250_000, 300_000])
def test_frames_can_wait_in_the_buffer(pair, size):
    """They may be larger together than the buffer was at first, and than any single frame needs."""
    connection, theirs = pair
    sent = [bytes([i % 251]) * size for i in range(1_000_000 // size)]
    for payload in sent:
        data = memoryview(protocol.encode(132, payload))
        while data:
            data = data[theirs.send(data[:100_000]) :]
            while connection.fill():
                pass
    assert [bytes(connection.frame()[1]) for _ in sent] == sent
    assert connection.frame() is None
    assert not connection.fill()


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


def test_invalid_frames_are_refused(pair):
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


def test_frames_keep_their_order_after_a_partial_write(pair):
    connection, theirs = pair
    sent = [protocol.encode(6, bytes([i]) * 100_000) for i in range(20)]
    for frame in sent[:10]:
        connection.send(frame)
    assert connection.writing
    received = theirs.recv(1 << 17)  # there is room again, and frames in the queue
    for frame in sent[10:]:
        connection.send(frame)
    while len(received) < sum(map(len, sent)):
        received += theirs.recv(1 << 20)
        connection.flush()
    assert received == b"".join(sent)


def test_lost_descriptors_are_an_error(pair):
    """Otherwise a later frame would get another frame's descriptor."""
    connection, theirs = pair
    fd = os.memfd_create("x")
    socket.send_fds(theirs, [protocol.encode(131, b"")], [fd])
    before, gaps = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                gaps.append(os.dup(fd))
        with pytest.raises(ProtocolError, match="lost in transit: too many open files"):
            connection.fill()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for gap in (fd, *gaps):
            os.close(gap)


def test_unread_descriptors_are_closed_with_the_connection(pair):
    connection, theirs = pair
    fd, name = memory()
    for _ in range(3):
        socket.send_fds(theirs, [protocol.encode(131, b"")], [fd])
    while connection.fill():
        pass
    assert descriptors(name) == 1 + 3
    connection.close()
    assert descriptors(name) == 1
    os.close(fd)


def test_a_forked_child_does_not_hold_the_connection(pair):
    """Otherwise the other side would not notice the end of this process."""
    connection, theirs = pair
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        theirs.close()
        os.write(writes, b"closed" if connection.closed else b"open")
        signal.pause()
    try:
        assert os.read(reads, 10) == b"closed"
        connection.close()
        assert theirs.recv(1) == b""  # though the child lives
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reads), os.close(writes)


def test_audit_sums_are_the_daemons():
    assert protocol.mix64(0) == 0xE220A8397B1DCDAF  # SplitMix64's first output from state 0
    assert (
        protocol.audit_sum(1, [2, 3])
        == (protocol.mix64(1 << 32 | 2) + protocol.mix64(1 << 32 | 3)) % 2**64
    )
