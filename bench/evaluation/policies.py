"""Runtimes by policy and number of nodes, by `hdmlp compare`, which runs each and simulates it."""

import json
import os
import statistics
import subprocess
import tempfile
from typing import Any

import rounds
from namespaces import BINARY

from evaluation import cluster
from evaluation.lines import Line, middle
from evaluation.loading import SHARE

#: Policies that the thesis compares and a node can run, beside its own (5.2.2).
OF_THESIS = ("naive", "staging", "pytorch", "deepio_ordered", "frequency", "cooperative")

#: Yang and Cong's loaders: regular, with a distributed cache, locality-aware.
OF_YANG_AND_CONG = {
    "staging": "regular",
    "partitioned": "distributed cache",
    "locality": "locality-aware",
}


def imagenet(nodes: tuple[int, ...], samples: int, epochs: int) -> list[Line]:
    """The dataset of figure 5.10 under each policy."""
    path, size = cluster.photos(samples)
    lines = []
    for count in nodes:
        found = _compare(path, OF_THESIS, count, epochs, int(SHARE * size), 0.0)
        for policy in OF_THESIS:
            row = found[policy]
            lines.append(_beside(f"{policy}, {count} node{'s' * (count > 1)}", row))
    return lines


def locality(nodes: tuple[int, ...], samples: int, epochs: int, network: str) -> list[Line]:
    """Yang and Cong's figures 9 and 12: the collective loading of a dataset, and epochs of
    training, which begin when caches are full.

    Args:
        network: whose rate the training of figure 12 has.
    """
    path, size = cluster.photos(samples)
    lines = []
    for figure, seconds in (("figure 9", 0.0), ("figure 12", cluster.step(network, 16))):
        for count in nodes:
            memory = int(1.2 * size / count)
            found = _compare(path, tuple(OF_YANG_AND_CONG), count, epochs, memory, seconds)
            later = {}
            for policy, name in OF_YANG_AND_CONG.items():
                took = found[policy]["measured"]["epochs_s"][1:]
                later[policy] = statistics.median(took)
                where = f"{figure}, {name} (`{policy}`), {count} nodes"
                lines += [
                    middle(f"{where}: later epochs", took, "s"),
                    Line(
                        f"{where}: the same, simulated",
                        statistics.median(found[policy]["simulated"]["epochs_s"][1:]),
                        "s",
                    ),
                ]
            lines.append(
                Line(
                    f"{figure}, {count} nodes: locality-aware, times as fast as regular",
                    later["staging"] / later["locality"],
                    "x",
                )
            )
    return lines


def _beside(what: str, row: dict[str, Any]) -> Line:
    """What a policy took, with what the simulator predicts."""
    simulated = row["simulated"]["runtime_s"]
    return Line(what, row["measured"]["runtime_s"], "s", note=f"simulated: {simulated:.2f} s")


def _compare(
    path: str, policies: tuple[str, ...], nodes: int, epochs: int, memory: int, step: float
) -> dict[str, dict[str, Any]]:
    """What `hdmlp compare` found, by policy."""
    command = [
        BINARY, "compare", path, "--json", "--policies", ",".join(policies), "-n", str(nodes),
        "--epochs", str(epochs), "--batch", "16", "--memory", f"{memory}B", "--probe-time", "2s",
        "--source-rate", f"{cluster.source(nodes) / 1e6}MB/s", "--samples",
        str(sum(len(names) for _, _, names in os.walk(path))), "--seed", "42",
    ]  # fmt: skip
    if step:
        command += ["--step-time", f"{step * 1e3:.3f}ms"]
    with tempfile.TemporaryDirectory(prefix="hdmlp-evaluation-") as folder:
        done = subprocess.run(
            [*command, "--out", os.path.join(folder, "out"), "--index-dir", folder],
            capture_output=True, text=True, check=False,
            env={key: value for key, value in os.environ.items() if not key.startswith("HDMLP_")},
        )  # fmt: skip
    if done.returncode:
        raise rounds.RoundFailed(f"{' '.join(command)}: {done.stderr[-2000:]}")
    rows = {row["policy"]: row for row in json.loads(done.stdout)["policies"]}
    missing = [policy for policy in policies if not (rows.get(policy) or {}).get("measured")]
    if missing:
        raise rounds.RoundFailed(f"{' '.join(command)}: {', '.join(missing)} did not run")
    return rows
