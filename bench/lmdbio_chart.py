"""The charts of lmdbio.py. Need matplotlib."""

import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())

import matplotlib
from lmdbio import (
    BELOW_IDEAL,
    FASTER,
    LMDB,
    OURS,
    PARTS,
    PROCESSES,
    READING,
    by_ranks,
    compared,
    speed_ups,
)

from scenarios import Figures

matplotlib.use("Agg")
from matplotlib import pyplot

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "coordl"))
from charts import OTHERS, PAPER, finish
from charts import OURS as ORANGE

COLOURS = {LMDB: OTHERS, OURS: ORANGE}

#: Of the parts of the time, in their order.
PART_COLOURS = ("#0f766e", "#c2410c", "#eab308", "#7c3aed", "#cbd5e1")


def _scaling(axes: Any, medians: dict[str, Figures]) -> None:
    """Figure 1a: LMDB's speed-up, and the ideal."""
    found = speed_ups(medians, LMDB)
    across = [*found, PROCESSES]
    axes.plot(across, across, "--", color=PAPER, linewidth=1, label="ideal")
    axes.plot(*zip(*found.items()), "o-", color=COLOURS[LMDB], label=LMDB)
    axes.plot([PROCESSES], [PROCESSES / BELOW_IDEAL], "x", color=PAPER, label="paper, LMDB")
    axes.annotate(
        f"{BELOW_IDEAL} times\nbelow ideal",
        (PROCESSES, PROCESSES / BELOW_IDEAL),
        xytext=(-8, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=7,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(across, [str(ranks) for ranks in across])
    axes.set_yticks(across, [str(ranks) for ranks in across])
    axes.set_ylim(0.7, 2 * PROCESSES)
    axes.set_xlabel("ranks")
    axes.set_ylabel("times as fast as with 1 rank")
    finish(axes)


def _breakdown(axes: Any, medians: dict[str, Figures], loader: str) -> None:
    """Figures 1b and 2b: what a rank's time is spent on, and the paper's share of reading."""
    found = by_ranks(medians, loader)
    names = [str(ranks) for ranks in found]
    below = [0.0] * len(names)
    for (key, words), colour in zip(PARTS.items(), PART_COLOURS):
        shares = [100 * row[key] / row["seconds"] for row in found.values()]
        axes.bar(names, shares, 0.6, bottom=below, label=words, color=colour)
        if key == "read":
            for x, (begin, share) in enumerate(zip(below, shares)):
                if share >= 4:
                    axes.text(
                        x,
                        begin + share / 2,
                        f"{share:.0f} %",
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white",
                    )
        below = [b + s for b, s in zip(below, shares)]
    if loader == LMDB:
        name = f"paper:\n{PROCESSES}"
        axes.bar([name], [100 * READING], 0.6, color="none", edgecolor=PAPER, hatch="//")
        axes.text(len(names), 100 * READING + 2, f"read\n{READING:.0%}", ha="center", fontsize=7)
    axes.set_xlabel("ranks")
    axes.set_ylabel("% of a rank's time")
    axes.set_ylim(0, 150)
    axes.set_yticks(range(0, 101, 20))
    finish(axes)


def _faster(axes: Any, medians: dict[str, Figures]) -> None:
    """Figure 2a: how many times as fast HDMLP trains as LMDB, with as many ranks."""
    lmdb, ours = by_ranks(medians, LMDB), by_ranks(medians, OURS)
    times = [lmdb[ranks]["seconds"] / row["seconds"] for ranks, row in ours.items()]
    names = [*map(str, ours), f"paper:\n{PROCESSES}"]
    axes.bar(names[:-1], times, 0.6, color=COLOURS[OURS], label=f"{OURS}/{LMDB}")
    axes.bar(
        names[-1:],
        [FASTER],
        0.6,
        color="none",
        edgecolor=PAPER,
        hatch="//",
        label="LMDBIO-MPIIO/LMDB",
    )
    for x, value in enumerate([*times, FASTER]):
        axes.annotate(
            f"{value:.2f}" if x < len(times) else f"{value}",
            (x, value),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    axes.axhline(1, color=PAPER, linewidth=0.6, linestyle=":")
    axes.set_xlabel("ranks")
    axes.set_ylabel("times as fast as with LMDB")
    axes.set_ylim(0, max(*times, FASTER) * 1.35)
    finish(axes)


def _bars(
    axes: Any, medians: dict[str, Figures], loaders: tuple[str, ...], key: str, unit: str
) -> None:
    """Bars by ranks, of loaders side by side."""
    width = 0.8 / len(loaders)
    for k, loader in enumerate(loaders):
        found = by_ranks(medians, loader)
        places = [x + (k - (len(loaders) - 1) / 2) * width for x in range(len(found))]
        values = [row[key] for row in found.values()]
        axes.bar(places, values, width * 0.92, color=COLOURS[loader], label=loader)
        for x, value in zip(places, values):
            axes.annotate(
                f"{value:.2f}",
                (x, value),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        axes.set_xticks(range(len(found)), [str(ranks) for ranks in found])
    axes.set_xlabel("ranks")
    axes.set_ylabel(unit)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.3)
    finish(axes)


def figure_of(medians: dict[str, Figures], title: str) -> Any:
    """LMDBIO's figures 1 (above) and 2 (below)."""
    figure, ((a1, b1, c1), (a2, b2, c2)) = pyplot.subplots(2, 3, figsize=(13, 7.4))
    switches = "voluntary context switches per sample"
    _scaling(a1, medians)
    _breakdown(b1, medians, LMDB)
    _bars(c1, medians, (LMDB,), "switches", switches)
    _faster(a2, medians)
    _breakdown(b2, medians, OURS)
    _bars(c2, medians, (LMDB, OURS), "switches", switches)
    for axes, heading in (
        (a1, f"1(a) scaling: {LMDB}"),
        (b1, f"1(b) what time is spent on: {LMDB}"),
        (c1, f"1(c) context switches: {LMDB}"),
        (a2, "2(a) performance"),
        (b2, f"2(b) what time is spent on: {OURS}"),
        (c2, "2(c) context switches"),
    ):
        axes.set_title(heading, fontsize=10, loc="left")
    figure.suptitle(title, fontsize=8)
    figure.tight_layout(w_pad=2.5, h_pad=2)
    return figure


def draw(scenario: dict[str, Any], base: str, kinds: tuple[str, ...] = ("png", "svg")) -> list[str]:
    """Draws the figures of a scenario, and returns the files: none unless all contenders have been
    measured."""
    if not compared(scenario["medians"]):
        return []
    figure = figure_of(scenario["medians"], scenario["title"])
    names = [f"{base}.{kind}" for kind in kinds]
    for name in names:
        when = {"Software": None} if name.endswith("png") else {"Date": None}
        figure.savefig(name, dpi=110, metadata=when)
    pyplot.close(figure)
    return names
