"""Redraws the figures of CoorDL from the simulator: redraw.py HDMLP DOCS [FIGURE ...].

Runs the scenarios of scenarios/coordl, draws each figure as PNG and SVG, and writes COORDL.md,
where each number that the paper states is beside ours. Needs matplotlib.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())

import caches
import matplotlib
import page
import searches
import stalls
from paper import Item, Paper
from simulator import Simulator

matplotlib.use("Agg")
from matplotlib import pyplot

ITEMS = (
    stalls.figure_1,
    stalls.figure_2,
    stalls.figure_3,
    stalls.figure_4,
    stalls.figure_5,
    stalls.figure_6,
    caches.figure_8,
    caches.figure_9a,
    caches.figure_9b,
    caches.figure_9c,
    searches.figure_9d,
    searches.figure_9e,
    caches.figure_11,
    stalls.figure_12,
    stalls.figure_16,
    searches.figure_17,
    caches.figure_18,
    caches.table_3,
    stalls.table_5,
    caches.table_6,
    searches.table_7,
    searches.text,
    caches.scale,
)


def draw(item: Item, folder: str, extra: str) -> None:
    """Draws a figure as PNG into one folder, and as SVG into another."""
    if item.draw is None:
        return
    figure, axes = pyplot.subplots(figsize=(8.4 if item.wide else 5.6, 2.9))
    item.draw(axes)
    axes.set_title(item.title, fontsize=10, loc="left")
    figure.tight_layout()
    figure.savefig(os.path.join(folder, page.picture(item)), dpi=110, metadata={"Software": None})
    figure.savefig(os.path.join(extra, page.picture(item)[:-3] + "svg"), metadata={"Date": None})
    pyplot.close(figure)


def main(program: str, docs: str, only: list[str]) -> int:
    began = time.monotonic()
    sim, paper = Simulator(program), Paper()
    chosen = [make for make in ITEMS if not only or make.__name__.replace("_", " ") in only]
    if not chosen:
        names = ", ".join(make.__name__.replace("_", " ") for make in ITEMS)
        print(f"no figure is called {', '.join(only)}; there are {names}", file=sys.stderr)
        return 2

    def run(make: Any) -> Item:
        item: Item = make(sim, paper)
        print(page.text(item), flush=True)
        return item

    with ThreadPoolExecutor(2) as pool:
        items = list(pool.map(run, chosen))
    svg = os.path.join(docs, "..", "build", "coordl")
    os.makedirs(svg, exist_ok=True)
    for item in items:
        draw(item, docs, svg)
    if not only:
        with open(os.path.join(docs, "COORDL.md"), "w", encoding="utf-8") as file:
            file.write(page.markdown(items, sim.count))
    print(f"{sim.count} simulations, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
