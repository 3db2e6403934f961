"""Batches that a thread pins ahead of next(), in front of a fake stream: their order, what is given
up, and errors."""

import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from hdmlp.errors import ClosedError, SampleError
from hdmlp.torch._engine import pinning
from hdmlp.torch._engine.pinning import _MOST
from pins import DEVICE, Batch, cuda, made, settle, take, threads  # noqa: F401
from waiting import until


@pytest.mark.parametrize("ready", [1, 2, 4, 10_000])
def test_batches_come_in_order_pinned_by_the_thread(made, ready):
    _stream, source = made(ready)
    assert take(source, 60) == list(range(3, 63))
    settle(source)
    assert Batch.copied[:60] == list(range(3, 63))
    assert len(threads()) == 1


def test_batches_are_copied_ahead_up_to_a_limit(made):
    _stream, source = made(10_000)
    assert take(source, 1) == [3]
    for position in range(4, 30):
        settle(source)
        assert Batch.copied == list(range(3, position + _MOST))
        before = list(Batch.copied)
        Batch.gate.clear()  # whatever is copied now waits
        assert source.take(position).content == ("pinned", position, "hdmlp-pin")
        until(lambda: len(Batch.copied) > len(before), "the next copy begins")  # noqa: B023
        Batch.gate.set()


def test_a_batch_that_is_not_copied_yet_is_waited_for(made, monkeypatch):
    """The wait is Python's part of the stall; the stream's is not."""
    _stream, source = made(10_000)
    assert take(source, 1) == [3]
    settle(source)
    assert take(source, 1) == [4]
    settle(source)
    clock, wait = iter(range(0, 1000, 11)), source._wait

    def opened(copy):
        Batch.gate.set()
        wait(copy)

    monkeypatch.setattr(pinning.time, "perf_counter_ns", lambda: next(clock))
    source._wait = opened
    assert source.next().content.get()[1] == 5
    assert (source.stall, source.python) == (0, 0)
    settle(source)
    Batch.gate.clear()
    assert source.next().content.get()[1] == 6
    assert source.take(7).content[1] == 7
    assert source.take(8) is None
    assert source.next().content.get()[1] == 8
    assert (source.stall, source.python) == (11, 11)
    settle(source)
    source.seek(50)
    Batch.gate.clear()
    assert source.next().content.get()[1] == 50
    assert (source.stall, source.python) == (7 + 11, 11)


def test_a_batchs_memory_is_given_back_when_its_copy_is_made(made, monkeypatch):
    """And not when it is yielded."""
    alive = []

    class Watched(Batch):
        def __init__(self, position):
            super().__init__(position)
            alive.append(weakref.ref(self))

    _stream, source = made(3)
    source._source._make = lambda taken: Watched(taken.content)
    assert take(source, 1) == [3]
    settle(source)
    assert [ref() for ref in alive] == [None] * 3
    assert take(source, 2) == [4, 5]


@pytest.mark.parametrize("at", range(3, 9))
def test_a_failed_copy_is_raised_at_its_batch_once(made, at):
    Batch.errors[at] = error = RuntimeError("CUDA error: out of memory")
    _stream, source = made(4)
    assert take(source, at - 3) == list(range(3, at))
    settle(source)
    assert source.take(at) is None
    taken = source.next()
    assert taken.epoch * 5 + taken.step == at
    with pytest.raises(RuntimeError) as caught:
        source.value(taken.content)
    assert caught.value is error
    assert take(source, 9) == list(range(at + 1, at + 10))


def fails(device):
    raise RuntimeError(f"CUDA error: invalid device ordinal {device}")


@pytest.mark.parametrize("early", [False, True])
def test_a_failed_copys_error_does_not_keep_the_batch(made, monkeypatch, early):
    """Neither before it is raised, nor in its traceback."""
    if early:
        monkeypatch.setattr(torch.cuda, "set_device", fails)
    else:
        Batch.errors[3] = RuntimeError("CUDA error: out of memory")
    _stream, source = made(1)
    batches = []
    make = source._source._make
    source._source._make = lambda taken: batches.append(weakref.ref(it := make(taken))) or it
    taken = source.next()
    assert batches[0]() is None
    with pytest.raises(RuntimeError) as caught:
        source.value(taken.content)
    assert caught.value.__traceback__ is not None
    assert batches[0]() is None


@pytest.mark.parametrize("at", range(3, 9))
def test_an_error_of_the_stream_comes_after_the_batches_before_it(made, at):
    stream, source = made(4, {at: SampleError("no such sample")})
    assert take(source, at - 3) == list(range(3, at))
    stream.broken = True  # as when the daemon is gone
    if at not in (3, 7):  # where it is known already
        assert not source.broken
        assert source.position == at
    with pytest.raises(SampleError, match="no such sample"):
        source.next()
    assert source.broken
    stream.broken = False
    source.seek(at)  # and again
    assert take(source, 5) == list(range(at, at + 5))


def test_batches_after_another_ranks_stop_are_not_yielded(made):
    stream, source = made(4)
    assert take(source, 2) == [3, 4]
    stream.end = 6
    assert take(source, 1) == [5]
    settle(source)
    assert source.take(6) is None
    with pytest.raises(SampleError):
        source.next()
    stream.end = None
    source.seek(20)
    assert take(source, 5) == list(range(20, 25))


GIVE_UP = {
    "seek": lambda source: source.seek(20),
    "seek to where the stream is": lambda source: source.seek(source._source._stream.position),
    "back": lambda source: source.seek(4),
    "restart": lambda source: (source.restart(), source.seek(source._source._stream.steps)),
}


@pytest.mark.parametrize("give_up", GIVE_UP.values(), ids=GIVE_UP)
def test_what_is_given_up_is_neither_yielded_nor_copied(made, give_up):
    stream, source = made(8)
    assert take(source, 1) == [3]
    settle(source)
    Batch.gate.clear()
    assert take(source, 2) == [4, 5]
    until(lambda: Batch.copied[-1] == 6, "the copy of batch 6 begins")  # that of 7 is queued
    give_up(source)
    at = source.position
    assert len(stream.seeks) == 2
    threading.Timer(0.05, Batch.gate.set).start()
    assert take(source, 6) == list(range(at, at + 6))
    assert Batch.copied[:5] == [3, 4, 5, 6, at]


def test_copies_of_what_the_source_gave_up_by_itself_are_not_yielded(made):
    stream, source = made(4)
    assert take(source, 1) == [3]
    settle(source)
    source._source._made.clear()
    stream.position = 20
    assert take(source, 6) == list(range(20, 26))


def test_batches_are_not_pinned_once_cuda_is_gone(made, monkeypatch):
    """What was begun is."""
    _stream, source = made(8)
    assert take(source, 1) == [3]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    source._device.note()
    settle(source)
    assert take(source, 2) == [4, 5]
    for position in range(6, 30):
        taken = source.take(position) or source.next()
        assert source.value(taken.content).position == position
    assert Batch.copied == [3, 4, 5]


def interrupt(source, monkeypatch):
    """Interrupts the wait for batch 4 of a source; the next ones are being copied then."""
    assert take(source, 1) == [3]
    settle(source)
    with monkeypatch.context() as patch:
        patch.setattr(pinning._Copy, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.next()


def test_an_interrupted_wait_loses_no_batch(made, monkeypatch):
    """Whether the user seeks what it has not had, or goes on."""
    for seeks in (False, True):
        _stream, source = made(4)
        interrupt(source, monkeypatch)
        assert (source.position, source.take(4)) == (4, None)
        if seeks:
            source.seek(4)
        assert take(source, 6) == list(range(4, 10))
        assert source.position == 10


def test_an_interrupt_as_a_wait_ends_does_not_block_the_next_one(made, monkeypatch):
    """Ctrl-C may come when the lock is taken and before anything else has happened."""
    _stream, source = made(4)
    assert take(source, 1) == [3]
    settle(source)

    def ended(copy, seconds):
        assert copy._done.acquire(timeout=30)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pinning._Copy, "wait", ended)
        with pytest.raises(KeyboardInterrupt):
            source.next()
    assert take(source, 6) == list(range(4, 10))


@pytest.mark.parametrize("to", [3, 5, 6, 40])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_of_an_interrupted_wait_is_given_up(made, monkeypatch, to, restarts):
    _stream, source = made(4)
    interrupt(source, monkeypatch)
    if restarts:
        source.restart()
    source.seek(to)
    assert source.position == to
    assert take(source, 6) == list(range(to, to + 6))


def test_a_copy_of_a_source_that_was_closed_is_not_yielded(made):
    _stream, source = made(4)
    Batch.gate.clear()
    copy = source._begin(Batch(3))
    source.close()
    Batch.gate.set()
    with pytest.raises(ClosedError):
        copy.get()


def interrupted(*_):
    raise KeyboardInterrupt


def test_the_thread_has_the_device_of_the_iterators(made, cuda, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda n: cuda.devices.append(("threads", n)))
    _stream, source = made(1)
    take(source, 3)
    thread = source._thread.ident
    assert cuda.devices == [("threads", 1), (thread, DEVICE)]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5)
    source._device.note()
    take(source, 3)
    assert cuda.devices[2:] == [(thread, 5)]


def test_making_an_iterator_does_not_initialize_cuda(made, cuda, monkeypatch):
    """The device is then the first one. A process that was forked cannot use CUDA any more."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("CUDA is initialized"))
    _stream, source = made(1)
    take(source, 2)
    assert [device for _, device in cuda.devices] == [0]


def test_a_device_that_cannot_be_set_is_raised(made, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "set_device", fails)
        _stream, source = made(1)
        with pytest.raises(RuntimeError, match=f"ordinal {DEVICE}"):
            source.value(source.next().content)
    assert take(source, 3) == [4, 5, 6]
