"""Several nodes on this machine: what leaves the source and how long ranks wait, how soon training
starts, and how fast samples come from a peer.

Nodes are network namespaces, with links of 1 Gbit/s or as fast as this machine is. They share its
processors, so that steps are chosen such that they can carry the demand.
"""

import itertools
import json
import os
import resource
import subprocess
from typing import Any

import make_dataset
import namespaces
import rounds
from throttled import Throttled, Unavailable

from scenarios import DATA, HDMLP, TORCH0, TORCH2, Behind, Figures, Scenario

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: Samples from a peer, measured; `make bench` builds it.
EXCHANGE = os.path.join(_ROOT, "build", "bin", "exchange")

#: What `frequency` is, as against HDMLP's own policy.
FREQUENCY = dict(HDMLP, name="HDMLP, policy frequency", policy="frequency")


class Training(Behind):
    """One rank on each of several nodes, behind one throttled mount; their caches together hold the
    dataset.

    A node needs 80 MB/s from the second epoch on, two thirds of what a link of 1 Gbit/s carries.
    """

    contenders = [
        TORCH2,
        *(
            dict(ours, name=f"{ours['name']}, {link}", rate=rate, cached=1.02)
            for ours, rate, link in (
                (HDMLP, "unlimited", "unlimited links"),
                (HDMLP, "1gbit", "1 Gbit/s"),
                (FREQUENCY, "1gbit", "1 Gbit/s"),
            )
        ),
    ]
    columns = [
        column for column in Behind.columns if column[0] not in ("epoch0", "stall0", "start")
    ]
    columns.insert(4, ("stall_share", "stalled, later", "{:.2%}"))

    def __init__(self, key: str, nodes: int, samples: int) -> None:
        super().__init__(samples)
        self.key = key
        self.ranks, self.bandwidth, self.global_batch = nodes, 20_000_000 * nodes, 64 * nodes

    def prepare(self) -> None:
        super().prepare()
        self.title = f"{self.ranks} nodes: {self.title}"

    def describe(self) -> Figures:
        return dict(
            super().describe(), nodes=self.ranks, demand_per_node=4 * self.bandwidth / self.ranks
        )

    def _train(
        self, contender: dict[str, Any], spec: dict[str, Any], mount: Throttled
    ) -> dict[str, Any]:
        with namespaces.Nodes(self.ranks, contender.get("rate", "unlimited")) as nodes:
            return rounds.run(
                contender, dict(spec, memory=spec["memory"] // self.ranks), mount, nodes
            )

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for contender in self.contenders[1:]:
            name = contender["name"]
            if name not in medians or "policy" in contender:
                continue
            ours = medians[name]
            if TORCH2["name"] in medians:
                times = medians[TORCH2["name"]]["stall"] / ours["stall"]
                said.append(
                    f"{name}: stalls {times:.0f} times less than {TORCH2['name']} from the "
                    f"second epoch on (wanted: 100)"
                )
            said.append(
                f"{name}: utilisation {1 - ours['stall_share']:.2%} from the second epoch on "
                f"(wanted: 99 %), and "
                f"{ours['utilisation']:.1%} where sleeping longer than a step counts as idle; "
                f"{ours['share']:.4f} times the dataset was read from the source (wanted: at most "
                f"1.01)"
            )
        return said


class Bytes(Scenario):
    """What leaves the source over all nodes and epochs, against the least that their caches
    allow."""

    key = "j"
    shares = {"all": 1.02, "half": 0.5, "quarter": 0.25}
    columns = [
        *((name, f"bytes/bound, {name}", "{:.4f}") for name in shares),
        *((f"{name} dataset", f"bytes/dataset, {name}", "{:.3f}") for name in shares),
        ("cpu", "CPU", "{:.2f} s"),
    ]
    bandwidth, latency, epochs, global_batch = 60_000_000, 0.002, 4, 64

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._path = os.path.join(DATA, f"photos-{samples}")
        self.contenders = [
            dict(ours, name=f"{ours['name']}, {nodes} nodes", nodes=nodes)
            for ours in (HDMLP, FREQUENCY)
            for nodes in (2, 4, 8)
        ]

    def prepare(self) -> None:
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        size = self._dataset["bytes"]
        self._step = self.global_batch * size / self._samples / (2 * self.bandwidth)
        self.title = (
            f"{self._samples:,} JPEGs, {size / 1e6:.0f} MB, behind a mount of "
            f"{self.bandwidth / 1e6:.0f} MB/s, "
            f"{self.epochs} epochs, caches of all nodes together for all, half and a quarter of "
            f"the dataset"
        )

    def describe(self) -> Figures:
        return {
            "dataset": self._dataset,
            "step": self._step,
            "bandwidth": self.bandwidth,
            "latency": self.latency,
            "shares": self.shares,
        }

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        size, nodes = self._dataset["bytes"], contender["nodes"]
        figures: Figures = {}
        results = []
        for name, share in self.shares.items():
            memory = int(share * size) // nodes
            with (
                Throttled(self._path, self.bandwidth, self.latency) as mount,
                namespaces.Nodes(nodes, "1gbit") as hosts,
            ):
                results.append(
                    rounds.run(
                        contender,
                        {
                            "path": mount.path,
                            "batch_size": self.global_batch // nodes,
                            "epochs": self.epochs,
                            "seed": 42,
                            "step": self._step,
                            "world_size": nodes,
                            "memory": memory,
                        },
                        mount,
                        hosts,
                    )
                )
            read = results[-1]["source"][-1]["bytes"]
            figures[name] = read / (size + (self.epochs - 1) * max(0, size - nodes * memory))
            figures[f"{name} dataset"] = read / size
        figures["cpu"] = sum(result["cpu"]["ranks"] + result["cpu"]["daemon"] for result in results)
        return dict(
            results[-1],
            figures=figures,
            errors=[words for result in results for words in result["errors"]],
            **{key: max(result[key] for result in results) for key in ("others", "stolen")},
        )

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{contender['name']}: at most "
            f"{max(medians[contender['name']][name] for name in self.shares):.4f} times the "
            f"bound was read from the source (wanted: 1.01)"
            for contender in self.contenders
            if "policy" not in contender and contender["name"] in medians
        ]


class Start(Scenario):
    """How long after the last node's start every node has its first batch."""

    key = "k"
    nodes, epochs, batches, batch_size = 8, 90, 10, 32
    contenders = [TORCH0, HDMLP]
    columns = [
        ("first", "first batch, last node", "{:.3f} s"),
        ("open", "of it, the loader", "{:.3f} s"),
        ("tenth", "tenth batch", "{:.3f} s"),
        ("cpu", "CPU", "{:.2f} s"),
        ("resident", "resident", "{:,.0f} B"),
    ]

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._path = os.path.join(DATA, f"blobs-{samples}x1000")
        self._index = self._path + ".index"
        self.title = (
            f"the start of {self.nodes} nodes: {samples:,} files of 1 KB, {self.epochs} epochs, "
            f"with an index; "
            f"seconds from the start of the last node's loader, after imports"
        )

    def prepare(self) -> None:
        self._dataset = make_dataset.make("blobs", self._path, self._samples, 1000)

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "nodes": self.nodes, "epochs": self.epochs}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        with namespaces.Nodes(self.nodes) as nodes:
            indexed = subprocess.run(
                [namespaces.BINARY, "dataset", self._path, "--index-dir", self._index],
                capture_output=True,
                text=True,
            )
            if indexed.returncode != 0:
                raise rounds.RoundFailed(indexed.stderr.strip())
            result = rounds.run(
                contender,
                {
                    "path": self._path,
                    "index": self._index,
                    "batch_size": self.batch_size,
                    "epochs": self.epochs,
                    "seed": 42,
                    "world_size": self.nodes,
                    "batches": self.batches,
                    "warm_up": 0,
                    "pause": 0.0,
                    "step": 0.0,
                    "memory": int(1.02 * self._dataset["bytes"]) // self.nodes,
                },
                None,
                nodes,
            )
        ranks = result["ranks"]
        begin = max(rank["begin"] for rank in ranks)

        def until(batch: int) -> float:
            return (
                max(rank["begin"] + rank["start"] + sum(rank["times"][:batch]) for rank in ranks)
                - begin
            )

        result["figures"] = {
            "first": until(1),
            "tenth": until(self.batches),
            "open": max(rank["begin"] + rank["start"] for rank in ranks) - begin,
            "cpu": result["cpu"]["ranks"] + result["cpu"]["daemon"],
            "resident": result["resident"],
        }
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        if HDMLP["name"] not in medians:
            return []
        first = medians[HDMLP["name"]]["first"]
        return [
            f"HDMLP: every node has its first batch {first:.2f} s after the last one's start "
            f"(wanted: 3)"
        ]


def children_cpu() -> float:
    """Processor seconds of this process's children that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Exchange(Scenario):
    """Samples from a peer: HDMLP's frames, gRPC, and iperf3, which has no samples, on the same
    links."""

    key = "l"
    title = "samples from a peer between two network namespaces"
    peers = {
        "HDMLP": "exchange",
        "HDMLP, TLS": "exchange-tls",
        "gRPC": "grpc",
        "gRPC, bytes as they are": "grpc-raw",
        "iperf3": "iperf3",
    }
    contenders = [
        {"name": name, "contender": "exchange", "peer": peer} for name, peer in peers.items()
    ]
    paths = {"veth": [], "1 Gbit/s": ["--rate", "1gbit"]}
    sizes = {112_640: "110 KB", 3_072: "3 KB"}
    columns = [
        (f"{path}, {size}{key}", f"{path}, {size}{heading}", form)
        for path, size, (key, heading, form) in itertools.product(
            paths, sizes.values(), (("", "", "{:,.0f} MB/s"), (" cpu", ": CPU s/GB", "{:.2f}"))
        )
    ]

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def describe(self) -> Figures:
        return {"seconds": self._seconds}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        if not os.path.exists(EXCHANGE):
            raise Unavailable(f"{EXCHANGE} is missing: run `make exchange`")
        figures: Figures = {}
        watch, before = rounds.Watch(), children_cpu()
        for path, flags in self.paths.items():
            ran = subprocess.run(
                [
                    EXCHANGE,
                    "--netns",
                    "--json",
                    "--rounds",
                    "1",
                    "--seconds",
                    str(self._seconds),
                    "--peers",
                    contender["peer"],
                    "--sizes",
                    ",".join(map(str, self.sizes)),
                    *flags,
                ],
                capture_output=True,
                text=True,
            )
            if ran.returncode != 0:
                raise rounds.RoundFailed(ran.stderr.strip())
            for measured in json.loads(ran.stdout):
                name = f"{path}, {self.sizes[measured['size']]}"
                figures[name] = measured["bytes_per_second"] / 1e6
                figures[f"{name} cpu"] = measured["cpu_seconds_per_gb"]
        return {
            "contender": contender,
            "ranks": [{}],
            "errors": [],
            "figures": figures,
            **watch.shares(children_cpu() - before),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        if "HDMLP" not in medians:
            return []
        said = []
        for other, size, targets in (
            ("iperf3", "110 KB", {"veth": 0.9, "1 Gbit/s": 0.9}),
            ("gRPC", "110 KB", {"veth": 4}),
            ("gRPC", "3 KB", {"veth": 10}),
        ):
            for path, target in targets.items():
                if other in medians:
                    name = f"{path}, {size}"
                    said.append(
                        f"{name}: HDMLP is {medians['HDMLP'][name] / medians[other][name]:.2f} "
                        f"times as fast as {other} "
                        f"(wanted: {target:g})"
                    )
        return said


def all_clusters(quick: bool) -> list[Scenario]:
    """The scenarios."""
    return [
        Training("h", 2, 600 if quick else 3000),
        Training("i", 4, 600 if quick else 3000),
        Bytes(600),
        Start(4000 if quick else 100_000),
        Exchange(1 if quick else 3),
    ]
