"""Nodes for measurements: each has its own link and an equal part of this machine's processors, so
that more nodes have more processors, as in the papers; and the papers' machine, made slower."""

import contextlib
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import make_dataset
import newest
import rounds
from namespaces import Nodes
from throttled import Throttled, Unavailable

from scenarios import DATA

#: The interpreter that has TensorFlow; `make evaluation` builds its environment.
TENSORFLOW = os.path.join(os.path.dirname(DATA), "tensorflow", "bin", "python")

OURS: dict[str, Any] = {"name": "HDMLP", "contender": "hdmlp", "python": newest.PYTHON}
TORCH0: dict[str, Any] = {
    "name": "DataLoader",
    "contender": "pipeline",
    "workers": 0,
    "python": newest.PYTHON,
}
TORCH4 = dict(TORCH0, name="DataLoader, 4 workers", workers=4)
DALI: dict[str, Any] = {
    "name": "DALI, 4 threads",
    "contender": "dali",
    "workers": 4,
    "python": newest.PEERS,
}
TFDATA: dict[str, Any] = {
    "name": "tf.data on TFRecord, 4 threads",
    "contender": "tfdata",
    "workers": 4,
    "python": TENSORFLOW,
}

#: How many times slower than in the papers accelerators and the source are here.
SLOWER = 4

#: Processors of a node. Four of them leave some of two processors to the source.
PROCESSORS = 0.4

#: How many times as much as another program's process a node weighs where processors are short, so
#: that it gets its part while others run.
WEIGHT = 10

#: Piz Daint's parallel file system, MB/s of random reads of all nodes together, by their number, as
#: the thesis's section 5.2.1 has it; it stops growing at 8 nodes (figure 5.3).
SOURCE = {1: 66, 2: 86, 3: 129, 4: 146}

#: Seconds until the source opens a file.
LATENCY = 0.002

#: Images/s of a P100 with ResNet-50, as TensorFlow published it (Benchmarks, 2017: NVIDIA DGX-1,
#: one GPU, batches of 64, synthetic data, 219 images/s); and with SqueezeNet, by the ratio of both
#: on a V100, 835 x 1.50 to 569 x 1.21 (CoorDL, table 7), of which a node of Lassen has four.
RATES = {
    "ResNet-50": 219.0,
    "SqueezeNet": 219.0 * (835 * 1.50) / (569 * 1.21),
    "ResNet-50, four V100": 4 * 569 * 1.21,
}

#: The control groups of processors, versions 1 and 2, and for how long a share is counted.
_V1, _V2 = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"
_PERIOD = 20_000


class Epoch(NamedTuple):
    """An epoch on all nodes.

    Attributes:
        seconds: from the first rank's begin to the last one's end.
        stall: seconds that a rank waited for batches, the median of the ranks.
        longest: the longest wait for a batch, in seconds, of any rank.
        steps: steps of a rank.
        share: of all ranks' time, that in which they waited for batches.
    """

    seconds: float
    stall: float
    longest: float
    steps: int
    share: float


def photos(samples: int) -> tuple[str, int]:
    """A folder with so many JPEGs like ImageNet's in 10 class folders, and its bytes."""
    path = os.path.join(DATA, f"photos-{samples}")
    made: dict[str, Any] = make_dataset.make("photos", path, samples)
    return path, made["bytes"]


def source(nodes: int) -> float:
    """Bytes per second that the source gives to all nodes together."""
    return SOURCE[nodes] * 1e6 / SLOWER


def step(network: str, batch: int) -> float:
    """Seconds that a network computes on a batch of a rank."""
    return SLOWER * batch / RATES[network]


@contextlib.contextmanager
def groups(count: int) -> Iterator[dict[str, Any]]:
    """Control groups, one for each node: of a round, `groups`, and `limit_group`, what gives a
    node's processes PROCESSORS of the processors.

    Raises:
        Unavailable: this machine, or this user, cannot have them.
    """
    old = os.path.exists(os.path.join(_V1, "cpu.cfs_quota_us"))
    parent, quota = _V1 if old else _V2, int(PROCESSORS * _PERIOD)
    made: list[str] = []
    try:
        try:
            if not old:
                _write(parent, "cgroup.subtree_control", "+cpu")
            for number in range(count):
                made.append(os.path.join(parent, f"hdmlp-evaluation-{os.getpid()}-{number}"))
                os.mkdir(made[-1])
                if old:
                    _write(made[-1], "cpu.cfs_period_us", str(_PERIOD))
                    _write(made[-1], "cpu.shares", str(WEIGHT * 1024))
                else:
                    _write(made[-1], "cpu.weight", str(WEIGHT * 100))
        except OSError as error:
            raise Unavailable(
                f"nodes need control groups of processors in {parent}, as root: {error}"
            ) from None
        limit = ("cpu.cfs_quota_us", str(quota)) if old else ("cpu.max", f"{quota} {_PERIOD}")
        yield {"groups": made, "limit_group": limit}
    finally:
        for group in made:
            _remove(group)


def _write(group: str, name: str, value: str) -> None:
    with open(os.path.join(group, name), "w", encoding="ascii") as file:
        file.write(value)


def _remove(group: str) -> None:
    """Removes a control group once its last process has ended: daemons end soon after ranks."""
    deadline = time.monotonic() + 20
    while os.path.isdir(group):
        try:
            os.rmdir(group)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def train(
    contender: dict[str, Any], folder: str, nodes: int, bandwidth: float, **spec: Any
) -> dict[str, Any]:
    """Runs a rank on each of several nodes, with a throttled source; as rounds.run.

    Args:
        folder: what the source shows.
        bandwidth: bytes per second of the source.
        spec: `batch_size`, `epochs`, `memory` and `step`; more of rounds.run's.
    """
    if not shutil.which(contender["python"]):
        raise Unavailable(f"{contender['name']}: {contender['python']} could not be installed")
    print(f"  {contender['name']}, {nodes} node{'s' * (nodes > 1)}", flush=True)
    with (
        Throttled(folder, int(bandwidth), LATENCY) as mount,
        groups(nodes) as own,
        Nodes(nodes) as hosts,
    ):
        return rounds.run(
            contender,
            {
                "path": mount.path,
                "seed": 42,
                "world_size": nodes,
                "pipeline": "crop",
                "synchronous": bool(spec["step"]),
                **own,
                **spec,
            },
            mount,
            hosts,
        )


def epochs(result: dict[str, Any]) -> list[Epoch]:
    """The epochs of a round, of all ranks."""
    found = []
    for of_ranks in zip(*(rank["epochs"] for rank in result["ranks"])):
        begin, end = min(e["begin"] for e in of_ranks), max(e["end"] for e in of_ranks)
        found.append(
            Epoch(
                seconds=end - begin,
                stall=statistics.median(e["stall"] for e in of_ranks),
                longest=max(e["longest"] for e in of_ranks),
                steps=max(e["steps"] for e in of_ranks),
                share=sum(e["stall"] for e in of_ranks)
                / sum(e["end"] - e["begin"] for e in of_ranks),
            )
        )
    return found
