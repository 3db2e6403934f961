"""Combines faults at random on several nodes, and judges what ranks are given: python -m soak.

As root, on Linux: it runs in namespaces of its own, which end with it.

EXIT STATUS
  0    nothing was found
  1    something was: see what it says of the round, and build/soak
  2    the command line is wrong, or this machine cannot run it
  130  interrupted, and nothing found
"""

from __future__ import annotations

import signal

# The imports take seconds, in which Ctrl-C is not to print a traceback.
if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import math
import os
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Callable

TREE = Path(__file__).resolve().parents[2]
sys.path += [str(TREE / "bench" / "faults")]

import namespaces
from harness import Harness, Product
from verdicts import Fault, Verdict

from soak import enclosure, group_rounds, groups, origin, schedule
from soak.launch import Crew, Player
from soak.nemesis import Nemesis
from soak.nodes import Machines
from soak.report import account, again, over, write
from soak.resources import Book, Surroundings
from soak.verdict import GOT


def minutes(text: str) -> float:
    """A time that ends."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text}; allowed are numbers above 0")
    return value


def at_least(least: int) -> Callable[[str], int]:
    """What reads a number that may not be smaller."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}; allowed are numbers of at least {least}")
        return value

    return number


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=minutes, help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="of the schedule (default: a new one)")
    parser.add_argument("--round", type=at_least(0), default=0, help="the first round (default: 0)")
    parser.add_argument("--rounds", type=at_least(1), help="how many rounds at most")
    parser.add_argument(
        "--groups", action="store_true", help="only jobs that share what they prepare, on one node"
    )
    parser.add_argument("--show", action="store_true", help="print the schedule, and run nothing")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.minutes is None and options.rounds is None:
        parser.error("give --minutes or --rounds")
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    return options


def show(options: argparse.Namespace) -> None:
    """Prints the schedule of some rounds."""
    for number in range(options.round, options.round + (options.rounds or schedule.ROUNDS)):
        if options.groups:
            print(group_rounds.season(options.seed, number // group_rounds.ROUNDS))
            print(group_rounds.round_of(options.seed, number))
            continue
        print(schedule.season(options.seed, schedule.season_of(number)))
        print(schedule.round_of(options.seed, number))


class Soak:
    """Plays rounds, season by season, until the time is over.

    Attributes:
        faults: how many there were, by kind.
        outcomes: of rounds.
        batches: how many were judged.
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.faults: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.findings = self.batches = 0
        self.started = time.monotonic()

    def run(self) -> int:
        """Plays, prints the summary, and returns the exit status."""

        def interrupted(*_: object) -> None:
            # At once: all that was started ends with this process's namespaces.
            os._exit(self.summary() or 130)

        enclosure.listen(interrupted, signal.SIGINT)
        number = self.options.round
        while not self.over(number):
            number = self.season(number)
        return self.summary()

    def summary(self) -> int:
        """Prints what there was and what was found, and returns the exit status."""
        minutes = (time.monotonic() - self.started) / 60
        rounds = sum(self.outcomes.values())
        print(f"\n{rounds} rounds in {minutes:.1f} minutes, seed {self.options.seed}: "
              + account(self.outcomes))  # fmt: skip
        count = sum(n for what, n in self.faults.items() if what in schedule.KINDS)
        print(f"{count} faults: {account(self.faults)}")
        print(f"{self.batches} batches, {self.findings} findings", flush=True)
        return 1 if self.findings else 0

    def over(self, number: int) -> bool:
        """Reports whether no round is to begin any more."""
        return over(self.options, number, time.monotonic() - self.started)

    def season(self, number: int) -> int:
        """Plays the rounds of a season, from this one on. Returns the number of the next round."""
        of = schedule.season(self.options.seed, schedule.season_of(number))
        folder = self.folder / f"season{of.number}"
        folder.mkdir()
        product = Product(TREE / "python", Path(namespaces.BINARY), sys.executable, origin.BINARY)
        fault = Fault("soak", "", lambda h: None, None, None, 0, True, "soak")
        token = f"{self.folder.name}-{of.number}"
        harness = Harness(product, folder, token, fault, lambda text: None)
        os.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
        (folder / "run" / "hdmlp-dev").mkdir(mode=0o700)  # which `hdmlp dev cluster` keeps
        kept = [folder / name for name in ("run", "t", "home", "state", "config")]
        around = Surroundings(*kept)
        print(f"season {of.number}: {of.nodes} nodes, {of.samples} samples of {of.size} bytes, "
              f"disk {of.disk}, source {of.bandwidth} B/s, {of.keys}", flush=True)  # fmt: skip
        harness.dataset("real", classes=1, per_class=of.samples, size=of.size)
        source = origin.Origin(folder / "real", folder / "train", of.bandwidth)
        with source, Machines(folder, of.nodes, of.disk, token) as machines:
            nemesis, book = Nemesis(machines, source, self.faults), Book(machines)
            player = Player(harness, nemesis, of)
            while schedule.season_of(number) == of.number and not self.over(number):
                sound = self.round(number, player, harness, nemesis, book)
                number += 1
                if not sound:  # what it left behind would harm the others
                    number = (of.number + 1) * schedule.ROUNDS
                    break
            self.say(
                number - 1,
                []
                if not machines.kills()
                else [f"the kernel killed {machines.kills()} processes for lack of memory"],
            )
            try:
                machines.end_daemons()
            except Verdict as e:
                self.say(number - 1, [f"HANG: {e.message}"])
        for line in book.lines():
            print(f"  {line}", flush=True)
        harness.listener.close()
        self.say(number - 1, around.left())
        return number

    def round(
        self, number: int, player: Player, harness: Harness, nemesis: Nemesis, book: Book
    ) -> bool:
        """Plays a round, and prints what came of it. Reports whether nothing was found."""
        the = schedule.round_of(self.options.seed, number)
        if the.renewed:
            nemesis.origin.renew(the.renewed, the.seed)
        begun = time.monotonic()
        logs: list[str] = []

        def save(crew: Crew) -> None:
            logs.extend(crew.evidence())

        result = player.play(the, nemesis.origin.listing, save)
        result.findings += book.rest()
        outcome = "WRONG" if result.findings else "explained" if result.errors else "whole"
        self.outcomes[outcome] += 1
        launches = len(result.launches)
        self.batches += sum(e.kind == GOT for launch in result.launches for e in launch.events)
        print(
            f"round {number}: {outcome}, {time.monotonic() - begun:.1f} s, "
            f"{launches} launch{'es' * (launches > 1)}, "
            f"{f'dataset {the.renewed}, ' if the.renewed else ''}"
            f"{'; '.join(str(o.fault) for o in nemesis.occurred) or 'no fault'}"
            + "".join(f"\n    {error[:160]}" for error in sorted(set(result.errors))),
            flush=True,
        )
        if result.findings:
            self.say(number, result.findings)
            path = write(self.options.seed, the, nemesis.occurred, result, logs)
            print(f"  the history and logs: {path}", flush=True)
        return not result.findings

    def say(self, number: int, findings: list[str]) -> None:
        """Prints findings, and how to see them again."""
        self.findings += len(findings)
        for finding in findings:
            print(f"  FOUND: {finding[:600]}")
        if findings:
            print(f"  again: {again(self.options.seed, number)}", flush=True)


def main() -> int:
    """Runs the program."""
    options = arguments()
    if options.inside:
        kind = groups.Soak if options.groups else Soak
        return enclosure.inside(options.inside, lambda folder: kind(folder, options).run())
    if options.show:
        show(options)
        return 0
    missing = [path for path in (Path(namespaces.BINARY), origin.BINARY) if not path.exists()]
    if os.geteuid() or missing:
        why = f"{missing[0]} is missing: run `make build throttle`" if missing else "needs root"
        print(f"soak: {why}", file=sys.stderr)
        return 2
    print(f"seed {options.seed}", flush=True)
    given = {k: v for k, v in vars(options).items() if k not in ("show", "inside", "groups")}
    return enclosure.outside(
        [f"--{k}={v}" for k, v in given.items() if v is not None] + ["--groups"] * options.groups
    )


if __name__ == "__main__":
    sys.exit(main())
