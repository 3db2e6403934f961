"""Frameworks with HDMLP's loader against the same with torch's: the samples that ranks are given,
resuming amid an epoch, and the time of an epoch.

The first two are what the tests of python/frameworks say, each of which checks both; the time is
that of python/frameworks/time_epochs.py. All run in the environment of newest.py.
"""

import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from typing import Any

import make_dataset
import newest
import rounds

from scenarios import DATA, Figures, Scenario

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SCRIPTS = os.path.join(_ROOT, "python", "frameworks")
sys.path.append(_SCRIPTS)

from matrix import FRAMEWORKS, Framework

_PR_SET_CHILD_SUBREAPER = 36

#: An epoch may take this much of what it takes with torch's loader.
LIMIT = 1.05

#: Of the environment, which the page names.
PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "accelerate",
    "transformers",
    "timm",
    "torchdata",
    "numpy",
    "pillow",
)


class Frameworks(Scenario):
    """A row of the matrix is a contender: a framework with 1 rank, or with 2.

    Args:
        samples: images of the timed epochs.
        turns: how often each loader trains in one round, in turn with the other.
    """

    key = "frameworks"
    contenders = [
        {
            "name": f"{framework.name}, {ranks} rank{'s' * (ranks > 1)}",
            "contender": "framework",
            "ranks": ranks,
            "framework": framework._asdict(),
        }
        for framework in FRAMEWORKS
        for ranks in (1, 2)
    ]
    columns = [
        ("same", "same samples as torch", "{}"),
        ("resume", "exact resume", "{}"),
        ("ratio", "epoch time / torch's", "{:.2f}"),
        ("theirs", "with torch's", "{:.2f} s"),
        ("ours", "with HDMLP's", "{:.2f} s"),
    ]

    def __init__(self, samples: int, turns: int) -> None:
        self._samples, self._turns = samples, turns
        self._path = os.path.join(DATA, f"photos-{samples}")
        self._outcomes: list[dict[str, Any]] = []

    def prepare(self) -> None:
        """Makes the images, and runs the tests."""
        self._versions = newest.versions(*PACKAGES)
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        self.title = (
            f"frameworks with 1 and 2 ranks; times with {self._samples:,} JPEGs of 500x375, "
            f"RandomResizedCrop(224), flip, ToTensor, Normalize, "
            "2 workers, a model that computes next to nothing"
        )
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
            done = subprocess.run(
                [
                    newest.PYTHON,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "no:cacheprovider",
                    "-p",
                    "outcomes",
                    _SCRIPTS,
                ],
                cwd=_ROOT,
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "OUTCOMES": file.name,
                    "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
                },
            )
            self._outcomes = [json.loads(line) for line in file]
        print(done.stdout[-2000:], flush=True)
        if done.returncode not in (0, 1):  # 1: tests failed, which the matrix shows
            raise rounds.RoundFailed(
                f"the tests of {_SCRIPTS} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "versions": self._versions, "tests": self._outcomes}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        framework, ranks = Framework(**contender["framework"]), contender["ranks"]
        watch = rounds.Watch()
        seconds, cpu = self._train(framework, ranks)
        theirs, ours = (statistics.median(seconds[which]) for which in ("torch", "ours"))
        tested = shown(self._outcomes, framework, ranks)
        figures = {
            "same": tested,
            "resume": tested,
            "theirs": theirs,
            "ours": ours,
            "ratio": statistics.median(
                ours / theirs for theirs, ours in zip(seconds["torch"], seconds["ours"])
            ),
        }
        return {
            "contender": contender,
            "figures": figures,
            "seconds": seconds,
            "ranks": [{}],
            "errors": [],
            **watch.shares(cpu),
        }

    def _train(self, framework: Framework, ranks: int) -> Any:
        """The seconds of an epoch with each loader, of the slowest rank, turn by turn; and the
        processor seconds that all of it took."""
        with tempfile.TemporaryDirectory() as out:
            command = [newest.PYTHON]
            if ranks > 1:
                command += [
                    "-m",
                    "torch.distributed.run",
                    f"--nproc-per-node={ranks}",
                    f"--master-port={rounds.free_port()}",
                ]
            command += [
                os.path.join(_SCRIPTS, "time_epochs.py"),
                self._path,
                "both",
                out,
                str(ranks),
                framework.epochs,
                str(self._turns),
            ]
            before = sum(os.times()[2:4])
            ctypes.CDLL(None).prctl(
                _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
            )  # the daemon, which outlives the ranks, is ours to wait for
            done = subprocess.run(
                command,
                cwd=out,
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.path.dirname(_SCRIPTS),
                    "OMP_NUM_THREADS": "1",
                    "HDMLP_SOCKET": f"hdmlp-bench-{os.getpid()}",
                    "HDMLP_LINGER": "0s",
                    "HDMLP_INDEX_DIR": os.path.join(out, "index"),
                },
            )
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
            cpu = sum(os.times()[2:4]) - before
            if done.returncode:
                raise rounds.RoundFailed(
                    f"{framework.epochs} with {ranks} ranks ended:\n{done.stderr[-4000:]}"
                )
            found = []
            for rank in range(ranks):
                with open(os.path.join(out, str(rank)), encoding="utf-8") as file:
                    found.append(json.load(file))
        return {
            which: [max(turn) for turn in zip(*(rank[which] for rank in found))]
            for which in ("torch", "ours")
        }, cpu

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        bad = [
            name for name, row in medians.items() if (row["same"], row["resume"]) != ("yes", "yes")
        ]
        slow = [
            f"{name} ({row['ratio']:.2f})" for name, row in medians.items() if row["ratio"] > LIMIT
        ]
        return [
            f"same samples and exact resume: {'all yes' if not bad else 'NOT ' + ', '.join(bad)}",
            f"epochs that take more than {LIMIT} of torch's time: {', '.join(slow) or 'none'}",
        ]


def shown(outcomes: Sequence[dict[str, Any]], framework: Framework, ranks: int) -> str:
    """The result of a framework's tests with so many ranks: yes, NO, or not tested."""
    found = {
        one["outcome"] for one in outcomes if (one["test"], one["ranks"]) == (framework.test, ranks)
    }
    if not found or found == {"skipped"}:
        return "not tested"
    return "yes" if found <= {"passed", "skipped"} else "NO"


def page(report: dict[str, Any]) -> str:
    """docs/FRAMEWORKS.md, of a report that has the scenario."""
    scenario = report["scenarios"][Frameworks.key]
    versions = scenario["conditions"]["versions"]
    lines = [
        "# Frameworks",
        "",
        "Each framework was run with HDMLP's loader and with torch's, on 1 rank and on 2 ranks.",
        "[The guide](guides/frameworks.md) has the code that each needs.",
        "`make bench SCENARIO=frameworks SAVE=1` writes this page; scripts and tests are in "
        "python/frameworks.",
        "",
        "- **same samples**: every rank gets the same samples in the same batches, in training "
        "and validation.",
        "- **exact resume**: a state saved in the middle of an epoch is followed by exactly the "
        "rest of the epoch.",
        "- **epoch time**: the time of two epochs with HDMLP's loader, its construction "
        "included, divided by that with torch's; both run in turn, and the figure is the median.",
        "",
        f"Measured: {scenario['title'].split('; ', 1)[1]}.",
        f"At commit {scenario['commit']}, {scenario['at']}, {report['machine']['processors']} "
        f"processors ({report['machine']['processor']}).",
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}.",
        "",
        "| framework | ranks | same samples as torch | exact resume | epoch time / torch's |",
        "| --- | ---: | --- | --- | ---: |",
    ]
    for contender in Frameworks.contenders:
        tested = shown(
            scenario["conditions"]["tests"], Framework(**contender["framework"]), contender["ranks"]
        )
        row = scenario["medians"].get(contender["name"])
        lines.append(
            f"| {contender['framework']['name']} | {contender['ranks']} | {tested} | {tested} | "
            f"{row['ratio']:.2f} |"
            if row
            else f"| {contender['framework']['name']} | {contender['ranks']} | {tested} | "
            f"{tested} | FAILED |"
        )
    lines += [
        "",
        *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in scenario["conclusions"]),
    ]
    if report["quick"]:
        lines += ["", "This was a quick run: each time is of one turn, with few images."]
    busy = sum(
        max(result["others"], result.get("stolen", 0)) > 0.05
        for results in scenario["rounds"].values()
        for result in results
    )
    if busy:
        count = sum(map(len, scenario["rounds"].values()))
        lines += [
            "",
            f"In {busy} of {count} rounds other programs used more than 5 % of the machine: "
            f"compare ratios, not times.",
        ]
    return (
        "\n".join(
            line
            if line.startswith("|")
            else textwrap.fill(
                line,
                100,
                subsequent_indent="  " * line.startswith("- "),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in lines
        )
        + "\n"
    )


def all_frameworks(quick: bool) -> list[Scenario]:
    """The scenario."""
    return [Frameworks(200 if quick else 600, 1 if quick else 3)]
