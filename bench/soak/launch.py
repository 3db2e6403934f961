"""Plays a round: ranks that train in step, and after failures start again from their last state."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import signal
import time
from pathlib import Path
from typing import Any, Callable

from handles import Client
from harness import Harness
from machine import until
from oracle import Listing
from verdicts import Told, Verdict

from soak.nemesis import Nemesis
from soak.schedule import GLOBAL_BATCH, SOURCE_TIMEOUT, START_TIMEOUT, Round, Season
from soak.verdict import DIED, ENDED, FAILED, GOT, REFUSED, SILENT, Event, Judge, Launch

#: Seconds that an answer may take, besides what faults last: a request to another node 10 s, a read
#: from the source source_timeout, before and after it is mounted again, and the machine is busy.
PATIENCE = 30 + 2 * SOURCE_TIMEOUT

#: Seconds in which an error reaches all ranks.
NEWS = 2.0

#: Steps that ranks without an error take after others have failed.
FURTHER = 3

#: Launches of a round at most; more than there are faults.
LAUNCHES = 16
#: After so many, the next ones wait until the faults have ended: while the source is away, each is
#: refused within a second.
HASTY = 8


@dataclasses.dataclass
class Result:
    """What came of a round.

    Attributes:
        findings: what is wrong; empty: nothing.
        errors: errors that faults explain, as lines.
        launches: what ranks observed.
    """

    findings: list[str] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)
    launches: list[Launch] = dataclasses.field(default_factory=list)


class Crew:
    """The ranks of one launch.

    Attributes:
        states: by step, a state from which the ranks can continue with that step.
    """

    def __init__(self, harness: Harness, nemesis: Nemesis, launch: Launch) -> None:
        self._harness, self._nemesis, self.launch = harness, nemesis, launch
        self.clients: list[Client] = []
        self.nodes: list[int] = []
        self.states: dict[int, Any] = {}

    def start(self, nodes: int, ranks: int, number: int, disks: bool) -> None:
        """Starts the processes; ``number`` is that of the launch, over all rounds."""
        machines = self._nemesis.machines
        for rank in range(nodes * ranks):
            node, local = divmod(rank, ranks)
            env = {
                **machines.environment(node),
                "RANK": str(rank),
                "WORLD_SIZE": str(nodes * ranks),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(ranks),
                "GROUP_WORLD_SIZE": str(nodes),
                "TORCHELASTIC_RESTART_COUNT": str(number),
                "HDMLP_LINGER": "1h",
                "PYTHONFAULTHANDLER": "1",
            }
            if disks:
                env["HDMLP_CACHE_DIR"] = str(machines.disk(node) / "cache")
            client = self._harness.client(
                wrap=machines.command(node), env=dict(env), cgroup=machines.group(node)
            )
            self.clients.append(client)
            self.nodes.append(node)
            self._nemesis.ranks[node, local] = client

    def ask(
        self,
        step: int,
        what: str,
        ranks: list[int] | None = None,
        failed: str = FAILED,
        patience: float = PATIENCE,
        **arguments: Any,
    ) -> dict[int, Any]:
        """Has ranks do something at the same time. Returns the answers of those that could; what
        befell the others is recorded."""
        pending = {}
        for rank in range(len(self.clients)) if ranks is None else ranks:
            self.clients[rank].send(what, **arguments)
            pending[self.clients[rank].connection] = rank
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + patience + self._nemesis.remaining()
        while pending:
            now = time.monotonic()
            self._nemesis.tick(now)
            if now > deadline:
                for rank in pending.values():
                    self._record(SILENT, rank, step, text=f"{what!r} did not return")
                break
            for connection in select.select(list(pending), [], [], 0.05)[0]:
                rank = pending[connection]
                client = self.clients[rank]
                try:
                    part = connection.recv(1 << 20)
                except ConnectionResetError:
                    part = b""
                client.buffer += part
                if part and b"\n" not in client.buffer:
                    continue
                del pending[connection]
                if not part:
                    text = self._harness.stderr(client)[-400:]
                    self._record(DIED, rank, step, text=f"during {what!r}: {text}")
                    continue
                try:
                    answers[rank] = client.answer(1)
                except Told as e:
                    self._record(failed, rank, step, error=e)
        return answers

    def _record(
        self, kind: str, rank: int, step: int, error: Told | None = None, text: str = ""
    ) -> None:
        event = Event(kind, rank, self.nodes[rank], time.monotonic(), step, text=text)
        if error:
            event = dataclasses.replace(
                event, error=error.name, ours=error.ours, text=error.message
            )
        self.launch.events.append(event)

    def open(self, path: Path, state: Any, **keys: Any) -> bool:
        """Opens the job, and goes to where the state is. Reports whether all ranks did."""
        everyone = len(self.clients)
        opening = PATIENCE + START_TIMEOUT
        opened = self.ask(self.launch.first, "open", None, REFUSED, opening, path=str(path), **keys)
        return len(opened) == everyone and self.load(state)

    def load(self, state: Any) -> bool:
        """Goes to where the state is; None: the beginning. Reports whether all ranks did."""
        first, everyone = self.launch.first, len(self.clients)
        if state is None:
            return len(self.ask(first, "iter", epoch=0)) == everyone
        loaded = self.ask(first, "load", None, REFUSED, state=state)
        return len(loaded) == everyone and len(self.ask(first, "iter")) == everyone

    def train(self, steps: int, total: int, before: Callable[[int], None]) -> bool:
        """Takes the batches of all steps. Reports whether all ranks got all of them."""
        everyone = list(range(len(self.clients)))
        for step in range(self.launch.first, total):
            before(step)
            if step % steps == 0 and step > self.launch.first and not self._next_epoch(step):
                return False
            got = self._step(step, everyone)
            if got != everyone:
                self._aftermath(step, steps, got)
                return False
            states = self.ask(step + 1, "state")
            if len(states) < len(everyone):
                return False
            self.states[step + 1] = states[0]
        return self._ends(total) == everyone

    def _step(self, step: int, ranks: list[int]) -> list[int]:
        """Takes one batch. Returns the ranks that got it."""
        answers = self.ask(step, "next", ranks, n=1)
        for rank, batches in answers.items():
            self._record(GOT if batches else ENDED, rank, step)
            if batches:
                self.launch.events[-1] = dataclasses.replace(
                    self.launch.events[-1], batch=batches[0]
                )
        return sorted(rank for rank, batches in answers.items() if batches)

    def _ends(self, step: int) -> list[int]:
        """Asks for a batch after an epoch's last one. Returns the ranks to which it has ended."""
        answers = self.ask(step, "next", n=1)
        for rank, batches in answers.items():
            self._record(GOT if batches else ENDED, rank, step)
        return sorted(rank for rank, batches in answers.items() if not batches)

    def _next_epoch(self, step: int) -> bool:
        everyone = len(self.clients)
        return len(self._ends(step)) == everyone and len(self.ask(step, "iter")) == everyone

    def _aftermath(self, step: int, steps: int, got: list[int]) -> None:
        """Ranks that got the batch that others did not get go on, or get the error."""
        if not got:
            return
        end = time.monotonic() + NEWS
        while (now := time.monotonic()) < end:
            self._nemesis.tick(now)
            time.sleep(0.05)
        for further in range(step + 1, step + 1 + FURTHER):
            if further % steps == 0 or not got:
                return
            got = self._step(further, got)

    def healthy(self) -> bool:
        """Reports whether all ranks have failed, and none has ended or is silent."""
        ends = {e.rank: e.kind for e in self.launch.events if e.kind != GOT}
        return len(ends) == len(self.clients) and set(ends.values()) == {FAILED}

    def evidence(self) -> list[str]:
        """Logs of the daemons, and what the processes have written. Ends processes that are silent,
        and daemons if one is, so that they say where they are."""
        machines, found = self._nemesis.machines, []
        self._nemesis.end()  # what is stopped prints nothing
        silent = {e.rank for e in self.launch.events if e.kind == SILENT}
        for rank, client in enumerate(self.clients):
            if rank in silent and client.process and client.process.poll() is None:
                client.process.send_signal(signal.SIGABRT)
                client.process.wait()
            found += [f"--- rank {rank}", self._harness.stderr(client)]
        for node in range(machines.count):
            if daemon := machines.daemon(node):
                with open(f"/proc/{daemon.pid}/fd/2", "rb") as log:
                    if silent:
                        daemon.signal(signal.SIGQUIT)
                        until(lambda daemon=daemon: not daemon.alive(), 10, "the daemon's end")
                    log.seek(0)
                    found += [f"--- daemon of node {node}", log.read().decode(errors="replace")]
        return found

    def end(self, hard: bool) -> None:
        """Ends the processes."""
        for client in self.clients:
            process = client.process
            assert process
            if not hard:
                client.send("exit")
                with contextlib.suppress(Verdict):
                    client.wait(10)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            client.connection.close()
        self._harness.clients.clear()
        self._nemesis.ranks.clear()


class Player:
    """Plays the rounds of a season."""

    def __init__(self, harness: Harness, nemesis: Nemesis, season: Season) -> None:
        self._harness, self._nemesis, self._season = harness, nemesis, season
        self._launches = 0

    def play(self, the: Round, listing: Listing, save: Callable[[Crew], None]) -> Result:
        """Plays a round. ``save`` is called when something is wrong, while the ranks are there."""
        judge = Judge(listing, the.seed, the.epochs, the.drop_last)
        nemesis, result = self._nemesis, Result()
        nemesis.occurred.clear()
        waiting = list(the.faults)
        state: Any = None
        crew: Crew | None = None

        def before(step: int) -> None:
            while waiting and waiting[0].at <= step:
                nemesis.begin(waiting.pop(0))

        def judged(crew: Crew, last: bool) -> bool:
            result.launches.append(crew.launch)
            found = judge.judge(crew.launch, nemesis.occurred, last)
            result.findings += found
            result.errors += [
                f"{e.error}: {e.text}" for e in crew.launch.events if e.kind in (FAILED, REFUSED)
            ]
            if found:
                save(crew)
            return not found

        first = 0
        try:
            for number in range(LAUNCHES):
                nodes, ranks = the.launches[number % len(the.launches)]
                world = nodes * ranks
                total = len(judge.stream(0, world))
                steps = total // the.epochs
                before(-1)
                self._launches += 1
                crew = Crew(self._harness, nemesis, Launch(world, first, time.monotonic()))
                crew.start(nodes, ranks, self._launches, bool(self._season.disk))
                keys = {
                    **self._season.keys,
                    "seed": the.seed,
                    "batch": GLOBAL_BATCH // world,
                    "epochs": the.epochs,
                    "drop_last": the.drop_last,
                }
                whole = crew.open(nemesis.origin.mount, state, **keys)
                whole = whole and crew.train(steps, total, before)
                while not whole and the.again and crew.healthy() and judged(crew, False):
                    first, state = last_state(crew, first, state)
                    if first == total:
                        return result
                    nemesis.mend()
                    crew.launch, crew.states = Launch(world, first, time.monotonic()), {}
                    whole = crew.load(state) and crew.train(steps, total, before)
                if not judged(crew, whole) or whole:
                    return result
                first, state = last_state(crew, first, state)
                if first == total:  # what failed came after the last batch: nothing is left to do
                    return result
                crew.end(the.hard)
                crew = None
                if the.wait or number >= HASTY:
                    nemesis.wait()
                nemesis.mend()
            result.findings.append(f"the ranks did not come to the end in {LAUNCHES} launches")
        finally:
            nemesis.end()
            if crew:
                crew.end(the.hard)
        return result


def last_state(crew: Crew, first: int, state: Any) -> tuple[int, Any]:
    """The step and the state after the last step that all ranks have completed."""
    return max(crew.states.items(), default=(first, state))
