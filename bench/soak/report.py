"""What is written of a round in which something was found."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from soak.launch import Result
from soak.schedule import Round, season, season_of
from soak.verdict import GOT, Occurrence, described

FOLDER = Path(__file__).resolve().parents[2] / "build" / "soak"


def account(counts: Counter[str]) -> str:
    """Counts as words: "3 whole, 1 explained"."""
    return ", ".join(f"{n} {what}" for what, n in counts.most_common()) or "none"


def again(seed: int, number: int, *, groups: bool = False) -> str:
    """The command that plays a round again, and no other."""
    return f"make soak {'GROUPS=1 ' * groups}SEED={seed} ROUND={number} ROUNDS=1"


def over(options: argparse.Namespace, number: int, seconds: float) -> bool:
    """Reports whether no round is to begin any more; the first one always is."""
    last, minutes = options.rounds, options.minutes
    return number > options.round and (
        (last is not None and number >= options.round + last)
        or (minutes is not None and seconds > 60 * minutes)
    )


def write(
    seed: int, the: Round, occurred: Sequence[Occurrence], result: Result, logs: Sequence[str]
) -> Path:
    """Writes the schedule, what the ranks observed and the logs. Returns the file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"seed-{seed}-round-{the.number}.txt"
    lines = [
        again(seed, the.number),
        json.dumps(dataclasses.asdict(season(seed, season_of(the.number)))),
        json.dumps(dataclasses.asdict(the)),
        "",
        *result.findings,
        "",
    ]
    zero = result.launches[0].started if result.launches else 0.0
    for o in occurred:
        end = f"{o.end - zero:.2f}" if o.end else "now"
        lines.append(f"{o.begin - zero:8.2f} to {end}: {o.fault}")
    for number, launch in enumerate(result.launches):
        lines.append(f"\nlaunch {number}: {launch.world} ranks, from step {launch.first}")
        for e in launch.events:
            shown = described(e) if e.kind != GOT else f"rank {e.rank} step {e.step} got"
            lines.append(f"{e.at - zero:8.2f} {shown}")
    path.write_text("\n".join([*lines, "", *logs]) + "\n")
    return path
