"""The page with all figures and tables, docs/COORDL.md."""

import math
import textwrap
from typing import Any

from paper import Item, Row

#: From which deviation on a row has a reason.
CLOSE = 0.05

HEAD = """\
# CoorDL's figures

What the simulator makes of the figures and tables of CoorDL
(Mohan et al., Analyzing and Mitigating Data Stalls in DNN Training), beside the paper's numbers.
`make figures` runs the scenarios in `scenarios/coordl`, draws the figures and writes this page.

The rates of training and preprocessing are not stated for most models.
They follow from table 7, where GPUs and cores limit eight jobs in turn, and for the hard disks,
the audio model and ResNet18's figures from single numbers of the text;
the scenario files say how.
A number from which a rate follows is marked *used*:
that ours agrees with it shows little.
All others are predictions.
What one rate cannot say is how it changes with the images:
a core preprocesses as many MB/s of OpenImages as of ImageNet-1k here, whose images are half as
large, and as many images/s of ImageNet-22k.

DALI-shuffle is policy `pagecache:even_lists=true`, DALI-seq
`pagecache_sequential:even_lists=true:shuffled=3`: the lists of a kernel before Linux 4.7, after
epochs in new orders ([the page cache](SIMULATOR.md#the-page-cache) says why).
The page cache of a server with 500 GiB has 477 GB, which follows from one number of table 6;
MinIO has what the paper gives it, 400 to 455 GB.
MinIO is `minio`, partitioned caching `partitioned`, and coordinated prep a group of jobs
(`share = true`).
Epochs are the sixth and seventh of eight.
Several images are simulated as one, with as many times the bytes, which changes no rate and no
capacity; the last table has one case in full beside it.
"""

NOT_REDRAWN = """\
## What is not redrawn

| item | why |
| --- | --- |
| figures 2, 6, 9: SSD-Res18; figure 2, 6: M5 | no rate of the detection model is stated, nor the \
preprocessing of audio on one server |
| figures 5, 9b, 9c: most models on 1080Ti | no rate of a 1080Ti is stated |
| figures 7, 15 | diagrams of software |
| figure 10 | accuracy: the simulator trains nothing, and orders are the same with every policy |
| figures 13, 14 | rates of PyTorch's loader, and of GPUs by the size of batches, are measurements |
| figure 19, 20 | shares of processors and memory in use over time, which the model does not have |
| figure 21 | Py-CoorDL, on another server, whose loader reads an image in parts |
| figures 22, 23 | measured instead: `make bench SCENARIO=search` \
([a search with Ray Tune](PERFORMANCE.md#a-search-with-ray-tune)) |
| tables 1, 2, 4 | text |
"""


def picture(item: Item) -> str:
    """The file of an item's figure."""
    return "coordl-" + item.name.replace(" ", "-") + ".png"


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "x":
        return f"{value:.2f} x"
    if (value == int(value) and abs(value) < 1e6) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _paper(row: Row) -> str:
    if row.paper is None:
        return ""
    value: Any = row.paper.value
    if isinstance(value, list):
        return " to ".join(_number(v, row.unit) for v in value)
    return _number(value, row.unit)


def _deviation(row: Row) -> str:
    deviation = row.deviation
    if deviation is None:
        return ""
    if math.isclose(deviation, 0, abs_tol=5e-4):
        return "0"
    return f"{100 * deviation:+.1f} %"


def _why(row: Row) -> str:
    deviation = row.deviation
    parts = ["*used*"] if row.paper is not None and row.paper.used else []
    if row.why and (deviation is None or abs(deviation) > CLOSE):
        parts.append(row.why)
    return "; ".join(parts)


def text(item: Item) -> str:
    """An item for the terminal."""
    lines = [f"{item.name}: {item.title}"]
    for row in item.rows:
        used = " (used)" if row.paper is not None and row.paper.used else ""
        lines.append(
            f"    {row.what:66} {_paper(row):>18} {_number(row.ours, row.unit):>12} "
            f"{_deviation(row):>9}{used}"
        )
    return "\n".join(lines)


def markdown(items: list[Item], simulations: int) -> str:
    """The page."""
    pages = [HEAD]
    for item in items:
        name = item.name[0].upper() + item.name[1:]
        pages.append(f"## {name}: {item.title}\n")
        prose = [item.how[0].upper() + item.how[1:] + ".", *item.notes]
        pages += [textwrap.fill(text, 100, break_on_hyphens=False) + "\n" for text in prose]
        if item.draw is not None:
            pages.append(f"![{item.title}]({picture(item)})\n")
        table = ["| | paper | ours | deviation | why | where |", "| --- " * 6 + "|"]
        for row in item.rows:
            at = row.paper.at if row.paper is not None else ""
            cells = (
                row.what,
                _paper(row),
                _number(row.ours, row.unit),
                _deviation(row),
                _why(row),
                at,
            )
            table.append("| " + " | ".join(cells) + " |")
        pages.append("\n".join(table) + "\n")
    pages.append(NOT_REDRAWN)
    return "\n".join(pages)
