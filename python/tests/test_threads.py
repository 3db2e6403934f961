"""Threads that share a loader, or an iterator."""

import threading
from concurrent.futures import ThreadPoolExecutor

from hdmlp import data
from hdmlp._workers.results import Arena
from raw import expected, read


class Noticed:
    """A lock in front of another one, which notices that a thread has to wait for it.

    Attributes:
        waited: Set once a thread found the lock taken.
    """

    def __init__(self, lock):
        self.lock, self.waited = lock, threading.Event()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.waited.set()
            self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def both(first, second, lock):
    """Calls ``first`` here, and ``second`` in another thread; returns both results.

    ``first`` is given a function that starts the other thread, and waits until that has to wait for
    the lock, or has ended.
    """

    def end():
        try:
            return second()
        finally:
            lock.waited.set()

    with ThreadPoolExecutor(1) as thread:
        started = []

        def meet():
            started.append(thread.submit(end))
            lock.waited.wait()

        return first(meet), started[0].result()


def test_each_threads_iterator_takes_an_epoch_of_its_own(daemon, folder):
    """Also while another thread is taking one."""
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        loader._turn = lock = Noticed(loader._turn)

        def first(meet):
            batches = iter(loader)
            batches.before = meet
            return [read(b.samples) for b in batches]

        def second():
            return [read(b.samples) for b in loader]

        got = both(first, second, lock)
        assert got == (expected(loader, 25, 0), expected(loader, 25, 1))


def test_threads_that_share_an_iterator_get_its_batches_in_turn(daemon, folder):
    """Also while another thread is making one."""
    meets = []

    def collate(samples):
        while meets:
            meets.pop()()
        return read(view for view, _ in samples)

    with data.DataLoader(folder, batch_size=4, seed=7, collate_fn=collate) as loader:
        batches = iter(loader)
        batches._turn = lock = Noticed(batches._turn)

        def first(meet):
            meets.append(meet)
            return next(batches)

        got = both(first, lambda: next(batches), lock)
        assert [*got, *batches] == expected(loader, 25, 0)


class Taken(list):
    """Free pieces, of which another thread takes one while this one is about to.

    Attributes:
        meanwhile: What the other thread does, once.
    """

    meanwhile = None

    def remove(self, number):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().remove(number)


def test_threads_that_reserve_memory_at_once_get_different_pieces():
    arena, others = Arena(), []
    arena._free = free = Taken()
    arena.reserve(100)  # comes back
    free.meanwhile = lambda: others.append(arena.reserve(100)[0])
    mine, _ = arena.reserve(100)
    assert len(others) == 1
    mine[0], others[0][0] = 1, 2
    assert mine[0] == 1
