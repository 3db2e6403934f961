"""Namespaces in which the nemesis runs, and with which all that it started ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

from machine import Cgroup, libc, loopback_up, mount


def outside(arguments: list[str]) -> int:
    """Runs this program again with ``--inside FOLDER``, in namespaces for processes, mounts and
    networks. Returns its exit status."""
    folder = Path(tempfile.mkdtemp(prefix="hdmlp-soak-"))
    unshare = ["unshare", "-m", "-p", "-n", "--fork", "--kill-child", "--mount-proc"]
    process = subprocess.Popen(
        [*unshare, sys.executable, "-m", "soak", "--inside", str(folder), *arguments],
        preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # at the end of this process
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # those inside got it as well
    signal.signal(signal.SIGTERM, lambda *_: process.kill())
    try:
        return process.wait()
    finally:
        Cgroup.sweep(f"{folder.name}-*")
        shutil.rmtree(folder, ignore_errors=True)


def inside(folder: Path, work: Callable[[Path], int]) -> int:
    """Has a child of the namespace's first process do the work, while this one waits for orphans.
    Files below the folder are in memory."""
    mount("tmpfs", folder, "tmpfs", data="size=4g")
    folder.chmod(0o755)
    loopback_up()
    worker = os.fork()
    if worker == 0:
        sys.exit(work(folder))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)
