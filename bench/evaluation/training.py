"""Training with an emulated accelerator: the thesis's experiment 3 (figures 5.11 to 5.14), and the
paper's figures 9 to 11, which have tf.data as well."""

import os
import shutil
import statistics
import subprocess
from typing import Any

import newest
import rounds
import tf_loader
from throttled import Unavailable

from evaluation import cluster
from evaluation.cluster import DALI, OURS, TFDATA, TORCH0, TORCH4, Epoch
from evaluation.lines import Line, middle
from scenarios import DATA

#: Samples of a rank's batch; the papers have 128, whose steps would take 8 times as long.
BATCH = 16

#: Memory and staging buffer of a node to 11 GB (experiment 3: 20,480 MB and 4,096 MB), and to the
#: 138 GB of ImageNet.
FITS, PART = 1.2, (20_480 + 4_096) / 138_000

#: The greatest factors by which HDMLP's median stall is below DataLoader's, and below that with
#: four workers: benchmarks 1 and 3. No number is printed for SqueezeNet.
LESS = {"ResNet-50, 10 %": (1132, 36), "ResNet-50": (2924, 44)}


def stalls(
    nodes: tuple[int, ...], samples: int, epochs: int, networks: dict[str, tuple[str, float]]
) -> list[Line]:
    """Figures 5.11 to 5.14.

    Args:
        networks: by benchmark, whose rate it has, and the part of the dataset that a node's memory
            holds.
    """
    path, size = cluster.photos(samples)
    lines = []
    for name, (network, share) in networks.items():
        waited: dict[str, dict[int, float]] = {}
        for count in nodes:
            for contender in (TORCH0, TORCH4, OURS):
                result = cluster.train(
                    contender, path, count, cluster.source(count), batch_size=BATCH,
                    epochs=epochs, memory=int(share * size), step=cluster.step(network, BATCH),
                )  # fmt: skip
                found = cluster.epochs(result)
                where = f"{name}, {contender['name']}, {count} node{'s' * (count > 1)}"
                lines += _stalled(where, found)
                # Sleeping is not exact to the microsecond; a stall of nothing has no ratio.
                waited.setdefault(contender["name"], {})[count] = max(
                    sum(epoch.stall for epoch in found), 1e-6
                )
        for number, other in enumerate((TORCH0, TORCH4)):
            factors = [
                waited[other["name"]][count] / waited[OURS["name"]][count] for count in nodes
            ]
            lines.append(
                Line(
                    f"{name}: stall of {other['name']} to HDMLP's, the greatest of all nodes",
                    max(factors),
                    "x",
                    LESS[name][number] if name in LESS else None,
                )
            )
    return lines


def _stalled(where: str, found: list[Epoch]) -> list[Line]:
    """The stall of a step, its share of the time, and the longest (figure 5.14)."""
    later = found[1:] or found
    stall, steps = sum(epoch.stall for epoch in found), sum(epoch.steps for epoch in found)
    return [
        Line(f"{where}: stall of a step, all epochs", stall / steps * 1e3, "ms"),
        Line(f"{where}: share of time stalled, first epoch", found[0].share, "%"),
        Line(
            f"{where}: share of time stalled, later epochs",
            statistics.mean(epoch.share for epoch in later),
            "%",
        ),
        Line(
            f"{where}: longest stall of a step on any node, later epochs",
            max(epoch.longest for epoch in later) * 1e3,
            "ms",
        ),
    ]


def loaders(
    nodes: tuple[int, ...], samples: int, epochs: int, networks: dict[str, tuple[str, float]]
) -> list[Line]:
    """Figures 9 to 11 of the paper: each loader's epochs, of which the first stands apart.

    Args:
        networks: by figure, as in `stalls`.
    """
    path, size = cluster.photos(samples)
    records = _records(path, samples)
    lines = []
    for name, (network, share) in networks.items():
        for count in nodes:
            ours = 0.0
            later_of: dict[str, float] = {}
            for contender in (OURS, TORCH0, TORCH4, DALI, TFDATA):
                folder = records if contender is TFDATA else path
                result = _trained(contender, folder, count, network, epochs, share * size)
                found = cluster.epochs(result)
                later = found[1:]
                where = f"{name}, {contender['name']}, {count} node{'s' * (count > 1)}"
                lines += [
                    Line(f"{where}: first epoch", found[0].seconds, "s"),
                    middle(f"{where}: later epochs", [epoch.seconds for epoch in later], "s"),
                    middle(f"{where}: stall of these", [epoch.stall for epoch in later], "s"),
                ]
                later_of[contender["name"]] = statistics.median(e.seconds for e in later)
            ours = later_of.pop(OURS["name"])
            lines += [
                Line(f"{name}, {count} nodes: later epochs of {other} to HDMLP's", took / ours, "x")
                for other, took in later_of.items()
            ]
    return lines


def _trained(
    contender: dict[str, Any], folder: str, count: int, network: str, epochs: int, memory: float
) -> dict[str, Any]:
    return cluster.train(
        contender, folder, count, cluster.source(count), batch_size=BATCH, epochs=epochs,
        memory=int(memory), step=cluster.step(network, BATCH),
    )  # fmt: skip


def _records(images: str, samples: int) -> str:
    """A folder with the same images in TFRecord files."""
    newest.peers("nvidia-dali-cuda130")  # names it before anything is measured
    path = os.path.join(DATA, f"tfrecord-{samples}")
    if os.path.exists(path):
        return path
    unfinished = path + ".part"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        done = subprocess.run(
            [cluster.TENSORFLOW, tf_loader.__file__, images, unfinished, "16"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"tf.data: TensorFlow could not be installed: {error}") from None
    if done.returncode:
        raise rounds.RoundFailed(f"TFRecord files were not written: {done.stderr[-2000:]}")
    os.rename(unfinished, path)
    return path
