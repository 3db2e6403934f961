"""The chart of a benchmark: chart.py RESULTS.json CHART.png draws it again. Needs matplotlib."""

import json
import os
import sys
import tempfile
import textwrap
from typing import Any

os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

_OURS, _OTHERS = "#c2410c", "#64748b"


def _bars(
    axes: Any, title: str, scenario: dict[str, Any], key: str, unit: str, scale: float = 1.0
) -> None:
    """One bar per contender, with a whisker from the fastest to the slowest round."""
    names = [name for name, results in scenario["rounds"].items() if results]
    values = [
        [result["figures"][key] * scale for result in scenario["rounds"][name]] for name in names
    ]
    middles = [scenario["medians"][name][key] * scale for name in names]
    errors = [
        [m - min(v) for m, v in zip(middles, values)],
        [max(v) - m for m, v in zip(middles, values)],
    ]
    colours = [_OURS if name.startswith("HDMLP") else _OTHERS for name in names]
    whiskers = errors if any(len(v) > 1 for v in values) else None
    axes.barh(names, middles, xerr=whiskers, color=colours, ecolor="#0f172a", capsize=3)
    longest = [max(v) for v in values]
    for row, middle in enumerate(middles):
        axes.annotate(
            f"{middle:,.0f}" if middle >= 1000 else f"{middle:.3g}",
            (longest[row], row),
            xytext=(6, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=8,
        )
    axes.invert_yaxis()
    if max(middles) > 50 * min(middles):
        axes.set_xscale("log")
        axes.set_xlim(min(middles) / 3, max(longest) * 10)
    else:
        axes.set_xlim(0, max(longest) * 1.25)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(unit + (", logarithmic" if axes.get_xscale() == "log" else ""), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _wrap_titles(figure: Any) -> None:
    """Breaks each title that is wider than its axes, which the layout does not see to."""
    for axes in figure.axes:
        title, text = axes._left_title, axes.get_title(loc="left")
        for limit in range(len(text), 10, -1):
            title.set_text(textwrap.fill(text, limit))
            if title.get_window_extent().width <= axes.get_window_extent().width:
                break


def figure_of(report: dict[str, Any]) -> Any:
    """The figure of a report of run.py; None if it has nothing to draw."""
    found = {key: scenario for key, scenario in report["scenarios"].items() if scenario["medians"]}
    panels: list[Any] = []
    if "a" in found:
        panels.append(("(a) 110 KB, warm, raw", "a", "rate", "samples/s"))
    if "b" in found:
        panels.append(("(b) 3 KB, warm, raw", "b", "rate", "samples/s"))
    if "c" in found:
        panels += [
            ("(c) throttled: stall per epoch and rank, after epoch 0", "c", "stall", "s"),
            ("(c) throttled: bytes read from the source", "c", "bytes", "MB", 1e-6),
            ("(c) throttled: all epochs, start included", "c", "total", "s"),
        ]
    if "d" in found:
        panels += [
            ("(d) next() of a ready batch of 1 KB", "d", "1 KB", "us"),
            ("(d) next() of a ready batch of 38 MB", "d", "38 MB", "us"),
        ]
    for key, what in (
        ("e", "RandomResizedCrop of 500x375"),
        ("f", "Resize and CenterCrop of 500x375"),
        ("g", "RandomResizedCrop of 1600x1200"),
        ("m", "Resize and CenterCrop of PNGs"),
        ("n", "Resize and CenterCrop of WebPs"),
        ("o", "newest torch: RandomResizedCrop"),
        ("p", "newest torch: the same, TrivialAugmentWide, RandomErasing"),
        ("q", "newest torch: timm's training transform"),
    ):
        if key in found:
            panels.append((f"({key}) {what}, CPU per image", key, "cpu", "us"))
    for key, count in (("h", 2), ("i", 4)):
        if key in found:
            panels += [
                (
                    f"({key}) {count} nodes: stall per epoch and rank, after epoch 0",
                    key,
                    "stall",
                    "s",
                ),
                (f"({key}) {count} nodes: bytes read from the source", key, "bytes", "MB", 1e-6),
            ]
    if "j" in found:
        panels += [
            ("(j) caches for all: bytes from the source / dataset", "j", "all dataset", "times"),
            ("(j) caches for half of it: bytes from the source / the least", "j", "half", "times"),
        ]
    if "k" in found:
        panels.append(("(k) 8 nodes: first batch after the last one's start", "k", "first", "s"))
    if "l" in found:
        panels += [
            ("(l) 110 KB samples from a peer", "l", "veth, 110 KB", "MB/s"),
            ("(l) 3 KB samples from a peer", "l", "veth, 3 KB", "MB/s"),
        ]
    for key in ("read", "decode"):
        if f"threads/{key}" in found:
            title = f"worker processes x threads: {key}"
            panels.append((title, f"threads/{key}", "rate", "items/s"))
    for key, what in (("memory", "in memory"), ("ssd", "500 MB/s"), ("hdd", "5 MB/s")):
        if f"search/{key}" in found:
            panels.append((f"search with Ray Tune, {what}", f"search/{key}", "search", "s"))
    if not panels:
        return None
    rows = (len(panels) + 1) // 2
    height = 2.4 * rows + 0.6
    figure, grid = pyplot.subplots(rows, 2, figsize=(12, height), squeeze=False)
    for axes, (title, key, *rest) in zip(grid.flat, panels):
        _bars(axes, title, found[key], *rest)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    machine = report["machine"]
    note = (
        f"{machine['processors']} x {machine['processor']}, torch {machine['torch']}, "
        f"{machine['commit']}, {report['at']}"
    )
    figure.suptitle(note + ("  (quick)" if report["quick"] else ""), fontsize=8)
    below = (0, 0, 1, 1 - 0.3 / height)
    figure.tight_layout(rect=below)
    _wrap_titles(figure)
    figure.tight_layout(rect=below)  # once more, for titles that now have two lines
    return figure


def draw(report: dict[str, Any], path: str) -> bool:
    """Draws a report of run.py into a PNG, and reports whether it has anything to draw."""
    figure = figure_of(report)
    if figure is None:
        return False
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        draw(json.load(source), sys.argv[2])
