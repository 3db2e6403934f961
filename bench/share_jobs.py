"""Jobs on one machine that train on the same images: alone, beside each other, and sharing what is
prepared (CoorDL 5.3).

All jobs of a round begin at the same time, and take batches as fast as they come: nothing is
computed, so that whatever the loader costs is seen. What is printed:

- (share/memory): 1, 2, 4 and 8 jobs of each kind, images in memory, so that preparing them is the
  limit. How often transforms are applied, the processor time of preparing per delivered image, the
  rate of each job against that of one job, and the memory of all batches and samples.
- (share/sizes): jobs with batches of 32, 64 and 128 against jobs with batches of 64.
- (share/source): 1 and 8 jobs with a throttled source, what is read from it, and the epochs' times.

Rates, and times of epochs after the first one, are those of the later half of epochs.
"""

import os
from typing import Any

import make_dataset
import rounds
from pipelines import PIPELINES
from throttled import Throttled

from scenarios import DATA, Figures, Scenario, into_page_cache

TORCH, PRIVATE, SHARED = "torch", "private", "shared"

#: By kind, what makes a job of it.
KINDS: dict[str, dict[str, Any]] = {
    TORCH: {"contender": "pipeline", "workers": 0},
    PRIVATE: {"contender": "hdmlp"},
    SHARED: {"contender": "hdmlp", "share": "bench"},
}

JOBS = (1, 2, 4, 8)

#: By kind, of how many epochs a round of 8 jobs has.
EPOCHS = {TORCH: 2, PRIVATE: 4, SHARED: 16}

#: Of the throttled source, in bytes per second.
BANDWIDTH = 20_000_000


def contender(kind: str, jobs: int, epochs: int, sizes: tuple[int, ...] = (64,)) -> dict[str, Any]:
    """Jobs of one kind, whose batch sizes are in turn those given."""
    name = named(kind, jobs)
    if len(sizes) > 1:
        name += f", batches of {', '.join(map(str, sizes))}"
    return {**KINDS[kind], "name": name, "jobs": jobs, "epochs": epochs, "sizes": sizes}


def named(kind: str, jobs: int) -> str:
    """The name of a contender."""
    return f"{jobs} {kind} job{'s' * (jobs > 1)}"


class Sharing(Scenario):
    """Jobs on images of which each epoch is transformed anew."""

    columns = [
        ("rate", "images/s per job", "{:,.1f}"),
        ("slowest", "slowest job", "{:,.1f}"),
        ("applied", "transforms applied", "{:.3f} datasets/epoch"),
        ("prepare", "preparing/image", "{:.0f} us"),
        ("cpu", "all CPU/image", "{:.0f} us"),
        ("memory", "memory", "{:,.0f} B"),
    ]

    def __init__(self, key: str, samples: int, contenders: list[dict[str, Any]]) -> None:
        self.key, self.contenders, self._samples = key, contenders, samples
        self._path = os.path.join(DATA, f"photos-{samples}")

    def prepare(self) -> None:
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        self.title = (
            f"{PIPELINES['crop']} of {self._samples:,} JPEGs {self._source()}, batches of 64"
        )
        into_page_cache(self._path)

    def _source(self) -> str:
        return "in memory"

    def describe(self) -> Figures:
        return {"dataset": self._dataset}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        return self._run(contender, self._path)

    def _run(self, contender: dict[str, Any], path: str, mount: Any = None) -> dict[str, Any]:
        count, sizes, epochs = contender["jobs"], contender["sizes"], contender["epochs"]
        spec = {
            "path": path,
            "epochs": epochs,
            "seed": 42,
            "step": 0.0,
            "world_size": 1,
            "memory": int(1.1 * self._dataset["bytes"]),
            "pipeline": "crop",
            "jobs": [{"batch_size": sizes[i % len(sizes)]} for i in range(count)],
        }
        if contender.get("share"):
            spec["share_members"] = count
        result = rounds.run(contender, spec, mount)
        jobs = [job["epochs"] for job in result["ranks"]]
        warm = range(epochs // 2, epochs)
        rates = [
            sum(job[e]["samples"] for e in warm)
            / sum(job[e]["end"] - job[e]["begin"] for e in warm)
            for job in jobs
        ]
        delivered = sum(job[e]["samples"] for job in jobs for e in warm)
        made = result["made"]
        own, daemon = _cpu(jobs, epochs // 2 - 1)
        result["figures"] = {
            "rate": sum(rates) / len(rates),
            "slowest": min(rates),
            # torch's loaders apply them in each job, and do nothing else.
            "applied": made["samples"] / self._samples / epochs if made else count,
            "prepare": (daemon if made else own) / delivered * 1e6,
            "cpu": (own + daemon) / delivered * 1e6,
            "memory": result["memory"],
            "first": _took(jobs, range(1)),
            "epoch": _took(jobs, warm) / len(warm),
            "source": result["source"][-1]["bytes"] / self._dataset["bytes"] if mount else 0,
        }
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        alone = medians.get(named(SHARED, 1))
        for jobs in (n for n in JOBS if n > 1 and alone):
            shared = medians.get(named(SHARED, jobs))
            if not shared:
                continue
            said.append(
                f"{jobs} jobs that share apply transforms {shared['applied']:.3f} times per image "
                f"and epoch (wanted: 1.000), prepare a delivered image in "
                f"{jobs * shared['prepare'] / alone['prepare']:.2f}/{jobs} of one job's processor "
                f"time (wanted: 1.00/{jobs}), have {shared['slowest'] / alone['rate']:.3f} of its "
                f"rate, the slowest of them (wanted: 0.95), and "
                f"{shared['memory'] / alone['memory']:.3f} of its memory (wanted: 1.05 at most)"
            )
            for kind in (TORCH, PRIVATE):
                if other := medians.get(named(kind, jobs)):
                    said.append(
                        f"{jobs} jobs that share have {shared['rate'] / other['rate']:.2f} times "
                        f"the rate of {kind} ones, for {shared['cpu'] / other['cpu']:.2f} of the "
                        "processor time"
                    )
        return said


class Sizes(Sharing):
    """Batches of different sizes."""

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        if len(medians) < 2:
            return []
        equal, mixed = medians.values()
        return [
            f"with mixed batch sizes, jobs have {mixed['rate'] / equal['rate']:.3f} of the rate "
            f"with equal ones, the slowest {mixed['slowest'] / equal['rate']:.3f} (wanted: 0.95)"
        ]


class Slow(Sharing):
    """A throttled source, which limits the first epoch."""

    columns = [
        ("first", "first epoch", "{:.2f} s"),
        ("epoch", "later epochs", "{:.2f} s"),
        ("source", "read", "{:.3f} datasets"),
        *Sharing.columns,
    ]

    def _source(self) -> str:
        return f"from a source of {BANDWIDTH / 1e6:.0f} MB/s"

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        with Throttled(self._path, BANDWIDTH, 0.0) as mount:
            return self._run(contender, mount.path, mount)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        alone = medians.get(named(SHARED, 1))
        return [
            f"{name} read the dataset {figures['source']:.3f} times (wanted: 1.00), and their "
            f"first epoch takes {figures['first'] / alone['first']:.3f} of one job's "
            f"(wanted: 1.03 at most), later ones {figures['epoch'] / alone['epoch']:.3f}"
            for name, figures in medians.items()
            if alone and figures is not alone
        ]


def _cpu(jobs: list[list[dict[str, float]]], epoch: int) -> tuple[float, float]:
    """Processor seconds since the end of an epoch, of the jobs and of the daemon."""
    own = daemon = 0.0
    for job in jobs:
        since, until = job[epoch], job[-1]
        own += until["cpu"] - until["daemon_cpu"] - since["cpu"] + since["daemon_cpu"]
        daemon = max(daemon, until["daemon_cpu"] - since["daemon_cpu"])
    return own, daemon


def _took(jobs: list[list[dict[str, float]]], epochs: range) -> float:
    """Seconds from when the last job begins these epochs, for which the others wait at first, until
    the last one has ended them."""
    return max(job[epochs[-1]]["end"] for job in jobs) - max(
        job[epochs[0]]["begin"] for job in jobs
    )


def all_sharing(quick: bool) -> list[Scenario]:
    """Images in memory, batches of different sizes, and a slow source."""
    samples = 300 if quick else 2000
    # So that each round takes about as long, some ten seconds of the later half of epochs.
    epochs = {kind: 2 if quick else many for kind, many in EPOCHS.items()}

    def more(kind: str, jobs: int) -> int:
        return epochs[kind] * (1 if quick or kind == SHARED else max(8 // jobs, 1))

    mixed = (32, 64, 128)
    return [
        Sharing(
            "share/memory",
            samples,
            [contender(kind, n, more(kind, n)) for n in JOBS for kind in KINDS],
        ),
        Sizes(
            "share/sizes",
            samples,
            [contender(SHARED, 3, epochs[SHARED], sizes) for sizes in ((64,), mixed)],
        ),
        Slow(
            "share/source",
            samples,
            [
                contender(kind, n, 2 if quick else 4)
                for kind, n in ((SHARED, 1), (SHARED, 8), (PRIVATE, 8))
            ],
        ),
    ]
