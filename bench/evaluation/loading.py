"""Loading without computing: the thesis's experiments 1 and 2 (5.3.2, 5.3.3)."""

import os
import shutil
import statistics
from typing import Any

import make_dataset

from evaluation import cluster, simulated
from evaluation.cluster import OURS, TORCH0
from evaluation.lines import Line, middle
from scenarios import DATA

#: Table 5.7: strong scaling of PyTorch's ImageFolder and of HDMLPImageFolder, by nodes.
TABLE_5_7 = {
    TORCH0["name"]: {2: 1.973, 4: 3.827},
    OURS["name"]: {2: 1.998, 4: 4.008, 8: 7.960, 16: 15.9, 32: 30.952, 64: 56.271},
}

#: Table 5.8: how many times as fast as ImageFolder HDMLP is, and its strong scaling.
TABLE_5_8 = {1: (2.433, 1.0), 2: (2.408, 2.005), 4: (4.057, 7.192)}

#: Of the thesis's Hymenoptera, 245 images.
ANTS, BEES = 124, 121

#: Staging buffer and memory of a node, to the 33 GB of experiment 2.
SHARE = (2048 + 4096) / 33_000


def ants_and_bees() -> tuple[str, int]:
    """A folder with as many images of two classes as the thesis's dataset, and its bytes."""
    path = os.path.join(DATA, "hymenoptera")
    photos = path + "-photos"
    made: dict[str, Any] = make_dataset.make("photos", photos, ANTS + BEES, 110_000)
    if not os.path.exists(path):
        names = sorted(
            os.path.join(photos, folder, name)
            for folder in os.listdir(photos)
            for name in os.listdir(os.path.join(photos, folder))
        )
        unfinished = path + ".part"
        shutil.rmtree(unfinished, ignore_errors=True)
        for name, first, count in (("ants", 0, ANTS), ("bees", ANTS, BEES)):
            os.makedirs(os.path.join(unfinished, name))
            for photo in names[first : first + count]:
                os.link(photo, os.path.join(unfinished, name, os.path.basename(photo)))
        os.rename(unfinished, path)
    return path, made["bytes"]


def hymenoptera(nodes: tuple[int, ...], epochs: int) -> list[Line]:
    """Figure 5.9, table 5.7: the time of all epochs by nodes, the first of which are 1."""
    path, size = ants_and_bees()
    seconds: dict[str, dict[int, float]] = {}
    later: dict[str, dict[int, float]] = {}
    for contender in (TORCH0, OURS):
        name = contender["name"]
        seconds[name], later[name] = {}, {}
        for count in nodes:
            result = cluster.train(
                contender, path, count, cluster.source(count),
                batch_size=8, epochs=epochs, memory=int(1.2 * size), step=0.0,
            )  # fmt: skip
            took = [epoch.seconds for epoch in cluster.epochs(result)]
            seconds[name][count] = sum(took)
            later[name][count] = statistics.median(took[1:])
    lines = _table(nodes, seconds)
    for count in nodes[1:]:
        for name, of in later.items():
            what = f"{name}: strong scaling of later epochs, {count} nodes"
            lines.append(Line(what, of[1] / of[count], "x", TABLE_5_7[name][count]))
    predicted = simulated.scaling(
        ("cooperative",), (1, 2, 4, 8, 16, 32, 64), samples=ANTS + BEES, size=size,
        memory=1.2 * size, epochs=100, batch=ANTS + BEES,
        preprocess=size / later[OURS["name"]][1],
    )["cooperative"]  # fmt: skip
    for count in list(predicted)[1:]:
        lines.append(
            Line(
                f"`hdmlp simulate --scaling`, 100 epochs: strong scaling, {count} nodes",
                predicted[1] / predicted[count],
                "x",
                TABLE_5_7[OURS["name"]].get(count),
            )
        )
    return lines


def imagenet(nodes: tuple[int, ...], samples: int, turns: int) -> list[Line]:
    """Figure 5.10, table 5.8: one epoch of a dataset of which a node's memory holds a part."""
    path, size = cluster.photos(samples)
    all_turns: dict[str, dict[int, list[float]]] = {}
    for _ in range(turns):
        for count in nodes:
            for contender in (TORCH0, OURS):
                result = cluster.train(
                    contender, path, count, cluster.source(count),
                    batch_size=16, epochs=1, memory=int(SHARE * size), step=0.0,
                )  # fmt: skip
                took = cluster.epochs(result)[0].seconds
                all_turns.setdefault(contender["name"], {}).setdefault(count, []).append(took)
    theirs, ours = all_turns[TORCH0["name"]], all_turns[OURS["name"]]
    lines = [
        middle(f"{name}: {count} node{'s' * (count > 1)}", of[count], "s")
        for name, of in all_turns.items()
        for count in nodes
    ]
    median = {count: statistics.median(ours[count]) for count in nodes}
    for count in nodes:
        faster = [their / our for their, our in zip(theirs[count], ours[count])]
        lines.append(
            middle(
                f"HDMLP: times as fast as {TORCH0['name']}, {count} node{'s' * (count > 1)}",
                faster,
                "x",
                paper=TABLE_5_8[count][0],
            )
        )
    for count in nodes[1:]:
        lines.append(
            Line(
                f"HDMLP: strong scaling, {count} nodes",
                median[nodes[0]] / median[count],
                "x",
                TABLE_5_8[count][1] if nodes[0] == 1 else None,
            )
        )
    return lines


def _table(nodes: tuple[int, ...], seconds: dict[str, dict[int, float]]) -> list[Line]:
    """The seconds of all loaders, by nodes, and how many times as fast HDMLP is."""
    lines = [
        Line(f"{name}: {count} node{'s' * (count > 1)}", of[count], "s")
        for name, of in seconds.items()
        for count in nodes
    ]
    theirs, ours = seconds[TORCH0["name"]], seconds[OURS["name"]]
    for count in nodes:
        lines.append(
            Line(
                f"HDMLP: times as fast as {TORCH0['name']}, {count} node{'s' * (count > 1)}",
                theirs[count] / ours[count],
                "x",
            )
        )
    return lines
