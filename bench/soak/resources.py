"""What daemons keep between rounds, and what is left when they have ended."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from handles import Daemon
from machine import until

from soak.nodes import Machines

#: By how much a daemon at rest may have more than after its second round: bytes of memory of its
#: own, open files, pieces of shared memory (a memory class has 16 for a dataset, and drops those of
#: its earlier contents), threads (Go keeps those of system calls that took long).
BOUNDS = {"memory": 48 << 20, "files": 8, "segments": 20, "threads": 64}

#: What a cache directory may take beyond its size: its index, and blocks.
BESIDE = 1 << 20


def measured(daemon: Daemon, disk: Path) -> dict[str, int]:
    """What a daemon uses."""
    proc = Path(f"/proc/{daemon.pid}")
    status = (proc / "status").read_text()

    def number(key: str) -> int:
        found = re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)
        return int(found[1]) if found else 0

    files = []
    for entry in os.scandir(proc / "fd"):
        with contextlib.suppress(FileNotFoundError):
            files.append(os.readlink(entry.path))
    segments = sum(file.startswith("/memfd:") for file in files)
    return {
        "memory": number("RssAnon") << 10,
        "files": len(files) - segments,
        "segments": segments,
        "threads": number("Threads"),
        "disk": sum(
            os.lstat(os.path.join(folder, file)).st_blocks * 512
            for folder, _, files in os.walk(disk)
            for file in files
        ),
    }


class Book:
    """What each daemon of a season used at rest, round by round."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._used: dict[tuple[int, int], list[dict[str, int]]] = {}

    def rest(self) -> list[str]:
        """Measures the daemons when no rank is there. Returns what has grown beyond its bound."""
        found = []
        for node in range(self._machines.count):
            daemon = self._machines.daemon(node)
            if not daemon:
                continue
            used = self._used.get((node, daemon.pid), [])
            base = used[min(1, len(used) - 1)] if used else None
            now = self._settled(daemon, node, base)
            if now is None:
                continue
            used.append(now)
            self._used[node, daemon.pid] = used
            if now["disk"] > self._machines.space + BESIDE:
                found.append(f"node {node}'s cache directory has {now['disk']} bytes")
            if base and len(used) > 2:
                found += [
                    f"node {node}'s daemon has {now[what]} of {what} after {len(used)} rounds, "
                    f"and had {base[what]} after two"
                    for what, bound in BOUNDS.items()
                    if now[what] > base[what] + bound
                ]
        return found

    def _settled(
        self, daemon: Daemon, node: int, base: dict[str, int] | None
    ) -> dict[str, int] | None:
        """What a daemon uses, once that is within bounds, or after 5 s (1 s if it has none)."""
        disk = self._machines.disk(node)
        deadline = time.monotonic() + (5 if base else 1)
        while True:
            try:
                now = measured(daemon, disk)
            except OSError:
                return None  # it has ended
            fine = base is None or all(now[k] <= base[k] + BOUNDS[k] for k in BOUNDS)
            if (base and fine) or time.monotonic() > deadline:
                return now
            time.sleep(0.1)

    def lines(self) -> list[str]:
        """A line per daemon: what it used after its second round and its last one."""
        shown = []
        for (node, pid), used in self._used.items():
            base, last = used[min(1, len(used) - 1)], used[-1]
            figures = ", ".join(
                f"{what} {base[what] >> 20} to {last[what] >> 20} MiB"
                if what in ("memory", "disk")
                else f"{what} {base[what]} to {last[what]}"
                for what in last
            )
            shown.append(f"node {node}, daemon {pid}, {len(used)} rounds: {figures}")
        return shown


class Surroundings:
    """Processes, mounts, namespaces and files, to compare with what is there later."""

    def __init__(self, *folders: Path) -> None:
        self._folders = (Path("/dev/shm"), *folders)
        self._before = self._now()

    def _now(self) -> dict[str, set[str]]:
        # Only ours: this process is in a namespace of its own. Processes that end are not left.
        processes, namespaces = set(), set()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if Daemon(int(entry)).alive():
                    processes.add(f"{entry} {b' '.join(words).decode(errors='replace')[:120]}")
                    for kind in ("net", "mnt"):
                        namespaces.add(os.readlink(f"/proc/{entry}/ns/{kind}"))
        return {
            "process": processes,
            "namespace": namespaces,
            "mount": set(Path("/proc/self/mounts").read_text().splitlines()),
            "file": {str(path) for folder in self._folders for path in folder.rglob("*")},
        }

    def left(self) -> list[str]:
        """What is there now and was not before."""
        found: list[str] = []

        def clean() -> bool:
            now = self._now()
            found[:] = [
                f"left behind: {what} {one}"
                for what, before in self._before.items()
                for one in sorted(now[what] - before)
            ]
            return not found

        with contextlib.suppress(Exception):
            until(clean, 5, "the end of what is left")
        return found
