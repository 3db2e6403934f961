"""What tests of raw batches expect."""

import time

from fakedaemon import rank_ids


def read(samples):
    """The IDs that the samples' bytes say."""
    return [int(bytes(s).split()[1]) for s in samples]


def expected(loader, count, epoch, rank=0, world=1):
    return rank_ids(count, loader._spec, epoch, rank, world)


def until(condition):
    """Waits until what another thread or process does makes condition() true; the assertion that follows says if it never does."""
    limit = time.monotonic() + 20
    while not condition() and time.monotonic() < limit:
        time.sleep(0.005)
