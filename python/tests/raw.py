"""What tests of raw batches expect."""

from fakedaemon import rank_ids


def read(samples):
    """The IDs that the samples' bytes say."""
    return [int(bytes(s).split()[1]) for s in samples]


def expected(loader, count, epoch, rank=0, world=1):
    return rank_ids(count, loader._spec, epoch, rank, world)
