"""What a list of transforms makes of an image when a program runs it by hand, as documented."""

import hdmlp.torch as ht


def flat(transform):
    """The entries of lists and Composes."""
    inner = getattr(transform, "transforms", transform)
    if type(transform).__name__ == "Compose" or isinstance(transform, (list, tuple)):
        return [entry for t in inner for entry in flat(t)]
    return [transform]


def by_hand(transform, value, seed, epoch, index, occurrence=0):
    """What a loader yields of the sample, whose object is given, without HDMLP's own transforms."""
    for position, entry in enumerate(flat(transform)):
        with ht.seeded(seed, epoch, index, occurrence, position):
            value = entry(value)
    return value
