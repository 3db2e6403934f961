"""The judge: whether what ranks observed is what a loader owes them, or explained by faults.

It uses nothing of HDMLP. The order is torch's DistributedSampler's, and the bytes are those that
open() reads, by a listing of its own (bench/faults/oracle.py). An error is right if a fault that
has occurred explains it, and if all ranks get one before the same step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from oracle import Listing

from soak.schedule import GLOBAL_BATCH, Fault

GOT, FAILED, DIED, ENDED, SILENT, REFUSED = "got", "failed", "died", "ended", "silent", "refused"

#: Seconds after the end of a fault in which it still explains errors: nodes that have lost each
#: other find each other again, and reads that failed have waited for source_timeout.
AFTER = 15.0


@dataclasses.dataclass(frozen=True)
class Event:
    """What a rank observed.

    Attributes:
        kind: ``got``: a batch; ``failed``: an error instead of one; ``refused``: an error when the
            job was opened or a state loaded; ``died``: the process ended; ``ended``: the epoch's
            end; ``silent``: no answer within the time limit.
        at: seconds, on the clock of the faults.
        step: the global step, counted over all epochs.
        batch: digests and labels.
        error: name of the exception.
        ours: it is one that the package documents.
        text: its message, or what is known of the process.
    """

    kind: str
    rank: int
    node: int
    at: float
    step: int
    batch: list[Any] | None = None
    error: str = ""
    ours: bool = True
    text: str = ""


@dataclasses.dataclass
class Occurrence:
    """A fault that has begun; ``end`` is None as long as it lasts."""

    fault: Fault
    begin: float
    end: float | None = None

    def near(self, at: float) -> bool:
        """Reports whether the fault can explain an error at this time."""
        return self.begin <= at and (self.end is None or at <= self.end + AFTER)


@dataclasses.dataclass
class Launch:
    """The ranks between two starts, and what they observed."""

    world: int
    first: int  # the global step that they begin with
    started: float = 0.0
    events: list[Event] = dataclasses.field(default_factory=list)


#: Faults after which errors may reach other ranks late, or not at all.
PARTING = ("cut", "cut one way", "slow link", "flip bits", "stop daemon", "stop rank",
           "kill daemon", "terminate daemon", "memory is short")  # fmt: skip
SOURCE = ("source fails", "source hangs", "source is mounted again")
#: Faults that may keep a job from being opened.
OPENING = (*PARTING, *SOURCE, "source is slow", "disk full", "kill rank")


class Judge:
    """Judges the launches of a round.

    Args:
        listing: the dataset, as it was before the round.
        seed, epochs, drop_last: of the job.
    """

    def __init__(self, listing: Listing, seed: int, epochs: int, drop_last: bool) -> None:
        self._listing, self._seed = listing, seed
        self._epochs, self._drop_last = epochs, drop_last
        self._streams: dict[tuple[int, int], list[list[Any]]] = {}

    def stream(self, rank: int, world: int) -> list[list[Any]]:
        """The batches of a rank, of all epochs."""
        if (rank, world) not in self._streams:
            self._streams[rank, world] = [
                batch
                for epoch in range(self._epochs)
                for batch in self._listing.epoch(
                    epoch,
                    seed=self._seed,
                    batch=GLOBAL_BATCH // world,
                    rank=rank,
                    world=world,
                    drop_last=self._drop_last,
                )
            ]
        return self._streams[rank, world]

    def judge(self, launch: Launch, faults: Sequence[Occurrence], last: bool) -> list[str]:
        """What is wrong with a launch; ``last``: its ranks had to come to the end."""
        found = []
        for rank in range(launch.world):
            events = [e for e in launch.events if e.rank == rank]
            found += self._order(launch, rank, events, last)
        for e in launch.events:
            if e.error == "EndError" and e.step >= len(self.stream(e.rank, launch.world)):
                continue  # it was launched again after its last batch
            if why := self._unexplained(e, launch.started, faults):
                found.append(f"{why}: {described(e)}")
        return found + _together(launch, faults)

    def _order(self, launch: Launch, rank: int, events: list[Event], last: bool) -> list[str]:
        stream = self.stream(rank, launch.world)
        steps = len(stream) // self._epochs
        found, due = [], launch.first
        for e in events:
            if e.kind == GOT:
                if e.step != due:
                    found.append(f"batch of step {e.step} instead of {due}: {described(e)}")
                if e.step >= len(stream) or e.batch != stream[e.step]:
                    found.append(f"WRONG BATCH: {_difference(e, stream)}: {described(e)}")
                due = e.step + 1
            elif e.kind == ENDED and (due == launch.first or due % steps):
                found.append(f"the epoch ended before step {due}: {described(e)}")
        if last and due != len(stream):
            found.append(f"rank {rank} had {due} batches at the end, not {len(stream)}")
        return found

    def _unexplained(self, e: Event, started: float, faults: Sequence[Occurrence]) -> str:
        """Why an event is wrong by itself; empty if it is not."""
        # One rank that cannot open the job has the others wait for it until start_timeout.
        since = started if e.kind == REFUSED else e.at
        near = [o for o in faults if o.near(e.at) or (o.begin <= e.at and o.near(since))]
        kinds = {o.fault.kind for o in near}
        if e.kind == SILENT:
            return "HANG"
        if e.kind == DIED:
            mine = any(o.fault.kind == "kill rank" and o.fault.node == e.node for o in near)
            return "" if mine else "a rank's process ended"
        if e.kind not in (FAILED, REFUSED):
            return ""
        if not e.ours:
            return "an error that is not one of the package's"
        if e.error == "DaemonDiedError":
            deaths = ["kill daemon", "terminate daemon"]
            if "did not answer within" in e.text:
                deaths.append("stop daemon")
            # A rank learns of it when it has taken what was ahead, and may wait for others before.
            mine = any(
                o.fault.kind in deaths
                and o.fault.node == e.node
                and (o in near or started <= o.begin <= e.at)
                for o in faults
            )
            return "" if mine else "a daemon died by itself"
        if self._names_bad_sample(e, near):
            return ""
        if e.kind == REFUSED:
            return "" if kinds & set(OPENING) else "a job was refused without a fault"
        # A process that iterates again after its daemon has died opens the dataset again.
        if e.error in ("SampleError", "DatasetError") and kinds & set(SOURCE):
            return ""
        return "an error without a cause"

    def _names_bad_sample(self, e: Event, near: Sequence[Occurrence]) -> bool:
        """Reports whether an error names a sample, or a directory, that a fault has harmed."""
        for o in near:
            if o.fault.kind.startswith("sample"):
                path = self._listing.paths[o.fault.sample]
                name = "/".join(path.split("/")[-2:])
                if name in e.text or (e.kind == REFUSED and "dataset" in e.text):
                    return True
        return False


def _difference(e: Event, stream: list[list[Any]]) -> str:
    if e.step >= len(stream):
        return "after the last one"
    wanted, batch = stream[e.step], e.batch or [[], []]
    if sorted(map(str, batch[0])) == sorted(map(str, wanted[0])):
        return "another order"
    known = {digest for b in stream for digest in b[0]}
    strange = sum(digest not in known for digest in batch[0])
    return (
        f"{len(batch[0])} samples instead of {len(wanted[0])}"
        if len(batch[0]) != len(wanted[0])
        else f"{sum(a != b for a, b in zip(batch[0], wanted[0]))} other samples, "
        f"{strange} of bytes that this rank is never due"
    )


def _together(launch: Launch, faults: Sequence[Occurrence]) -> list[str]:
    """What is wrong with how errors reached the ranks: all of them, before the same step."""
    failed = [e for e in launch.events if e.kind == FAILED and e.error != "DaemonDiedError"]
    if not failed:
        return []
    first = min(failed, key=lambda e: (e.step, e.at))
    if any(o.fault.kind in PARTING and o.near(first.at) for o in faults):
        return []
    found = []
    for rank in range(launch.world):
        mine = [e for e in launch.events if e.rank == rank]
        if any(e.kind in (FAILED, DIED) and e.step <= first.step + 1 for e in mine):
            continue
        if any(e.kind in (GOT, ENDED) and e.step > first.step for e in mine):
            found.append(f"rank {rank} got batches after an error of all: {described(first)}")
    return found


def described(e: Event) -> str:
    """The event as one line."""
    what = f"{e.error}: {e.text}" if e.error else e.text
    return f"rank {e.rank} on node {e.node}, step {e.step}, {e.kind} {what}".rstrip()
