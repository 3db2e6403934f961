"""The chart of how a cluster scales: scale_chart.py SCALE.json CHART.png. Needs matplotlib."""

import json
import math
import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

_PHASES = {
    "form": "#c2410c",
    "agree on a plan": "#a16207",
    "a question to all": "#15803d",
    "a question of each to all": "#0f766e",
    "audit an epoch": "#1d4ed8",
    "a rank stops": "#7e22ce",
    "a rank of each other node stops": "#be185d",
    "all leave": "#64748b",
}
_DEATHS = {"a daemon is killed": "#c2410c", "a host is silent": "#1d4ed8"}


def _lines(axes: Any, sizes: list[dict[str, Any]], phases: dict[str, str], value: Any) -> None:
    """One line per phase, of what value returns of it."""
    for name, colour in phases.items():
        points = [
            (size["nodes"], value(phase))
            for size in sizes
            for phase in size["phases"]
            if phase["name"] == name
        ]
        if points:
            axes.plot(*zip(*points), "o-", color=colour, label=name, markersize=3, linewidth=1)


def _finish(axes: Any, title: str, sizes: list[dict[str, Any]]) -> None:
    nodes = [size["nodes"] for size in sizes]
    axes.set_xscale("log", base=2)
    axes.set_xticks(nodes, [str(n) for n in nodes])
    axes.minorticks_off()
    axes.set_xlabel("nodes", fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=6, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _another(phase: dict[str, Any]) -> float:
    """The bytes of memory of a node other than node 0."""
    return float(phase["memory_bytes"]["another"])


def _node_0(phase: dict[str, Any]) -> float:
    """The most bytes of memory that node 0 had, in the course of a phase or at its end."""
    return float(max(phase["memory_bytes"]["node_0"], phase["peak_bytes"] + _another(phase)))


def figure_of(sizes: list[dict[str, Any]]) -> Any:
    """The figure of what TestScale wrote."""
    figure, ((messages, bytes_), (memory, seconds)) = pyplot.subplots(2, 2, figsize=(11, 8))
    nodes = [size["nodes"] for size in sizes]
    for axes, key, scale, title in (
        (messages, "messages", 1.0, "messages that node 0 sends"),
        (bytes_, "bytes", 1e-6, "MB that node 0 sends"),
    ):
        _lines(axes, sizes, _PHASES, lambda phase, k=key, s=scale: phase[k]["node_0"] * s)
        first = sizes[0]["phases"][0][key]["node_0"] * scale / (nodes[0] * math.log2(nodes[0]))
        axes.plot(
            nodes, [first * n * math.log2(n) for n in nodes], ":", color="black", label="N log N"
        )
        axes.set_yscale("log")
        _finish(axes, title, sizes)
    for of, colour, label in ((_node_0, "#c2410c", "node 0"), (_another, "#64748b", "another")):
        most = [max(of(phase) for phase in size["phases"]) * 1e-6 for size in sizes]
        memory.plot(nodes, most, "o-", color=colour, label=label, markersize=3, linewidth=1)
    memory.axhline(200, color="black", linestyle=":", linewidth=1, label="goal for node 0")
    memory.set_yscale("log")
    _finish(memory, "MB of memory of a node, at most", sizes)
    _lines(seconds, sizes, _DEATHS, lambda phase: phase["seconds"])
    seconds.axhline(15, color="black", linestyle=":", linewidth=1, label="goal")
    seconds.set_ylim(0, 20)
    _finish(seconds, "seconds until all nodes know", sizes)
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        figure_of(json.load(file)).savefig(sys.argv[2], dpi=110)
