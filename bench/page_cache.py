"""MinIO against Linux's page cache: reads that miss, with memory for a part of the dataset.

CoorDL measured 53 % of misses with memory for 65 % of a dataset that is read in a new order in each
epoch (table 6), where MinIO misses 35 %. Here files are read plainly, by a process in a control
group whose page cache holds as much, and by HDMLP with policy `minio` and as much memory: in new
orders, by eight jobs, and in the same order after epochs in new orders (DALI-seq). Counted are
bytes: what the process reads from the disk by its own count in /proc, and what HDMLP reads from its
source; times do not matter. It needs root, control groups, and a disk.

The kernel balances the lists of a control group by statistics that may be 2 s old, in which all
files here are read. The process reads the group's statistics now and then, which brings them up to
date, so that they are as fresh as those of a training whose epochs take hours.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import make_dataset
import rounds

from scenarios import DATA, Figures, Scenario

SIZE = 110_000
#: Bytes of a file in the page cache: whole pages.
CACHED = -(-SIZE // 4096) * 4096
#: Bytes of the control group that are not for the page cache: the process, and kernel memory.
BESIDE = 3_000_000
#: Reads after which the group's statistics are read.
REFRESH = 20
#: Epochs in new orders before those in the same order.
SHUFFLED = 3
PLAIN = "page cache"
MINIO = {"name": "HDMLP, minio", "contender": "bare", "policy": "minio"}


class PageCache(Scenario):
    """Misses with memory for a share of the dataset, after the first epochs.

    Args:
        share: What memory holds, of the dataset.
        paper: What CoorDL measured.
        jobs: How many read at the same time, each in orders of its own.
        sequential: Epochs are in the same order, after SHUFFLED epochs in new ones.
    """

    columns = [("misses", "misses", "{:.1%}"), ("held", "in memory", "{:.1%}")]
    epochs, samples = 10, 4000

    def __init__(
        self, share: float, paper: str = "not stated", jobs: int = 1, sequential: bool = False
    ) -> None:
        self._share, self._jobs, self._sequential = share, jobs, sequential
        how = "-sequential" if sequential else f"-{jobs}jobs" if jobs > 1 else ""
        self.key = f"pagecache/{share * 100:.0f}{how}"
        self._paper, self._least = paper, f"{100 * (1 - share):.0f} %, what memory has no room for"
        self.contenders = [{"name": PLAIN, "contender": "plain"}]
        if not how:
            self.contenders.append(MINIO)

    def prepare(self) -> None:
        self._path = os.path.join(DATA, f"blobs-{self.samples}x{SIZE}")
        make_dataset.make("blobs", self._path, self.samples, SIZE)
        order = f"the same order after {SHUFFLED} in new ones" if self._sequential else "new orders"
        self.title = (
            f"{self.samples:,} files of 110 KB, {self._jobs} reading, {self.epochs} epochs in "
            f"{order}, memory for {self._share:.0%} of the files"
        )

    def describe(self) -> Figures:
        return {"samples": self.samples, "bytes": SIZE, "share": self._share, "jobs": self._jobs}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        if contender["name"] == PLAIN:
            return self._plainly()
        result = rounds.run(
            contender,
            {
                "path": self._path,
                "batch_size": 64,
                "epochs": self.epochs,
                "seed": 42,
                "step": 0.0,
                "world_size": 1,
                "memory": f"{int(self._share * self.samples * SIZE)}B",
            },
        )
        report = result["ranks"][0]["report"]
        epochs = [epoch["reads"]["source"]["bytes"] for epoch in report["epochs"]]
        result["figures"] = self._figures(epochs, SIZE, self._share)
        return result

    def _figures(self, epochs: list[int], size: int, held: float) -> Figures:
        steady = epochs[len(epochs) // 2 :]
        return {"misses": sum(steady) / len(steady) / (self.samples * size), "held": held}

    def _plainly(self) -> dict[str, Any]:
        watch = rounds.Watch()
        limit = int(self._share * self.samples * CACHED) + BESIDE
        done = subprocess.run(
            [
                *(sys.executable, __file__, self._path, str(self.epochs), str(limit)),
                *(str(self._jobs), str(SHUFFLED if self._sequential else self.epochs)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise rounds.RoundFailed(f"plain reading ended with status {done.returncode}")
        said = json.loads(done.stdout)
        held = said["held"] / (self.samples * CACHED)
        return {
            "contender": {"name": PLAIN, "contender": "plain"},
            "ranks": [],
            "errors": [],
            "figures": self._figures(said["epochs"], CACHED * self._jobs, held),
            **watch.shares(0.0),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{self.key}: {name} misses {medians[name]['misses']:.1%} with "
            f"{medians[name]['held']:.1%} in memory (CoorDL: {paper})"
            for name, paper in ((PLAIN, self._paper), (MINIO["name"], self._least))
            if name in medians
        ]


def all_page_caches(quick: bool) -> list[Scenario]:
    """The shares of CoorDL's servers, and others."""
    found = [
        PageCache(0.25),
        PageCache(0.35, "85 %, figure 3"),
        PageCache(0.5),
        PageCache(0.65, "53 %, table 6"),
        PageCache(0.75),
        PageCache(0.35, "76 %, section 3.3.1", jobs=8),
        PageCache(0.65, "66 %, table 6", sequential=True),
    ]
    if quick:
        for scenario in found:
            scenario.samples, scenario.epochs = 500, 6
    return list(found)


def read_all(path: str, epochs: int, limit: int, jobs: int, shuffled: int) -> dict[str, Any]:
    """Reads all files in each epoch, in a control group of this many bytes, by jobs that take
    turns, and returns the bytes that came from the disk in each epoch, and those in the page cache
    at the end. Epochs from `shuffled` on are in the order of the files."""
    files = [
        os.path.join(folder, name) for folder, _, names in os.walk(path) for name in sorted(names)
    ]
    for name in files:
        with open(name, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    rng, buffer = random.Random(1), bytearray(2 * SIZE)
    counted = []
    with control_group(limit) as group:
        last = _read_bytes()
        for epoch in range(epochs):
            orders = [list(files) for _ in range(jobs)]
            if epoch < shuffled:
                for order in orders:
                    rng.shuffle(order)
            for at, name in enumerate(name for step in zip(*orders) for name in step):
                if at % REFRESH == 0:
                    _statistics(group)
                descriptor = os.open(name, os.O_RDONLY)
                os.readv(descriptor, [buffer])
                os.close(descriptor)
            now = _read_bytes()
            counted.append(now - last)
            last = now
        stat = _statistics(group)
    return {"epochs": counted, "held": stat["active_file"] + stat["inactive_file"]}


def _statistics(group: str) -> dict[str, int]:
    with open(os.path.join(group, "memory.stat"), encoding="ascii") as file:
        return {key: int(value) for key, value in map(str.split, file)}


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[str]:
    """Has this process be in a control group of its own with so many bytes of memory."""
    root = "/sys/fs/cgroup"
    old = os.path.isdir(os.path.join(root, "memory"))  # version 1, where names say memory
    root = os.path.join(root, "memory") if old else root
    group = os.path.join(root, f"hdmlp-page-cache-{os.getpid()}")
    with open("/proc/self/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    [before] = [path for _, names, path in lines if old <= ("memory" in names.split(","))]

    def write(directory: str, name: str, value: int) -> None:
        with open(os.path.join(directory, name), "w", encoding="ascii") as file:
            file.write(str(value))

    os.mkdir(group)
    try:
        write(group, "memory.limit_in_bytes" if old else "memory.max", limit)
        write(group, "cgroup.procs", os.getpid())
        yield group
    finally:
        write(root + before, "cgroup.procs", os.getpid())
        os.rmdir(group)


def _read_bytes() -> int:
    """Bytes that this process has had read from disks."""
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("epochs", type=int)
    parser.add_argument("limit", type=int)
    parser.add_argument("jobs", type=int)
    parser.add_argument("shuffled", type=int)
    print(json.dumps(read_all(**vars(parser.parse_args()))))
