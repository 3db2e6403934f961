"""One rank's stream, frame by frame: what it sends to the daemon and in which order, what it
yields, and what it refuses."""

import gc
import mmap
import os

import pytest
from hdmlp._batches import acks
from hdmlp._lib import protocol
from hdmlp._loading.ahead import Ahead
from hdmlp._loading.bring import bring
from hdmlp._loading.feed import Feed
from hdmlp.errors import (
    DaemonDiedError,
    EndError,
    HDMLPError,
    ProtocolError,
    SampleError,
    StallTimeoutError,
)
from peer import PAGE, Peer

#: As in docs/FORMATS.md: a slot with this bit lies in an extra segment, and a page of returns has
#: so many entries.
EXTRA, ENTRIES = 1 << 31, 510


@pytest.fixture
def start(tmp_path):
    """Opens a stream at position 0, with a segment of 1,000 bytes."""
    peers = []

    def make(**opened):
        peer = Peer(str(tmp_path), **opened)
        peers.append(peer)
        peer.segment(0, 1000)
        peer.stream.seek(0)
        assert peer.heard() == [("ITERATE", 1, 0, 0)]
        return peer

    yield make
    for peer in peers:
        peer.close()


def one(position):
    """The place of the only sample of a batch."""
    return [(0, position % 90 * 10, 10)]


def yielded(peer, generation, positions, slot=None):
    """Has the stream take these batches, and reports them as yielded, without a stall."""
    for position in positions:
        peer.batch(generation, position, one(position), [] if slot is None else [slot])
        taken = peer.stream.poll()
        assert [bytes(view) for view in taken.content] == peer.content(one(position))
        del taken
        peer.stream.ack(*divmod(position, peer.stream.steps), 0, 0, 0)


def steady(peer, generation=1):
    """Takes so many batches that one acknowledgement covers several from now on; returns the next
    position."""
    first = acks.ACK_FIRST
    yielded(peer, generation, range(first))
    assert len(peer.heard()) == first
    return first


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    """Disables acknowledgements by time."""
    monkeypatch.setattr(acks, "ACK_AFTER", 1 << 62)


def test_one_acknowledgement_covers_several_batches(start):
    peer = start()
    at = steady(peer)
    yielded(peer, 1, range(at, at + 3 * acks.ACK_EVERY))
    assert [said[:4] for said in peer.heard()] == [
        ("ACK", 1, 0, at + n * acks.ACK_EVERY - 1) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "what, says",
    [
        (lambda s: s.seek(50), [("ITERATE", 2, 0, 50)]),
        (lambda s: s.say_waiting(), [("WAIT", 1)]),
        (lambda s: s.call("report"), [("CALL", "report")]),
        (lambda s: s._acks.flush(), []),
    ],
)
def test_pending_acknowledgements_are_sent_before_dependent_frames(start, what, says):
    peer = start()
    at = steady(peer)
    yielded(peer, 1, [at, at + 1])
    assert peer.heard() == []
    peer.say_json(protocol.REPLY, {"id": 1, "result": None})
    what(peer.stream)
    assert peer.heard() == [("ACK", 1, 0, at + 1, []), *says]
    peer.stream._acks.flush()
    assert peer.heard() == []


@pytest.mark.parametrize("steps", [30, 47])
def test_an_epochs_first_and_last_batch_are_acknowledged_immediately(start, steps):
    """The epoch's time is measured between them."""
    peer = start(steps=steps)
    at = steady(peer)
    told = set()
    for position in range(at, 3 * steps):
        yielded(peer, 1, [position])
        told |= {(epoch, step) for _, _, epoch, step, _ in peer.heard()}
        assert position % steps not in (0, steps - 1) or divmod(position, steps) in told
    assert len(told) < 2 * steps


def test_a_stall_is_reported_immediately(start):
    peer = start()
    at = steady(peer)
    peer.batch(1, at, one(at))
    peer.stream.poll()
    peer.stream.ack(0, at, 7, 0, 0)
    assert [said[:4] for said in peer.heard()] == [("ACK", 1, 0, at)]


def test_batches_from_before_a_seek_are_skipped_and_their_slots_returned(start):
    peer = start()
    for position in range(3):
        peer.batch(1, position, one(position), [position])
    peer.stream.seek(40)
    peer.batch(2, 40, one(40), [9])
    taken = peer.stream.poll()
    assert taken.step == 40
    assert [bytes(view) for view in taken.content] == peer.content(one(40))
    peer.stream.return_slots()
    assert peer.heard() == [("ITERATE", 2, 0, 40), ("ACK", 2, protocol.NO_BATCH, 0, [0, 1, 2])]


def test_an_error_of_one_generation_does_not_end_the_next(start):
    peer = start()
    peer.fail(1, "of before")
    peer.say(protocol.END, protocol.U64.pack(1))
    peer.stream.seek(5)
    peer.batch(2, 5, one(5))
    assert peer.stream.poll().step == 5
    peer.fail(2, "of now")
    with pytest.raises(SampleError, match="of now"):
        peer.stream.poll()
    assert peer.stream.position is None
    peer.stream.seek(6)
    peer.say(protocol.END, protocol.U64.pack(3))
    with pytest.raises(EndError):
        peer.stream.poll()
    assert peer.stream.position is None


def test_an_error_that_the_loop_gets_is_told_after_the_batches_before_it(start):
    """Not one that was read ahead, and none that ends nothing."""
    peer = start()
    position = steady(peer)
    yielded(peer, 1, [position])
    feed = Feed(lambda: (peer.stream, ahead))
    ahead = Ahead(peer.stream, lambda taken: None)
    feed.ready()

    def brought():
        return bring(feed, ahead, position + 1, lambda feed, taken: None, 0.01, False)

    with pytest.raises(StallTimeoutError):
        brought()
    steps = peer.stream.steps
    ack = ("ACK", 1, *divmod(position, steps), [])
    assert peer.heard() == [ack, ("WAIT", 1)]
    peer.batch(1, position + 1, one(position + 1))
    peer.fail(1, "a fault")
    peer.stream.ack(*divmod(brought().taken.epoch * steps + position + 1, steps), 0, 0, 0)
    assert peer.heard() == []
    position += 1
    with pytest.raises(SampleError, match="a fault"):
        brought()
    ack = ("ACK", 1, *divmod(position, steps), [])
    assert peer.heard() == [ack, ("RAISED", 1)]
    feed.raised(SampleError("another one"))
    assert peer.heard() == []


@pytest.mark.parametrize("order", [[0, 0, 0], [0, 1, 0], [1, 0, 0, 1], [0, 1, 2], [2, 2, 0]])
def test_samples_may_be_in_any_segment(start, order):
    peer = start()
    peer.segment(1, 500)
    peer.segment(2, 300, flags=0)
    places = [(segment, 20 * i, 17) for i, segment in enumerate(order)]
    peer.batch(1, 0, places, [3])
    taken = peer.stream.poll()
    assert [bytes(view) for view in taken.content] == peer.content(places)
    assert all(view.readonly for view in taken.content)


@pytest.mark.parametrize(
    "places, says",
    [
        ([(0, 0, 10), (0, 995, 10)], "beyond its segment"),
        ([(0, 1000, 1)], "beyond its segment"),
        ([(0, 0, 10), (1, 90, 11)], "beyond its segment"),
        ([(0, 0, 10), (1, 1 << 40, 5)], "beyond its segment"),
        ([(7, 0, 10)], "segment 7, which did not come"),
        ([(0, 0, 1), (7, 0, 10)], "segment 7"),
    ],
)
def test_a_batch_outside_its_segments_is_refused(start, places, says):
    """It is not truncated silently."""
    peer = start()
    peer.segment(1, 100)
    peer.batch(1, 0, places, [3])
    with pytest.raises(ProtocolError, match=says):
        peer.stream.poll()


OUTPUT = {"field": "", "shape": [3, 2, 2], "type": "uint8", "layout": "NCHW"}


def test_a_tensor_is_contiguous(start):
    peer = start(outputs=[OUTPUT])
    peer.batch(1, 0, [(0, 100, 12), (0, 112, 12), (0, 124, 12)], [3])
    block = peer.stream.poll().content
    assert bytes(block.view()) == peer.segments[0][100:136]
    peer.batch(1, 1, [(0, 964, 12), (0, 976, 12), (0, 988, 12)], [3])  # up to the segment's end
    assert bytes(peer.stream.poll().content.view()) == peer.segments[0][964:]


@pytest.mark.parametrize(
    "places, says",
    [
        ([(0, 100, 12), (0, 124, 12)], "one piece"),
        ([(0, 100, 12), (0, 100, 12)], "one piece"),
        ([(0, 100, 12), (1, 112, 12)], "one piece"),
        ([(0, 100, 12), (0, 112, 11)], "one piece"),
        ([(5, 100, 12)], "one piece"),
        ([(0, 977, 12), (0, 989, 12)], "beyond its segment"),
        ([(0, 5000, 12)], "beyond its segment"),
    ],
)
def test_a_tensor_that_is_not_contiguous_is_refused(start, places, says):
    peer = start(outputs=[OUTPUT])
    peer.segment(1, 1000)
    peer.batch(1, 0, places, [3])
    with pytest.raises(ProtocolError, match=says):
        peer.stream.poll()


def test_a_batch_in_pieces_is_copied_to_memory_that_is_not_in_use(start):
    peer = start(outputs=[OUTPUT])
    peer.segment(1, 1000, protocol.WRITABLE | protocol.PRIVATE)
    places = [(1, 400, 12), (1, 100, 12)]

    def take(step):
        peer.batch(1, step, places, [step])
        block = peer.stream.poll().content
        assert bytes(block.view()) == b"".join(peer.content(places))
        return block

    first, second = take(0), take(1)
    first.view()[:] = bytes(24)
    assert bytes(second.view()) == b"".join(peer.content(places))
    given_up = first.segment
    assert given_up is not second.segment
    del first
    assert take(2).segment is given_up
    peer.stream.return_slots()
    assert sorted(peer.heard()[-1][4]) == [0, 1, 2]


def test_inconsistent_frames_are_refused(start):
    short = protocol.BATCH_HEAD.pack(1, 0, 0, 2, 0, 0) + bytes(71)
    for kind, payload, says in (
        (240, b"", "unknown type 240"),
        (protocol.BATCH, short, "in 103 bytes"),
    ):
        peer = start()
        peer.say(kind, payload)
        with pytest.raises(ProtocolError, match=says):
            peer.stream.poll()
    peer = start()
    peer.batch(1, 1, one(1))
    with pytest.raises(ProtocolError, match="out of order"):
        peer.stream.poll()


def test_a_segment_shorter_than_announced_is_refused(start):
    """Reading beyond its end would be a bus error."""
    peer = start()
    fd = peer.segment(1, 100)
    os.ftruncate(fd, 99)
    with pytest.raises(ProtocolError, match="100 bytes has only 99"):
        peer.stream.poll()
    peer = start()
    fd = peer.segment(1, PAGE, protocol.WRITABLE | protocol.RETURNS)
    os.ftruncate(fd, PAGE)
    with pytest.raises(ProtocolError, match="no return ring"):
        peer.stream.poll()


class Returning:
    """A stream whose slots are returned in a shared page that the daemon reads."""

    def __init__(self, start):
        self.peer = start()
        fd = self.peer.segment(1, PAGE, protocol.WRITABLE | protocol.RETURNS)
        assert self.peer.stream.poll() is None
        self.words = memoryview(mmap.mmap(fd, PAGE, offset=PAGE)).cast("Q")
        self.taken = 0

    def read(self, most=1 << 32):
        """The slots that the daemon finds noted now."""
        slots = []
        while len(slots) < most:
            n = self.taken + 1
            word = self.words[1 + n % ENTRIES]
            if word >> 32 != n:
                break
            slots.append(word & 0xFFFFFFFF)
            self.taken = n
        self.words[0] = self.taken
        return slots


def test_slots_are_noted_and_those_of_extra_segments_acknowledged(start):
    returning = Returning(start)
    peer = returning.peer
    at = steady(peer)
    yielded(peer, 1, [at], slot=5)
    yielded(peer, 1, [at + 1], slot=EXTRA | 6)
    yielded(peer, 1, [at + 2], slot=7)
    gc.collect()
    assert returning.read() == [5, 7]
    assert [said[4] for said in peer.heard()] == [[EXTRA | 6]]


def test_slots_beyond_the_notes_are_acknowledged(start):
    """Every slot is returned once, however rarely the daemon reads the notes."""
    returning = Returning(start)
    peer = returning.peer
    noted, acknowledged = [], []
    for slot in range(3 * ENTRIES):
        yielded(peer, 1, [slot], slot=slot)
        if slot in (ENTRIES + 9, 2 * ENTRIES + 30):
            noted += returning.read(100)
        acknowledged += [slot for said in peer.heard() for slot in said[4]]
    noted += returning.read()
    assert sorted(noted + acknowledged) == list(range(3 * ENTRIES))
    assert len(noted) == ENTRIES + 200
    assert noted == sorted(noted)


def test_notes_are_numbered_modulo_2_to_32(start):
    returning = Returning(start)
    peer = returning.peer
    noted = (1 << 32) - 3
    peer.stream._staging.returns._noted = returning.words[0] = noted
    for position in range(6):
        yielded(peer, 1, [position], slot=position)
    gc.collect()
    words = [returning.words[1 + (noted + n) % ENTRIES] for n in range(1, 7)]
    assert words == [((noted + n) % (1 << 32)) << 32 | n - 1 for n in range(1, 7)]


def test_batches_after_another_ranks_stop_are_skipped(start):
    returning = Returning(start)
    peer = returning.peer
    for position in range(4):
        peer.batch(1, position, one(position), [position])
    assert peer.stream.poll().step == 0
    returning.words[ENTRIES + 1] = 3  # the batches from the third on
    assert [peer.stream.ends(position) for position in range(5)] == [False, False, True, True, True]
    assert peer.stream.poll().step == 1
    peer.fail(1, "rank 1 stopped")
    with pytest.raises(SampleError, match="rank 1 stopped"):
        peer.stream.poll()
    peer.stream.return_slots()
    assert sorted(peer.heard()[-1][4]) == [0, 1, 2, 3]


def test_sending_an_order_to_a_dead_daemon_does_not_raise(start, tmp_path):
    """The next batch raises, as always."""
    peer = start()
    peer.socket.close()
    with open(tmp_path / "order", "wb+") as file:
        peer.stream.give(1, 1, file.fileno())
    with pytest.raises(HDMLPError):
        peer.stream.next()


def test_a_daemons_death_that_was_given_up_is_told_again(start):
    """It is met while batches are made ahead, and then the program iterates anew."""
    peer = start()
    ahead = Ahead(peer.stream, lambda taken: None)
    peer.batch(1, 0, one(0))
    peer.socket.close()
    assert ahead.next().step == 0
    ahead.seek(7)
    for _ in range(2):
        assert not ahead.broken or peer.stream.broken
        with pytest.raises(DaemonDiedError, match="died or was stopped"):
            ahead.next()


def test_waiting_with_frames_queued_ends_when_the_daemon_has_died(start):
    peer = start()
    connection = peer.stream._connection
    while not connection.writing:
        peer.stream._link.send(bytes(1 << 16))
    peer.socket.close()
    assert connection.wait(None)  # the reader then finds what the daemon sent, and its end
    with pytest.raises(DaemonDiedError):
        peer.stream.next()
