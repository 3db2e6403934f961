"""The number of streams that HDMLP finds for a source, against fixed numbers of them."""

from typing import Any

import grid
import rounds
from throttled import Throttled

from scenarios import Figures, Scenario


class Streams(Scenario):
    """Throughput from a number of seconds after the start on, while all is read from the source."""

    columns = [
        ("rate", "after 10 s", "{:,.0f} MB/s"),
        ("early", "4 to 6 s", "{:,.0f} MB/s"),
        ("start", "first 2 s", "{:,.0f} MB/s"),
        ("streams", "streams at the end", "{:.0f}"),
    ]
    bandwidth = 400_000_000
    begin, end = 10.0, 14.0

    def __init__(self, key: str, what: str, fixed: tuple[int, ...], *flags: str, latency: float):
        self.key, self._what, self._flags, self._latency = key, what, flags, latency
        options = {"contender": "bare", "policy": "cooperative"}
        self.contenders = [
            {"name": "HDMLP", **options},
            *({"name": f"{n} streams", "source_threads": n, **options} for n in fixed),
        ]

    def prepare(self) -> None:
        # More than the bandwidth allows, so that the loop ends within the first epoch.
        self._path = grid.linked(int(1.1 * self.end * self.bandwidth / grid.SIZE))
        self.title = (
            f"files of 110 KB; source: {self.bandwidth / 1e6:.0f} MB/s, {self._what}; throughput "
            f"from {self.begin:.0f} to {self.end:.0f} s after the start"
        )

    def describe(self) -> Figures:
        return {"bandwidth": self.bandwidth, "latency": self._latency, "flags": self._flags}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        with Throttled(self._path, self.bandwidth, self._latency, *self._flags) as mount:
            result = rounds.run(
                contender,
                {
                    "path": mount.path,
                    "batch_size": 64,
                    "epochs": 1,
                    "seconds": self.end,
                    "seed": 42,
                    "world_size": 1,
                    "memory": "64MB",  # the rest of the machine's is for others
                },
                mount,
            )
        rank = result["ranks"][0]

        def rate(begin: float, end: float) -> float:
            inside = [count for at, count in rank["trace"] if begin <= at < end]
            return sum(inside) * grid.SIZE / 1e6 / (end - begin)

        result["figures"] = {
            "rate": rate(self.begin, self.end),
            "early": rate(4.0, 6.0),
            "start": rate(0.0, 2.0),
            "streams": rank["report"]["source_threads"],
        }
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        fixed = {name: medians[name]["rate"] for name in medians if name != "HDMLP"}
        if "HDMLP" not in medians or not fixed:
            return []
        best = max(fixed, key=fixed.__getitem__)
        return [
            f"{self.key}: HDMLP reaches {medians['HDMLP']['rate'] / fixed[best]:.3f} of the "
            f"throughput with the best fixed number, {best} (wanted: 0.9)"
        ]


def all_streams(quick: bool) -> list[Scenario]:
    """A source with a long latency, and one that more streams make slower."""
    return [
        Streams(
            "streams/latency",
            "50 ms per open",
            (64, 192, 256) if quick else (16, 64, 128, 192, 256, 512),
            latency=0.05,
        ),
        Streams(
            "streams/loss",
            "of which each stream above 4 costs 2 %",
            (4, 16) if quick else (2, 4, 8, 16, 32),
            "--loss=0.02",
            latency=0.0,
        ),
    ]
