"""LMDB environments, cold, in random order: HDMLP beside py-lmdb in torch's loader, as LMDBIO asks.

The ranks of one node read a part each. fio reads as much at once as HDMLP does, past the page
cache: what the disk gives.
"""

import math
import os
from typing import Any

import fio
import newest
import record_data
import rounds
from records import RECORDS

from scenarios import DATA, Figures, Scenario

RANKS = (1, 2, 4, 8)

#: A loader whose rate is below this part of fio's does not get what the disk gives.
OF_FIO = 0.85

#: From this share of the processors' time on, they limit the rate, and not the disk.
BUSY = 0.85


def named(loader: str, ranks: int) -> str:
    """The name of a contender."""
    return f"{loader}, {ranks} rank{'s' * (ranks > 1)}"


def both(ranks: int) -> list[dict[str, Any]]:
    """py-lmdb and HDMLP with so many ranks."""
    return [
        {
            "name": named("py-lmdb", ranks),
            "contender": "py-lmdb",
            "workers": 0,
            "ranks": ranks,
            "python": newest.PEERS,
        },
        {"name": named("HDMLP", ranks), "source": "lmdb", "ranks": ranks, **RECORDS},
    ]


class Used:
    """What the processes of a round have used; the ranks share a daemon.

    Args:
        result: what rounds.run returned.
    """

    def __init__(self, result: dict[str, Any]) -> None:
        self._before = [rank["before"] for rank in result["ranks"]]
        self._epochs = [rank["epochs"] for rank in result["ranks"]]

    def __call__(self, what: str, epoch: int) -> float:
        """Of all processes, from before loaders are made to the end of an epoch."""
        own = sum(epochs[epoch][what] - epochs[epoch][f"daemon_{what}"] for epochs in self._epochs)
        daemon = max(epochs[epoch][f"daemon_{what}"] for epochs in self._epochs)
        return float(own + daemon - sum(before[what] for before in self._before))

    def wall(self, epoch: int) -> float:
        """The seconds from the first rank's begin of an epoch to the last one's end."""
        begin = min(epochs[epoch]["begin"] for epochs in self._epochs)
        return float(max(epochs[epoch]["end"] for epochs in self._epochs) - begin)


def pages(size: int) -> int:
    """The bytes of the pages that a value of this size occupies; several values may share one."""
    if size < record_data.PAGE // 2:
        return size
    header = 16
    return math.ceil((size + header) / record_data.PAGE) * record_data.PAGE


class Values(Scenario):
    """Ranks of one node, each with its part of the records; nothing is in the page cache before.

    Args:
        size: bytes of a value.
        count: how many records there are.
        seconds: for how long fio reads.
    """

    batch, epochs = 32, 3
    contenders = [contender for ranks in RANKS for contender in both(ranks)]
    columns = [
        ("rate", "samples/s, epoch 0", "{:,.0f}"),
        ("later_rate", "later", "{:,.0f}"),
        ("cpu0", "CPU/sample, epoch 0", "{:.1f} us"),
        ("cpu", "later", "{:.1f} us"),
        ("switches0", "switches/sample, epoch 0", "{:.2f}"),
        ("switches", "later", "{:.3f}"),
        ("device", "bytes from disk/pages of samples", "{:.3f}"),
        ("depth", "reads in progress", "{:.0f}"),
        ("fio", "fio's reads/s", "{:,.0f}"),
        ("of_fio", "epoch 0/fio", "{:.3f}"),
        ("busy", "processors in use, epoch 0", "{:.0%}"),
    ]

    def __init__(self, size: int, count: int, seconds: float) -> None:
        self.key = f"lmdb/{size}"
        self._size, self._count, self._seconds = size, count, seconds
        self._path = os.path.join(DATA, f"lmdb-{size}x{count}")

    def prepare(self) -> None:
        self._versions = newest.peers("torch", "lmdb")
        record_data.lmdb_values(self._path, self._count, self._size)
        self.title = (
            f"{self._count:,} values of {self._size:,} bytes in LMDB, "
            f"{self._size * self._count / 1e6:.0f} MB, cold, shuffled, {self.epochs} epochs, "
            f"batches of {self.batch}; fio reads {pages(self._size):,} bytes at once"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        record_data.forget_pages(self._path)
        spec = {
            "path": self._path,
            "count": self._count,
            "batch_size": self.batch,
            "epochs": self.epochs,
            "seed": 42,
            "step": 0.0,
            "world_size": contender["ranks"],
            "memory": int(1.2 * self._size * self._count),
        }
        result = rounds.run(contender, spec)
        result["figures"] = self._figures(result)
        return result

    def _figures(self, result: dict[str, Any]) -> Figures:
        used = Used(result)
        last = self.epochs - 1
        later = self._count * last

        def beyond(what: str) -> float:
            return used(what, last) - used(what, 0)

        depth = in_progress(result)
        disk = self._disk(depth)
        rate = self._count / used.wall(0)
        own = used("cpu", 0) / used.wall(0) / len(os.sched_getaffinity(0))
        return {
            "rate": rate,
            "later_rate": later / sum(map(used.wall, range(1, self.epochs))),
            "cpu0": used("cpu", 0) / self._count * 1e6,
            "cpu": beyond("cpu") / later * 1e6,
            "switches0": used("switches", 0) / self._count,
            "switches": beyond("switches") / later,
            "device": used("device", 0) / (pages(self._size) * self._count),
            "depth": depth,
            "fio": disk,
            "of_fio": rate / disk,
            "busy": min(1.0, own + result["others"] + result["stolen"]),
        }

    def _disk(self, depth: int) -> float:
        """fio's reads per second; not a number if fio is missing."""
        if fio.missing():
            return math.nan
        file = os.path.join(self._path, "data.mdb")
        return fio.reads(file, pages(self._size), depth, self._seconds)

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for ranks in RANKS:
            ours, theirs = (medians.get(named(who, ranks)) for who in ("HDMLP", "py-lmdb"))
            if ours and theirs:
                said.append(
                    f"{named('HDMLP', ranks)}: {theirs['cpu0'] / ours['cpu0']:.1f} times less "
                    f"processor time "
                    f"per sample in the first epoch (wanted: 2), {theirs['cpu'] / ours['cpu']:.1f} "
                    f"in later ones (wanted: 20); {ours['device']:.3f} of the samples' pages read "
                    "from the disk (wanted: at most 1.1)"
                )
            if ours:
                said.append(f"{named('HDMLP', ranks)}: {beside_fio(ours)}")
        return said


def in_progress(result: dict[str, Any]) -> int:
    """How many reads were in progress at once: of HDMLP what its report has, of a loader without
    a report one for each rank."""
    report = result["ranks"][0]["report"]
    return int(report["source_threads"]) if report else len(result["ranks"])


def beside_fio(figures: Figures) -> str:
    """The first epoch's rate beside fio's, and whether the disk limits it."""
    if math.isnan(figures["fio"]):
        return "fio is missing, so that what the disk gives is not known: apt-get install fio"
    found = (
        f"the first epoch has {figures['of_fio']:.2f} of the rate of fio with "
        f"{figures['depth']:.0f} reads in progress (wanted: {OF_FIO} where the disk is the limit)"
    )
    if figures["of_fio"] < OF_FIO and figures["busy"] >= BUSY:
        found += f"; the disk is not the limit: the processors were in use {figures['busy']:.0%}"
    return found


def all_lmdb(quick: bool) -> list[Scenario]:
    """The scenarios."""
    small, large = (10_000, 300) if quick else (100_000, 4000)
    seconds = 1.0 if quick else 5.0
    return [Values(3_000, small, seconds), Values(110_000, large, seconds)]
