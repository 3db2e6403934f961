"""Kinds of charts."""

from collections.abc import Sequence
from typing import Any, Optional

OURS, OTHERS, THIRD, PAPER = "#c2410c", "#64748b", "#0f766e", "#0f172a"
COLOURS = (OTHERS, OURS, THIRD, "#7c3aed")


def bars(
    axes: Any,
    groups: Sequence[str],
    series: dict[str, Sequence[Optional[float]]],
    unit: str,
    form: str,
    paper: Optional[dict[str, float]] = None,
) -> None:
    """Bars side by side: one group for each name, one bar in it for each series, if it has a value
    there. The paper's numbers, of groups of one bar, are crosses."""
    width = 0.8 / len(series)
    top = max(value for values in series.values() for value in values if value is not None)
    for k, (name, values) in enumerate(series.items()):
        colour = OURS if len(series) == 1 else COLOURS[k]
        found = [
            (g + (k - (len(series) - 1) / 2) * width, value)
            for g, value in enumerate(values)
            if value is not None
        ]
        axes.bar(*zip(*found), width * 0.92, label=name, color=colour)
        for x, value in found:
            axes.annotate(
                format(value, form),
                (x, value),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
    if paper:
        axes.plot(
            [list(groups).index(name) for name in paper],
            list(paper.values()),
            "x",
            color=PAPER,
            markersize=7,
            label="paper",
        )
        top = max(top, *paper.values())
    legend = len(series) > 1 or bool(paper)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(unit)
    axes.set_ylim(0, (top or 1) * (1.4 if legend else 1.15))
    finish(axes, legend)


def stacked(
    axes: Any, groups: Sequence[str], series: dict[str, Sequence[float]], unit: str
) -> None:
    """Bars of parts on each other."""
    below = [0.0] * len(groups)
    for k, (name, values) in enumerate(series.items()):
        axes.bar(range(len(groups)), values, 0.6, bottom=below, label=name, color=COLOURS[k])
        below = [b + v for b, v in zip(below, values)]
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(unit)
    axes.set_ylim(0, max(below) * 1.4)
    finish(axes)


def lines(
    axes: Any,
    x: Sequence[float],
    series: dict[str, Sequence[float]],
    across: str,
    unit: str,
) -> None:
    """Lines over one axis."""
    for k, (name, values) in enumerate(series.items()):
        axes.plot(
            x,
            values,
            marker="o",
            markersize=3.5,
            linewidth=1.6,
            label=name,
            color=OURS if len(series) == 1 else COLOURS[k],
        )
    if all(value == int(value) for value in x) and len(x) < 10:
        axes.set_xticks(x)
    axes.set_xlabel(across)
    axes.set_ylabel(unit)
    axes.set_ylim(0, max(max(values) for values in series.values()) * 1.15)
    finish(axes, legend=len(series) > 1)


def papers(axes: Any, x: Sequence[float], values: Sequence[float]) -> None:
    """Numbers of the paper, as crosses."""
    axes.plot(x, values, "x", color=PAPER, markersize=7, label="paper", zorder=5)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, max(values) * 1.18))
    finish(axes)


def finish(axes: Any, legend: bool = True) -> None:
    """What all charts have."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_size(9)
    axes.yaxis.label.set_size(9)
    if legend:
        axes.legend(fontsize=7, frameon=False, loc="upper left", ncols=2)
