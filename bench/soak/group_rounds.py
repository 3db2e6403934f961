"""What happens to a group of jobs that share what they prepare, as a pure function of the seed:
rounds of one season, of which each has members that come and go, and blows.

Members come, and blows fall, when so many batches have been taken by all members together, and not
at a time.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

ROUNDS = 8  # of a season

#: Epochs of the order that members read.
EPOCHS = 4

#: ``start_timeout`` of each member, in seconds.
START_TIMEOUT = 4


@dataclasses.dataclass(frozen=True)
class Member:
    """A job of the group.

    Attributes:
        after: how many batches all members have taken when it starts.
        batch: its batch size.
        passes: the epochs that it iterates, in order, each with how many batches it takes of it; 0:
            all.
        write: it writes to its batches, once it has said what was in them.
        keep: how many batches it keeps, which must stay as they are.
        pause: seconds for which it works on a batch, up to this.
    """

    after: int
    batch: int
    passes: tuple[tuple[int, int], ...]
    write: bool
    keep: int
    pause: float


@dataclasses.dataclass(frozen=True)
class Blow:
    """Something that is done to members or the daemon.

    Attributes:
        kind: one of ``KINDS``.
        after: how many batches all members have taken by then.
        members: which members are concerned, of those that there are then.
        seconds: how long they are stopped.
    """

    kind: str
    after: int
    members: tuple[int, ...] = ()
    seconds: float = 0.0


KINDS = ("kill members", "stop members", "kill daemon", "terminate daemon", "stop daemon")


@dataclasses.dataclass(frozen=True)
class Round:
    """Members and blows; ``announced``: how many members the first batch waits for."""

    number: int
    announced: int
    members: tuple[Member, ...]
    blows: tuple[Blow, ...]


@dataclasses.dataclass(frozen=True)
class Season:
    """What the rounds of a season have in common: the dataset, and what decides the order."""

    number: int
    samples: int
    loader: dict[str, Any]


def season(seed: int, number: int) -> Season:
    """A season of a seed."""
    r = random.Random(f"{seed} group season {number}")
    return Season(
        number,
        r.choice([37, 60, 101]),
        {
            "seed": r.randrange(2**32),
            "drop_last": r.random() < 0.3,
            "staging_buffer": r.choice(["256KiB", "512KiB", "4MiB"]),
            "verify": r.random() < 0.3,
        },
    )


def round_of(seed: int, number: int) -> Round:
    """A round of a seed, in season ``number // ROUNDS``."""
    of = season(seed, number // ROUNDS)
    r = random.Random(f"{seed} group round {number}")
    count = r.randint(2, 8)
    storm = r.random() < 0.4  # all come at once, and do not stay long
    late = r.choice([0, 0, 0, 20, 60])
    members = tuple(_member(r, of, r.randrange(late) if late and i else 0, storm)
                    for i in range(count))  # fmt: skip
    together = sum(m.after == 0 for m in members)
    announced = r.choice([0, 0, together, count])
    total = sum(_batches(m, of) for m in members)
    near = r.randrange(total)
    blows = []
    for _ in range(r.choice([0, 1, 1, 2, 3, 4])):
        kind = r.choices(KINDS, [4, 3, 2, 1, 1])[0]
        at = r.choice([near, near + 1, r.randrange(total)])
        some = tuple(r.sample(range(count), r.randint(1, count - 1)))
        seconds = round(r.uniform(0.2, 3.0), 1) if "stop" in kind else 0.0
        blows.append(Blow(kind, at, some if "members" in kind else (), seconds))
    return Round(number, announced, members, tuple(sorted(blows, key=lambda b: b.after)))


def _member(r: random.Random, of: Season, after: int, storm: bool) -> Member:
    batch = r.choice([3, 4, 8, 8, 16])
    if storm:
        passes = tuple((r.randrange(EPOCHS), r.randint(1, 6)) for _ in range(r.randint(2, 6)))
    elif r.random() < 0.3:
        passes = ((0, 0), (r.randrange(EPOCHS), r.randint(0, 5)), (EPOCHS - 1, 0))
    else:
        passes = tuple((epoch, 0) for epoch in range(r.randint(1, EPOCHS)))
    write = r.random() < 0.4
    return Member(
        after,
        batch,
        passes,
        write,
        0 if write else r.choice([0, 0, 2, 12]),
        r.choice([0.0, 0.0, 0.002, 0.02]),
    )


def steps(of: Season, batch: int) -> int:
    """The batches of an epoch."""
    short = 0 if of.loader["drop_last"] else batch - 1
    return (of.samples + short) // batch


def _batches(m: Member, of: Season) -> int:
    whole = steps(of, m.batch)
    return sum(min(n, whole) if n else whole for _, n in m.passes)
