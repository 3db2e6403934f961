"""The harness in which a fault runs: files, an environment of its own, and processes under command.

A fault is a function of a :class:`Harness`. It builds a dataset, starts clients, injects the
fault, and compares what the clients received with the oracle: a listing of its own, torch's
sampler, digests of the bytes that open() reads. If it returns, the stream was right. An error of
HDMLP that the fault does not catch is a clear one if its message matches all the patterns of
``clear``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from files import Files
from handles import Client, Daemon
from machine import CLONE_NEWNS, MS_PRIVATE, MS_REC, Cgroup, bind, libc, mount, until
from verdicts import (
    BROKEN,
    CRASH,
    HANG,
    KILLED,
    RAW,
    SKIPPED,
    Fault,
    Told,
    Verdict,
)

HERE = Path(__file__).resolve().parent


@dataclasses.dataclass
class Product:
    package: Path
    binary: Path
    python: str
    throttle: Path


class Harness(Files):
    """One fault's directory and environment, and the processes that were started in it."""

    def __init__(
        self, product: Product, folder: Path, token: str, the: Fault, stage: Callable[[str], None]
    ) -> None:
        super().__init__(folder)
        self.product, self.token, self.fault, self.stage = product, token, the, stage
        self.clear = the.clear
        self.dies = the.dies
        self.random = random.Random(the.name)
        for name in ("home", "run", "cache", "config", "data", "state", "t"):
            (folder / name).mkdir()
        (folder / "run").chmod(0o700)
        folder.chmod(0o755)
        (folder / "t").chmod(0o1777)
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "t"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
            "HDMLP_SOCKET": f"hdmlp-fault-{token}",
            "HDMLP_BINARY": str(product.binary),
            "PYTHONPATH": str(product.package),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FAULT_CONTROL": str(folder / "control"),
        }
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "control"))
        (folder / "control").chmod(0o777)
        self.listener.listen(64)
        self.clients: list[Client] = []
        self.groups: list[Cgroup] = []
        self.started = 0

    # Processes.

    def client(
        self,
        *,
        env: dict[str, str | None] | None = None,
        wrap: Sequence[str] = (),
        before: Callable[[], None] | None = None,
        cgroup: Cgroup | None = None,
        user: int | None = None,
        cwd: Path | None = None,
        package: Path | None = None,
        mounts: Sequence[tuple[Any, Any]] = (),
        close_fds: bool = True,
    ) -> Client:
        """Starts a training process. ``mounts`` are bind mounts (source, target) that it alone
        sees, in a namespace of its own."""
        self.started += 1
        token = f"{self.token}-{self.started}"
        environment = {**self.env, "FAULT_TOKEN": token, **(env or {})}
        if package:
            environment["PYTHONPATH"] = str(package)

        def prepare() -> None:
            if cgroup:
                cgroup.join()
            if mounts:
                if libc.unshare(CLONE_NEWNS):
                    os._exit(90)
                mount("none", "/", flags=MS_REC | MS_PRIVATE)
                for source, target in mounts:
                    bind(source, target) if source != "tmpfs" else mount("tmpfs", target, "tmpfs")
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            if before:
                before()

        with open(self.tmp / f"stderr-{token}", "wb") as errors:
            process = subprocess.Popen(
                [*wrap, self.product.python, str(HERE / "client.py")],
                env={k: v for k, v in environment.items() if v is not None},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                preexec_fn=prepare,
                cwd=cwd or self.tmp,
            )
        client = self.accept(process)
        client.token = token
        return client

    def open(self, path: Any, **keys: Any) -> Client:
        """A training process in the default environment, with a loader."""
        return self.client().open(path, **keys)

    def accept(self, process: subprocess.Popen | None, within: float = 20) -> Client:
        deadline = time.monotonic() + within
        while not select.select([self.listener], [], [], 0.05)[0]:
            if process and process.poll() is not None:
                text = "".join(
                    f.read_text(errors="replace") for f in sorted(self.tmp.glob("stderr-*"))
                )
                raise Verdict(
                    RAW,
                    f"the training process ended with {process.returncode} before it began: "
                    f"{text[-500:]}",
                )
            if time.monotonic() > deadline:
                raise Verdict(HANG, f"the training process did not begin within {within:.0f} s")
        connection, _ = self.listener.accept()
        client = Client(self, process, connection, {"rank": 0, "pid": 0})
        client.asked = "hello"
        client.token = ""
        client.hello = json.loads(self.line(client, within, "hello"))
        client.rank = int(client.hello["rank"] or 0)
        self.clients.append(client)
        return client

    def line(self, client: Client, within: float, what: str) -> bytes:
        deadline = time.monotonic() + within
        while b"\n" not in client.buffer:
            if not select.select(
                [client.connection], [], [], max(0.0, deadline - time.monotonic())
            )[0]:
                raise Verdict(
                    HANG, f"{what!r} of a training process did not return within {within:.0f} s"
                )
            try:
                part = client.connection.recv(1 << 20)
            except ConnectionResetError:
                part = b""
            if not part:
                self.ended(client, what)
            client.buffer += part
        line, client.buffer = client.buffer.split(b"\n", 1)
        return line

    def ended(self, client: Client, what: str) -> None:
        status = client.process.wait(10) if client.process else None
        message = f"a training process ended during {what!r}" + (
            f" with {status}" if status is not None else ""
        )
        if status == -signal.SIGKILL:
            raise Verdict(KILLED, message)
        raise Verdict(CRASH, f"{message}: {self.stderr(client)[-400:]}")

    def stderr(self, client: Client) -> str:
        path = self.tmp / f"stderr-{client.token}"
        return path.read_text(errors="replace") if path.exists() else ""

    def daemons(self) -> list[Daemon]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    if (
                        b"serve" in words
                        and os.path.basename(words[0]) == os.fsencode(self.product.binary.name)
                        and Daemon(int(entry)).alive()
                    ):
                        found.append(Daemon(int(entry)))
        return found

    def daemon(self) -> Daemon:
        found = self.daemons()
        if len(found) != 1:
            raise Verdict(BROKEN, f"{len(found)} daemons instead of one")
        return found[0]

    def stop_daemon(self, hard: bool = False) -> None:
        for daemon in self.daemons():
            daemon.signal(signal.SIGKILL if hard else signal.SIGTERM)
            until(
                lambda daemon=daemon: not daemon.alive(), 10, "the end of the daemon after a signal"
            )

    def hdmlp(
        self, *arguments: str, within: float = 15, env: dict[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess:
        """Runs `hdmlp` with these arguments."""
        try:
            return subprocess.run(
                [str(self.product.binary), *arguments],
                env={**self.env, **(env or {})},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=within,
                stdin=subprocess.DEVNULL,
                cwd=self.tmp,
                **more,
            )
        except subprocess.TimeoutExpired:
            raise Verdict(
                HANG, f"hdmlp {' '.join(arguments)} did not end within {within:.0f} s"
            ) from None

    def command_clear(self, done: subprocess.CompletedProcess) -> None:
        """Ends the fault with a clear error if the command failed without a crash."""
        if done.returncode == 0:
            return
        if done.returncode < 0 or "goroutine" in done.stderr:
            raise Verdict(CRASH, f"the command ended with {done.returncode}: {done.stderr[-300:]}")
        raise Told("command", True, done.stderr.strip(), "", 0)

    def memory(self, limit: int) -> Cgroup:
        group = Cgroup.memory(f"{self.token}", limit)
        self.groups.append(group)
        return group

    def throttle(self, source: Path, at: Path, *flags: str) -> subprocess.Popen:
        """A source that can be slow, fail or hang: a FUSE mount of ``source``."""
        if not self.product.throttle.exists():
            raise Verdict(SKIPPED, f"{self.product.throttle} is missing: run `make throttle`")
        at.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [str(self.product.throttle), "--source", str(source), "--mount", str(at), *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.tmp,
        )
        until(
            lambda: os.path.ismount(at) or process.poll() is not None,
            10,
            "the mount of the throttled source",
        )
        if process.poll() is not None:
            raise Verdict(
                SKIPPED, f"the throttled source could not be mounted (status {process.returncode})"
            )
        return process

    def cluster(
        self,
        nodes: int,
        *flags: str,
        ranks: int = 1,
        cgroup: Cgroup | None = None,
        env: dict[str, str] | None = None,
    ) -> list[Client]:
        """Clients on several nodes, by rank, under ``hdmlp dev cluster``."""
        with open(self.tmp / "stderr-cluster", "ab") as errors:
            process = subprocess.Popen(
                [
                    str(self.product.binary),
                    "dev",
                    "cluster",
                    "-n",
                    str(nodes),
                    "--ranks-per-node",
                    str(ranks),
                    "--run",
                    self.token,
                    *flags,
                    "--",
                    self.product.python,
                    str(HERE / "client.py"),
                ],
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                preexec_fn=cgroup.join if cgroup else None,
                cwd=self.tmp,
            )
        found = sorted((self.accept(None, 20) for _ in range(nodes * ranks)), key=lambda c: c.rank)
        for client in found:
            client.world = nodes * ranks
            client.token = "cluster"
        self.launcher = process
        return found

    def on_node(
        self, node: int, *command: str, within: float = 20, wait: bool = True
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            [
                str(self.product.binary),
                "dev",
                "exec",
                str(node),
                "--run",
                self.token,
                "--",
                *command,
            ],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.tmp,
            text=True,
        )
        if wait:
            try:
                process.wait(within)
            except subprocess.TimeoutExpired:
                raise Verdict(BROKEN, f"{command} on node {node} did not end") from None
        return process
