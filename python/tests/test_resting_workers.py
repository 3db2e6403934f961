"""A worker that rests between epochs, and the pool that has it go on, by themselves."""

import contextlib
import functools
import pickle
import socket
import threading
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from hdmlp._lib import protocol
from hdmlp._transforms.recipe import Recipe
from hdmlp._transforms.surroundings import surroundings
from hdmlp._workers import child, pool
from hdmlp._workers import processes as of_pool
from hdmlp._workers.child import Worker
from hdmlp._workers.results import RESULT_HEAD
from peer import Peer
from played import Played
from test_staying import Own, same
from torchvision import transforms as V

Image = pytest.importorskip("PIL.Image")
ImageFile = pytest.importorskip("PIL.ImageFile")


# A worker.


class Rested:
    """A worker in a thread of this process, which rests and is to go on.

    Attributes:
        kinds: The types of the frames that it sent before it ended, or went on.
    """

    def __init__(self, recipe, init=None):
        mine, theirs = socket.socketpair()
        connection = protocol.Connection(mine, child.FROM_WORKER_WITH_FD)
        self.worker = Worker(theirs, Recipe(bytes, None, None, list), 1, init)
        thread = threading.Thread(target=self.run)
        thread.start()
        connection.send(protocol.encode(child.REST, protocol.U32.pack(3_600_000)))
        connection.send(protocol.encode(child.GO_ON, protocol.U64.pack(3) + recipe))
        self.kinds = []
        while not self.kinds:
            try:
                connection.fill() or connection.wait(None)
            except protocol.Disconnected:
                break
            frame = connection.frame()
            self.kinds += [] if frame is None else [frame[0]]
        connection.close()
        thread.join()

    def run(self):
        with contextlib.suppress(protocol.Disconnected):
            self.worker.run()
        self.worker._connection.close()


def test_a_worker_begins_again_with_the_recipe_and_seed_that_it_is_given():
    seeds = []
    rested = Rested(pickle.dumps(Recipe(len, None, None, list)), seeds.append)
    assert rested.kinds == [child.GOES_ON]
    assert rested.worker._recipe.loader is len
    assert seeds == [3]


def test_a_worker_that_cannot_begin_again_ends():
    assert Rested(b"no pickle").kinds == []
    assert Rested(pickle.dumps(Recipe(len, None, None, list)), fail).kinds == []


def fail(_):
    raise ValueError("no")


# What is compared.


def test_surroundings_are_equal_as_long_as_nothing_changes():
    assert surroundings() == surroundings()
    assert surroundings().code_of_the_program() == ""


def test_code_that_no_library_defines_is_found(monkeypatch):
    for owner, name, value in (
        (V.functional, "adjust_gamma", same),
        (V.RandomErasing, "get_params", staticmethod(same)),
        (Image, "merge", Own),
        (Image, "blend", functools.partial(same, 1)),
        (V.functional, "crop", functools.lru_cache(same)),
        (V.functional, "pad", Mock()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            found = surroundings().code_of_the_program()
            assert (name, bool(found)) == (name, True)


# A pool.


class Stays:
    """Processes may stay."""

    possible = True

    def started(self):
        pass

    def recipe(self):
        return b"recipe"


@pytest.fixture
def rested(tmp_path):
    """A pool whose worker rests after one batch: what it receives and sends, pool, daemon."""
    context = Played()
    made = pool.Pool(None, 1, 2, context, base_seed=lambda seed, epoch: epoch, staying=Stays())
    peer = Peer(str(tmp_path), made.on_segment, made.on_drop)
    made.attach(peer.stream)
    peer.segment(CLASS | 3, 100)
    made.renew(1)
    made.seek(0)
    peer.batch(1, 0, [(CLASS | 3, 0, 10)], [5])
    made.start()
    context.connection.send(
        protocol.encode(child.RESULT, RESULT_HEAD.pack(1, 0, 0) + pickle.dumps(3))
    )
    made.next()
    made.rest()
    assert context.heard()[-1] == (child.REST, protocol.U32.pack(of_pool.IDLE))
    yield context, made, peer
    made.close(), peer.close(), context.connection.close()


CLASS = 1 << 31


def test_a_worker_that_rests_goes_on(rested):
    context, made, peer = rested
    assert made.position is None  # so that seek is called
    context.connection.send(protocol.encode(child.GOES_ON))
    made.renew(101)
    made.seek(100)
    base_seed = protocol.U64.pack(1)
    kinds = context.heard()
    assert (child.GO_ON, base_seed + b"recipe") in kinds
    peer.batch(2, 100, [(CLASS | 3, 0, 10)], [5])
    made.start()
    assert [kind for kind, _ in context.heard()] == [child.TASK]
    assert len(context.started) == 1


def test_memory_that_the_daemon_takes_back_ends_workers_that_rest(rested):
    """They may map it, and nothing is read from them before the next epoch."""
    context, made, peer = rested
    peer.say(protocol.DROP, protocol.U32.pack(CLASS | 3))
    assert peer.stream.poll() is None
    with pytest.raises(protocol.Disconnected):
        context.heard()
    assert peer.heard()[-1] == (protocol.GONE,)
    made.seek(100)
    assert len(context.started) == 2


def test_memory_that_comes_is_no_error_if_a_worker_that_rests_has_ended(rested):
    context, made, peer = rested
    context.connection.close()
    peer.segment(CLASS | 4, 100)
    assert peer.stream.poll() is None
    made.seek(100)
    assert len(context.started) == 2
