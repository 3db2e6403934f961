"""What `hdmlp analyze` predicts, against runs: epochs with caches for 25, 35, 50 and 100 % of the
dataset, raw and with transforms, on 1 and 2 nodes, where the source limits, preparing samples, or
training.

The rates are measured as CoorDL does (3.2, appendix C): training alone, the loader alone with all
samples in memory, and random reads of the source alone. Then each cache size is predicted by
equations 3 and 4 and by the simulator, run, and compared: the mean of the last epochs. Training is
emulated by sleep, and the source throttled, such that an epoch takes 2 s at least. Where preparing
limits, one node does it on a processor of its own; on two nodes, which share this machine with the
source's server and the links, it is emulated by sleep as well.
"""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
from typing import Any, NamedTuple

import make_dataset
import namespaces
import rounds
from throttled import Throttled

from scenarios import DATA, Figures, Scenario

SHARES = (0.25, 0.35, 0.5, 1.0)
#: How far off a prediction may be.
AIM = 0.04
SAMPLES = 2000
GLOBAL_BATCH = 16
#: How many batches are read ahead: few, as the part of an epoch that is read ahead is read once for
#: both epochs that it lies in. Of larger datasets it is a smaller part.
AHEAD = 8
EPOCHS, LAST = 4, 2
#: Seconds per open of the source, beside its bandwidth.
LATENCY = 0.002
#: Of each node's link, and bytes per second of it.
LINK, LINK_RATE = "1gbit", 125_000_000


class Setting(NamedTuple):
    limit: str  # source, preparation or training: what is slow
    transforms: bool
    nodes: int

    def __str__(self) -> str:
        data = "transforms" if self.transforms else "raw"
        return f"{self.limit}-{data}-{self.nodes}"

    @property
    def alone(self) -> bool:
        """Whether preparing is to limit on one node: it has one core, and the source is served by
        the others."""
        return self.limit == "preparation" and self.nodes == 1


def settings() -> list[Setting]:
    return [
        Setting(limit, transforms, nodes)
        for nodes in (1, 2)
        for limit in ("source", "preparation", "training")
        for transforms in (False, True)
        if transforms or limit != "preparation"  # what is not prepared does not limit
    ]


def rate(values: list[float]) -> dict[str, Any]:
    """Measurements as `hdmlp analyze` has them."""
    return {
        "samples_per_s": statistics.median(values),
        "low_samples_per_s": min(values),
        "high_samples_per_s": max(values),
        "too_few": True,
    }


class Analyzed(Scenario):
    """One setting; its contenders are the sizes of the caches."""

    columns = [
        ("measured", "epoch", "{:.3f} s"),
        ("equations", "equations", "{:.3f} s"),
        ("simulated", "simulated", "{:.3f} s"),
        ("equations_error", "error", "{:+.1%}"),
        ("simulated_error", "error", "{:+.1%}"),
        ("limit", "limit", "{}"),
    ]

    def __init__(self, setting: Setting, samples: int) -> None:
        self.key, self._setting, self._samples = f"analyze/{setting}", setting, samples
        self.title = (
            f"{setting.limit} limits {'transformed' if setting.transforms else 'raw'} samples of "
            f"{samples:,} JPEGs on {setting.nodes} node{'s' if setting.nodes > 1 else ''}"
        )
        self._spec: dict[str, Any] = {"pipeline": "center"} if setting.transforms else {}
        self._path = os.path.join(DATA, f"photos-{samples}")
        self.contenders = [
            {"name": f"{share:.0%} cached", "contender": "hdmlp", "workers": 0, "cached": share}
            for share in SHARES
        ]

    def prepare(self) -> None:
        """Measures the rates."""
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        size, nodes = self._dataset["bytes"], self._setting.nodes
        slow, pinned = self._setting.limit == "preparation", self._setting.alone
        if pinned:
            self._spec.update(cores=1, apart=True)
        elif slow:
            self._spec.update(pipeline="slow", num_workers=1)
        alone = {"cores": 1} if pinned else {}
        self._servers = set(sorted(os.sched_getaffinity(0))[1:]) if pinned else set()
        memory = rate(self._alone(alone))
        prepared = rate(self._alone(self._spec)) if self._setting.transforms else None
        # How long an epoch's training takes, and its reads without a cache.
        train, read = 2.2, {"source": 5.6, "training": 1.4}.get(self._setting.limit, 0.0)
        if slow:
            seconds = self._samples / nodes / prepared["samples_per_s"]
            train, read = 0.35 * seconds, 0.55 * seconds
        self._bandwidth = int(size / read)
        self._step = train / (self._samples / GLOBAL_BATCH)
        self._measured = {
            "version": 1,
            "dataset": {"samples": self._samples, "mb": size / 1e6},
            "loader": {"name": "hdmlp", "workers": 1 if slow else os.cpu_count(), "streams": 0},
            "batch_samples": GLOBAL_BATCH // nodes,
            "ranks": nodes,
            "nodes": nodes,
            "cores": 1 if pinned else os.cpu_count(),
            "memory_bytes": size,
            # Samples are ready: raw ones, from memory. Asking for a batch is a part of training.
            "training": rate(self._alone(alone, self._step)),
            **self._source(),
            "memory": memory,
        }
        if prepared:
            self._measured["preparation"] = [dict(prepared, n=self._measured["loader"]["workers"])]
        if nodes > 1:
            self._measured["peers"] = rate([LINK_RATE / (size / self._samples)])

    def _alone(self, spec: dict[str, Any], step: float = 0.0) -> list[float]:
        """Samples/s of a node in each later epoch, all samples in memory, as all nodes train
        together; without a step, of their loaders alone."""
        nodes = self._setting.nodes
        with self._nodes("unlimited") as cluster:
            result = rounds.run(
                {"name": "alone", "contender": "hdmlp", "workers": 0},
                {
                    "path": self._path,
                    "batch_size": GLOBAL_BATCH // nodes,
                    "epochs": 5,
                    "seed": 7,
                    "step": step,
                    "world_size": nodes,
                    "cluster": nodes > 1,
                    "synchronous": nodes > 1 and step > 0,
                    "memory": str(int(1.1 * self._dataset["bytes"])),
                    "prefetch_batches": AHEAD,
                    **spec,
                },
                nodes=cluster,
            )
        epochs = result["ranks"][0]["epochs"][2:]
        return [epoch["samples"] / (epoch["end"] - epoch["begin"]) for epoch in epochs]

    def _nodes(self, link: str) -> Any:
        """A context with this many nodes; of one, with none but this machine."""
        nodes = self._setting.nodes
        return namespaces.Nodes(nodes, link) if nodes > 1 else contextlib.nullcontext()

    def _source(self) -> dict[str, Any]:
        """Samples/s of the source by the number of streams, and the processor time of a read: with
        what its server takes, unless that has processors of its own."""
        with Throttled(self._path, self._bandwidth, LATENCY, cpus=self._servers) as source:
            before = source.counters()
            with tempfile.TemporaryDirectory(prefix="hdmlp-analyzed-") as directory:
                command = [namespaces.BINARY, "probe", source.path, "--json", "--time", "20s"]
                done = subprocess.run(
                    [*command, "--out", os.path.join(directory, "environment.toml")],
                    capture_output=True,
                    text=True,
                    env=dict(os.environ, HDMLP_INDEX_DIR=directory),
                )
            after = source.counters()
        if done.returncode:
            raise rounds.RoundFailed(done.stderr.strip())
        mean = self._dataset["bytes"] / self._samples / 1e6
        curve = min(json.loads(done.stdout)["source"], key=lambda c: abs(c["size_mb"] - mean))
        points = []
        for point in curve["points"]:
            low, high = point["mbps"]["interval"]
            points.append(
                {
                    "n": point["streams"],
                    "samples_per_s": point["mbps"]["median"] / mean,
                    "low_samples_per_s": low / mean,
                    "high_samples_per_s": high / mean,
                    "too_few": point["mbps"]["confidence"] == 0,
                }
            )
        best = max(curve["points"], key=lambda point: point["mbps"]["median"])
        work = best["processor_s"]
        if not self._servers:
            served = (after["cpu_ns"] - before["cpu_ns"]) / 1e9
            work += served / (after["opens"] - before["opens"])
        return {"source": points, "source_processor_s": work}

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "measured": self._measured}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        nodes = self._setting.nodes
        capacity = int(contender["cached"] * self._dataset["bytes"] / nodes)
        if contender["cached"] == 1:
            capacity = int(1.05 * capacity)  # what lies beside the samples is not theirs
        predicted = self._predict(capacity)
        with (
            Throttled(self._path, self._bandwidth, LATENCY, cpus=self._servers) as source,
            self._nodes(LINK) as cluster,
        ):
            result = rounds.run(
                contender,
                {
                    "path": source.path,
                    "batch_size": GLOBAL_BATCH // nodes,
                    "epochs": EPOCHS,
                    "seed": 7,
                    "step": self._step,
                    "world_size": nodes,
                    "cluster": nodes > 1,
                    "synchronous": nodes > 1,
                    "memory": str(capacity),
                    "prefetch_batches": AHEAD,
                    **self._spec,
                },
                source,
                cluster,
            )
        last = [
            max(rank["epochs"][epoch]["end"] for rank in result["ranks"])
            - max(rank["epochs"][epoch - 1]["end"] for rank in result["ranks"])
            for epoch in range(EPOCHS - LAST, EPOCHS)
        ]
        measured = sum(last) / LAST
        result["figures"] = {
            "measured": measured,
            "equations": predicted["epoch_s"],
            "simulated": predicted["simulated_epoch_s"],
            "equations_error": predicted["epoch_s"] / measured - 1,
            "simulated_error": predicted["simulated_epoch_s"] / measured - 1,
            "limit": predicted["limit_after"],
        }
        return result

    def _predict(self, capacity: int) -> dict[str, Any]:
        """An epoch with so many bytes in each node's cache, as `hdmlp analyze` predicts it."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"measured": self._measured}, file)
            file.flush()
            done = subprocess.run(
                [
                    *(namespaces.BINARY, "analyze", "--json", "--from", file.name),
                    *("--what-if", f"memory={capacity}B"),
                ],
                capture_output=True,
                text=True,
            )
        if done.returncode:
            raise rounds.RoundFailed(done.stderr.strip())
        return json.loads(done.stdout)["what_if"]

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for by in ("equations", "simulated"):
            worst = max((figures[f"{by}_error"] for figures in medians.values()), key=abs)
            word = "the simulator is" if by == "simulated" else "the equations are"
            said.append(f"{self.key}: {word} {worst:+.1%} off at most (wanted: {AIM:.0%})")
        return said


def all_analyzed(quick: bool) -> list[Scenario]:
    """All settings."""
    samples = SAMPLES // 4 if quick else SAMPLES
    return [
        # One processor prepares some 1,700 of them per second.
        Analyzed(setting, 2 * samples if setting.alone else samples)
        for setting in settings()
    ]
