"""The page with all rows, docs/EVALUATION.md."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from evaluation.lines import Line, Row

HEAD = """\
# Evaluation

What the papers measured, measured on one machine: real processes, emulated accelerators, throttled
sources, with what the paper says beside.
`make evaluation SAVE=1` runs all of it in at most an hour and writes this page and
[evaluation.json](evaluation.json); `QUICK=1` takes at most ten minutes and less of everything,
`ONLY=hymenoptera,sharing` runs these rows and leaves the others as they are.
The papers are linked [in the README](../README.md#papers), and [PAPERS.md](PAPERS.md) lists all of
their tables and figures.
Where a paper prints no number, curves are not read off: what its text says is quoted.

A node is a network namespace with a rank and a daemon that have 0.4 of a processor (a control
group), so that more nodes have more processors; where processors are short it weighs several times
as much as another program's process.
The processes' imports are before that, and are not measured.
Accelerators are emulated: a step sleeps as long as the network would compute, and then all ranks
wait for the last one.
Time is stretched four times: accelerators and the source are four times slower than the papers',
because a node has no twelve cores.
The source is a mount with Piz Daint's rates, 66, 86 and 146 MB/s of 1, 2 and 4 nodes (thesis
5.2.1), divided by four, and 2 ms per file; what it delivers is not cached by the kernel.
A P100 trains ResNet-50 with 219 images/s (TensorFlow's published benchmark, one GPU, batches of 64,
synthetic data) and SqueezeNet with 398 (by the ratio of both on a V100, 835 x 1.50 to 569 x 1.21
images/s, in table 7 of CoorDL).
Images are JPEGs of 500x375 pixels and 113 KB; transforms, unless a row says otherwise, are
RandomResizedCrop(224), RandomHorizontalFlip, ToTensor and Normalize.
Ratios within a row are from one run, and are what to compare; seconds are this machine's.
A stall is time in which a rank waits for a batch.
"""

#: From which share of the machine on other programs are said to have disturbed a row. Daemons
#: outlive the ranks that start them, and cannot be distinguished from other programs.
BUSY = 0.05


def number(value: float, unit: str) -> str:
    """A figure with its unit."""
    if unit == "%":
        return f"{100 * value:.2f} %"
    if unit == "x":
        return f"{value:,.0f} x" if abs(value) >= 100 else f"{value:.2f} x"
    if not value:
        return f"0 {unit}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)  # three that count
    return f"{value:,.{digits}f} {unit}"


def _cells(line: Line) -> list[str]:
    spread = ""
    if line.spread is not None:
        spread = " to ".join(number(value, line.unit) for value in line.spread)
    printed = "" if line.paper is None else number(line.paper, line.unit)
    deviation = "" if line.deviation is None else f"{100 * line.deviation:+.0f} %"
    return [line.what, number(line.ours, line.unit), spread, printed, deviation, line.note]


def table(lines: Sequence[Line]) -> str:
    """The lines as a table of Markdown, without columns that are empty in all of them."""
    rows = [["", "here", "range", "paper", "deviation", "note"], *map(_cells, lines)]
    kept = [i for i in range(len(rows[0])) if i < 2 or any(row[i] for row in rows[1:])]
    shown = ["| " + " | ".join(row[i] for i in kept) + " |" for row in rows]
    shown.insert(1, "| --- |" + " ---: |" * (len(kept) - 1))
    return "\n".join(shown)


def prose(text: str) -> str:
    """Text in lines of at most 100 columns."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _measured(result: Mapping[str, Any]) -> str:
    """When a row was measured, and what disturbed it."""
    said = (
        f"Measured {result['at']}, in {result['seconds']:.0f} s"
        f"{', with QUICK=1' if result['quick'] else ''}."
    )
    if max(result["others"], result["stolen"]) > BUSY:
        said += (
            f" Other programs, and the row's own daemons, used {result['others']:.0%} of the "
            f"processors meanwhile, and the machine's host {result['stolen']:.0%}: compare ratios, "
            "not times."
        )
    return said


def failed(rows: Sequence[Row], results: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of rows that have no figures, the reason, by key."""
    found = {}
    for row in rows:
        reason: Optional[str] = results.get(row.key, {"failed": "not run"})["failed"]
        if reason is not None:
            found[row.key] = reason
    return found


def markdown(
    rows: Sequence[Row], results: Mapping[str, Mapping[str, Any]], machine: Mapping[str, Any]
) -> str:
    """The page.

    Args:
        results: by a row's key: `lines`, or why it `failed`; `at`, `seconds`, `quick`,
            `others`, `stolen`.
        machine: as run.machine returns it.
    """
    parts = [HEAD]
    parts.append(
        prose(
            f"The machine: {machine['processors']} x {machine['processor']}, "
            f"{machine['memory'] / 1e9:.0f} GB, Linux {machine['kernel']}; "
            f"torch {machine['versions']['torch']}, torchvision "
            f"{machine['versions']['torchvision']}."
        )
        + "\n"
    )
    lacking = failed(rows, results)
    if lacking:
        parts.append(prose(f"FAILED, or not run: {', '.join(lacking)}.") + "\n")
    for row in rows:
        parts.append(f"## {row.item}: {row.title}\n")
        parts.append(
            f"{prose(f'Printed: {row.printed}')}\n\n{prose(f'Here: {row.here}')}\n\n"
            f"{prose(f'Differences: {row.differs}')}\n"
        )
        if row.key in lacking:
            parts.append(f"FAILED:\n\n```text\n{_wrapped(lacking[row.key])}\n```\n")
            continue
        result = results[row.key]
        parts.append(table([Line(**line) for line in result["lines"]]) + "\n")
        parts.append(prose(_measured(result) + f" `make evaluation ONLY={row.key}`.") + "\n")
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    """The end of an error's text, in lines of at most 100 columns."""
    return "\n".join(
        piece for line in text[-1500:].splitlines() for piece in textwrap.wrap(line, 100)
    )
