"""Recipes of augmentation: torch's loader, torchvision's v2 on tensors, DALI on the processor, and
HDMLP.

What is compared is processor time per image, over all processes of a contender, in the later half
of the epochs, when all files are in memory.
"""

import os
from typing import Any

import make_dataset
import newest
import rounds
from recipe_lists import ON_TENSORS, RECIPES

from scenarios import DATA, Figures, Scenario, into_page_cache, warm_figures

TORCH = {
    "name": "torch, 2 workers",
    "contender": "pipeline",
    "workers": 2,
    "python": newest.PYTHON,
}
TENSORS = {
    "name": "torchvision v2 on tensors, 2 workers",
    "contender": "tensors",
    "workers": 2,
    "python": newest.PYTHON,
}
DALI = {"name": "DALI, CPU, 2 threads", "contender": "dali", "workers": 2, "python": newest.PEERS}
OURS = {"name": "HDMLP", "contender": "hdmlp", "workers": None, "python": newest.PYTHON}

#: The recipes that DALI has.
IN_DALI = ("preset", "trivial", "rand")


class Recipe(Scenario):
    """Photographs in memory, made float32 tensors of 3 x 224 x 224 by a recipe, or several of each;
    batches of 50."""

    columns = [
        ("cpu", "CPU/image", "{:.0f} us"),
        ("rate", "images/s", "{:,.0f}"),
        ("stall", "stall/epoch", "{:.3f} s"),
    ]

    def __init__(self, name: str, quick: bool) -> None:
        self.key = f"recipes/{name}"
        self._name, self._samples, self._epochs = name, 200 if quick else 600, 2 if quick else 4
        self._path = os.path.join(DATA, f"photos-{self._samples}")
        self.contenders = [
            TORCH,
            *([TENSORS] if name in ON_TENSORS else []),
            *([DALI] if name in IN_DALI else []),
            OURS,
        ]

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "timm", "numpy", "pillow")
        if DALI in self.contenders:
            self._versions.update(newest.peers("nvidia-dali-cuda130"))
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        width, height = make_dataset.SIZES["photos"]
        self.title = (
            f"{RECIPES[self._name][0]}; {self._samples:,} JPEGs of {width}x{height} and "
            f"{self._dataset['bytes'] / self._samples / 1e3:.0f} KB"
        )
        into_page_cache(self._path)

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "epochs": self._epochs, "versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        result = rounds.run(
            contender,
            {
                "path": self._path,
                "batch_size": 50,
                "epochs": self._epochs,
                "seed": 42,
                "step": 0.0,
                "world_size": 1,
                "memory": int(1.1 * self._dataset["bytes"]),
                "pipeline": f"recipes/{self._name}",
            },
        )
        epochs = result["ranks"][0]["epochs"]
        warm = epochs[len(epochs) // 2 :]
        result["figures"] = warm_figures(result)
        before = epochs[len(epochs) // 2 - 1]["cpu"]
        samples = sum(epoch["samples"] for epoch in warm)
        result["figures"]["cpu"] = (warm[-1]["cpu"] - before) / samples * 1e6
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        if OURS["name"] not in medians:
            return []
        ours = medians[OURS["name"]]["cpu"]
        return [
            f"HDMLP takes {ours:.0f} us of a processor per image, and {name} "
            f"{figures['cpu'] / ours:.1f} times as much"
            for name, figures in medians.items()
            if name != OURS["name"]
        ]


def all_recipes(quick: bool) -> list[Scenario]:
    """The scenarios."""
    return [Recipe(name, quick) for name in RECIPES]
