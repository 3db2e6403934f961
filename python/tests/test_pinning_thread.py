"""The thread that pins batches: it ends with its loader, in any case, and keeps nothing alive."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from hdmlp._loading.ahead import Ahead
from hdmlp.errors import ClosedError
from hdmlp.torch._engine import pinning
from hdmlp.torch._engine.pinning import Device, Pinning
from pins import Batch, cuda, made, settle, take, threads  # noqa: F401
from test_ahead import FakeStream
from waiting import LIMIT, until


def test_without_cuda_there_is_no_thread(made, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _stream, source = made(4)
    for position in range(3, 20):
        taken = source.take(position)
        taken = source.next() if taken is None else taken
        assert source.value(taken.content).position == position
    assert (Batch.copied, threads()) == ([], [])


def test_closing_waits_for_the_copy_under_way(made):
    """After it, the daemon's memory may be unmapped."""
    _stream, source = made(4)
    assert take(source, 1) == [3]
    settle(source)
    Batch.gate.clear()
    assert take(source, 1) == [4]
    until(lambda: Batch.copied[-1] == 6, "the copy of batch 6 begins")
    closing = threading.Thread(target=source.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    Batch.gate.set()
    closing.join(LIMIT)
    assert not closing.is_alive()
    assert threads() == []
    assert Batch.copied == [3, 4, 5, 6]
    source.close()


def test_a_copy_that_hangs_holds_up_neither_closing_nor_next(made, monkeypatch):
    monkeypatch.setattr(pinning, "_GRACE", 0.01)
    monkeypatch.setattr(pinning, "_TICK", 0.01)
    _stream, source = made(1)
    Batch.gate.clear()
    caught = []

    def wait():
        with pytest.raises(ClosedError) as error:
            source.next()
        caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: Batch.copied == [3], "the copy begins")
    source.close()
    waiting.join(LIMIT)
    assert caught
    Batch.gate.set()
    until(lambda: not threads(), "the thread ends when its copy does")


def test_a_source_may_be_closed_in_the_thread(made, monkeypatch):
    """As the collector closes loaders in any thread."""
    _stream, source = made(4)
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: source.close() or "closed")
    assert source.value(source.next().content) == "closed"
    until(lambda: not threads(), "the thread ends")
    source.seek(9)
    assert source.value(source.next().content) == "closed"


def test_an_interrupted_close_closes_the_source(made, monkeypatch):
    _stream, source = made(1)
    assert take(source, 1) == [3]
    closed = []
    monkeypatch.setattr(source._source, "close", lambda: closed.append(True))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.close()
    assert closed


def test_a_thread_that_was_not_started_is_not_waited_for(made):
    """As after an interrupted start."""
    _stream, source = made(1)
    source._thread = threading.Thread()
    source.close()


def test_next_starts_a_thread_if_there_is_none(made, monkeypatch):
    """As after an interrupted start."""
    monkeypatch.setattr(pinning, "_TICK", 0.01)
    _stream, source = made(1)
    source._thread = threading.Thread()
    with pytest.raises(ClosedError):
        source.next()
    source.seek(3)
    assert take(source, 2) == [3, 4]


@pytest.mark.parametrize("busy", [False, True])
def test_the_thread_ends_with_a_source_that_is_dropped(cuda, busy):
    device = Device()
    device.note()
    source = Pinning(Ahead(FakeStream(4), lambda taken: Batch(taken.content)), device)
    source.seek(3)
    assert take(source, 1) == [3]
    settle(source)
    if busy:
        Batch.gate.clear()
        assert take(source, 1) == [4]
        until(lambda: Batch.copied[-1] == 6, "the copy of batch 6 begins")
    gone = weakref.ref(source)
    del source
    gc.collect()
    assert gone() is None  # the thread does not keep it
    Batch.gate.set()
    until(lambda: not threads(), "the thread ends")


def test_a_forked_child_has_a_thread_of_its_own(made):
    _stream, source = made(4)
    assert take(source, 1) == [3]
    settle(source)
    Batch.gate.clear()
    assert take(source, 1) == [4]
    until(lambda: Batch.copied[-1] == 6, "the copy of batch 6 begins")
    child = os.fork()
    if not child:
        status = 1
        try:
            Batch.gate = threading.Event()
            Batch.gate.set()
            source.seek(30)
            if take(source, 3) == [30, 31, 32]:
                source.close()
                status = len(threads())
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    Batch.gate.set()
    assert take(source, 5) == list(range(5, 10))


EXIT = """
    import atexit, threading, time

    @atexit.register  # called after those of what is imported now
    def tell():
        print([t.name for t in threading.enumerate()])

    import torch
    from hdmlp._loading.ahead import Ahead
    from hdmlp.torch._engine.pinning import Device, Pinning
    from test_ahead import FakeStream

    class Batch:
        def pin_memory(self):
            begun.set()
            time.sleep(0.2)
            return "pinned"

    begun, device = threading.Event(), Device()
    device.number = 0
    torch.cuda.set_device = lambda n: None
    source = Pinning(Ahead(FakeStream(4), lambda taken: Batch()), device)
    source.seek(0)
    source.value(source.next().content)
    begun.clear()
    begun.wait()
"""


def test_the_thread_ends_before_the_interpreter(monkeypatch):
    """In the middle of a copy. Python would end it where it is, in torch's code."""
    run = [sys.executable, "-c", textwrap.dedent(EXIT)]
    tests = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), tests, *sys.path])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['MainThread']\n", "")
