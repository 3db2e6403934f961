"""What `hdmlp simulate` predicts of measurements."""

import json
import os
import subprocess
import tempfile

import rounds
from namespaces import BINARY

from evaluation import cluster

_SCENARIO = """\
title = "a measurement"
[environment]
nodes = 1
compute = 1e6
preprocess = {preprocess:.6f}
network = 1000
source_network = 1000
source = {{ {source} }}
source_latency = {latency}
[[environment.storage_class]]
name = "staging"
capacity = {staging:.6f}
threads = 1
read = {{ 1 = 10000 }}
[[environment.storage_class]]
name = "ram"
capacity = {memory:.6f}
threads = 2
read = {{ 1 = 5000, 2 = 10000 }}
[dataset]
samples = {samples}
distribution = "constant"
mu = {mean:.6f}
[job]
epochs = {epochs}
global_batch_size = {batch}
"""


def scaling(
    policies: tuple[str, ...],
    nodes: tuple[int, ...],
    *,
    samples: int,
    size: int,
    memory: float,
    epochs: int,
    batch: int,
    preprocess: float,
) -> dict[str, dict[int, float]]:
    """Seconds by policy and number of nodes, by `hdmlp simulate --scaling`.

    Args:
        size: bytes of the dataset.
        memory: bytes of a node's cache.
        batch: samples of a global batch.
        preprocess: bytes per second that a node decodes and transforms.
    """
    scenario = _SCENARIO.format(
        preprocess=preprocess / 1e6,
        source=", ".join(f"{n} = {mb / cluster.SLOWER}" for n, mb in cluster.SOURCE.items()),
        latency=cluster.LATENCY,
        staging=4 * batch * size / samples / 1e6,
        memory=memory / 1e6,
        samples=samples,
        mean=size / samples / 1e6,
        epochs=epochs,
        batch=batch,
    )
    with tempfile.TemporaryDirectory(prefix="hdmlp-evaluation-") as folder:
        path = os.path.join(folder, "scenario.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(scenario)
        done = subprocess.run(
            [BINARY, "simulate", path, "--json", "--policy", ",".join(policies),
             "--scaling", ",".join(map(str, nodes))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise rounds.RoundFailed(f"hdmlp simulate: {done.stderr.strip()}")
    points = json.loads(done.stdout)["points"]
    return {
        policy: {
            count: point["policies"][policy]["runtime_s"] for count, point in zip(nodes, points)
        }
        for policy in policies
    }
