"""Linux functions for the harness: mounts, namespaces, cgroups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, Callable

from verdicts import HANG, SKIPPED, Verdict

NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000


def mount(source: Any, target: Any, kind: str = "", flags: int = 0, data: str = "") -> None:
    if libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    ):
        raise OSError(
            ctypes.get_errno(), f"mount {source} at {target}: {os.strerror(ctypes.get_errno())}"
        )


def bind(source: Any, target: Any, readonly: bool = False) -> None:
    mount(source, target, flags=MS_BIND)
    if readonly:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def umount(target: Any, lazy: bool = False) -> None:
    if libc.umount2(os.fsencode(target), 2 if lazy else 0):
        raise OSError(ctypes.get_errno(), f"umount {target}: {os.strerror(ctypes.get_errno())}")


def loopback_up() -> None:
    import fcntl
    import struct

    with socket.socket() as s:
        request = struct.pack("16sH14x", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(s, 0x8914, request)  # SIOCSIFFLAGS


class Cgroup:
    """A control group with limits, of version 1 or 2."""

    def __init__(self, token: str, controller: str, **limits: int) -> None:
        self.folder = self.find(controller) / f"hdmlp-faults-{token}"
        self.folder.mkdir(exist_ok=True)
        self.v2 = (self.folder / "cgroup.controllers").exists()
        for key, value in limits.items():
            (self.folder / (f"{controller}.{key}")).write_text(str(value))

    @staticmethod
    def find(controller: str) -> Path:
        base = Path("/sys/fs/cgroup")
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                return base / controller / path.lstrip("/")
            if (
                not names
                and (base / path.lstrip("/") / "cgroup.subtree_control").exists()
                and controller in (base / path.lstrip("/") / "cgroup.subtree_control").read_text()
            ):
                return base / path.lstrip("/")
        raise Verdict(SKIPPED, f"no control groups for {controller} that this user may make")

    @staticmethod
    def memory(token: str, limit: int) -> Cgroup:
        group = Cgroup(token, "memory")
        (group.folder / ("memory.max" if group.v2 else "memory.limit_in_bytes")).write_text(
            str(limit)
        )
        with contextlib.suppress(OSError):
            (
                group.folder / ("memory.swap.max" if group.v2 else "memory.memsw.limit_in_bytes")
            ).write_text("0" if group.v2 else str(limit))
        return group

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text("0" if not self.v2 else str(os.getpid()))

    def kills(self) -> int:
        """How many processes of the group the kernel killed for lack of memory."""
        file = self.folder / ("memory.events" if self.v2 else "memory.oom_control")
        found = re.search(r"oom_kill (\d+)", file.read_text())
        return int(found[1]) if found else 0

    @staticmethod
    def sweep(token: str) -> bool:
        """Removes the groups of a token. Reports whether all are gone: a group stays as long as it
        has processes, and those that were killed take a moment to end."""
        gone = True
        for path in Path("/sys/fs/cgroup").glob(f"**/hdmlp-faults-{token}"):
            try:
                path.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                gone = False
        return gone


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits until the condition is true; the verdict is "hang" at the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Verdict(HANG, f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return value
