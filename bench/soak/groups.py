"""Plays rounds in which jobs share what they prepare, and judges what each is given: what a job
that shares with no other gets, whatever happens to the others."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import time
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy
from machine import until
from PIL import Image
from verdicts import Verdict

from soak import enclosure, group_rounds, member
from soak.group_rounds import START_TIMEOUT, Blow, Member, Round, Season
from soak.report import FOLDER, account, again, over

#: Seconds in which a member that is not stopped prints something, on a busy machine.
PATIENCE = 40.0

FORKS = multiprocessing.get_context("forkserver")

SOCKET = "hdmlp-soak-groups"


def images(folder: Path, count: int, seed: int) -> str:
    """Fills a folder with JPEGs of different sizes, in two classes."""
    r = numpy.random.default_rng(seed)
    for i in range(count):
        (folder / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = r.integers(0, 256, (*r.integers(4, 9, 2), 3), numpy.uint8)
        Image.fromarray(pixels).resize(r.integers(30, 90, 2).tolist(), Image.BILINEAR).save(
            folder / f"class{i % 2}" / f"{i:04d}.jpg", quality=90
        )
    return str(folder)


def daemon() -> int:
    """The process that answers on the socket; 0: none does."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect("\0" + SOCKET)
        except OSError:
            return 0
        size = struct.calcsize("iII")
        return struct.unpack(
            "iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )[0]


def goroutines() -> list[str]:
    """Ends the daemon; returns its log with what its goroutines did, as lines."""
    pid = daemon()
    if not pid:
        return ["no daemon answers"]
    with open(f"/proc/{pid}/fd/2", encoding="utf-8", errors="replace") as log:
        os.kill(pid, signal.SIGQUIT)
        with contextlib.suppress(Verdict):
            until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the daemon's end")
        return log.read().splitlines()


class Job:
    """A member's process, and what it has said.

    Attributes:
        said: all of it, with the time.
        over: it has ended, or was killed.
        heard: when it said something last.
    """

    def __init__(self, number: int, the: Member, folder: str, options: dict[str, Any]) -> None:
        self.number, self.the = number, the
        self.said: list[tuple[float, list[Any]]] = []
        self.over = self.killed = False
        self.heard = time.monotonic()
        self.pipe, theirs = FORKS.Pipe()
        self.process = FORKS.Process(target=member.run, args=(theirs, folder, the, options))
        self.process.start()
        theirs.close()

    def hear(self) -> bool:
        """Takes what it prints next. Reports whether that is a batch."""
        self.heard = time.monotonic()
        try:
            what = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.over = True
            self.process.join()
            return False
        self.said.append((self.heard, what))
        return what[0] == "got"

    def end(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Player:
    """Plays the rounds of a season.

    Args:
        folder: where the dataset is to be made.
        counts: of blows by kind, and of what members were given.
    """

    def __init__(self, folder: Path, of: Season, counts: Counter[str]) -> None:
        self._of, self._counts = of, counts
        self._folder = images(folder, of.samples, of.number)
        pipe, theirs = FORKS.Pipe()
        alone = FORKS.Process(target=member.reference, args=(theirs, self._folder, of.loader))
        alone.start()
        theirs.close()
        self._reference: list[list[str]] = pipe.recv()
        alone.join()
        self._jobs: list[Job] = []
        self._stopped: list[tuple[float, int]] = []  # until when, which process
        self._blows: list[tuple[float, Blow]] = []

    def play(self, the: Round) -> tuple[list[str], list[str]]:
        """Plays a round. Returns what was wrong, and what happened, as lines."""
        options = {
            **self._of.loader,
            "share": f"round{the.number}",
            "share_members": the.announced,
            "start_timeout": f"{START_TIMEOUT}s",
        }
        waiting, blows = sorted(enumerate(the.members), key=lambda m: m[1].after), list(the.blows)
        self._jobs, self._blows = [], []
        taken, begun = 0, time.monotonic()
        findings, stacks = [], []
        try:
            while True:
                running = [job for job in self._jobs if not job.over]
                while waiting and (waiting[0][1].after <= taken or not running):
                    self._jobs.append(Job(*waiting.pop(0), self._folder, options))
                    running.append(self._jobs[-1])
                if not running:
                    break
                while blows and blows[0].after <= taken:
                    self._begin(blows.pop(0))
                self._tick()
                pipes: dict[Connection, Job] = {job.pipe: job for job in running}
                for pipe in wait(list(pipes), 0.05):
                    taken += pipes[pipe].hear()
                if silent := self._silent(running):
                    findings += [f"HANG: member {job.number} says nothing" for job in silent]
                    stacks = goroutines()
                    break
            self._tick(float("inf"))
            for job in self._jobs:
                findings += self._judge(job)
            if not findings:
                findings += left()
        finally:
            self._tick(float("inf"))
            for job in self._jobs:
                job.end()
        return findings, self._history(begun) + stacks

    def _begin(self, blow: Blow) -> None:
        """Carries out a blow, on those that there are."""
        self._counts[blow.kind] += 1
        self._blows.append((time.monotonic(), blow))
        sent = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}
        number = sent[blow.kind.split()[0]]
        if "daemon" in blow.kind:
            targets = [pid for pid in [daemon()] if pid]
        else:
            jobs = [job for job in self._jobs if job.number in blow.members and not job.over]
            targets = [job.process.pid for job in jobs if job.process.pid]
            for job in jobs if number == signal.SIGKILL else []:
                job.killed = True
        for pid in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if number == signal.SIGSTOP:
                self._stopped.append((time.monotonic() + blow.seconds, pid))

    def _tick(self, now: float = 0.0) -> None:
        """Lets those go on whose time is over."""
        now = now or time.monotonic()
        for until_, pid in [stop for stop in self._stopped if stop[0] <= now]:
            self._stopped.remove((until_, pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _silent(self, running: list[Job]) -> list[Job]:
        """Those that have said nothing for too long, while no process was stopped."""
        now = time.monotonic()
        if self._stopped:
            for job in running:
                job.heard = now
        return [job for job in running if now - job.heard > PATIENCE]

    def _judge(self, job: Job) -> list[str]:
        """What is wrong with what a member was given."""
        found, due = [], iter(self._due(job.the))
        for at, what in job.said:
            if what[0] == "got" and what[1:] != next(due, None):
                found.append(f"WRONG BATCH: epoch {what[1]}, step {what[2]}")
            elif what[0] == "wrong":
                found.append(f"WRONG: {what[1]}")
            elif what[0] == "died" and not any(
                "daemon" in blow.kind and began <= at for began, blow in self._blows
            ):
                found.append("a daemon died by itself")
        got = [what for _, what in job.said if what[0] == "got"]
        self._counts["batches"] += len(got)
        self._counts["samples"] += sum(len(what[3]) for what in got)
        self._counts["samples prepared for one member"] += sum(
            what[1] for _, what in job.said if what[0] == "end"
        )
        ended = bool(job.said) and job.said[-1][1][0] == "end"
        if not ended and not job.killed:
            found.append(f"its process ended with {job.process.exitcode}")
        if ended and next(due, None) is not None:
            found.append("it had fewer batches than are due")
        return [f"{line}: member {job.number}, {job.the}" for line in found]

    def _due(self, the: Member) -> list[list[Any]]:
        """The batches that are due to a member: epoch, step, samples."""
        whole = group_rounds.steps(self._of, the.batch)
        return [
            [epoch, step, self._reference[epoch][step * the.batch : (step + 1) * the.batch]]
            for epoch, most in the.passes
            for step in range(min(most, whole) if most else whole)
        ]

    def _history(self, begun: float) -> list[str]:
        """What happened, by time."""
        lines = [(at, f"{blow}") for at, blow in self._blows]
        for job in self._jobs:
            lines += [(at, f"member {job.number}: {what[:3]}") for at, what in job.said]
        return [f"{at - begun:8.2f} {line}" for at, line in sorted(lines)]


def left() -> list[str]:
    """The daemon's jobs that have not ended, although no member is left."""
    jobs: list[str] = []

    def none() -> bool:
        asked = subprocess.run(
            [str(Path(member.ht.__file__).parents[1] / "bin" / "hdmlp"), "stats", "--json"],
            capture_output=True,
            text=True,
        )
        answer = {} if asked.returncode else json.loads(asked.stdout)
        jobs[:] = [job["job"] for job in answer.get("jobs") or []]
        return not jobs

    with contextlib.suppress(Verdict):
        until(none, 10, "the end of all jobs")
    return [f"left behind: job {name}" for name in jobs]


class Soak:
    """Plays rounds, season by season, until the time is over."""

    def __init__(self, folder: Path, options: Any) -> None:
        self._folder, self._options = folder, options
        self._counts: Counter[str] = Counter()
        self._started = time.monotonic()
        self._rounds = self._found = 0

    def run(self) -> int:
        """Plays, prints the summary, and returns the exit status."""

        def interrupted(*_: object) -> None:
            # At once: all that was started ends with this process's namespaces.
            os._exit(self.summary() or 130)

        enclosure.listen(interrupted, signal.SIGINT)
        FORKS.set_forkserver_preload(["soak.member"])
        run = self._folder / "run"
        run.mkdir(mode=0o700)
        os.environ |= {
            "XDG_RUNTIME_DIR": str(run),
            "HDMLP_SOCKET": SOCKET,
            "HDMLP_MEMORY": "16MiB",
            "HDMLP_LINGER": "1h",
            "OMP_NUM_THREADS": "1",
        }
        number, player = self._options.round, None
        while not over(self._options, number, time.monotonic() - self._started):
            if player is None or number % group_rounds.ROUNDS == 0:
                of = group_rounds.season(self._options.seed, number // group_rounds.ROUNDS)
                print(of, flush=True)
                player = Player(self._folder / f"images{of.number}", of, self._counts)
            self._found += self._round(number, player)
            self._rounds += 1
            number += 1
        return self.summary()

    def summary(self) -> int:
        """Prints what there was and what was found, and returns the exit status."""
        print(f"\n{self._rounds} rounds, seed {self._options.seed}: "
              f"{account(self._counts)}; {self._found} findings", flush=True)  # fmt: skip
        return 1 if self._found else 0

    def _round(self, number: int, player: Player) -> int:
        """Plays a round, and prints what came of it. Returns the number of findings."""
        the = group_rounds.round_of(self._options.seed, number)
        begun = time.monotonic()
        findings, history = player.play(the)
        print(f"round {number}: {'WRONG' if findings else 'whole'}, "
              f"{time.monotonic() - begun:.1f} s, {len(the.members)} members, "
              f"{', '.join(f'{b.kind} after {b.after}' for b in the.blows) or 'no blow'}",
              flush=True)  # fmt: skip
        for finding in findings:
            print(f"  FOUND: {finding[:600]}")
        if findings:
            command = again(self._options.seed, number, groups=True)
            FOLDER.mkdir(parents=True, exist_ok=True)
            path = FOLDER / f"groups-seed-{self._options.seed}-round-{number}.txt"
            path.write_text("\n".join([command, repr(the), *findings, *history]) + "\n")
            print(f"  again: {command}\n  the history: {path}", flush=True)
        return len(findings)
