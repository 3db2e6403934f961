"""A fake of CUDA's pinned memory, for tests on machines without a GPU, and a source that pins the
batches of a fake stream.

The fixtures are for modules to import.
"""

import threading

import pytest
import torch
from hdmlp._loading.ahead import Ahead
from hdmlp.torch._engine.pinning import Device, Pinning
from test_ahead import FakeStream
from waiting import LIMIT, until

#: The device that is current in every thread.
DEVICE = 3


class Pinned(torch.Tensor):
    """Stands for a tensor in pinned memory."""


class Cuda:
    """What the program asked CUDA for.

    Attributes:
        gate: While it is not set, copies wait.
        begun: Threads, by their numbers, that began to copy a tensor, in order.
        devices: (thread, device) that were set.
        fails: Called with each tensor before it is copied; None: nothing is.
    """

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.begun, self.devices, self.fails = [], [], None

    def pin(self, tensor, *_):
        self.begun.append(threading.get_ident())
        assert self.gate.wait(LIMIT)
        if self.fails is not None:
            self.fails(tensor)
        return tensor.clone().as_subclass(Pinned)

    def set_device(self, number):
        self.devices.append((threading.get_ident(), number))

    @property
    def here(self):
        """How many tensors this thread copied."""
        return self.begun.count(threading.get_ident())


def threads():
    """The threads that copy."""
    return [thread for thread in threading.enumerate() if thread.name == "hdmlp-pin"]


@pytest.fixture
def cuda(monkeypatch):
    """CUDA is available. No thread that copies may remain after the test."""
    before = threads()
    fake = Cuda()
    Batch.copied, Batch.errors = [], {}
    Batch.gate.set()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x, *_: fake.pin(x))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: DEVICE)
    monkeypatch.setattr(torch.cuda, "set_device", fake.set_device)
    if hasattr(torch, "accelerator"):  # which torch's own loader asks
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: DEVICE)
        monkeypatch.setattr(torch.accelerator, "set_device_index", fake.set_device)
    yield fake
    fake.gate.set()
    # A close that was interrupted does not wait for its thread.
    until(lambda: threads() == before, "the end of threads that copy")


class Batch:
    """A batch of the user's own type.

    Attributes:
        copied: Positions whose copy has begun, in order.
        gate: While it is not set, copies wait.
        errors: What copies raise, by position.
    """

    copied, errors = [], {}
    gate = threading.Event()

    def __init__(self, position):
        self.position = position

    def pin_memory(self):
        Batch.copied.append(self.position)
        assert Batch.gate.wait(LIMIT)
        if self.position in Batch.errors:
            raise Batch.errors[self.position]
        return "pinned", self.position, threading.current_thread().name


@pytest.fixture
def made(cuda):
    """Makes a stream and what pins its batches, of which so many are ready at a time."""
    opened = []

    def make(ready, errors=()):
        stream, device = FakeStream(ready, errors), Device()
        device.note()
        source = Pinning(Ahead(stream, lambda taken: Batch(taken.content)), device)
        opened.append(source)
        source.seek(3)
        return stream, source

    yield make
    Batch.gate.set()
    for source in opened:
        source.close()


def take(source, n):
    """Takes batches as an iteration does: those that are there at once, else after a wait."""
    out = []
    for _ in range(n):
        position = source.position
        taken = source.take(position)
        value = source.value(source.next().content) if taken is None else taken.content
        assert value == ("pinned", position, "hdmlp-pin")
        out.append(position)
    return out


def settle(source):
    """Waits until what was begun is copied."""
    until(lambda: all(copy.wait(0) for copy in source._copies), "all copies are made")
