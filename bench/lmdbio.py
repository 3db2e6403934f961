"""LMDBIO's figures 1 and 2 with the loaders of this machine: what training on LMDB takes with more
ranks, what it is spent on, and the context switches. py-lmdb in torch's loader is the paper's LMDB,
and HDMLP stands where the paper has LMDBIO-MPIIO.

The paper has up to 512 processes on many nodes, and this the ranks of one node. What the paper's
text says in numbers is drawn and listed beside; curves and bars without a number are not read off.
"""

import os
import textwrap
from typing import Any

import lmdb_values
import newest
import record_data
import rounds
from lmdb_values import RANKS, Used, named

from scenarios import DATA, Figures, Scenario

LMDB, OURS = "py-lmdb", "HDMLP"

#: What the time of a rank is spent on: as keys of figures, and in words.
PARTS = {
    "compute": "compute (emulated)",
    "read": "read: waiting for batches",
    "wait": "waiting for other ranks",
    "start": "start: opening, index",
    "other": "other",
}

#: The paper's processes, to which all its numbers are.
PROCESSES = 512

#: Its numbers: how far LMDB is below ideal scaling (figure 1a), what of the time is reading (1b),
#: and how many times as fast LMDBIO-MPIIO is (2a).
BELOW_IDEAL, READING, FASTER = 20, 0.70, 6

#: The heading of docs/LMDBIO.md from which on it is written by `save`.
HEADING = "## Figures 1 and 2, measured here"


class Training(Scenario):
    """Synchronous training on values of 3 KB, cold and shuffled: a step for each batch, which the
    ranks share, and then all wait for the last one.

    Args:
        count: how many values there are.
    """

    key = "lmdbio"
    size, batch, compute = 3_000, 512, 200e-6
    contenders = [contender for ranks in RANKS for contender in lmdb_values.both(ranks)]
    columns = [
        ("seconds", "seconds", "{:.2f}"),
        *((part, part, "{:.2f} s") for part in PARTS),
        ("switches", "switches/sample", "{:.2f}"),
        ("user", "user CPU/sample", "{:.1f} us"),
        ("system", "system", "{:.1f} us"),
        ("faults", "major faults/sample", "{:.2f}"),
        ("device", "bytes from disk/pages of samples", "{:.3f}"),
    ]

    def __init__(self, count: int) -> None:
        self._count = count
        self._path = os.path.join(DATA, f"lmdb-{self.size}x{count}")

    def prepare(self) -> None:
        self._versions = newest.peers("torch", "lmdb")
        record_data.lmdb_values(self._path, self._count, self.size)
        self.title = (
            f"LMDBIO's figures 1 and 2: one epoch of {self._count:,} values of {self.size:,} bytes "
            f"in LMDB, cold, shuffled; batches of {self.batch} for all ranks together, "
            f"{self.compute * 1e6:.0f} us of computation per sample, emulated by sleep"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions, "compute": self.compute, "count": self._count}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        record_data.forget_pages(self._path)
        ranks = contender["ranks"]
        spec = {
            "path": self._path,
            "count": self._count,
            "batch_size": self.batch // ranks,
            "epochs": 1,
            "seed": 42,
            "step": self.compute * self.batch / ranks,
            "synchronous": True,
            "world_size": ranks,
            "memory": int(1.2 * self.size * self._count),
        }
        result = rounds.run(contender, spec)
        result["figures"] = self._figures(result)
        return result

    def _figures(self, result: dict[str, Any]) -> Figures:
        ranks = result["ranks"]
        used = Used(result)
        seconds = max(rank["end"] for rank in ranks) - min(rank["begin"] for rank in ranks)

        def mean(part: str) -> float:
            return float(sum(rank["epochs"][0][part] for rank in ranks) / len(ranks))

        parts = {
            "compute": mean("compute"),
            "read": mean("stall"),
            "wait": mean("waited"),
            "start": sum(rank["start"] for rank in ranks) / len(ranks),
        }
        return {
            "seconds": seconds,
            **parts,
            "other": max(0.0, seconds - sum(parts.values())),
            "switches": used("switches", 0) / self._count,
            "user": (used("cpu", 0) - used("system", 0)) / self._count * 1e6,
            "system": used("system", 0) / self._count * 1e6,
            "faults": used("faults", 0) / self._count,
            "device": used("device", 0) / (lmdb_values.pages(self.size) * self._count),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{what}: the paper {paper}; here {here}" for _, what, paper, here in compared(medians)
        ]


def speed_ups(medians: dict[str, Figures], loader: str) -> dict[int, float]:
    """How many times as fast a loader trains with so many ranks as with one."""
    found = by_ranks(medians, loader)
    return {ranks: found[1]["seconds"] / row["seconds"] for ranks, row in found.items()}


def by_ranks(medians: dict[str, Figures], loader: str) -> dict[int, Figures]:
    """A loader's figures by the number of ranks."""
    return {r: medians[named(loader, r)] for r in RANKS if named(loader, r) in medians}


def compared(medians: dict[str, Figures]) -> list[tuple[str, str, str, str]]:
    """What the paper's text says of its figures, and what was measured here with the most ranks:
    the figure, what, the paper, here. Nothing unless all have been measured."""
    if len(medians) < 2 * len(RANKS):
        return []
    most = RANKS[-1]
    lmdb, ours = medians[named(LMDB, most)], medians[named(OURS, most)]
    at = f"with {PROCESSES} processes"

    def below(loader: str) -> float:
        return most / speed_ups(medians, loader)[most]

    def share(row: Figures, *parts: str) -> float:
        return float(sum(row[part] for part in parts) / row["seconds"])

    def pair(form: str, of_lmdb: float, of_ours: float) -> str:
        return f"{LMDB} {form.format(of_lmdb)}, {OURS} {form.format(of_ours)}, with {most} ranks"

    return [
        (
            "1a",
            "times slower than ideal scaling",
            f"nearly {BELOW_IDEAL} {at}",
            pair("{:.2f}", below(LMDB), below(OURS)),
        ),
        (
            "1b",
            "share of the time that is reading",
            f"about {READING:.0%} {at}",
            pair("{:.0%}", share(lmdb, "read"), share(ours, "read")),
        ),
        (
            "1c",
            "voluntary context switches per sample",
            "significantly more, no number",
            pair("{:.2f}", lmdb["switches"], ours["switches"]),
        ),
        (
            "2a",
            "times as fast as with LMDB",
            f"{FASTER} {at}",
            f"{lmdb['seconds'] / ours['seconds']:.2f} with {most} ranks",
        ),
        (
            "2b",
            "reading and waiting for other ranks, of the time",
            "shrinks, no number",
            pair("{:.0%}", share(lmdb, "read", "wait"), share(ours, "read", "wait")),
        ),
        (
            "2c",
            "context switches, of those with LMDB",
            "negligible, no number",
            f"{ours['switches'] / lmdb['switches']:.3f} with {most} ranks",
        ),
    ]


def table(scenario: dict[str, Any]) -> str:
    """All that was measured as Markdown, beside the paper's numbers."""
    medians = scenario["medians"]
    columns = Training.columns
    lines = ["| figure | | the paper | here |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in compared(medians)]
    lines += ["", f"| | {' | '.join(heading for _, heading, _ in columns)} |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for name, row in medians.items():
        cells = [form.format(row[key]) for key, _, form in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def wrapped(sentence: str) -> str:
    """A sentence in lines."""
    return textwrap.fill(sentence, 100, break_on_hyphens=False)


def draw(scenario: dict[str, Any], base: str) -> list[str]:
    """Draws the figures of a scenario that was measured, as BASE-lmdbio.png and .svg, and writes
    their numbers as .md; returns the files."""
    names = [f"{base}-lmdbio.md"]
    with open(names[0], "w", encoding="utf-8") as file:
        file.write(f"# Figures 1 and 2\n\n{wrapped(scenario['title'])}.\n\n{table(scenario)}")
    try:
        import lmdbio_chart
    except ImportError as error:
        print(f"no figures: {error}")
        return names
    return names + lmdbio_chart.draw(scenario, f"{base}-lmdbio")


def save(scenario: dict[str, Any], machine: dict[str, Any], docs: str) -> None:
    """Writes the figures to docs/lmdbio.png, and the end of docs/LMDBIO.md."""
    import lmdbio_chart

    lmdbio_chart.draw(scenario, os.path.join(docs, "lmdbio"), ("png",))
    page = os.path.join(docs, "LMDBIO.md")
    with open(page, encoding="utf-8") as file:
        kept = file.read().split(HEADING)[0].rstrip()
    where = (
        f"the median of its rounds; {machine['processors']} processors ({machine['processor']}), "
        f"commit {machine['commit']}"
    )
    sentences = (
        f"{scenario['title']}.",
        f"`make bench SCENARIO=lmdbio SAVE=1` draws and writes this, {where}.",
        "Parts of the time are those of the mean rank.",
    )
    prose = "\n".join(map(wrapped, sentences))
    text = f"{prose}\n\n![LMDBIO's figures](lmdbio.png)\n\n{table(scenario)}"
    with open(page, "w", encoding="utf-8") as file:
        file.write(f"{kept}\n\n{HEADING}\n\n{text}")


def all_lmdbio(quick: bool) -> list[Training]:
    """The scenario."""
    return [Training(20_000 if quick else 100_000)]
