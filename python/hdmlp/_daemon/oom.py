"""Whether the kernel killed a process because memory ran out, by its control groups' counters."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_UNLIMITED = 1 << 60


class _Group(NamedTuple):
    path: str  # its directory
    v2: bool


class _Counts(NamedTuple):
    kills: int  # of processes in the group, and with version 2 below it
    hits: int  # how often its limit was reached
    limit: int  # bytes


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _number(text: str, name: str = "") -> int | None:
    found = re.search(rf"^{name}\s*(\d+)\s*$", text, re.MULTILINE)
    return int(found.group(1)) if found else None


def groups(pid: int, root: str = "/") -> list[_Group]:
    """Returns the control groups that limit a process's memory: its own, and those above."""
    mine = [
        line.split(":", 2) for line in _read(os.path.join(root, f"proc/{pid}/cgroup")).splitlines()
    ]
    found = []
    for line in _read(os.path.join(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        v2 = kind[0] == "cgroup2"
        if not v2 and "memory" not in kind[2].split(","):
            continue
        for parts in mine:
            if len(parts) != 3 or (parts[1] != "" if v2 else "memory" not in parts[1].split(",")):
                continue
            at, top = (
                re.sub(r"\\(\d{3})", lambda code: chr(int(code.group(1), 8)), field)
                for field in (fields[4], fields[3])
            )
            # Inside a container the mount may show only a part of the hierarchy.
            below = os.path.relpath(parts[2], top)
            if below == ".." or below.startswith("../"):
                below = "."
            while True:
                found.append(
                    _Group(os.path.normpath(os.path.join(root, at.lstrip("/"), below)), v2)
                )
                if below in ("", "."):
                    break
                below = os.path.dirname(below) or "."
    return found


def _counts(group: _Group) -> _Counts | None:
    """Returns the group's counters; None if it limits no memory, or was removed."""

    def read(name: str) -> str:
        return _read(os.path.join(group.path, name))

    if group.v2:
        events, limit = read("memory.events"), _number(read("memory.max"))
        kills, hits = _number(events, "oom_kill"), _number(events, "oom")
    else:
        kills, hits, limit = (
            _number(read("memory.oom_control"), "oom_kill"),
            _number(read("memory.failcnt")),
            _number(read("memory.limit_in_bytes")),
        )
    if kills is None:
        return None
    return _Counts(kills, hits or 0, _UNLIMITED if limit is None else limit)


class Watch:
    """Remembers the counters of a process's control groups."""

    def __init__(self, pid: int, root: str = "/"):
        self._before: dict[_Group, _Counts] = {}
        self._root = root
        for group in groups(pid, root) if pid > 0 else ():
            counts = _counts(group)
            if counts is not None:
                self._before[group] = counts
        self._machine = self._kills_on_machine()

    def _kills_on_machine(self) -> int:
        return _number(_read(os.path.join(self._root, "proc/vmstat")), "oom_kill") or 0

    def reason(self, status: int | None) -> str | None:
        """Returns why the kernel killed the process, which has ended.

        Args:
            status: The process's exit status, as ``subprocess`` has it; None if it is not known.

        Returns:
            None if nothing shows that the kernel killed it.
        """
        if status is not None and status != -9:
            return None
        now = {group: _counts(group) for group in self._before}
        if not any(
            counts is not None and counts.kills > self._before[group].kills
            for group, counts in now.items()
        ):
            if status is None or self._kills_on_machine() <= self._machine:
                return None
            return "because the machine ran out of memory; lower memory=, or give the job more"
        limited = [
            (group, counts) for group, counts in now.items() if counts and counts.limit < _UNLIMITED
        ]
        if not limited:
            return "because memory ran out; lower memory=, or give the job more"
        reached = [
            (group, counts) for group, counts in limited if counts.hits > self._before[group].hits
        ]
        group, counts = (reached or [min(limited, key=lambda one: one[1].limit)])[0]
        return (
            f"because control group {group.path} reached its memory limit of "
            f"{counts.limit / (1 << 20):.1f} MiB ({counts.limit} bytes); lower memory=, or raise "
            "the limit"
        )
