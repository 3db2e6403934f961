"""The chart of a benchmark: chart.py RESULTS.json CHART.png draws it again. Needs matplotlib."""

import json
import os
import sys
import tempfile
from typing import Any, Dict, List

os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

_OURS, _OTHERS = "#c2410c", "#64748b"


def _bars(
    axes: Any, title: str, scenario: Dict[str, Any], key: str, unit: str, scale: float = 1.0
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
    for row, middle in enumerate(middles):
        axes.annotate(
            f" {middle:,.0f}" if middle >= 1000 else f" {middle:.3g}",
            (middle, row),
            xytext=(4, 6),
            textcoords="offset points",
            fontsize=8,
        )
    axes.invert_yaxis()
    if max(middles) > 50 * min(middles):
        axes.set_xscale("log")
        axes.set_xlim(min(middles) / 3, max(middles) * 6)
    else:
        axes.margins(x=0.2)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(unit + (", logarithmic" if axes.get_xscale() == "log" else ""), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw(report: Dict[str, Any], path: str) -> bool:
    """Draws what a report of run.py has into a PNG; False: nothing of it is drawn."""
    found = {key: scenario for key, scenario in report["scenarios"].items() if scenario["medians"]}
    panels: List[Any] = []
    if "a" in found:
        panels.append(("(a) 110 KB, warm, raw", "a", "rate", "samples/s"))
    if "b" in found:
        panels.append(("(b) 3 KB, warm, raw", "b", "rate", "samples/s"))
    if "c" in found:
        panels += [
            ("(c) throttled: stall per epoch and rank, from epoch 1 on", "c", "stall", "s"),
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
                    f"({key}) {count} nodes: stall per epoch and rank, from epoch 1 on",
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
    if not panels:
        return False
    rows = (len(panels) + 1) // 2
    height = 2.4 * rows + 0.6
    figure, grid = pyplot.subplots(rows, 2, figsize=(12, height), squeeze=False)
    for axes, (title, key, *rest) in zip(grid.flat, panels):
        _bars(axes, title, found[key], *rest)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    machine = report["machine"]
    note = f"{machine['processors']} x {machine['processor']}, torch {machine['torch']}, {machine['commit']}, {report['at']}"
    figure.suptitle(note + ("  (quick)" if report["quick"] else ""), fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / height))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        draw(json.load(source), sys.argv[2])
