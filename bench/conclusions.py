"""What `hdmlp analyze --validate` concludes of twelve jobs, against the run with the change made:
jobs that their source limits, preparing samples, or training, on one node and on two, on a machine
that does nothing else and beside as many busy processes as it has processors.

    build/frameworks/bin/python bench/conclusions.py [--time 24s] [--only busy] [--out FILE]

Two nodes are namespaces of this machine, with a link of 1 Gbit/s. Steps are emulated by sleep. The
table has for each job what limits by the first sentence, or "no conclusion"; by how much the job as
it is differs from the prediction; what was tried; and by how much the prediction of that is off.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import make_dataset
import namespaces
from throttled import Throttled

from scenarios import DATA

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conclusion_job.py")
SAMPLES = 400
#: Bytes per second of the source where it limits, and seconds per open.
BANDWIDTH, LATENCY = 4_000_000, 0.002
#: Seconds of a step, and workers, by what limits.
JOBS = {"source": (0.02, 2), "preparation": (0.005, 1), "training": (0.5, 1)}
#: How far a prediction may be off.
AIM = 0.1


def burn() -> None:
    while True:
        pass


@contextlib.contextmanager
def load(busy: bool) -> Iterator[None]:
    """A context with as many busy processes as there are processors, or none."""
    count = len(os.sched_getaffinity(0)) if busy else 0
    processes = [multiprocessing.Process(target=burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def analyzed(path: str, limit: str, nodes: int, seconds: str) -> dict[str, Any]:
    """Returns the analysis, or ``{"failed": why}``."""
    step, workers = JOBS[limit]
    command = [namespaces.BINARY, "analyze", "--json", "--validate", "--time", seconds, "--"]
    command += [sys.executable, JOB, path, str(step), str(workers)]
    if nodes > 1:
        command = [
            *(namespaces.BINARY, "dev", "cluster", "-n", str(nodes), "--rate", "1gbit", "--"),
            *command,
        ]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HDMLP_SECRET": uuid.uuid4().hex},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    if nodes > 1:
        lines = [line.removeprefix("[0.0] ") for line in lines if line.startswith("[0.0] ")]
    try:
        found: dict[str, Any] = json.loads("\n".join(lines))
    except ValueError:
        return {"failed": done.stderr[-600:]}
    return found


def row(found: dict[str, Any]) -> str:
    if "failed" in found:
        return "failed: " + found["failed"].strip().splitlines()[-1]
    differs, measured = found["measured_differs_by"], found["measured"]
    concluded = "no conclusion" if abs(differs) > 0.2 else found["now"]["limit"]
    tried = measured.get("validation")
    if tried is None:
        why = [n["text"] for n in measured["notes"] if n["about"] == "validation"]
        return f"{concluded:14} {differs:+7.1%}  not validated: {why}"
    holds = "holds" if abs(tried["error"]) <= AIM else "off"
    return (
        f"{concluded:14} {differs:+7.1%}  {tried['predicted_epoch_s']:8.2f} "
        f"{tried['measured_epoch_s']:8.2f} {tried['error']:+7.1%} {holds:5}  {tried['change']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time", default="24s")
    parser.add_argument("--only", default="", help="part of the name of a job")
    parser.add_argument("--out", help="a file for the analyses, as JSON")
    options = parser.parse_args()
    path = os.path.join(DATA, f"photos-{SAMPLES}")
    make_dataset.make("photos", path, SAMPLES)
    everything = {}
    print(f"{'job':22} {'limit':14} {'differs':>7}  {'predicted':>8} {'measured':>8} {'error':>7}")
    for busy in (False, True):
        for nodes in (1, 2):
            for limit in JOBS:
                name = f"{limit}-{nodes}-{'busy' if busy else 'idle'}"
                if options.only not in name:
                    continue
                with contextlib.ExitStack() as stack:
                    source = path
                    if limit == "source":
                        source = stack.enter_context(Throttled(path, BANDWIDTH, LATENCY)).path
                    stack.enter_context(load(busy))
                    everything[name] = analyzed(source, limit, nodes, options.time)
                print(
                    f"{name:22} {row(everything[name])}  load {os.getloadavg()[0]:.1f}", flush=True
                )
    if options.out:
        with open(options.out, "w") as file:
            json.dump(everything, file)


if __name__ == "__main__":
    main()
