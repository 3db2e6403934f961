"""What a loader tells about itself."""

from __future__ import annotations

from typing import Any, NamedTuple


class Explanation(NamedTuple):
    """What one batch of one rank consists of.

    Attributes:
        ids: the samples' IDs, in order.
        labels: their class numbers.
        paths: their paths below the dataset's root.
    """

    ids: list[int]
    labels: list[int]
    paths: list[str]


class Stats(NamedTuple):
    """What this process counted since the loader was made.

    Attributes:
        batches: batches yielded.
        samples: samples in them.
        waits: batches for which ``next()`` was blocked.
        stall: seconds blocked in ``next()``, until it returned.
        python: the part of ``stall`` in which this process or its workers made batches: transforms, ``collate_fn`` and the like.
    """

    batches: int
    samples: int
    waits: int
    stall: float
    python: float = 0.0


class Report(dict[str, Any]):
    """The job's ledger, as the daemon keeps it (docs/SEMANTICS.md): a dict; ``str()`` says it in a sentence."""

    def __str__(self) -> str:
        sentence = self.get("sentence") or self.get("summary")
        if sentence:
            return str(sentence)
        said = ", ".join(
            f"{key}: {value}"
            for key, value in self.items()
            if isinstance(value, (int, float, str)) and not isinstance(value, bool)
        )
        return said or "nothing to report yet"
