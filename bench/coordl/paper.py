"""What the paper says, and what is shown beside it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

import tomllib
from simulator import GPUS, HERE

#: The cores of a server (table 2).
CORES = 24


@dataclass(frozen=True)
class Number:
    """A number of the paper."""

    value: Any  # a number, or two: a range
    at: str  # the place
    used: bool = False  # a rate of the scenarios follows from it

    def each(self) -> "list[Number]":
        """The numbers of a list."""
        return [Number(value, self.at, self.used) for value in self.value]


@dataclass(frozen=True)
class Row:
    """A number of the paper beside ours."""

    what: str
    paper: Optional[Number]
    ours: float
    unit: str = ""  # "%": of 1; "x": times
    why: str = ""  # it deviates

    @property
    def deviation(self) -> Optional[float]:
        """Ours by the paper's, less 1; of a range, by its nearer end, or 0 within it. None if the
        paper has no number, or has 0."""
        if self.paper is None:
            return None
        value = self.paper.value
        if isinstance(value, list):
            value = min(max(self.ours, value[0]), value[1])
        if value == 0:
            return None if self.ours > 1e-3 else 0.0
        return self.ours / value - 1


@dataclass
class Item:
    """A figure or table."""

    name: str  # "figure 9a"
    title: str
    how: str  # what is simulated
    rows: list[Row]
    draw: Optional[Callable[[Any], None]] = None  # into axes
    wide: bool = False
    notes: list[str] = field(default_factory=list)


class Paper:
    """paper.toml."""

    def __init__(self) -> None:
        with open(os.path.join(HERE, "paper.toml"), "rb") as file:
            self._numbers = tomllib.load(file)
        self.models: list[str] = list(self._numbers["models"])

    def number(self, item: str, name: str) -> Number:
        """A number of a figure or table."""
        entry = self._numbers[item][name]
        value = entry["value"]
        return Number(value, entry["at"], entry.get("used", False))

    def value(self, item: str, name: str) -> Any:
        """The same without its place."""
        entry = self._numbers[item][name]
        return entry["value"] if isinstance(entry, dict) else entry

    def job(self, model: str) -> tuple[Number, Number]:
        """Table 7's row of a model: images/s per job, and how many times as fast with CoorDL."""
        job = self._numbers["models"][model]
        return Number(job["dali"], "table 7", True), Number(job["speedup"], "table 7", True)

    def image(self, dataset: str) -> float:
        """MB of an image."""
        return float(self._numbers["images"][dataset]) / 1e3

    def gpu(self, model: str) -> float:
        """Images/s that a V100 trains on: eight jobs with coordinated prep (table 7)."""
        job = self._numbers["models"][model]
        return float(job["dali"] * job["speedup"])

    def dali(self, model: str) -> float:
        """Images/s that each of eight jobs with DALI trains on, with three cores (table 7)."""
        return float(self._numbers["models"][model]["dali"])

    def rates(self, model: str, dataset: str) -> dict[str, float]:
        """The rates of a model on eight V100 and 24 cores, as keys of a scenario: MB/s.

        A GPU takes as many images/s of any dataset, because all are cropped to one size. A core
        preprocesses as many images/s of ImageNet-22k as of ImageNet-1k, and as many MB/s of
        OpenImages, whose images are larger.
        """
        like = "imagenet-22k" if dataset == "imagenet-22k" else "imagenet-1k"
        return {
            "compute": GPUS * self.gpu(model) * self.image(dataset),
            "preprocess": GPUS * self.dali(model) * self.image(like) / CORES,
        }
