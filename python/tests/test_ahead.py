"""Batches made ahead: their order, and which of them are discarded."""

import pytest
from hdmlp._batches.source import Taken
from hdmlp._loading.ahead import _MOST, Ahead
from hdmlp.errors import SampleError


class FakeStream:
    """A stream of batches of which a given number is ready at a time, with errors at some
    positions."""

    steps = 5

    def __init__(self, ready, errors=()):
        self.ready, self.errors = ready, dict(errors)
        self.position, self.stall, self.broken, self.end = None, 0, False, None
        self.seeks, self.left = [], 0

    @property
    def drained(self):
        return not self.left

    def seek(self, position):
        if position == self.position:
            return
        self.seeks.append(position)
        self.position, self.left = position, 0

    def restart(self):
        self.position = None

    def ends(self, position):
        return self.end is not None and position >= self.end

    def poll(self):
        if not self.left:
            return None
        self.left -= 1
        return self._take()

    def next(self, timeout):
        self.stall, self.left = 7, self.ready - 1
        return self._take()

    def _take(self):
        position = self.position
        if self.ends(position) or position in self.errors:
            self.position = None
            raise self.errors.pop(position, None) or SampleError("another rank stopped")
        self.position += 1
        return Taken(position, bytearray(), 1, *divmod(position, self.steps), 0)


def take(ahead, n):
    out = []
    for _ in range(n):
        taken = ahead.next()
        assert taken.content == -(taken.epoch * 5 + taken.step)
        out.append(-taken.content)
    return out


def ahead_of(*args):
    stream = FakeStream(*args)
    ahead = Ahead(stream, lambda taken: -taken.content)
    ahead.seek(3)
    return stream, ahead


@pytest.mark.parametrize("ready", [1, 2, 4])
def test_batches_come_in_order(ready):
    stream, ahead = ahead_of(ready)
    stalls = []
    for position in range(3, 30):
        assert ahead.position == position
        ahead.seek(position)  # as the loader does; it is there
        assert take(ahead, 1) == [position]
        stalls.append(ahead.stall)
    assert stream.seeks == [3]
    assert stalls == [7 if i % ready == 0 else 0 for i in range(27)]


def test_batches_made_ahead_are_limited():
    """Samples that are handed over in place take no slots, so the daemon sends more as fast as they
    are taken."""
    stream, ahead = ahead_of(10_000)
    for position in range(3, 100):
        assert take(ahead, 1) == [position]
        assert stream.position - position <= _MOST + 1


def test_a_seek_discards_batches_made_ahead():
    stream, ahead = ahead_of(4)
    assert take(ahead, 2) == [3, 4]
    ahead.seek(20)
    assert ahead.position == 20
    assert take(ahead, 6) == list(range(20, 26))
    assert stream.seeks == [3, 20]


def test_a_seek_past_the_batches_made_ahead_is_told():
    """The stream goes on there, but the daemon would wait until these have been yielded."""
    stream, ahead = ahead_of(4)
    assert take(ahead, 1) == [3]
    assert stream.position == 7
    ahead.seek(7)
    assert take(ahead, 1) == [7]
    assert stream.seeks == [3, 7]


@pytest.mark.parametrize(
    "give_up",
    [lambda ahead: ahead.seek(20), lambda ahead: (ahead.restart(), ahead.seek(20))],
    ids=["seek", "restart"],
)
def test_a_seek_discards_an_error_met_ahead(give_up):
    _stream, ahead = ahead_of(4, {5: SampleError("of before")})
    assert take(ahead, 1) == [3]
    give_up(ahead)
    assert ahead.position == 20
    assert take(ahead, 6) == list(range(20, 26))


@pytest.mark.parametrize("at", range(3, 9))
def test_an_error_is_raised_at_its_position(at):
    error = SampleError("no such sample")
    stream, ahead = ahead_of(4, {at: error})
    assert take(ahead, at - 3) == list(range(3, at))
    stream.broken = True  # as when the daemon is gone
    if at not in (3, 7):  # where it is known already
        assert not ahead.broken
        assert ahead.position == at
    with pytest.raises(SampleError) as caught:
        ahead.next()
    assert caught.value is error
    assert ahead.broken
    stream.broken = False
    ahead.seek(at)  # and again
    assert take(ahead, 5) == list(range(at, at + 5))


def test_batches_made_ahead_past_the_end_are_discarded():
    stream, ahead = ahead_of(4)
    assert take(ahead, 2) == [3, 4]
    stream.end = 6
    assert take(ahead, 1) == [5]
    with pytest.raises(SampleError):
        ahead.next()


def test_a_batch_made_ahead_is_taken_only_at_its_position():
    stream, ahead = ahead_of(4)
    assert ahead.take(3) is None  # nothing is made yet
    assert take(ahead, 1) == [3]
    assert ahead.take(5) is None
    assert ahead.take(3) is None
    assert ahead.take(4).content == -4
    assert ahead.take(4) is None
    stream.end = 6
    assert ahead.take(5).content == -5
    assert ahead.take(6) is None  # another rank has stopped before it
    stream.end = None
    assert ahead.take(6).content == -6
    assert ahead.take(7) is None
    assert take(ahead, 1) == [7]
    ahead.close()
    assert ahead.take(8) is None


@pytest.mark.parametrize("ready, begun", [(1, []), (2, [4]), (4, [4, 5])])
def test_what_is_begun_takes_the_place_of_what_is_made(ready, begun):
    """Of the next batches, as far as they are ready."""
    stream, ahead = ahead_of(ready)
    assert take(ahead, 1) == [3]
    started = []

    def start(content):
        started.append(content)
        return content if isinstance(content, str) else f"begun {content}"

    ahead.begin(2, start)
    assert started == [-n for n in begun]
    ahead.begin(2, start)
    assert started[len(begun) :] == [f"begun {-n}" for n in begun]
    for position in begun:
        assert ahead.take(position).content == f"begun {-position}"
    if ready == 4:
        assert ahead.next().content == -6
    assert stream.seeks == [3]


def test_beginning_takes_what_has_come_since():
    stream, ahead = ahead_of(1)
    assert take(ahead, 1) == [3]
    stream.left = 3
    ahead.begin(2, lambda content: content - 100)
    assert [ahead.next().content for _ in range(3)] == [-104, -105, -6]
