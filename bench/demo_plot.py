"""The plot of the demo: bars of both loaders for each epoch, as a PNG or in text."""

import os
import sys
import tempfile
from typing import Any

import demo_summary

_COLOURS = ("#c2410c", "#64748b")

#: The figures of an epoch that are drawn: key, title, unit, and what they are multiplied with.
_PANELS = (
    ("time", "time of an epoch", "s", 1.0),
    ("stall", "waiting for data", "s", 1.0),
    ("read", "read from the source", "MB", 1e-6),
)


def _panels(results: demo_summary.Results) -> list[tuple[str, str, dict[str, list[float]]]]:
    """Title, unit, and values by loader, of what was measured."""
    return [
        (title, unit, {name: [e[key] * scale for e in epochs] for name, epochs in results.items()})
        for key, title, unit, scale in _PANELS
        if all(epoch[key] is not None for epochs in results.values() for epoch in epochs)
    ]


def draw(results: demo_summary.Results, sentence: str, path: str) -> None:
    """Draws the plot into a PNG; raises ImportError without matplotlib."""
    os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = _panels(results)
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.6))
    for axes, (title, unit, values) in zip(all_axes, panels):
        _bars(axes, values)
        axes.set_title(f"{title} ({unit})", fontsize=10, loc="left")
        axes.set_xlabel("epoch", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.suptitle(sentence, fontsize=10)
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bars(axes: Any, values: dict[str, list[float]]) -> None:
    """Two bars for each epoch, with their values above them."""
    width = 0.38
    top = max(value for row in values.values() for value in row) or 1.0
    for side, (colour, (name, row)) in enumerate(zip(_COLOURS, values.items())):
        places = [epoch + (side - 0.5) * width for epoch in range(len(row))]
        axes.bar(places, row, width, color=colour, label=name)
        for place, value in zip(places, row):
            axes.text(place, value + top * 0.015, _short(value), ha="center", fontsize=7)
    axes.set_xticks(range(len(row)))
    axes.set_ylim(0, top * 1.1)


def text(results: demo_summary.Results, width: int = 40) -> list[str]:
    """The same bars as lines of text."""
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    wide = max(len(name) for name in results)
    lines = []
    for title, unit, values in _panels(results):
        top = max(value for row in values.values() for value in row) or 1.0
        lines.append(f"{title} ({unit})")
        for epoch in range(len(next(iter(values.values())))):
            for side, (name, row) in enumerate(values.items()):
                start = f"epoch {epoch}" if side == 0 else ""
                bar = block * round(row[epoch] / top * width)
                lines.append(f"  {start:<9}{name:<{wide}}  {bar} {_short(row[epoch])}")
    return lines


def _short(value: float) -> str:
    """A value in about two digits."""
    if 0 < value < 0.005:
        return "<0.01"
    if 0 < value < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"
