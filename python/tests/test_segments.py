"""Segments of storage classes, which the daemon drops one by one, and the views that are left."""

import contextlib
import gc
import inspect
import os
import sys
from types import SimpleNamespace

import pytest
import torch  # noqa: F401
from hdmlp._batches.segments import Block, Lease
from hdmlp._lib import protocol
from hdmlp._loading.ahead import Ahead
from hdmlp._workers import child as _worker
from peer import Peer
from test_worker_process import Task
from test_workers import played

CLASS = 1 << 31
GONE = (protocol.GONE,)


@pytest.fixture
def peer(tmp_path):
    made = Peer(str(tmp_path))
    for number in range(3):
        made.segment(CLASS + number, 1000, flags=0)
    made.stream.seek(0)
    yield made
    made.close()


def drop(peer, number):
    peer.say(protocol.DROP, protocol.U32.pack(CLASS + number))


def test_a_batch_lies_in_several_segments(peer):
    places = [(CLASS + i % 3, 10 * i, i) for i in range(30)]
    peer.batch(1, 0, places)
    views = peer.stream.poll().content
    assert [bytes(view) for view in views] == peer.content(places)
    assert all(view.readonly for view in views)


@pytest.mark.parametrize("place", [(CLASS + 3, 0, 10), (CLASS, 995, 10)])
def test_a_batch_beyond_the_segments_is_refused(peer, place):
    peer.batch(1, 0, [(CLASS + 1, 0, 10), place])
    with pytest.raises(protocol.ProtocolError, match=r"names segment|beyond its segment"):
        peer.stream.poll()


def test_a_segment_without_views_is_gone_at_once(peer):
    peer.batch(1, 0, [(CLASS, 0, 10)])
    drop(peer, 0)
    peer.batch(1, 1, [(CLASS + 1, 0, 10)])
    taken = peer.stream.poll()
    assert [bytes(view) for view in taken.content] == peer.content([(CLASS, 0, 10)])
    del taken
    assert GONE not in peer.heard()  # it comes after the batch
    assert peer.stream.poll() is not None
    assert peer.heard()[-1] == GONE
    assert CLASS not in peer.stream._staging.segments


def test_a_view_keeps_a_segment_that_was_dropped(peer):
    places = [(CLASS, 3, 10), (CLASS + 1, 5, 10)]
    peer.batch(1, 0, places)
    drop(peer, 0)
    views = peer.stream.poll().content
    part = views[0][2:8]
    assert peer.stream.poll() is None
    peer.stream.return_slots()
    assert GONE not in peer.heard()
    del views
    gc.collect()
    peer.stream.return_slots()
    assert GONE not in peer.heard()
    assert bytes(part) == peer.content(places)[0][2:8]
    del part
    peer.stream.return_slots()
    assert peer.heard()[-1] == GONE


def test_an_acknowledgement_says_what_is_gone(peer):
    peer.batch(1, 0, [(CLASS, 3, 10)])
    taken = peer.stream.poll()
    drop(peer, 0)
    assert peer.stream.poll() is None
    del taken
    peer.stream.ack(0, 0, 0, 0, 0)
    assert peer.heard()[-1] == GONE


def test_batches_made_ahead_keep_their_segments(peer):
    kept = Ahead(peer.stream, lambda taken: taken.content)
    places = [[(CLASS, 10 * i, 10)] for i in range(3)]
    for position in range(3):
        peer.batch(1, position, places[position])
    drop(peer, 0)
    first = kept.next()
    assert len(kept._made) == 2
    assert GONE not in peer.heard()
    assert [bytes(view) for view in first.content] == peer.content(places[0])
    assert bytes(kept.next().content[0]) == peer.content(places[1])[0]
    del first
    kept.forget()  # as in a forked child
    peer.stream.return_slots()
    assert peer.heard()[-1] == GONE


def test_a_forked_child_maps_only_what_it_refers_to(peer):
    """Else the memory of segments that are dropped is not freed as long as it lives."""
    places = [(CLASS, 3, 10)]
    peer.batch(1, 0, places)
    views = peer.stream.poll().content

    def mapped():
        with open("/proc/self/maps") as maps:
            text = maps.read()
        return [f"memfd:{name} " in text for name in peer.names.values()]

    assert mapped() == [True, True, True]
    child = os.fork()
    if not child:
        right = mapped() == [True, False, False] and bytes(views[0]) == peer.content(places)[0]
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert mapped() == [True, True, True]


def test_a_segment_is_gone_when_all_workers_have_dropped_it(tmp_path):
    context, pool, peer = played(tmp_path)
    for number in range(2):
        peer.segment(CLASS + number, 100, flags=0)
    pool.seek(0)
    peer.batch(1, 0, [(CLASS, 0, 10)])
    drop(peer, 0)
    drop(peer, 1)
    pool.start()
    pool.start()
    kinds = [kind for kind, _ in context.heard()]
    assert kinds[-3:] == [_worker.TASK, protocol.DROP, protocol.DROP]
    assert GONE not in peer.heard()
    context.connection.send(protocol.encode(protocol.GONE, protocol.U32.pack(CLASS)))
    pool.start()
    peer.stream.return_slots()
    assert peer.heard().count(GONE) == 1
    pool.renew(None)  # the worker ends, and maps nothing any more
    peer.stream.return_slots()
    assert peer.heard().count(GONE) == 1
    pool.close(), peer.close(), context.connection.close()


def test_a_worker_says_when_its_last_view_is_gone():
    kept = []
    task = Task(lambda view: kept.append(view) or bytes(view))
    for number in (CLASS + 1, CLASS + 2):
        task.segment(number, b"x" * 100)

    def dropped(number, expected):
        task.ask(number & 7, [(number, 0, 5)])
        task.connection.send(protocol.encode(protocol.DROP, protocol.U32.pack(number)))
        task.ask(7, [(CLASS + 3, 0, 5)])  # fails
        gone = []
        while True:
            frame = task.connection.frame()
            if frame is None:
                task.connection.fill() or task.connection.wait(None)
            elif frame[0] == protocol.GONE:
                gone.append(protocol.U32.unpack(frame[1])[0])
            elif frame[0] == _worker.FAILED:
                break
            elif frame[2] is not None:
                os.close(frame[2])
        assert gone == expected

    dropped(CLASS + 1, [])
    assert bytes(kept[0]) == b"xxxxx"
    kept.clear()
    dropped(CLASS + 2, [CLASS + 1])
    task.close()


@pytest.mark.parametrize("line", range(5))
@pytest.mark.parametrize("kind", [Lease, Block])
def test_a_lease_whose_making_is_interrupted_is_dropped_quietly(monkeypatch, kind, line):
    """By Ctrl-C at any line. If it has its slots, they go back."""
    returned, complaints, ran = [], [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda why: complaints.append(why.exc_value))

    def interrupt(frame, event, _):
        if frame.f_code is not kind.__init__.__code__:
            return None
        if event == "line":
            if len(ran) == line:
                raise KeyboardInterrupt
            ran.append("slots" in source[frame.f_lineno - first])
        return interrupt

    source, first = inspect.getsourcelines(kind.__init__)
    arguments = () if kind is Lease else (SimpleNamespace(size=10), 0, 10)
    before = sys.gettrace()
    sys.settrace(interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        kind((1, 2), returned.append, *arguments)
    sys.settrace(before)
    assert complaints == []
    assert returned == [(1, 2)] * any(ran)
