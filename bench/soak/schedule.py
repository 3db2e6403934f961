"""What happens, as a pure function of the seed: seasons, of which each has nodes, daemons and a
dataset of its own, and rounds in them, each a run of some epochs during which faults occur.

A fault begins when the ranks have come to a step, and not at a time. How long it lasts is in
seconds, because ranks may wait for its end.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

#: Samples of all ranks in one step. World sizes of 1, 2, 3, 4 and 6 divide it.
GLOBAL_BATCH = 24

#: ``source_timeout`` and ``start_timeout`` of each job, in seconds.
SOURCE_TIMEOUT, START_TIMEOUT = 6, 20

ROUNDS = 10  # of a season


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that is done to the cluster.

    Attributes:
        kind: one of ``KINDS``.
        at: the global step of the round before which it begins; -1: before the job is opened.
        node: the node that it happens to; for ranks, the node of the rank.
        other: the node that a link leads to, or the rank on the node.
        seconds: how long it lasts; 0: until the ranks start again.
        amount: a share, or a rate in bit/s.
        sample: the index of the file that it concerns.
    """

    kind: str
    at: int
    node: int = 0
    other: int = 0
    seconds: float = 0.0
    amount: float = 0.0
    sample: int = 0

    def __str__(self) -> str:
        shown = {k: v for k, v in dataclasses.asdict(self).items() if v and k not in ("kind", "at")}
        return " ".join([f"step {self.at}: {self.kind}", *(f"{k}={v}" for k, v in shown.items())])


@dataclasses.dataclass(frozen=True)
class Season:
    """What the rounds of a season have in common.

    Attributes:
        nodes: how many.
        samples, size: of the dataset; a sample has ``size`` bytes, or up to a third more.
        disk: bytes of each node's tmpfs for ``cache_dir``; 0: no such class.
        keys: configuration of the job, but for ``cache_dir``.
        bandwidth: of the source, in bytes per second.
    """

    number: int
    nodes: int
    samples: int
    size: int
    disk: int
    keys: dict[str, Any]
    bandwidth: int


@dataclasses.dataclass(frozen=True)
class Round:
    """A run of some epochs.

    Attributes:
        launches: nodes and ranks per node of the first launch, and of those after failures, in
            turn.
        seed: of the order.
        again: after an error on all ranks, these load the last state and iterate again; otherwise
            they are replaced.
        hard: ranks that are replaced are killed, and do not end by themselves.
        wait: a new launch waits until the faults of the last one are over.
        renewed: what happens to the dataset before the round: "" (nothing), "replaced" (by files of
            other bytes), or "rewritten" (in place, with the times that the files had).
    """

    number: int
    epochs: int
    drop_last: bool
    seed: int
    launches: tuple[tuple[int, int], ...]
    again: bool
    hard: bool
    wait: bool
    renewed: str
    faults: tuple[Fault, ...]


def season_of(number: int) -> int:
    """The season that a round is in."""
    return number // ROUNDS


def season(seed: int, number: int) -> Season:
    """A season of a seed."""
    r = random.Random(f"{seed} season {number}")
    samples, size = r.choice([120, 240, 331]), r.choice([4_000, 20_000, 40_000])
    total = samples * size * 7 // 6
    keys: dict[str, Any] = {
        "memory": r.choice([0, total // 8, total // 2, 2 * total]),
        "staging_buffer": max(GLOBAL_BATCH * size * 3, 1 << 17),
        "prefetch_batches": r.choice([2, 4, 64]),
        "policy": r.choice(["cooperative", "cooperative", "frequency", "minio"]),
        "tls": r.choice(["off", "off", "on"]),
        "source_timeout": f"{SOURCE_TIMEOUT}s",
        "start_timeout": f"{START_TIMEOUT}s",
    }
    if r.random() < 0.25:
        keys["verify"] = True
    disk = r.choice([0, total // 2, 2 * total])
    if disk:
        keys |= {"cache_size": disk, "disk_reserve": "64KiB"}
    return Season(
        number,
        r.choice([2, 2, 3]),
        samples,
        size,
        disk,
        keys,
        r.choice([0, 10_000_000, 30_000_000]),
    )


def round_of(seed: int, number: int) -> Round:
    """A round of a seed, in the season that it is in."""
    of = season(seed, season_of(number))
    r = random.Random(f"{seed} round {number}")
    epochs = r.choice([2, 3])
    launches = []
    for _ in range(8):
        nodes = of.nodes if r.random() < 0.7 else r.randint(1, of.nodes)
        launches.append((nodes, r.choice([1, 1, 2])))
    steps = epochs * (of.samples // GLOBAL_BATCH)
    count = r.choice([0, 1, 2, 2, 3, 3, 4, 5])
    near = r.randrange(steps)  # some faults come together
    faults = []
    for _ in range(count):
        at = r.choice([near, near + 1, r.randrange(steps), r.randrange(steps)])
        faults.append(_fault(r, of, min(at, steps - 1)))
    return Round(
        number,
        epochs,
        r.random() < 0.3,
        r.randrange(2**32),
        tuple(launches),
        r.random() < 0.5,
        r.random() < 0.5,
        r.random() < 0.5,
        r.choice(["", "", "replaced", "rewritten"]),
        tuple(sorted(faults, key=lambda f: f.at)),
    )


#: Faults, and how often each is drawn.
KINDS = {
    "kill daemon": 2,
    "terminate daemon": 1,
    "stop daemon": 3,
    "kill rank": 2,
    "stop rank": 2,
    "cut": 3,
    "cut one way": 4,
    "slow link": 2,
    "flip bits": 4,
    "source fails": 2,
    "source hangs": 2,
    "source is slow": 2,
    "source is mounted again": 2,
    "sample fails": 1,
    "sample is rewritten": 1,
    "sample is cut off": 1,
    "sample is removed": 1,
    "disk full": 3,
    "memory is short": 2,
}


def _fault(r: random.Random, of: Season, at: int) -> Fault:
    kind = r.choices(list(KINDS), list(KINDS.values()))[0]
    node = r.randrange(of.nodes)
    other = r.choice([n for n in range(of.nodes) if n != node])
    seconds = round(r.uniform(0.3, 4.0), 1)
    long = r.random() < 0.15  # longer than the time limits of the program
    amount, sample = 0.0, 0
    if kind in ("kill daemon", "terminate daemon", "kill rank"):
        seconds = 0.0
    elif kind in ("stop daemon", "cut", "cut one way"):
        seconds += 13.0 if long else 0.0
    elif kind == "slow link":
        amount = r.choice([1e6, 1e7])
    elif kind == "flip bits":
        amount, seconds = r.choice([0.001, 0.02, 0.3]), seconds + 2
    elif kind in ("source fails", "source hangs", "source is mounted again"):
        amount = r.choice([0.1, 0.5, 1.0]) if kind == "source fails" else 0.0
        seconds = min(seconds, SOURCE_TIMEOUT / 2) + (2 * SOURCE_TIMEOUT if long else 0)
    elif kind == "source is slow":
        amount = r.choice([0.02, 0.2])  # seconds per open
    elif kind.startswith("sample"):
        seconds, sample = 0.0, r.randrange(of.samples)
    # A file that is changed before the job is opened is what its dataset is.
    if r.random() < 0.1 and not kind.startswith("sample"):
        at = -1
    if kind not in ("cut one way", "flip bits", "kill rank", "stop rank"):
        other = 0
    return Fault(kind, at, node, other, seconds, amount, sample)
