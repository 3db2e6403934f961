"""What a loader reports."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._batches.stream import Stream
from .._lib.arguments import whole_number


class Explanation(NamedTuple):
    """What one batch of one rank consists of.

    Attributes:
        ids: The samples' IDs, in order.
        labels: Their class numbers; of records, their labels, if they have any.
        paths: Their paths relative to the dataset's root.
    """

    ids: list[int]
    labels: list[object]
    paths: list[str]


class Stats(NamedTuple):
    """What this process has counted since the loader was made.

    Attributes:
        batches: Batches yielded.
        samples: Samples in them.
        waits: Batches for which ``next()`` blocked.
        stall: Seconds for which ``next()`` blocked.
        python: Seconds, of ``stall``, for which this process or its workers made batches:
            transforms, ``collate_fn`` and the like.
    """

    batches: int
    samples: int
    waits: int
    stall: float
    python: float = 0.0


class Counts:
    """What a loader counts in this process.

    Attributes:
        batches: Batches yielded.
        samples: Samples in them.
    """

    __slots__ = ("_python", "_stall", "_waits", "batches", "samples")

    def __init__(self) -> None:
        self.batches = self.samples = 0
        self._waits = self._stall = self._python = 0

    def waited(self, stall: int, python: int) -> None:
        """Counts a batch for which ``next()`` blocked.

        Args:
            stall: Nanoseconds for which it blocked.
            python: Nanoseconds, of ``stall``, for which Python code was making the batch.
        """
        self._waits += 1
        self._stall += stall
        self._python += python

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return Stats(self.batches, self.samples, self._waits, self._stall / 1e9, self._python / 1e9)


class Report(dict[str, Any]):
    """The job's ledger, as the daemon keeps it: a dict, whose ``str()`` is a sentence.

    docs/SEMANTICS.md describes its keys.
    """

    def __str__(self) -> str:
        sentence = self.get("sentence") or self.get("summary")
        if sentence:
            return str(sentence)
        items = ", ".join(
            f"{key}: {value}"
            for key, value in self.items()
            if isinstance(value, (int, float, str)) and not isinstance(value, bool)
        )
        return items or "nothing to report yet"


def report(stream: Stream, cluster: bool) -> Report:
    """Asks for the job's ledger.

    Args:
        stream: The job's stream.
        cluster: Of all nodes; else of this one.
    """
    return Report(stream.call("report", {"cluster": True} if cluster else None) or {})


def explain(stream: Stream, epoch: int, step: int, rank: int | None) -> Explanation:
    """Asks which samples a batch consists of.

    Args:
        stream: The job's stream.
        epoch: The batch's epoch, from 0.
        step: The batch's number in the epoch, from 0.
        rank: The rank that gets the batch; None means the stream's.
    """
    params = {"epoch": whole_number("epoch", epoch, 0), "step": whole_number("step", step, 0)}
    if rank is not None:
        params["rank"] = whole_number("rank", rank, 0)
    result = stream.call("explain", params)
    return Explanation(result["ids"], result["labels"], result["paths"])
