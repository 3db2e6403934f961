"""What a loader costs for each item of a dataset of the program's own, beside torch's.

The loaders take turns in one process, by batch or, with workers, by epoch, and the figures are
medians over the turns. A small item shows what the loaders do; CIFAR10, made up, what that is in a
training. The first 32 items of an epoch, from which HDMLP finds which generators are used, count
only with workers.
"""

import argparse
import gc
import json
import os
import pickle
import random
import resource
import statistics
import subprocess
import sys
import time
from collections import deque
from typing import Any, Callable

import newest
import rounds

from scenarios import DATA, Figures, Scenario

#: Images of the made-up CIFAR10, in five files.
IMAGES = 10000

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.262)

#: The datasets, by what their items draw from.
DRAWS = ("nothing", "torch", "numpy", "Python", "all three")


class OwnItems(Scenario):
    """A contender is a dataset with a number of workers and a batch size.

    Args:
        items: items of an epoch of small items.
        turns: how many epochs each loader delivers in one round.
    """

    key = "items"
    contenders = [
        *(
            {"name": f"items drawing from {draws}", "dataset": draws, "workers": 0, "batch": 64}
            for draws in DRAWS
        ),
        {"name": "nothing, batches of 16", "dataset": "nothing", "workers": 0, "batch": 16},
        {"name": "nothing, 2 workers", "dataset": "nothing", "workers": 2, "batch": 64},
        {"name": "CIFAR10", "dataset": "CIFAR10", "workers": 0, "batch": 128},
        {"name": "CIFAR10, 2 workers", "dataset": "CIFAR10", "workers": 2, "batch": 128},
    ]
    contenders = [{**contender, "contender": "framework"} for contender in contenders]
    columns = [
        ("more", "CPU us per item more", "{:.2f}"),
        ("theirs", "torch's", "{:.2f}"),
        ("ours", "HDMLP's", "{:.2f}"),
        ("cpu", "CPU / torch's", "{:.3f}"),
        ("rate", "rate / torch's", "{:.3f}"),
    ]

    def __init__(self, items: int, turns: int) -> None:
        self._items, self._turns = items, turns

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "numpy")
        self.title = (
            f"datasets of one's own: {self._items:,} small items, and {IMAGES:,} images of CIFAR10 "
            "with RandomCrop, flip, ToTensor and Normalize"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        watch = rounds.Watch()
        begin = os.times()
        words = [contender["dataset"], contender["workers"], contender["batch"]]
        done = subprocess.run(
            [newest.PYTHON, __file__, *map(str, [*words, self._items, self._turns])],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.path.join(os.path.dirname(os.path.dirname(__file__)), "python"),
                "OMP_NUM_THREADS": "1",
            },
        )
        if done.returncode:
            raise rounds.RoundFailed(f"{contender['name']} ended:\n{done.stderr[-4000:]}")
        turns = json.loads(done.stdout)
        end = os.times()
        figures = {
            "theirs": statistics.median(turn["theirs"][0] for turn in turns),
            "ours": statistics.median(turn["ours"][0] for turn in turns),
            "more": statistics.median(turn["ours"][0] - turn["theirs"][0] for turn in turns),
            "cpu": statistics.median(turn["ours"][0] / turn["theirs"][0] for turn in turns),
            "rate": statistics.median(turn["theirs"][1] / turn["ours"][1] for turn in turns),
        }
        return {
            "contender": contender,
            "figures": figures,
            "turns": turns,
            "ranks": [{}],
            "errors": [],
            **watch.shares(sum(end[2:4]) - sum(begin[2:4])),
        }


def all_own_items(quick: bool) -> list[Scenario]:
    return [OwnItems(2000, 2) if quick else OwnItems(20000, 5)]


# In a process of its own.


def made(name: str, items: int) -> Any:
    """The dataset; what it draws changes no value's type."""
    import numpy
    import torch
    from torch.utils.data import Dataset

    if name == "CIFAR10":
        return cifar()
    draws = {
        "nothing": lambda: 0.5,
        "torch": lambda: torch.rand(()),
        "numpy": numpy.random.random,
        "Python": random.random,
        "all three": lambda: numpy.random.random() + random.random() + torch.rand(()),
    }
    draw = draws[name]

    class Small(Dataset):
        value = torch.arange(16.0)

        def __len__(self) -> int:
            return items

        def __getitem__(self, i: int) -> Any:
            draw()
            return self.value, i

    return Small()


def cifar() -> Any:
    """torchvision's CIFAR10 of random images, as its tests make it."""
    import numpy
    from torchvision import transforms as t
    from torchvision.datasets import CIFAR10, cifar

    cifar.check_integrity = lambda *_: True  # the files have other sums than the real ones
    directory = os.path.join(DATA, "cifar10", CIFAR10.base_folder)
    os.makedirs(directory, exist_ok=True)
    for number, (name, _) in enumerate([*CIFAR10.train_list, *CIFAR10.test_list]):
        generator = numpy.random.default_rng(number)
        count = IMAGES // 5
        data = {
            "data": generator.integers(0, 256, (count, 3072), numpy.uint8),
            "labels": generator.integers(0, 10, count).tolist(),
        }
        with open(os.path.join(directory, name), "wb") as file:
            pickle.dump(data, file)
    with open(os.path.join(directory, CIFAR10.meta["filename"]), "wb") as file:
        pickle.dump({"label_names": [str(i) for i in range(10)]}, file)
    steps = [t.RandomCrop(32, 4), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]
    return CIFAR10(os.path.dirname(directory), True, t.Compose(steps))


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


Cost = tuple[float, float]


def measured(advance: Callable[[], Any], items: int) -> tuple[Any, Cost]:
    """What a call returns, and its microseconds per item: of processors, and of the clock."""
    cpu, clock = spent(), time.perf_counter()
    value = advance()
    clock = time.perf_counter() - clock
    return value, ((spent() - cpu) / items * 1e6, clock / items * 1e6)


def by_batch(loaders: list[Any], size: int) -> list[dict[str, Cost]]:
    """The costs of an epoch's full batches, without the first 32 items; they take turns by batch,
    so that both meet with the same disturbances."""
    found = []
    iterations = [iter(loader) for loader in loaders]
    while True:
        turn = [measured(lambda one=one: next(one, None), size) for one in iterations]
        if turn[0][0] is None:
            return found[-(-32 // size) :]
        if len(turn[0][0][1]) == size:
            found.append({"theirs": turn[0][1], "ours": turn[1][1]})


def by_epoch(loaders: list[Any], items: int) -> list[dict[str, Cost]]:
    """The costs of an epoch with its workers."""
    gc.collect()
    theirs, ours = (measured(lambda one=one: deque(one, 0), items)[1] for one in loaders)
    return [{"theirs": theirs, "ours": ours}]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    for name in ("workers", "batch", "items", "turns"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    import hdmlp.torch
    import torch

    torch.set_num_threads(1)
    data = made(given.dataset, given.items)
    options = {"shuffle": True, "num_workers": given.workers}
    kinds = (torch.utils.data.DataLoader, hdmlp.torch.DataLoader)
    loaders = [kind(data, given.batch, **options) for kind in kinds]
    turns = []
    for _ in range(given.turns):
        if given.workers:
            turns += by_epoch(loaders, len(data))
        else:
            turns += by_batch(loaders, given.batch)
    json.dump(turns, sys.stdout)


if __name__ == "__main__":
    main()
