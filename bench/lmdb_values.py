"""LMDB environments, cold, in random order: HDMLP beside py-lmdb in torch's loader, as LMDBIO asks.

LMDBIO's figures 1 and 2 have LMDB's speed-up over readers of one node, what their time is spent
on, and their context switches. Here the ranks of one node read a part each.
"""

import os
from typing import Any

import newest
import record_data
import rounds
from records import RECORDS

from scenarios import DATA, Figures, Scenario

RANKS = (1, 2, 4, 8)


class Values(Scenario):
    """Ranks of one node, each with its part of the records; nothing is in the page cache before.

    Args:
        size: bytes of a value.
        count: how many records there are.
    """

    batch, epochs = 32, 3
    contenders = [
        contender
        for ranks in RANKS
        for contender in (
            {
                "name": f"py-lmdb, {ranks} ranks",
                "contender": "py-lmdb",
                "workers": 0,
                "ranks": ranks,
                "python": newest.PEERS,
            },
            {"name": f"HDMLP, {ranks} ranks", "source": "lmdb", "ranks": ranks, **RECORDS},
        )
    ]
    columns = [
        ("rate", "samples/s, epoch 0", "{:,.0f}"),
        ("later_rate", "later", "{:,.0f}"),
        ("cpu0", "CPU/sample, epoch 0", "{:.1f} us"),
        ("cpu", "later", "{:.1f} us"),
        ("switches0", "switches/sample, epoch 0", "{:.2f}"),
        ("switches", "later", "{:.3f}"),
        ("device", "bytes from disk/pages of samples", "{:.3f}"),
    ]

    def __init__(self, size: int, count: int) -> None:
        self.key = f"lmdb/{size}"
        self._size, self._count = size, count
        self._path = os.path.join(DATA, f"lmdb-{size}x{count}")

    def prepare(self) -> None:
        self._versions = newest.peers("torch", "lmdb")
        record_data.lmdb_values(self._path, self._count, self._size)
        self.title = (
            f"{self._count:,} values of {self._size:,} bytes in LMDB, "
            f"{self._size * self._count / 1e6:.0f} MB, cold, shuffled, {self.epochs} epochs, "
            f"batches of {self.batch}"
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
        ranks = [rank["epochs"] for rank in result["ranks"]]

        def after(epoch: int, what: str) -> float:
            """What all processes have used by the end of an epoch; the ranks share a daemon."""
            own = sum(rank[epoch][what] - rank[epoch][f"daemon_{what}"] for rank in ranks)
            return float(own + max(rank[epoch][f"daemon_{what}"] for rank in ranks))

        def wall(epoch: int) -> float:
            begin = min(rank[epoch]["begin"] for rank in ranks)
            return float(max(rank[epoch]["end"] for rank in ranks) - begin)

        last, imports = self.epochs - 1, sum(rank["cpu"] for rank in result["ranks"])
        later = self._count * last
        pages = -(-(self._size + 16) // record_data.PAGE) * record_data.PAGE
        if self._size < record_data.PAGE // 2:
            pages = self._size  # several values in a page
        return {
            "rate": self._count / wall(0),
            "later_rate": later / sum(map(wall, range(1, self.epochs))),
            "cpu0": (after(0, "cpu") - imports) / self._count * 1e6,
            "cpu": (after(last, "cpu") - after(0, "cpu")) / later * 1e6,
            "switches0": after(0, "switches") / self._count,
            "switches": (after(last, "switches") - after(0, "switches")) / later,
            "device": after(0, "device") / (pages * self._count),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for ranks in RANKS:
            ours, theirs = (medians.get(f"{who}, {ranks} ranks") for who in ("HDMLP", "py-lmdb"))
            if ours and theirs:
                said.append(
                    f"{ranks} ranks: {theirs['cpu0'] / ours['cpu0']:.1f} times less processor time "
                    f"per sample in the first epoch (wanted: 2), {theirs['cpu'] / ours['cpu']:.1f} "
                    f"in later ones (wanted: 20); {ours['device']:.3f} of the samples' pages read "
                    "from the disk (wanted: at most 1.1)"
                )
        return said


def all_lmdb(quick: bool) -> list[Scenario]:
    """The scenarios."""
    small, large = (10_000, 300) if quick else (100_000, 4000)
    return [Values(3_000, small), Values(110_000, large)]
