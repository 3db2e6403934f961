"""The processes of a fault: clients that it controls, and daemons."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Protocol

from oracle import BATCH, SEED, Listing, same
from verdicts import HANG, Told, Verdict


class Listener(Protocol):
    """The receiver of a client's answers and standard error."""

    def line(self, client: Client, within: float, what: str) -> bytes: ...

    def stderr(self, client: Client) -> str: ...


class Client:
    """A training process that a fault controls. Its exceptions are raised here, as
    :class:`Told`."""

    def __init__(
        self,
        harness: Listener,
        process: subprocess.Popen | None,
        connection: socket.socket,
        hello: dict,
    ) -> None:
        self.harness, self.process, self.connection, self.hello = (
            harness,
            process,
            connection,
            hello,
        )
        self.rank, self.buffer = int(hello["rank"] or 0), b""
        self.world = 1
        self.job: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self.hello["pid"]

    def send(self, what: str, **arguments: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(
                (json.dumps({"do": what, **arguments}) + "\n").encode("utf-8", "surrogateescape")
            )
        self.asked = what

    def answer(self, within: float = 20) -> Any:
        line = self.harness.line(self, within, self.asked)
        reply = json.loads(line)
        if "error" in reply:
            raise Told(
                reply["error"], reply["ours"], reply["message"], reply["trace"], reply["seconds"]
            )
        self.seconds = reply["seconds"]
        return reply["result"]

    def ask(self, what: str, within: float = 20, **arguments: Any) -> Any:
        self.send(what, **arguments)
        return self.answer(within)

    def open(self, path: Any, within: float = 20, **keys: Any) -> Client:
        self.send_open(path, **keys)
        self.answer(within)
        return self

    def send_open(self, path: Any, **keys: Any) -> None:
        keys.setdefault("seed", SEED)
        self.job = {
            "seed": keys["seed"],
            "batch": keys.get("batch", BATCH),
            "drop_last": keys.get("drop_last", False),
            "shuffle": keys.get("shuffle", True),
        }
        if "world_size" in keys:
            self.rank, self.world = keys["rank"], keys["world_size"]
        self.send("open", path=os.fspath(path), **keys)

    def expected(self, listing: Listing, epoch: int = 0, **more: Any) -> list[list]:
        return listing.epoch(epoch, rank=self.rank, world=self.world, **self.job, **more)

    def epoch(self, epoch: int, within: float = 20) -> list[list]:
        self.ask("iter", within, epoch=epoch)
        return self.ask("next", within)

    def right(
        self,
        listing: Listing,
        epochs: Sequence[int] = (0,),
        within: float = 20,
        what: str = "",
        also: Sequence[Listing] = (),
        **more: Any,
    ) -> None:
        """Iterates, and compares: each epoch with ``listing``, or as a whole with one of
        ``also``."""
        for e in epochs:
            got = self.epoch(e, within)
            same(
                got,
                *(self.expected(one, e, **more) for one in [listing, *also]),
                what=f"{what or f'rank {self.rank}'}, epoch {e}",
            )

    def run(self, code: str, within: float = 20) -> Any:
        return self.ask("run", within, code=code)

    def end(self) -> int:
        """Has the process end by itself, and returns its exit status."""
        self.send("exit")
        return self.wait()

    def raise_uncaught(self) -> tuple[int, str]:
        """Has the last exception raised again, uncaught; returns the exit status and the last line
        of standard error."""
        self.send("exit", uncaught=True)
        status = self.wait()
        lines = self.harness.stderr(self).strip().splitlines() or [""]
        return status, lines[-1]

    def wait(self, within: float = 15) -> int:
        assert self.process
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise Verdict(HANG, f"the training process did not end within {within:.0f} s") from None


class Daemon:
    """A daemon, seen from outside: a process whose program is the binary, with the argument
    ``serve``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def alive(self) -> bool:
        try:
            return (
                Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            )
        except OSError:
            return False

    def rss(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) << 10 if found else 0


def all_of(
    clients: Sequence[Client], do: Callable[[Client], None], within: float = 25
) -> list[Any]:
    """Sends a command to all clients at the same time; once all have answered, raises the first
    error, if any."""
    for client in clients:
        do(client)
    answers: list[Any] = []
    failure: BaseException | None = None
    deadline = time.monotonic() + within
    for client in clients:
        try:
            answers.append(client.answer(max(0.1, deadline - time.monotonic())))
        except (Told, Verdict) as e:
            if failure is None or (isinstance(failure, Told) and isinstance(e, Verdict)):
                failure = e
    if failure:
        raise failure
    return answers


def together(
    clients: Sequence[Client],
    listing: Any,
    epochs: Sequence[int] = (0,),
    within: float = 25,
    **more: Any,
) -> None:
    """All ranks iterate at the same time, and each is compared. ``listing``: one for all, or one
    per client."""
    for e in epochs:
        all_of(clients, lambda c, e=e: c.send("iter", epoch=e), within)
        got = all_of(clients, lambda c: c.send("next"), within)
        for i, (client, batches) in enumerate(zip(clients, got)):
            one = listing[i] if isinstance(listing, list) else listing
            same(batches, client.expected(one, e, **more), what=f"rank {client.rank}, epoch {e}")


def open_all(clients: Sequence[Client], path: Any, within: float = 25, **keys: Any) -> None:
    all_of(clients, lambda c: c.send_open(path, **keys), within)
