"""Shared by the tests of raw batches."""

import threading

from fakedata import rank_ids
from waiting import until


def read(samples):
    """The IDs that the samples' bytes contain."""
    return [int(bytes(s).split()[1]) for s in samples]


def expected(loader, count, epoch, rank=0, world=1):
    return rank_ids(count, loader._spec, epoch, rank, world)


def when_waiting(daemon, action):
    """Calls ``action`` in another thread once the loader has sent the fake daemon that it waits."""

    def run():
        until(lambda: daemon.session.waits > before, "the loader waits for a batch")
        action()

    before = daemon.session.waits
    threading.Thread(target=run, daemon=True).start()
