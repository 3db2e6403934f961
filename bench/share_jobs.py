"""Jobs on one machine that train on the same images: alone, beside each other, and sharing what is
prepared (CoorDL 5.3).

All jobs begin at the same time. A job's rate is that of its later half of epochs.
"""

import os
from typing import Any

import make_dataset
import rounds
from pipelines import PIPELINES
from throttled import Throttled

from scenarios import DATA, Figures, Scenario, into_page_cache

TORCH = {"name": "torch", "contender": "pipeline", "workers": 0}
PRIVATE = {"name": "HDMLP, private", "contender": "hdmlp"}
SHARED = {"name": "HDMLP, shared", "contender": "hdmlp", "share": "bench"}
MIXED = {**SHARED, "name": "HDMLP, shared, batches of 32, 64, 128", "sizes": [32, 64, 128]}


class Sharing(Scenario):
    """Jobs on images of which each epoch is transformed anew."""

    columns = [
        ("rate", "images/s per job", "{:,.1f}"),
        ("slowest", "slowest job", "{:,.1f}"),
        ("cpu", "CPU/delivered image", "{:.0f} us"),
        ("epoch", "epoch", "{:.2f} s"),
        ("source", "read", "{:.2f} datasets"),
        ("resident", "daemon's memory", "{:,.0f} B"),
    ]

    def __init__(
        self,
        key: str,
        jobs: int,
        samples: int,
        epochs: int,
        contenders: list[dict[str, Any]],
        bandwidth: int = 0,
    ) -> None:
        self.key, self.contenders = key, contenders
        self._jobs, self._samples, self._epochs = jobs, samples, epochs
        self._bandwidth = bandwidth
        self._path = os.path.join(DATA, f"photos-{samples}")

    def prepare(self) -> None:
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        source = "in memory"
        if self._bandwidth:
            source = f"from a source of {self._bandwidth / 1e6:.0f} MB/s"
        self.title = (
            f"{self._jobs} jobs, {PIPELINES['crop']} of {self._samples:,} JPEGs {source}, batches "
            "of 64"
        )
        into_page_cache(self._path)

    def describe(self) -> Figures:
        return {
            "dataset": self._dataset,
            "epochs": self._epochs,
            "jobs": self._jobs,
            "bandwidth": self._bandwidth,
        }

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        if not self._bandwidth:
            return self._run(contender, self._path)
        with Throttled(self._path, self._bandwidth, 0.0) as mount:
            return self._run(contender, mount.path, mount)

    def _run(self, contender: dict[str, Any], path: str, mount: Any = None) -> dict[str, Any]:
        sizes = contender.get("sizes", [64])
        spec = {
            "path": path,
            "epochs": self._epochs,
            "seed": 42,
            "step": 0.0,
            "world_size": 1,
            "memory": int(1.1 * self._dataset["bytes"]),
            "pipeline": "crop",
            "jobs": [{"batch_size": sizes[i % len(sizes)]} for i in range(self._jobs)],
        }
        if contender.get("share"):
            spec["share_members"] = self._jobs
        result = rounds.run(contender, spec, mount)
        rates, seconds, delivered = [], [], 0
        for job in result["ranks"]:
            warm = job["epochs"][len(job["epochs"]) // 2 :]
            took = sum(epoch["end"] - epoch["begin"] for epoch in warm)
            rates.append(sum(epoch["samples"] for epoch in warm) / took)
            seconds.append(took / len(warm))
            delivered += sum(epoch["samples"] for epoch in job["epochs"])
        read = result["source"][-1]["bytes"] if mount else 0
        result["figures"] = {
            "rate": sum(rates) / len(rates),
            "slowest": min(rates),
            "cpu": sum(result["cpu"].values()) / delivered * 1e6,
            "epoch": max(seconds),
            "source": read / self._dataset["bytes"],
            "resident": result["resident"],
        }
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        shared = medians.get(SHARED["name"])
        for name, other in medians.items():
            if shared and name != SHARED["name"]:
                said.append(
                    f"{self.key}: {SHARED['name']} has {shared['rate'] / other['rate']:.2f} times "
                    f"the rate of {name}, for {shared['cpu'] / other['cpu']:.2f} of the processor "
                    "time per image"
                )
        return said


def all_sharing(quick: bool) -> list[Scenario]:
    """1 to 8 jobs, batches of different sizes, and a slow source."""
    samples, epochs = (300, 2) if quick else (2000, 4)
    every = [TORCH, PRIVATE, SHARED]
    return [
        *(Sharing(f"share/{n}", n, samples, epochs, every) for n in (1, 2, 4, 8)),
        Sharing("share/sizes", 3, samples, epochs, [SHARED, MIXED]),
        Sharing("share/source", 1, samples, epochs, [SHARED], 20_000_000),
        Sharing("share/source8", 8, samples, epochs, [PRIVATE, SHARED], 20_000_000),
    ]
