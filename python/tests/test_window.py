"""The window of a group, as one of its processes maps it: its writes are its own."""

import mmap
import os
import random
import struct
import subprocess
import sys

import pytest
from hdmlp._batches.segments import Segment
from hdmlp._batches.staging import Staging
from hdmlp._lib import protocol
from hdmlp._lib.pages import Pages

PAGE = mmap.PAGESIZE
WINDOW, EXTRA = 1 << 30, (1 << 30) + 1
SIZE = 1000  # bytes of a sample


class Window:
    """A group's window of two segments, and a process that maps them."""

    def __init__(self, pages):
        self.files = {number: os.memfd_create("window") for number in (WINDOW, EXTRA)}
        self.staging = Staging()
        self.slot = 0
        for number, file in self.files.items():
            os.ftruncate(file, pages * PAGE)
            self.fill(number, 0, pages * PAGE, 1)
            self.staging.add(number, Segment(file, pages * PAGE, True, True))

    def fill(self, number, begin, size, value):
        """Writes as the daemon does."""
        os.pwrite(self.files[number], bytes([value]) * size, begin)

    def block(self, places, slots=1):
        """Returns a batch of samples in these places: segment and offset of each."""
        n = len(places)
        numbers, offsets = zip(*places)
        payload = bytes(protocol.BATCH_HEAD.size + 8 * n)
        payload += struct.pack(f"<{n}Q", *offsets) + struct.pack(f"<{n}Q", *[SIZE] * n)
        payload += bytes(8 * n) + struct.pack(f"<{n}I", *numbers)
        self.slot += slots
        names = struct.pack(f"<{slots}I", *range(self.slot, self.slot + slots))
        return self.staging.block(bytearray(payload), n, names, SIZE)


@pytest.fixture
def window():
    made = Window(8)
    yield made
    for file in made.files.values():
        os.close(file)


def written(block, value):
    """Writes to a batch; requires that it had one value."""
    view = block.view()
    assert set(view) == {1}
    view[:] = bytes([value]) * len(view)


def test_writes_are_dropped_before_slots_are_returned(window):
    block = window.block([(WINDOW, 0), (WINDOW, SIZE)])
    written(block, 7)
    assert set(os.pread(window.files[WINDOW], 8 * PAGE, 0)) == {1}
    del block
    assert window.staging.drain()
    window.fill(WINDOW, 0, 2 * SIZE, 9)
    assert set(window.block([(WINDOW, 0), (WINDOW, SIZE)]).view()) == {9}


@pytest.mark.parametrize("known", [True, False])
def test_pages_that_were_only_read_are_not_dropped(window, monkeypatch, known):
    """Where the system does not say which were written to, all are."""
    segment = window.staging.segments[WINDOW]
    if not known:
        opened = os.open
        monkeypatch.setattr(
            os, "open", lambda path, *args: opened(path.replace("pagemap", "none"), *args)
        )
        segment._pages = Pages(0)
    dropped = []
    segment.map = Watched(segment.map, dropped)
    for written_to in (False, True, False):
        block = window.block([(WINDOW, 0), (WINDOW, SIZE)])
        assert set(segment.map[: 2 * SIZE]) == {1}
        if written_to:
            segment.map[0] = 7
        del block
        assert window.staging.drain()
        assert len(dropped) == (written_to or not known)
        dropped.clear()
    window.fill(WINDOW, 0, 2 * SIZE, 9)
    assert set(segment.map[: 2 * SIZE]) == {9}


class Watched:
    """A map, which notes what it is advised."""

    def __init__(self, of, advice):
        self.of, self.madvise = of, lambda *args: advice.append(args) or of.madvise(*args)

    def __getitem__(self, place):
        return self.of[place]

    def __setitem__(self, place, value):
        self.of[place] = value


def test_a_page_of_two_batches_is_kept_for_the_later_one(window):
    first, second = (window.block([(WINDOW, n * SIZE)]) for n in (3, 4))  # these meet at 4000
    written(first, 7)
    written(second, 8)
    del first
    window.staging.drain()
    assert set(second.view()) == {8}
    del second
    window.staging.drain()
    window.fill(WINDOW, 0, 8 * PAGE, 9)
    assert set(window.block([(WINDOW, 3 * SIZE), (WINDOW, 4 * SIZE)]).view()) == {9}


def test_a_batch_that_is_kept_does_not_change_when_the_daemon_writes_there(window):
    untouched, touched = window.block([(WINDOW, 0)]), window.block([(WINDOW, 2 * PAGE - 10)])
    written(touched, 7)
    window.staging.keep()
    window.fill(WINDOW, 0, 8 * PAGE, 9)
    assert set(untouched.view()) == {1}
    assert set(touched.view()) == {7}


@pytest.mark.parametrize("second", [(WINDOW, 2 * PAGE), (EXTRA, SIZE)])
def test_a_batch_in_several_pieces_is_copied(window, second):
    window.fill(*second, SIZE, 5)
    block = window.block([(WINDOW, 0), second], slots=2)
    assert bytes(block.view()) == b"\1" * SIZE + b"\5" * SIZE
    assert len(window.staging.drain()) == 8  # both slots are free already
    block.view()[:] = bytes(2 * SIZE)
    assert set(window.block([(WINDOW, 0)]).view()) == {1}


def test_pieces_between_which_another_lies_are_copied(window):
    """The last sample lies where it would if all were adjacent; the one before it does not."""
    window.fill(WINDOW, 4 * SIZE, SIZE, 5)
    block = window.block([(WINDOW, 0), (WINDOW, 4 * SIZE), (WINDOW, 2 * SIZE)], slots=3)
    assert bytes(block.view()) == b"\1" * SIZE + b"\5" * SIZE + b"\1" * SIZE


@pytest.mark.parametrize(
    "place, says", [((EXTRA + 1, 0), "did not come"), ((WINDOW, 8 * PAGE), "beyond")]
)
def test_a_batch_beyond_the_window_is_refused(window, place, says):
    with pytest.raises(protocol.ProtocolError):
        window.block([place])
    with pytest.raises(protocol.ProtocolError, match=says):
        window.block([(WINDOW, 0), place], slots=2)


def test_locked_memory_is_refused():
    """Nothing that was written to it could be dropped."""
    code = (
        "import ctypes, os\n"
        "from hdmlp._batches.segments import Segment\n"
        "file = os.memfd_create('window'); os.ftruncate(file, 8192)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.mlockall(2) == 0, ctypes.get_errno()\n"
        "Segment(file, 8192, True, False)\n"
        "Segment(file, 8192, True, True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "this process locks its memory (mlockall)" in done.stderr, done


def test_random_batches_have_their_own_writes(window):
    """Batches of pieces come, are written to and go in any order.

    The daemon makes a new piece where one was when all its batches have come and gone.
    """
    chance = random.Random(17)
    samples, pages = 8, 2  # of a piece
    pieces = [([*range(samples)], {}) for _ in range(4)]  # what is to come, and what is there
    for n in range(2000):
        which = chance.randrange(4)
        begin = which * pages * PAGE
        left, there = pieces[which]
        if there and chance.random() < 0.5:
            sample = chance.choice([*there])
            block, value = there.pop(sample)
            assert set(block.view()) == {value}
            del block
            window.staging.drain()
        elif left:
            sample = left.pop(0)
            block = window.block([(WINDOW, begin + sample * SIZE)])
            value = os.pread(window.files[WINDOW], 1, begin)[0]
            assert set(block.view()) == {value}
            if chance.random() < 0.7:
                value = n % 100
                block.view()[:] = bytes([value]) * SIZE
            there[sample] = (block, value)
            del block
        elif not there:
            left[:] = range(samples)
            window.fill(WINDOW, begin, samples * SIZE, 100 + n % 100)
