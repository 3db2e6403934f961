"""Slurm's short forms of lists: of hosts, and of tasks per node."""

from __future__ import annotations

import re


def expand_counts(text: str) -> list[int]:
    """Expands Slurm's ``2(x3),1`` to ``[2, 2, 2, 1]``."""
    out: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None or len(out) + int(match.group(2) or 1) > 1 << 20:
            return []
        out += [int(match.group(1))] * int(match.group(2) or 1)
    return out


def expand_hosts(text: str, most: int = 1 << 16) -> list[str]:
    """Expands Slurm's ``n[01-03,7],gpu5`` to names, in order."""
    out: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names = [""]
        for piece in re.findall(r"\[[^\]]*\]|[^\[\]]+", part.strip()):
            ends = _range(piece[1:-1], most) if piece.startswith("[") else [piece]
            if len(names) * len(ends) + len(out) > most:
                return out
            names = [name + end for name in names for end in ends]
        out += names
    return out


def _range(text: str, most: int) -> list[str]:
    out: list[str] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not dash:
            out.append(low)
        elif low.isdigit() and high.isdigit():
            last = min(int(high), int(low) + most)
            out += [str(n).zfill(len(low)) for n in range(int(low), last + 1)]
    return out
