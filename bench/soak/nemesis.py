"""Carries out faults, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from typing import Any, Callable

from handles import Client
from machine import until

from soak.nodes import Machines
from soak.origin import Origin
from soak.schedule import Fault
from soak.verdict import Occurrence


class Nemesis:
    """Does to a season's cluster what the schedule has.

    Attributes:
        occurred: the faults of the round that have begun, in this order.
        counts: of all faults that had an effect, by kind.
        ranks: the training processes, by node and number on the node.
    """

    def __init__(self, machines: Machines, origin: Origin, counts: Counter[str]) -> None:
        self.machines, self.origin, self.counts = machines, origin, counts
        self.occurred: list[Occurrence] = []
        self.ranks: dict[tuple[int, int], Client] = {}
        self._ends: list[tuple[float, Occurrence, Callable[[], None]]] = []
        self._lasting: Counter[str] = Counter()  # settings of the source that several faults have

    def begin(self, fault: Fault) -> None:
        """Begins a fault."""
        now = time.monotonic()
        occurrence = Occurrence(fault, now)
        if any(o.fault.kind == fault.kind and o.end is None and _same(o.fault, fault)
               for o in self.occurred):  # fmt: skip
            return  # it lasts already
        ways: dict[str, Callable[[Fault], Any]] = {
            "kill daemon": self._signal(signal.SIGKILL),
            "terminate daemon": self._signal(signal.SIGTERM),
            "stop daemon": self._stop_daemon,
            "kill rank": self._kill_rank,
            "stop rank": self._stop_rank,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "slow link": self._slow_link,
            "flip bits": self._flip,
            "source fails": lambda f: self._source(fail_rate=f.amount or 0),
            "source hangs": lambda f: self._source(hang="*"),
            "source is slow": lambda f: self._source(latency=f"{f.amount}s"),
            "source is mounted again": self._mount_again,
            "sample fails": lambda f: self._source(fail=self.origin.name(f.sample)),
            "sample is rewritten": lambda f: self.origin.harm(f.sample, "rewritten"),
            "sample is cut off": lambda f: self.origin.harm(f.sample, "cut off"),
            "sample is removed": lambda f: self.origin.harm(f.sample, "removed"),
            "disk full": self._fill_disk,
            "memory is short": self._take_memory,
        }
        end = ways[fault.kind](fault)
        if end is False:
            return  # there is nothing that it could happen to
        self.occurred.append(occurrence)
        self.counts[fault.kind] += 1
        if "kill" in fault.kind or "terminate" in fault.kind:
            occurrence.end = now
        else:
            due = now + fault.seconds if fault.seconds else float("inf")
            self._ends.append((due, occurrence, end or (lambda: None)))

    def tick(self, now: float) -> None:
        """Ends the faults whose time is over."""
        for due, occurrence, end in list(self._ends):
            if due <= now:
                self._ends.remove((due, occurrence, end))
                end()
                occurrence.end = time.monotonic()

    def remaining(self) -> float:
        """Seconds until the faults that last some time are over."""
        now = time.monotonic()
        return max((due - now for due, _, _ in self._ends if due != float("inf")), default=0.0)

    def wait(self) -> None:
        """Returns when the faults that last some time are over."""
        while (left := self.remaining()) > 0:
            time.sleep(left)
            self.tick(time.monotonic())

    def mend(self) -> None:
        """Ends the faults that last until the ranks start again."""
        if any(due == float("inf") for due, _, _ in self._ends):
            for due, occurrence, end in list(self._ends):
                if due == float("inf"):
                    self._ends.remove((due, occurrence, end))
                    end()
                    occurrence.end = time.monotonic()
            self.origin.mend()

    def end(self) -> None:
        """Ends all faults."""
        self.tick(float("inf"))
        self.origin.mend()

    # The ways. Each returns a function that ends the fault; None if it ends by itself; False if
    # there is nothing that it could happen to.

    def _signal(self, number: int) -> Callable[[Fault], Any]:
        def send(fault: Fault) -> Any:
            daemon = self.machines.daemon(fault.node)
            if not daemon:
                return False
            daemon.signal(signal.SIGCONT)
            daemon.signal(number)
            if number == signal.SIGKILL:
                until(lambda: not daemon.alive(), 10, "the end of a daemon that was killed")
            return None

        return send

    def _stop_daemon(self, fault: Fault) -> Any:
        daemon = self.machines.daemon(fault.node)
        if not daemon:
            return False
        daemon.signal(signal.SIGSTOP)

        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):
                daemon.signal(signal.SIGCONT)

        return go_on

    def _kill_rank(self, fault: Fault) -> Any:
        client = self._rank(fault)
        if not client:
            return False
        os.kill(client.pid, signal.SIGKILL)
        return None

    def _stop_rank(self, fault: Fault) -> Any:
        client = self._rank(fault)
        if not client:
            return False
        os.kill(client.pid, signal.SIGSTOP)

        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGCONT)

        return go_on

    def _rank(self, fault: Fault) -> Any:
        client = self.ranks.get((fault.node, fault.other)) or self.ranks.get((fault.node, 0))
        return client if client and client.process and client.process.poll() is None else None

    def _cut(self, fault: Fault) -> Any:
        self.machines.link(fault.node, "--down")
        return lambda: self.machines.link(fault.node, "--up")

    def _cut_one_way(self, fault: Fault) -> Any:
        if self._diverted(fault):
            return False
        self.machines.divert(fault.node, fault.other)
        return lambda: self.machines.reach(fault.node, fault.other)

    def _slow_link(self, fault: Fault) -> Any:
        self.machines.link(fault.node, "--rate", f"{fault.amount / 1e6:g}mbit")
        return lambda: self.machines.link(fault.node, "--rate", "unlimited")

    def _flip(self, fault: Fault) -> Any:
        if self._diverted(fault):
            return False
        seed = fault.at * 1000 + fault.node * 10 + fault.other
        process = self.machines.flip(fault.node, fault.other, fault.amount, seed)

        def straight() -> None:
            self.counts["bits flipped"] += self.machines.straight(fault.node, fault.other, process)

        return straight

    def _diverted(self, fault: Fault) -> bool:
        return any(
            o.end is None
            and o.fault.kind in ("cut one way", "flip bits")
            and (o.fault.node, o.fault.other) == (fault.node, fault.other)
            for o in self.occurred
        )

    def _source(self, **settings: object) -> Any:
        """Changes settings of the source; the last fault with a setting resets it."""
        names = {"fail_rate": 0, "hang": "", "latency": "0s", "fail": ""}
        self.origin.set(**settings)
        self._lasting.update(settings.keys())

        def reset() -> None:
            self._lasting.subtract(settings.keys())
            self.origin.set(**{k: names[k] for k in settings if not self._lasting[k]})

        return reset

    def _mount_again(self, fault: Fault) -> Any:
        self.origin.stop()
        return self.origin.again

    def _fill_disk(self, fault: Fault) -> Any:
        disk = self.machines.disk(fault.node)
        if not disk.exists():
            return False
        filler = disk / "filler"
        with open(filler, "wb") as file, contextlib.suppress(OSError):
            while True:
                os.write(file.fileno(), b"x" * 65536)
        return lambda: filler.unlink()

    def _take_memory(self, fault: Fault) -> Any:
        process = self.machines.hog(fault.node)
        if not process:
            return False

        def give_back(process: subprocess.Popen[bytes] = process) -> None:
            process.kill()
            process.wait()

        return give_back


def _same(a: Fault, b: Fault) -> bool:
    if a.kind.startswith("source"):
        return True
    if a.kind.startswith("sample"):
        return a.kind == "sample fails" or a.sample == b.sample
    return a.node == b.node
