"""Namespaces in which the nemesis runs, and with which all that it started ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

from machine import Cgroup, libc, loopback_up, mount

#: Seconds in which the nemesis prints what it has found, after Ctrl-C, and in which processes that
#: were killed end.
GRACE = 10


def listen(handler: Any, *numbers: int) -> None:
    """Handles signals, but for those that are ignored, as nohup has it."""
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


class Outside:
    """The process outside of the namespaces, which ends what is inside with itself."""

    def __init__(self) -> None:
        self._got: list[int] = []  # signals
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str]) -> int:
        """Runs a command that begins with unshare. Returns its exit status; 130 after Ctrl-C, and
        128 and the number after another signal, unless something was found."""
        listen(self._on_signal, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        signal.signal(signal.SIGALRM, self._on_signal)
        self._process = subprocess.Popen(
            command,
            preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # at the end of this process
            start_new_session=True,  # the terminal's Ctrl-C is for this process
        )
        if self._got:
            self._process.kill()
        status = self._process.wait()
        signal.alarm(0)
        return 128 + self._got[0] if self._got and status != 1 else status

    def _on_signal(self, number: int, _: object) -> None:
        self._got.append(number)
        if not self._process:
            return
        if self._got == [signal.SIGINT]:
            for pid in _children(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            signal.alarm(GRACE)
        else:
            self._process.kill()


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def outside(arguments: list[str]) -> int:
    """Runs this program again with ``--inside FOLDER``, in namespaces for processes, mounts and
    networks. Returns its exit status."""
    out = Outside()
    folder = Path(tempfile.mkdtemp(prefix="hdmlp-soak-"))
    unshare = ["unshare", "-m", "-p", "-n", "--fork", "--kill-child", "--mount-proc"]
    try:
        return out.run(
            [*unshare, sys.executable, "-m", "soak", "--inside", str(folder), *arguments]
        )
    finally:
        deadline = time.monotonic() + GRACE
        while not Cgroup.sweep(f"{folder.name}-*") and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


def inside(folder: Path, work: Callable[[Path], int]) -> int:
    """Has a child of the namespace's first process do the work, while this one waits for orphans.
    Files below the folder are in memory, and /dev/shm is not the one of other processes."""
    mount("tmpfs", folder, "tmpfs", data="size=4g")
    folder.chmod(0o755)
    mount("tmpfs", Path("/dev/shm"), "tmpfs", data="size=1g")
    loopback_up()
    worker = os.fork()
    if worker == 0:
        sys.exit(work(folder))
    signal.signal(signal.SIGINT, lambda number, _: os.kill(worker, number))
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)
