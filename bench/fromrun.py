"""Predictions of real runs: runs jobs on 1, 2 and 4 nodes, raw and with transforms, with memory and
file classes that hold half of the dataset or all of it, and compares each with what
`hdmlp simulate --from-run` predicts from its report.

    python bench/fromrun.py [--only nodes=2,file] [--out DIR] [--repeat N]

The cell with forms is of a job that waits for its transforms, with memory for some samples as
coefficients, and for all: from each of both runs, the other one is predicted,
and compared with it, in the last third of the epochs.

Source, links and disks are throttled such that they limit the runs, and not the processors, and an
epoch takes at least 2 s. Ranks wait for each other after each step, as synchronous training does,
but in the cells that say `free`. Prints a line for each run, and what misses the aim: epochs within
5 % (without the run's first second), bytes by tier within 1 %. A cell that is run several times is
judged by the medians of its errors: in the first epoch, whether a sample is read ahead into a cache
or for the batch that needs it is decided by milliseconds.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import make_dataset
import namespaces
import rounds
from throttled import Throttled

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

SAMPLES = 320
EPOCHS = 3
GLOBAL_BATCH = 16

#: Bytes per second: of the source, and of each node's disk.
SOURCE = 7_000_000
DISK = 40_000_000

#: How many batches are read ahead, of the 20 of an epoch. By default it is all that fits into 32 MB
#: on each node, and so most of the next epoch of this dataset, where of one of 100 GB it is
#: nothing.
AHEAD = 4

#: What one epoch computes, in seconds: it is what limits epochs that are served by caches.
COMPUTE = 2.2

TIME, BYTES = 0.05, 0.01

#: Of the cell with forms: samples, epochs, and by how many times the dataset memory has room for.
FORMED = 1200
FORMED_EPOCHS = 24
FORMED_MEMORY = (1.15, 1.5)


class Cell(NamedTuple):
    nodes: int
    transforms: bool
    kind: str  # of the cache: memory or file
    share: float  # of the dataset that all caches together hold
    ranks: int = 1  # on each node
    warm: bool = False  # the caches hold what they can at the start
    free: bool = False  # ranks do not wait for each other
    forms: bool = False  # predicts runs with other memory for forms

    def __str__(self) -> str:
        words = [
            f"nodes={self.nodes}",
            "transforms" if self.transforms else "raw",
            self.kind,
            "full" if self.share > 1 else "half",
        ]
        if self.ranks > 1:
            words.append(f"ranks={self.ranks}")
        if self.warm:
            words.append("warm")
        if self.free:
            words.append("free")
        if self.forms:
            words.append("forms")
        return ",".join(words)


def cells() -> list[Cell]:
    plain = itertools.product((1, 2, 4), (False, True), ("memory", "file"), (0.5, 1.05))
    return [
        *(Cell(*cell) for cell in plain),
        Cell(1, False, "memory", 0.5, ranks=2),
        Cell(1, False, "file", 0.5, warm=True),
        Cell(1, False, "file", 1.05, warm=True),
        Cell(1, False, "memory", 0.5, ranks=2, free=True),
        Cell(2, False, "memory", 0.5, free=True),
        Cell(1, True, "memory", 1.15, forms=True),
    ]


@contextlib.contextmanager
def _disks(cell: Cell, directory: str) -> Iterator[Optional[str]]:
    """The cache directory of each rank's node, as a template."""
    if cell.kind == "memory":
        yield None
        return
    with contextlib.ExitStack() as stack:
        for node in range(cell.nodes):
            folder = os.path.join(directory, f"disk{node}")
            os.makedirs(folder, exist_ok=True)
            disk = stack.enter_context(Throttled(folder, DISK, 0.0, "--writable"))
            os.symlink(disk.path, os.path.join(directory, f"mount{node}"))
        yield os.path.join(directory, "mount{rank}", "cache")


def run(cell: Cell, dataset: dict[str, Any], path: str, out: str) -> dict[str, Any]:
    """Runs a cell, and returns the comparison of its report, which it keeps in the file out."""
    if cell.forms:
        return run_forms(cell, out)
    size, world = dataset["bytes"], cell.nodes * cell.ranks
    spec: dict[str, Any] = {
        "batch_size": GLOBAL_BATCH // world,
        "epochs": EPOCHS,
        "seed": 7,
        "step": COMPUTE / (SAMPLES / GLOBAL_BATCH),
        "world_size": world,
        "cluster": cell.nodes > 1,
        "synchronous": world > 1 and not cell.free,
        "prefetch_batches": AHEAD,
    }
    capacity = int(cell.share * size / cell.nodes)
    contender: dict[str, Any] = {"name": str(cell), "contender": "hdmlp", "workers": 0}
    if cell.transforms:
        contender["pipeline"] = "center"
    with tempfile.TemporaryDirectory(prefix="hdmlp-fromrun-") as directory:
        with (
            Throttled(path, SOURCE) as source,
            _disks(cell, directory) as cache,
            namespaces.Nodes(cell.nodes, "1gbit")
            if cell.nodes > 1
            else contextlib.nullcontext() as nodes,
        ):
            spec["path"] = source.path
            if cache:
                spec.update(cache_dir=cache, cache_size=str(capacity), memory="0B")
            else:
                spec["memory"] = str(capacity)
            if cell.warm:
                rounds.run(contender, dict(spec, epochs=1, step=0.0), source, nodes)
            result = rounds.run(contender, spec, source, nodes)
            compared = predict(result["ranks"][0]["report"], out, directory)
    return {"rows": compared["rows"], "others": result["others"]}


def run_forms(cell: Cell, out: str) -> dict[str, Any]:
    """Runs a job with memory for some forms and for all, and predicts each run from the other."""
    path = os.path.join(_ROOT, "build", "data", f"photos-{FORMED}")
    size = make_dataset.make("photos", path, FORMED)["bytes"]
    spec = {
        "path": path,
        "batch_size": 64,
        "epochs": FORMED_EPOCHS,
        "seed": 7,
        "step": 0.0,
        "world_size": 1,
        "pipeline": "crop",
    }
    contender = {"name": str(cell), "contender": "hdmlp", "workers": 0, "cores": 1}
    results = [
        rounds.run(contender, dict(spec, memory=int(times * size))) for times in FORMED_MEMORY
    ]
    reports = [result["ranks"][0]["report"] for result in results]
    rows = []
    with tempfile.TemporaryDirectory(prefix="hdmlp-fromrun-") as directory:
        for ran, (times, asked) in enumerate(zip(FORMED_MEMORY, reversed(FORMED_MEMORY))):
            memory = ("--memory", str(int(asked * size)))
            compared = predict(reports[ran], out, directory, *memory)
            last = [row for row in compared["what_if"]["rows"] if row["what"].startswith("epoch")]
            last = last[-FORMED_EPOCHS // 3 :]
            predicted = sum(row["what_if"] for row in last)
            measured = sum(e["seconds"] for e in reports[1 - ran]["epochs"][-len(last) :])
            rows.append(
                {
                    "what": f"epochs with {asked} times the memory, from {times}",
                    "unit": "s",
                    "predicted": predicted,
                    "measured": measured,
                    "error": predicted / measured - 1,
                }
            )
    return {"rows": rows, "others": max(result["others"] for result in results)}


def predict(report: dict[str, Any], out: str, index: str, *options: str) -> dict[str, Any]:
    """What `hdmlp simulate --from-run --json` prints of the report."""
    with open(out, "w", encoding="utf-8") as file:
        json.dump(report, file)
    done = subprocess.run(
        [namespaces.BINARY, "simulate", "--json", "--from-run", out, *options],
        capture_output=True,
        text=True,
        env=dict(os.environ, HDMLP_INDEX_DIR=os.path.join(index, "index")),
    )
    if done.returncode != 0:
        raise rounds.RoundFailed(done.stderr.strip() or done.stdout.strip())
    return json.loads(done.stdout)


def errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far each row is off. An amount is compared with all that was delivered, if that is more
    than itself: nothing is 1 % of nothing."""
    delivered = sum(row["measured"] for row in rows if row["what"].startswith("delivered"))
    return {
        row["what"]: row["error"]
        if row["unit"] == "s"
        else (row["predicted"] - row["measured"]) / delivered
        for row in rows
        if not row["what"].startswith("all")
    }


def missed(runs: list[dict[str, float]]) -> list[str]:
    """The rows of a cell that are further off than wanted, in the median of its runs."""
    every = dict.fromkeys(what for run in runs for what in run)  # a run may lack a tier
    medians = {what: statistics.median(run.get(what, 0.0) for run in runs) for what in every}
    return [
        f"{what} {error:+.1%}"
        for what, error in medians.items()
        if abs(error) > (TIME if what.startswith("epoch") else BYTES)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="run the cells that have all of these words")
    parser.add_argument("--repeat", type=int, default=1, help="run each cell so often")
    parser.add_argument("--out", help="keep the reports here")
    arguments = parser.parse_args()
    words = set(filter(None, (arguments.only or "").split(",")))
    chosen = [cell for cell in cells() if words <= set(str(cell).split(","))]
    if not chosen:
        parser.error(f"--only {arguments.only}: no cell has these words, as {cells()[0]} does")
    path = os.path.join(_ROOT, "build", "data", f"photos-{SAMPLES}")
    dataset = make_dataset.make("photos", path, SAMPLES)
    out = arguments.out or tempfile.mkdtemp(prefix="hdmlp-fromrun-")
    os.makedirs(out, exist_ok=True)
    failed = 0
    for cell in chosen:
        runs: list[dict[str, float]] = []
        for number in range(arguments.repeat):
            try:
                file = f"{cell}-{number}.json".replace(",", "-")
                ran = run(cell, dataset, path, os.path.join(out, file))
                rows = ran["rows"]
            except rounds.RoundFailed as error:
                print(f"{cell!s:40} FAILED: {error}", flush=True)
                failed += 1
                continue
            runs.append(errors(rows))
            times = " ".join(
                f"{row['measured']:.2f}{row['error']:+.1%}"
                for row in rows
                if row["what"].startswith("epoch")
            )
            amounts = " ".join(
                f"{row['what'].rsplit(' ', 1)[1]} {row['measured']:.1f}/{row['predicted']:.1f}"
                for row in rows
                if row["unit"] == "MB"
            )
            print(
                f"{cell!s:40} {times} | {amounts} MB | others {ran['others']:.0%}",
                flush=True,
            )
        if runs and (wrong := missed(runs)):
            failed += 1
            print(f"{cell!s:40} MISSED: {', '.join(wrong)}", flush=True)
    print(f"reports: {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
