"""What `hdmlp analyze --validate` concludes of twelve jobs, against the run with the change made:
jobs that their source limits, preparing samples, or training, on one node and on two, on a machine
that does nothing else and beside as many busy processes as it has processors.

    build/frameworks/bin/python bench/conclusions.py [--time 24s] [--only busy] [--out FILE]

Two nodes are namespaces of this machine, with a link of 1 Gbit/s. Images are small, the source that
limits has a latency, and steps and the preparation that limits are emulated by sleep, so that other
work on the machine does not change what limits. The
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
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import namespaces
import PIL.Image
from throttled import Throttled

from scenarios import DATA

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conclusion_job.py")
SAMPLES = 480
#: Seconds per open of the source where it limits.
LATENCY = 0.04
#: Seconds of a step of 16 samples, workers, and seconds of preparation, by what limits.
JOBS = {"source": (0.1, 2, 0), "preparation": (0.1, 0, 0.02), "training": (0.5, 1, 0)}
#: How far a prediction may be off.
AIM = 0.1


def images() -> str:
    """Returns a directory of small images, in two classes."""
    path = os.path.join(DATA, f"conclusions-{SAMPLES}")
    for number in range(SAMPLES):
        file = os.path.join(path, "ab"[number % 2], f"{number}.jpg")
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if not os.path.exists(file):
            PIL.Image.effect_noise((64, 64), 50).convert("RGB").save(file)
    return path


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
    arguments = [str(argument) for argument in JOBS[limit]]
    command = [namespaces.BINARY, "analyze", "--json", "--validate", "--time", seconds, "--"]
    command += [sys.executable, JOB, path, *arguments]
    if nodes > 1:
        command = [
            *(namespaces.BINARY, "dev", "cluster", "-n", str(nodes), "--rate", "1gbit", "--"),
            *command,
        ]
    more = {"OMP_NUM_THREADS": "1", "HDMLP_SECRET": uuid.uuid4().hex}
    if nodes == 1:  # a daemon of its own; those of namespaces are
        more["HDMLP_SOCKET"] = os.path.join(tempfile.mkdtemp(prefix="hdmlp-"), "socket")
    done = subprocess.run(
        command,
        env={**os.environ, **more},
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
    path = images()
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
                        source = stack.enter_context(Throttled(path, 0, LATENCY)).path
                    stack.enter_context(load(busy))
                    everything[name] = analyzed(source, limit, nodes, options.time)
                if options.out:
                    with open(options.out, "w") as file:
                        json.dump(everything, file)
                print(
                    f"{name:22} {row(everything[name])}  load {os.getloadavg()[0]:.1f}", flush=True
                )


if __name__ == "__main__":
    main()
