"""A rank of nodes.Nodes: trains, and prints what it received as a line of JSON.

    rank_of_nodes.py FOLDER OPTIONS

OPTIONS is a JSON object with arguments of the loader, fields of Options below, and "of_node":
options that differ on a node, by its number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import socket
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import hdmlp.data as data
from hdmlp import errors
from hdmlp._daemon import connecting
from waiting import barrier, until, until_exists


@dataclasses.dataclass
class Options:
    """What a test asks of a rank, beside the loader's arguments.

    Before the loader is opened:
        environment: variables to set.
        secret: the job's secret.
        version: of this package, instead of its own: that of the binary in HDMLP_BINARY.
        folder: the dataset, instead of FOLDER.
        occupy: a port of this node on which another socket listens.
        mortal: the rank may be killed (with until): it is a child process, and its parent stays.
        together: a directory and the number of ranks; all open the loader once all of their daemons
            run.
        absent: the rank does not open the loader, and stays until ``until``.

    While it trains:
        epochs: of the job.
        run: epochs to train for; default: all.
        pause: seconds that a step takes.
        tamper: an epoch in which the audit of one batch is wrong.
        gates: a directory; after epoch N the rank reports, and waits for the file N there.
        lockstep: a directory and the number of ranks; each step waits for all ranks, as in an
            allreduce.
        hold: a step and a file; after that step (with lockstep), and before it releases the others
            when it has failed, the rank waits for the file.
        again: a file; after a SampleError the rank reports, waits for it, and starts over.

    Afterwards:
        until: a file; the rank keeps its loader open until it exists.
        stay: a file; the rank stays connected to the daemon, its loader closed, until it exists.
    """

    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    secret: str | None = None
    version: str | None = None
    folder: str | None = None
    occupy: int | None = None
    mortal: bool = False
    together: tuple[str, int] | None = None
    absent: bool = False
    epochs: int = 3
    run: int | None = None
    pause: float = 0.0
    tamper: int | None = None
    gates: str | None = None
    lockstep: tuple[str, int] | None = None
    hold: tuple[int, str | None] = (0, None)
    again: str | None = None
    until: str | None = None
    stay: str | None = None


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def tiers(loader: data.DataLoader) -> dict[str, int]:
    """The number of samples that the node has read so far, by where from."""
    return {tier["tier"]: tier["samples"] for tier in loader.report()["tiers"]}


class Lockstep:
    """Steps that all ranks take together, as in an allreduce: a rank leaves a step when all have
    reached it, or when one has left for good.

    Args:
        directory: Which the ranks share; it gets a file per step and rank.
        ranks: Their number.
        rank: This one.

    Attributes:
        steps: The number of steps that this rank has taken.
    """

    def __init__(self, directory: str, ranks: int, rank: int):
        self.directory, self.ranks, self.rank = directory, ranks, rank
        self.steps, self.attempt = 0, 0

    def step(self) -> None:
        self.steps += 1
        self._put(f"{self.steps}")
        until(
            lambda: (
                all(self._has(f"{self.steps}", rank) for rank in range(self.ranks))
                or any(self._has("left", rank) for rank in range(self.ranks))
            ),
            seconds=None,
        )

    def leave(self) -> None:
        """Releases the other ranks; the next step is the first one of another attempt."""
        self._put("left")
        self.steps, self.attempt = 0, self.attempt + 1

    def _put(self, what: str) -> None:
        open(self._path(what, self.rank), "w").close()

    def _has(self, what: str, rank: int) -> bool:
        return os.path.exists(self._path(what, rank))

    def _path(self, what: str, rank: int) -> str:
        return os.path.join(self.directory, f"{self.attempt}-{what}-{rank}")


def train(loader: data.DataLoader, options: Options, rank: int, epochs: list[str]) -> None:
    """Trains, and appends to epochs the digest of what each delivered."""
    lockstep = Lockstep(*options.lockstep, rank) if options.lockstep else None
    start = loader.state_dict()
    total = options.run or options.epochs
    while len(epochs) < total:
        epoch = len(epochs)
        try:
            epochs.append(train_epoch(loader, options, lockstep, epoch))
        except errors.SampleError as error:
            if options.again is None or lockstep is None:
                raise
            say(caught=rank, error=str(error), details=error.details, steps=lockstep.steps)
            if options.hold[1] is not None:
                until_exists(options.hold[1])
            lockstep.leave()
            until_exists(options.again)
            options.again = None
            epochs.clear()
            loader.load_state_dict(start)
            continue
        if options.gates is not None:
            say(at=rank, epoch=epoch, tiers=tiers(loader))
            if epoch + 1 < total:
                until_exists(os.path.join(options.gates, str(epoch)))


def train_epoch(
    loader: data.DataLoader, options: Options, lockstep: Lockstep | None, epoch: int
) -> str:
    """Trains for an epoch, and returns the digest of its samples and labels."""
    digest = hashlib.sha256()
    batches = iter(loader)
    for samples, labels in batches:
        for sample in samples:
            digest.update(sample)
        digest.update(bytes(labels.tolist()))
        if options.tamper == epoch:
            batches.audit, options.tamper = batches.audit ^ 1, None
        time.sleep(options.pause)
        if lockstep is not None:
            lockstep.step()
            step, file = options.hold
            if file is not None and lockstep.steps == step:
                until_exists(file)
    return digest.hexdigest()


def main() -> None:
    logging.basicConfig()
    folder, given = sys.argv[1], json.loads(sys.argv[2])
    rank, node = int(os.environ["RANK"]), os.environ.get("GROUP_RANK")
    given.update(given.pop("of_node", {}).get(node, {}))
    names = {field.name for field in dataclasses.fields(Options)}
    options = Options(**{key: value for key, value in given.items() if key in names})
    arguments = {key: value for key, value in given.items() if key not in names}
    if options.mortal:
        child = os.fork()
        if child != 0:
            os.waitpid(child, 0)
            until_exists(options.until)
            return
    os.environ.update(options.environment)
    if options.secret is not None:
        os.environ["HDMLP_SECRET"] = options.secret
    if options.version is not None:
        connecting.__version__ = options.version
    if options.occupy is not None:
        occupant = socket.socket()
        occupant.bind(("", options.occupy))
        occupant.listen()
    _connection = connecting.connect() if options.stay or options.together else None
    if options.together is not None:
        directory, ranks = options.together
        barrier(directory, "daemon", f"{rank}-{node}", ranks)
    if options.absent:
        until_exists(options.until)
        return
    said = {"rank": rank, "node": node, "epochs": []}
    try:
        with data.DataLoader(
            data.Folder(options.folder or folder), seed=5, epochs=options.epochs, **arguments
        ) as loader:
            said["pid"] = loader._feeds[0].stream.daemon.pid
            say(ready=rank, pid=said["pid"], process=os.getpid())
            train(loader, options, rank, said["epochs"])
            said["tiers"] = tiers(loader)
            cluster = loader.report(cluster=True)
            said["cluster"] = {
                "sentence": str(cluster),
                "nodes": [node["node"] for node in cluster["nodes"]],
            }
            if options.until is not None:  # so that the node can still be asked
                until_exists(options.until)
    except errors.HDMLPError as error:
        kind = type(error).__name__
        say(**said, error=str(error), kind=kind, details=error.details)
        if options.until is None:
            raise
        until_exists(options.until)
        return
    say(**said)
    if options.stay is not None:
        until_exists(options.stay)


if __name__ == "__main__":
    main()
