"""What the exchange of samples leaves of slow links for a job's own traffic.

    python bench/allreduce.py [--nodes 2,4] [--rates 20mbit,100mbit] [--floats 1] [--rounds N]
        [--vs BINARY]

As root. Each cell trains on nodes of `hdmlp dev cluster`, a rank on each, with an all-reduce (gloo)
over the same links after each step; the dataset is on a fast local disk, so that loading is no
reason to wait. Printed are, for each epoch, its seconds and the milliseconds of an all-reduce:
without caches (policy staging), where samples do not pass the links, by default, and by another
binary of hdmlp, in turn.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from typing import Optional

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BINARY = os.path.join(_ROOT, "python", "hdmlp", "bin", "hdmlp")

SAMPLES, SIZE, CLASSES = 600, 32_000, 6
EPOCHS = 3
BATCH = 8

#: What a step computes, in seconds, is drawn up to this, by each rank for itself.
STEP = 0.03

RANK = """
import json, random, sys, time
import torch, torch.distributed as dist
import hdmlp.torch

path, floats, epochs, batch, step, policy = sys.argv[1], *json.loads(sys.argv[2])
dist.init_process_group("gloo")
loader = hdmlp.torch.DataLoader(
    hdmlp.torch.ImageFolder(path), batch_size=batch, shuffle=True, seed=42, shard=True,
    epochs=epochs, **({"policy": policy} if policy else {}))
draw, gradients = random.Random(dist.get_rank()), torch.ones(floats)
result = []
for epoch in range(epochs):
    began, reducing, steps = time.monotonic(), 0.0, 0
    for data, labels in loader:
        time.sleep(step * draw.random())
        before = time.monotonic()
        dist.all_reduce(gradients)
        reducing += time.monotonic() - before
        steps += 1
    result.append((time.monotonic() - began, 1e3 * reducing / steps))
dist.barrier()
if dist.get_rank() == 0:
    print("RESULT", json.dumps(result))
"""


def make(directory: str) -> str:
    """Writes a dataset of random files, and returns its path."""
    path = os.path.join(directory, "dataset")
    draw = random.Random(1)
    for sample in range(SAMPLES):
        folder = os.path.join(path, str(sample % CLASSES))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{sample:04}.jpg"), "wb") as file:
            file.write(draw.randbytes(SIZE))
    return path


def run(binary: str, nodes: int, rate: str, path: str, spec: str) -> list[list[float]]:
    """Returns the seconds of each epoch, and the milliseconds of an all-reduce in it."""
    command = [binary, "dev", "cluster", "-n", str(nodes), "--rate", rate, "--"]
    env = dict(os.environ, PYTHONPATH=os.path.join(_ROOT, "python"), OMP_NUM_THREADS="1")
    env["HDMLP_BINARY"] = binary
    done = subprocess.run(
        [*command, sys.executable, "-c", RANK, path, spec], env=env, capture_output=True, text=True
    )
    for line in done.stdout.splitlines():
        _, found, result = line.partition("RESULT ")
        if found:
            return [[float(figure) for figure in epoch] for epoch in json.loads(result)]
    sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", default="2,4")
    parser.add_argument("--rates", default="20mbit,100mbit")
    parser.add_argument("--floats", type=int, default=1, help="size of an all-reduce")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vs", metavar="BINARY", help="another hdmlp, such as of a commit before")
    arguments = parser.parse_args()
    contenders: list[tuple[str, str, Optional[str]]] = [
        ("staging", _BINARY, "staging"),
        ("default", _BINARY, None),
    ]
    if arguments.vs:
        contenders.append((arguments.vs, os.path.abspath(arguments.vs), None))
    with tempfile.TemporaryDirectory(prefix="hdmlp-allreduce-") as directory:
        path = make(directory)
        for rate in arguments.rates.split(","):
            for nodes in map(int, arguments.nodes.split(",")):
                rounds: dict[str, list[list[list[float]]]] = {}
                for _ in range(arguments.rounds):
                    for name, binary, policy in contenders:
                        spec = json.dumps([arguments.floats, EPOCHS, BATCH, STEP, policy])
                        rounds.setdefault(name, []).append(run(binary, nodes, rate, path, spec))
                for name, results in rounds.items():
                    epochs = [
                        "{:.2f} s, {:.1f} ms".format(*map(statistics.median, zip(*epoch)))
                        for epoch in zip(*results)
                    ]
                    print(f"{nodes} nodes, {rate}, {name}: " + "; ".join(epochs), flush=True)


if __name__ == "__main__":
    main()
