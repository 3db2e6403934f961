"""The nodes of a season: their links, daemons, control groups and disks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import namespaces
from handles import Daemon
from machine import Cgroup, mount, umount, until

HERE = Path(__file__).resolve().parent

#: What a node's processes may take together, and what the fault "memory is short" leaves of it.
MEMORY, LEFT = 700 << 20, 96 << 20

#: The address that stands for no node, or for the process that flips bits.
NOWHERE = "02:00:00:00:{:02x}:{:02x}"

_HOG = """
import sys, time
usage, limit, blocks = open(sys.argv[1]), int(sys.argv[2]), []
while True:
    usage.seek(0)
    if int(usage.read()) < limit:
        blocks.append(bytearray(b"1") * (4 << 20))
    time.sleep(0.05)
"""


class Machines:
    """A context in which there are nodes; ``folder`` takes their disks.

    Attributes:
        count: how many.
        space: the size of each node's cache directory; 0: none.
        groups: the control group of each node, or None if this machine has none for memory.
    """

    def __init__(self, folder: Path, count: int, disk: int, token: str) -> None:
        self.folder, self.count, self.space, self._token = folder, count, disk, token
        self._nodes = namespaces.Nodes(count)
        self._state: dict[str, Any] = {}
        self.groups: list[Cgroup | None] = []

    def __enter__(self) -> Machines:
        self._nodes.__enter__()
        runs = Path(os.environ["XDG_RUNTIME_DIR"]) / "hdmlp-dev"
        self._state = next(
            state
            for state in (json.loads(path.read_text()) for path in runs.iterdir())
            if len(state["nodes"]) == self.count
        )
        for node in range(self.count):
            if self.space:
                self.disk(node).mkdir()
                mount("tmpfs", self.disk(node), "tmpfs", data=f"size={self.space + (16 << 20)}")
            with contextlib.suppress(Exception):
                self.groups.append(Cgroup.memory(f"{self._token}-{node}", MEMORY))
        return self

    def __exit__(self, *exc: object) -> None:
        self._nodes.__exit__(None, None, None)
        for node in range(self.count):
            if self.space:
                umount(self.disk(node), lazy=True)
                self.disk(node).rmdir()
            Cgroup.sweep(f"{self._token}-{node}")

    def command(self, node: int) -> list[str]:
        """What a command that is to run on the node starts with."""
        return self._nodes.command(node)

    def environment(self, node: int) -> dict[str, str]:
        """The launcher's variables for the node."""
        return self._nodes.environment(node)

    def disk(self, node: int) -> Path:
        """Where the node's disk is mounted; the cache directory is below it."""
        return self.folder / f"disk{node}"

    def group(self, node: int) -> Cgroup | None:
        """The node's control group."""
        return self.groups[node] if node < len(self.groups) else None

    def kills(self) -> int:
        """How many processes the kernel has killed for lack of memory."""
        return sum(group.kills() for group in self.groups if group)

    # Daemons.

    def daemon(self, node: int) -> Daemon | None:
        """The node's daemon, if it has one."""
        inode = self._state["nodes"][node]["namespace"]["inode"]
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                if (
                    b"serve" in words
                    and os.stat(f"/proc/{entry}/ns/net").st_ino == inode
                    and Daemon(int(entry)).alive()
                ):
                    return Daemon(int(entry))
        return None

    def signal(self, node: int, number: int) -> None:
        """Sends a signal to the node's daemon, if there is one."""
        if daemon := self.daemon(node):
            with contextlib.suppress(ProcessLookupError):
                daemon.signal(number)

    def end_daemons(self) -> None:
        """Has all daemons end."""
        for node in range(self.count):
            self.signal(node, signal.SIGCONT)
            self.signal(node, signal.SIGTERM)
        for node in range(self.count):
            until(lambda node=node: not self.daemon(node), 15, f"the end of node {node}'s daemon")

    # Links.

    def link(self, node: int, *flags: str) -> None:
        """Changes the node's link, as `hdmlp dev link` does."""
        run = self._nodes.command(node)
        _run([*run[:2], "link", str(node), "--run", run[run.index("--run") + 1], *flags])

    def divert(self, node: int, to: int) -> str:
        """Has the node send what is meant for another one to an address that none has. Returns
        it."""
        address = NOWHERE.format(node, to)
        neighbour = ("neigh", "replace", self._address(to), "lladdr", address)
        self._ip(node, *neighbour, "dev", "eth0", "nud", "permanent")
        return address

    def reach(self, node: int, to: int) -> None:
        """Undoes divert."""
        self._ip(node, "neigh", "del", self._address(to), "dev", "eth0")

    def flip(self, node: int, to: int, share: float, seed: int) -> subprocess.Popen[str]:
        """Starts to flip bits of what the node sends to another one."""
        bridge = self._state["bridge"]
        shown = _run([*self.command(to), "cat", "/sys/class/net/eth0/address"])
        # Segments, as they are on a wire, and not what the kernel would cut into segments later.
        self._ip(node, "link", "set", "dev", "eth0", "gso_max_segs", "1")
        process = subprocess.Popen(
            [
                "nsenter",
                f"--net=/proc/{bridge['pid']}/task/{bridge['tid']}/ns/net",
                sys.executable,
                str(HERE / "wire.py"),
                f"node{node}",
                f"node{to}",
                NOWHERE.format(node, to),
                str(share),
                str(seed),
            ],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin
        assert process.stdout
        process.stdin.write(shown)
        process.stdin.flush()
        process.stdout.readline()
        self.divert(node, to)
        return process

    def straight(self, node: int, to: int, process: subprocess.Popen[str]) -> int:
        """Undoes flip. Returns in how many segments a bit was flipped."""
        self.reach(node, to)
        process.terminate()
        shown, _ = process.communicate(timeout=10)
        self._ip(node, "link", "set", "dev", "eth0", "gso_max_segs", "65535")
        return int(shown.split()[-1])

    # Memory.

    def hog(self, node: int) -> subprocess.Popen[bytes] | None:
        """Starts a process that takes the node's memory, all but ``LEFT``."""
        group = self.group(node)
        if not group:
            return None
        usage = group.folder / ("memory.current" if group.v2 else "memory.usage_in_bytes")
        return subprocess.Popen(
            [sys.executable, "-c", _HOG, str(usage), str(MEMORY - LEFT)],
            preexec_fn=group.join,
            stdin=subprocess.DEVNULL,
        )

    def _address(self, node: int) -> str:
        return self._state["nodes"][node]["address"]

    def _ip(self, node: int, *arguments: str) -> None:
        _run([*self.command(node), "ip", *arguments])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
