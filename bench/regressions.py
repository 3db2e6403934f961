"""This tree beside an earlier commit, and beside another build of its own: is anything slower?

The commit is that of the environment variable BENCH_BEFORE, or the last one before the performance
model drove the engine. What two builds of one commit differ by is the spread of the run.
"""

import os
import subprocess
from typing import Any

import before
from pipelines import ONE, Pipeline

from scenarios import HDMLP, Behind, Figures, Hand, Scenario, Warm

COMMIT = os.environ.get("BENCH_BEFORE", before.COMMIT)

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _beside(contender: dict[str, Any]) -> list[dict[str, Any]]:
    """The contender with this tree, with what is committed of it, and with the earlier commit."""
    head = subprocess.run(
        ["git", "-C", _ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return [
        dict(contender, name="this tree"),
        dict(contender, name="built again", before=head),
        dict(contender, name="before", before=COMMIT),
    ]


def _ratios(scenario: Scenario, medians: dict[str, Figures], keys: list[str]) -> list[str]:
    return [
        f"{scenario.key}: {key} is {medians['this tree'][key] / medians[other][key]:.3f} times "
        f"that of {name}"
        for other, name in (
            ("before", f"commit {COMMIT}"),
            ("built again", "the same, built again"),
        )
        if {"this tree", other} <= medians.keys()
        for key in keys
    ]


class WarmBeside(Warm):
    """Samples that are in memory: more samples per second is better."""

    def prepare(self) -> None:
        super().prepare()
        self.contenders = _beside(HDMLP)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, ["rate", "cpu"])


class BehindBeside(Behind):
    """Samples behind a slow source, all cached: less processor time is better."""

    key = "before/c"

    def prepare(self) -> None:
        super().prepare()
        self.contenders = _beside(dict(HDMLP, cached=1.02))

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, ["cpu", "total", "bytes"])


class HandBeside(Hand):
    """Batches that are ready: less time is better."""

    key = "before/d"

    def prepare(self) -> None:
        super().prepare()
        self.contenders = _beside(HDMLP)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, list(self.sizes))


class PipelineBeside(Pipeline):
    """Images that are decoded and augmented: less processor time is better."""

    def prepare(self) -> None:
        super().prepare()
        self.contenders = _beside(ONE)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, ["cpu", "rate"])


def all_regressions(quick: bool) -> list[Scenario]:
    """(a) to (e), of this tree and of the earlier commit."""
    return [
        WarmBeside("before/a", "photos", 500 if quick else 2000, 60, {}),
        WarmBeside("before/b", "tiny", 4000 if quick else 20_000, 120, {}),
        BehindBeside(300 if quick else 2000),
        HandBeside(100 if quick else 300),
        PipelineBeside("before/e", "crop", "photos", 500 if quick else 2000, 4, {}, [ONE]),
    ]
