"""What is measured: the scenarios, and what is computed from their rounds.

A scenario has contenders, each run once per round, the rounds alternating over the
contenders. Every figure is computed per round; tables show the median, and the range
where there is more than one round.
"""

import os
from typing import Any

import make_dataset
import rounds
from throttled import Throttled

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: Where the datasets are kept between runs.
DATA = os.path.join(_ROOT, "build", "data")

PLAIN = {"name": "plain reading", "contender": "plain", "workers": 0}
TORCH0 = {"name": "DataLoader, 0 workers", "contender": "torch", "workers": 0}
TORCH2 = {"name": "DataLoader, 2 workers", "contender": "torch", "workers": 2}
PACKED2 = {
    "name": "DataLoader, 2 workers, packed",
    "contender": "torch",
    "workers": 2,
    "packed": True,
}
HDMLP = {"name": "HDMLP", "contender": "hdmlp", "workers": 0}
#: The samples as the others hand them over: bytes of the process's own, every one of them touched.
COPIED = {"name": "HDMLP, copied to bytes", "contender": "hdmlp", "workers": 0, "copied": True}

Figures = dict[str, Any]


class Scenario:
    """One comparison.

    Attributes:
        key, title: its letter, and what it is in a sentence.
        contenders: specs, each with a name.
        columns: (key of a figure, heading, how to print it).
        baseline: the name of the contender that HDMLP is compared with, by the first column.
    """

    key = ""
    title = ""
    contenders: list[dict[str, Any]] = []
    columns: list[Any] = []

    def prepare(self) -> None:
        """Makes the dataset."""

    def describe(self) -> Figures:
        """What does not depend on the contender."""
        return {}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        """One round of one contender: the round, with its `figures`."""
        raise NotImplementedError

    def settled(self, medians: dict[str, Figures]) -> set[str]:
        """The contenders that more rounds could not change the conclusions of."""
        return set()

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        """Sentences about the medians of all contenders, by name."""
        return []


def warm_figures(result: dict[str, Any]) -> Figures:
    """The figures of a single rank, over the later half of the epochs.

    The first epoch fills the caches; in the following ones a loader uses up what it had prepared,
    so that the later half shows its sustained speed.
    """
    rank = result["ranks"][0]
    warm = rank["epochs"][len(rank["epochs"]) // 2 :]
    seconds = sum(epoch["end"] - epoch["begin"] for epoch in warm)
    samples = sum(epoch["samples"] for epoch in rank["epochs"])
    cpu = sum(result["cpu"].values())
    return {
        "rate": sum(epoch["samples"] for epoch in warm) / seconds,
        "epoch": seconds / len(warm),
        "first": rank["epochs"][0]["end"] - rank["epochs"][0]["begin"],
        "stall": sum(epoch["stall"] for epoch in warm) / len(warm),
        "start": rank["start"],
        "cpu": cpu / samples * 1e6,
        "resident": result["resident"],
    }


def into_page_cache(path: str) -> None:
    """Reads all files of a dataset, so that the kernel caches them."""
    for number in range(make_dataset.CLASSES):
        folder = os.path.join(path, f"class{number}")
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                file.read()


class Warm(Scenario):
    """Raw samples from a local folder, everything in memory: in the page cache, and in HDMLP's."""

    contenders = [PLAIN, TORCH0, TORCH2, PACKED2, COPIED, HDMLP]
    columns = [
        ("rate", "samples/s", "{:,.0f}"),
        ("epoch", "epoch", "{:.4f} s"),
        ("stall", "stall/epoch", "{:.4f} s"),
        ("first", "first epoch", "{:.3f} s"),
        ("start", "start", "{:.3f} s"),
        ("cpu", "CPU/sample", "{:.1f} us"),
    ]

    def __init__(
        self, key: str, kind: str, samples: int, epochs: int, targets: dict[str, float]
    ) -> None:
        self.key = key
        self._kind, self._samples, self._epochs, self._targets = kind, samples, epochs, targets
        self._path = os.path.join(DATA, f"{kind}-{samples}")

    def prepare(self) -> None:
        self._dataset = make_dataset.make(self._kind, self._path, self._samples)
        mean = self._dataset["bytes"] / self._samples
        self.title = (
            f"{self._samples:,} files of {mean / 1e3:.1f} KB in a local folder, encoded bytes, "
            f"batches of 64, one rank, warm"
        )
        into_page_cache(self._path)

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "epochs": self._epochs}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = rounds.run(
            contender,
            {
                "path": self._path,
                "batch_size": 64,
                "epochs": self._epochs,
                "seed": 42,
                "step": 0.0,
                "world_size": 1,
                "memory": int(1.1 * self._dataset["bytes"]),
            },
        )
        result["figures"] = warm_figures(result)
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{ours} delivers {medians[ours]['rate'] / medians[name]['rate']:.1f} times the "
            f"samples per "
            f"second of {name}" + (f" (wanted: {target:g})" if ours == HDMLP["name"] else "")
            for name, target in self._targets.items()
            for ours in (HDMLP["name"], COPIED["name"])
            if {name, ours} <= medians.keys()
        ]


class Behind(Scenario):
    """Two ranks behind a throttled mount; a step takes as long as an accelerator four times as fast
    would."""

    key = "c"
    columns = [
        ("total", "all epochs", "{:.2f} s"),
        ("epoch0", "epoch 0", "{:.3f} s"),
        ("epoch0_ratio", "epoch 0/throttle", "{:.3f}"),
        ("later", "later epochs", "{:.3f} s"),
        ("stall0", "stall, epoch 0", "{:.3f} s"),
        ("stall", "stall, later", "{:.4f} s"),
        ("utilisation", "utilised, later", "{:.1%}"),
        ("rate", "samples/s", "{:,.0f}"),
        ("cpu", "CPU", "{:.2f} s"),
        ("start", "start", "{:.3f} s"),
        ("megabytes", "MB by epoch", "{}"),
        ("share", "bytes/dataset", "{:.3f}"),
        ("bound_ratio", "bytes/bound", "{:.4f}"),
    ]
    contenders = [
        TORCH0,
        TORCH2,
        dict(HDMLP, name="HDMLP, half cached", cached=0.5),
        dict(HDMLP, name="HDMLP, all cached", cached=1.02),
    ]
    bandwidth, latency, epochs, ranks, global_batch = 40_000_000, 0.002, 4, 2, 64

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._path = os.path.join(DATA, f"photos-{samples}")

    def prepare(self) -> None:
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        size = self._dataset["bytes"]
        self._step = self.global_batch * size / self._samples / (4 * self.bandwidth)
        self.title = (
            f"{self._samples:,} JPEGs, {size / 1e6:.0f} MB, behind a mount of "
            f"{self.bandwidth / 1e6:.0f} MB/s and "
            f"{self.latency * 1e3:.0f} ms per open, {self.ranks} ranks, {self.epochs} epochs, "
            f"global batch "
            f"{self.global_batch}, a step of {self._step * 1e3:.1f} ms emulated by sleep"
        )

    def describe(self) -> Figures:
        size = self._dataset["bytes"]
        return {
            "dataset": self._dataset,
            "step": self._step,
            "bandwidth": self.bandwidth,
            "latency": self.latency,
            "throttle_allows": size / self.bandwidth,
            "compute_per_epoch": self._samples / self.global_batch * self._step,
        }

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        size = self._dataset["bytes"]
        memory = int(contender["cached"] * size) if "cached" in contender else 0
        with Throttled(self._path, self.bandwidth, self.latency) as mount:
            result = self._train(
                contender,
                {
                    "path": mount.path,
                    "batch_size": self.global_batch // self.ranks,
                    "epochs": self.epochs,
                    "seed": 42,
                    "step": self._step,
                    "world_size": self.ranks,
                    "memory": memory,
                },
                mount,
            )
        result["priority"] = mount.priority
        bound = size + (self.epochs - 1) * max(0, size - memory)
        result["figures"] = self._figures(result, bound)
        return result

    def _train(
        self, contender: dict[str, Any], spec: dict[str, Any], mount: Throttled
    ) -> dict[str, Any]:
        return rounds.run(contender, spec, mount)

    def _figures(self, result: dict[str, Any], bound: int) -> Figures:
        """Times are those of the slower rank, stalls and utilisation the mean of the ranks."""
        ranks = result["ranks"]
        epochs = [[rank["epochs"][e] for rank in ranks] for e in range(self.epochs)]
        walls = [max(one["end"] - one["begin"] for one in epoch) for epoch in epochs]
        stalls = [sum(one["stall"] for one in epoch) / len(epoch) for epoch in epochs]
        later = [one for epoch in epochs[1:] for one in epoch]
        read = [
            after["bytes"] - before
            for after, before in zip(
                result["source"], [0] + [source["bytes"] for source in result["source"]]
            )
        ]
        return {
            "total": max(rank["end"] for rank in ranks) - min(rank["begin"] for rank in ranks),
            "epoch0": walls[0],
            "epoch0_ratio": walls[0] / (self._dataset["bytes"] / self.bandwidth),
            "later": sum(walls[1:]) / len(walls[1:]),
            "stall0": stalls[0],
            "stall": sum(stalls[1:]) / len(stalls[1:]),
            "stalls": stalls,
            "longest": max(one["longest"] for one in later),
            "utilisation": sum(one["compute"] for one in later)
            / sum(one["end"] - one["begin"] for one in later),
            "stall_share": sum(one["stall"] for one in later)
            / sum(one["compute"] + one["stall"] for one in later),
            "rate": sum(one["samples"] for one in later) / sum(walls[1:]),
            "cpu": result["cpu"]["ranks"] + result["cpu"]["daemon"],
            "start": max(rank["start"] for rank in ranks),
            "read": read,
            "megabytes": " ".join(f"{part / 1e6:.0f}" for part in read),
            "bytes": result["source"][-1]["bytes"],
            "share": result["source"][-1]["bytes"] / self._dataset["bytes"],
            "bound": bound,
            "bound_ratio": result["source"][-1]["bytes"] / bound,
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        full, half = medians.get("HDMLP, all cached"), medians.get("HDMLP, half cached")
        for torch in (TORCH2["name"], TORCH0["name"]):
            if full and torch in medians:
                said.append(
                    f"HDMLP stalls {medians[torch]['stall'] / full['stall']:.0f} times less than "
                    f"{torch} "
                    f"from the second epoch on (wanted: 100)"
                )
        if full:
            size = self._dataset["bytes"]
            said.append(
                f"HDMLP read {full['bytes'] / size:.4f} times the dataset from the source "
                f"(wanted: at most 1.01); "
                f"first epoch {full['epoch0_ratio']:.3f} of what the throttle allows (wanted: at "
                f"most 1.03); "
                f"start {full['start']:.3f} s (wanted: under 0.5); utilisation "
                f"{full['utilisation']:.1%} (wanted: 99 %)"
            )
        if half:
            said.append(
                f"with caches for half, HDMLP read {half['bound_ratio']:.4f} times the bound "
                f"(wanted: at most 1.01)"
            )
        return said


class Hand(Scenario):
    """Batches that are ready: the time that next() takes."""

    key = "d"
    sizes = {"1 KB": ("blobs", 4, 256), "38 MB": ("blobs", 64, 602_112)}
    columns = [
        ("1 KB", "1 KB", "{:.1f} us"),
        ("38 MB", "38 MB", "{:.1f} us"),
        ("1 KB p90", "1 KB, 90 %", "{:.1f} us"),
        ("38 MB p90", "38 MB, 90 %", "{:.1f} us"),
    ]
    contenders = [
        {"name": "DataLoader, shared tensor", "contender": "ready", "workers": 1},
        {"name": "DataLoader, collated", "contender": "ready", "workers": 1, "collated": True},
        HDMLP,
        {"name": "HDMLP, one float32 tensor", "contender": "hdmlp", "workers": 0, "tensor": True},
    ]

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self.title = (
            f"a batch of 1 KB and of 38 MB that is ready, {batches} times each: time of next()"
        )

    def prepare(self) -> None:
        self._paths = {}
        for name, (kind, per_batch, size) in self.sizes.items():
            samples = max(
                8 * per_batch, make_dataset.CLASSES + 2
            )  # eight batches; at least one file for each class
            self._paths[name] = os.path.join(DATA, f"{kind}-{samples}x{size}")
            make_dataset.make(kind, self._paths[name], samples, size)

    def describe(self) -> Figures:
        return {"batches": self._batches}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        figures: Figures = {}
        result: dict[str, Any] = {}
        for name, (_, per_batch, size) in self.sizes.items():
            result = rounds.run(
                contender,
                {
                    "path": self._paths[name],
                    "batch_size": per_batch,
                    "bytes": per_batch * size,
                    "seed": 42,
                    "world_size": 1,
                    "epochs": self._batches + 60,
                    "batches": self._batches + 20,
                    "warm_up": 20,
                    "pause": 0.01
                    if per_batch * size < 1 << 20
                    else 0.04,  # the next batch is ready by then
                    "memory": "512MB",
                    "step": 0.0,
                },
            )
            times = sorted(result["ranks"][0]["times"])
            figures[name] = times[len(times) // 2] * 1e6
            figures[f"{name} p90"] = times[len(times) * 9 // 10] * 1e6
        result["figures"] = figures
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        shared, collated, *all_ours = (contender["name"] for contender in self.contenders)
        return [
            f"{ours} hands over {name} {medians[torch][name] / medians[ours][name]:.1f} times "
            f"faster "
            f"than {torch} (wanted: 5)"
            for ours in all_ours
            for torch in (shared, collated)
            for name in self.sizes
            if {torch, ours} <= medians.keys()
        ]


def all_scenarios(quick: bool) -> list[Scenario]:
    return [
        Warm("a", "photos", 500 if quick else 2000, 60, {TORCH0["name"]: 2.5, TORCH2["name"]: 10}),
        Warm("b", "tiny", 4000 if quick else 20_000, 12, {TORCH0["name"]: 8, TORCH2["name"]: 15}),
        Behind(600 if quick else 3000),
        Hand(100 if quick else 300),
    ]
