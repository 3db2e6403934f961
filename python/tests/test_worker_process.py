"""One worker, as the training process talks to it: tasks, segments, and memory for batches."""

import contextlib
import os
import socket
import struct
import threading

import pytest

torch = pytest.importorskip("torch")

from hdmlp._batches.segments import Segment
from hdmlp._lib import protocol
from hdmlp._transforms.recipe import Recipe
from hdmlp._workers import child, results
from hdmlp._workers.child import Worker
from hdmlp._workers.results import SLOT_BODY
from peer import memory


class Task:
    """A worker without a process, and the training process's end of its connection."""

    def __init__(self, loader, stack=None):
        mine, theirs = socket.socketpair()
        self.connection = protocol.Connection(mine, child.FROM_WORKER_WITH_FD)
        self.worker = Worker(theirs, Recipe(loader, None, None, list, stack), 1)
        self.slots = {}
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with contextlib.suppress(protocol.Disconnected):
            self.worker.run()

    def segment(self, number, content):
        fd, _ = memory(content)
        self.connection.send_fds(
            protocol.encode(protocol.SEGMENT, protocol.SEGMENT_BODY.pack(number, 0, len(content))),
            [fd],
        )
        os.close(fd)

    def ask(self, number, places):
        """Has a batch made of the samples at (segment, offset, length)."""
        n = len(places)
        segments, offsets, lengths = zip(*places)
        self.connection.send(
            protocol.encode(
                child.TASK,
                protocol.U64.pack(number)
                + protocol.BATCH_HEAD.pack(1, 0, number, n, 0, 0)
                + struct.pack(
                    f"<{n}q{n}Q{n}Q{n}I{n}I{n}I",
                    *range(n),
                    *offsets,
                    *lengths,
                    *range(n),
                    *[0] * n,
                    *segments,
                ),
            )
        )

    def answer(self):
        """The result of the next task: a batch, or an error."""
        while True:
            frame = self.connection.frame()
            if frame is None:
                self.connection.fill() or self.connection.wait(None)
                continue
            kind, payload, fd = frame
            if kind == child.SLOT:
                number, _, size = SLOT_BODY.unpack(payload)
                self.slots[number] = Segment(fd, size, True)
                os.close(fd)
            elif kind == child.RESULT:
                return results.decode(payload, self.slots, lambda numbers: None)
            elif kind == child.FAILED:
                return child.rebuild_error(bytes(payload[8:]))[0]

    def close(self):
        self.connection.close()
        self.thread.join()


def test_a_worker_drops_a_segment_after_the_batches_before():
    task = Task(bytes)
    for number in (1, 2):
        task.segment(number, bytes([number]) * 100)
        task.ask(number, [(number, 10, 5), (number, 95, 5)])
        task.connection.send(protocol.encode(protocol.DROP, protocol.U32.pack(number)))
    for number in (1, 2):
        assert task.answer() == [(bytes([number]) * 5, 0), (bytes([number]) * 5, 1)]
    task.ask(3, [(1, 0, 5)])
    assert isinstance(task.answer(), KeyError)  # and so the drops before have been seen to
    assert not task.worker._segments
    task.close()


def test_a_worker_skips_batches_that_were_given_up():
    made = []
    task = Task(lambda view: made.append(bytes(view)))
    task.segment(1, b"abc")
    task.connection.send(protocol.encode(child.CANCEL, protocol.U64.pack(2)))
    for number in (1, 2, 3):
        task.ask(number, [(1, number - 1, 1)])
    task.answer()
    assert made == [b"c"]
    task.close()


def test_a_workers_memory_for_a_batch_that_failed_is_used_again():
    failing = [True]

    def stack(batch, place):
        memory, offset = place.reserve(1000)
        if failing:
            failing.pop()
            raise LookupError("no batch")
        return torch.frombuffer(memory, dtype=torch.uint8, count=1000, offset=offset)

    task = Task(bytes, stack)
    task.segment(1, b"abc")
    for number in (1, 2):
        task.ask(number, [(1, 0, 3)])
    assert isinstance(task.answer(), LookupError)
    assert len(task.answer()) == 1000
    assert len(task.slots) == 1
    task.close()


def test_a_transform_gets_a_writable_copy():
    """Of tensors that the daemon hands over."""
    from hdmlp._batches.output import Handed, Output

    handed = Handed("tensor")
    handed.output = Output({"shape": [4], "type": "float32"})
    content = bytearray(torch.arange(4.0).numpy().tobytes())
    made = handed(memoryview(content).toreadonly(), 0)
    made += 1
    assert made.tolist() == [1, 2, 3, 4]
    assert torch.frombuffer(content, dtype=torch.float32).tolist() == [0, 1, 2, 3]
