"""Writes docs/RELIABILITY.md from what run.py --json wrote: report.py RESULTS [OUT].

What OUT has from the heading KEPT on is written by hand, and stays.
"""

import collections
import json
import sys
from pathlib import Path

OUTCOMES = [
    "right stream",
    "clear error",
    "WRONG DATA",
    "hang",
    "crash",
    "killed",
    "raw error",
    "foreign file touched",
    "harness failed",
    "not tried",
]
# The sections, and the modules that their faults are in.
THEMES = {
    "Identity of datasets and files": ("identity", "rewritten"),
    "Hostile datasets": ("hostile_index", "hostile_files", "hostile_changes", "hostile_pictures"),
    "The cache directory": ("cache", "cache_damage"),
    "Sources": ("source",),
    "Several nodes": ("cluster", "floods"),
    "Processes and sockets": ("processes", "sockets"),
    "Limits": ("limits",),
    "The Python interface": ("states", "api"),
}
KEPT = "## Power failures"
HEAD = """# Reliability

Faults that were injected into HDMLP from outside, and their outcomes.
`make faults` repeats them, as root on Linux, and writes their tables on this page;
`make faults ONLY=word` runs a part of them.
What follows them is written by hand: power failures, simulation, scale, soak, planted defects.
The harness, bench/faults, judges by an oracle that is independent of HDMLP:
its own listing of the dataset in ImageFolder's order, torch's `DistributedSampler`,
and digests of the bytes that `open()` reads.

- **right stream**: every batch of every rank had the bytes and labels, in the order,
  that torch's loader would have delivered.
- **clear error**: in time, an exception of HDMLP, or an exit status,
  with a message that names what is concerned (each fault specifies which words).
- Anything else is a defect: wrong data, a hang, a crash, a process killed for lack of memory,
  an error that does not say what is wrong or is not meant for users,
  a change to a file that HDMLP does not own.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    faults = json.loads(Path(sys.argv[1]).read_text())["faults"]
    counts = collections.Counter(f["outcome"] for f in faults)
    lines = [HEAD, "| outcome | faults |", "| --- | ---: |"]
    lines += [f"| {o} | {counts[o]} |" for o in OUTCOMES if counts[o] or o in OUTCOMES[:2]]
    lines += [f"| all | {len(faults)} |", ""]
    for title, modules in THEMES.items():
        mine = [f for f in faults if f["name"].partition(".")[0] in modules]
        if mine:
            lines += [f"## {title}", "", "| fault | outcome |", "| --- | --- |"]
            lines += [f"| {cell(f['about'])} | {f['outcome']} |" for f in mine]
            lines.append("")
    text = "\n".join(lines).rstrip() + "\n"
    if len(sys.argv) > 2:
        out = Path(sys.argv[2])
        _, heading, kept = out.read_text().partition(KEPT)
        out.write_text(text + "\n" * bool(heading) + heading + kept)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
