"""The order of a mix of datasets, one sample at a time, in plain Python.

``python3 python/tests/mix_oracle.py`` prints the vectors that the tests of the daemon's order
(``internal/plan/access``) and of the package's share.
"""

import json
import math

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
C1, C2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def finalise(z):
    z = (z ^ (z >> 30)) * C1 & MASK
    z = (z ^ (z >> 27)) * C2 & MASK
    return z ^ (z >> 31)


def image(x, count, seed, number):
    """Where a keyed bijection on [0, count) takes x."""
    a = max(16, int(math.sqrt(count)))
    b = max(16, (count + a - 1) // a)
    z = finalise(finalise((seed + GOLDEN) & MASK) + number * GOLDEN + GOLDEN & MASK)
    keys = []
    for _ in range(6):
        z = (z + GOLDEN) & MASK
        keys.append(finalise(z))

    def hashed(half, key, n):
        h = (half + key) * C1 & MASK
        h = (h ^ (h >> 32)) * C2 & MASK
        return (h >> 32) * n >> 32

    while True:
        left, right = divmod(x, b)
        for i in (0, 2, 4):
            left = (left + hashed(right, keys[i], a)) % a
            right = (right + hashed(left, keys[i + 1], b)) % b
        x = left * b + right
        if x < count:
            return x


def shares(mix, epoch, unit):
    """How many units of each dataset an epoch has."""
    row = mix["weights"][min(epoch, len(mix["weights"]) - 1)]
    total, units = sum(row), mix["entries"] // unit
    added = total * (epoch * (GOLDEN >> 32) % 2**32) >> 32
    found, sums = [], 0
    for weight in row:
        begin = (sums * units + added) // total if sums else 0
        sums += weight
        found.append((sums * units + added) // total - begin)
    return found


def epochs(mix, seed, shuffle, count, unit=1):
    """Yields the samples of each of the first epochs."""
    sizes = mix["sizes"]
    starts = [sum(sizes[:d]) for d in range(len(sizes))]
    taken = [0] * len(sizes)  # samples of each dataset so far
    for epoch in range(count):
        counts = shares(mix, epoch, unit)
        dealt = [d for d, n in enumerate(counts) for _ in range(n)]
        if shuffle:
            dealt = [dealt[image(p, len(dealt), seed, epoch)] for p in range(len(dealt))]
        else:
            due = [((2 * j + 1) / (2 * n), d) for d, n in enumerate(counts) for j in range(n)]
            dealt = [d for _, d in sorted(due)]
        samples = []
        for d in dealt:
            for _ in range(unit):
                number, at = divmod(taken[d], sizes[d])
                if shuffle:
                    own = finalise(seed + (d + 1) * GOLDEN & MASK)
                    at = image(at, sizes[d], own, number)
                samples.append(starts[d] + at)
                taken[d] += 1
        yield samples


def vectors():
    """Returns mixes, and the order of some of their epochs."""
    mixes = [
        ({"sizes": [5, 3], "weights": [[1, 1]], "entries": 8, "single": False}, 1),
        ({"sizes": [40, 7, 90], "weights": [[7, 2, 1]], "entries": 53}, 1),
        ({"sizes": [10, 100], "weights": [[3, 7]], "entries": 33}, 1),
        ({"sizes": [10, 100], "weights": [[3, 7]], "entries": 143}, 1),
        ({"sizes": [9, 4, 6], "weights": [[1, 0, 0], [2, 1, 1]], "entries": 20}, 1),
        ({"sizes": [30, 20], "weights": [[2, 1]], "entries": 32, "single": True}, 4),
        ({"sizes": [1, 1], "weights": [[4294967294, 1]], "entries": 3}, 1),
        ({"sizes": [7] * 12, "weights": [[1] * 12], "entries": 5}, 1),
    ]
    made = []
    for mix, unit in mixes:
        mix.setdefault("single", False)
        for seed, shuffle in ((0, True), (2**64 - 1, True), (3, False)):
            orders = list(epochs(mix, seed, shuffle, 300 if mix["entries"] < 9 else 6, unit))
            kept = {str(e): orders[e] for e in sorted({0, 1, 2, 3, len(orders) - 1})}
            case = {"mix": mix, "unit": unit, "seed": seed, "shuffle": shuffle, "epochs": kept}
            made.append(case)
    return made


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(case) for case in vectors()) + "\n]")
