"""A rank of nodes.Nodes: trains, and prints what it was given as a line of JSON.

    rank_of_nodes.py FOLDER OPTIONS

OPTIONS is a JSON object: the loader's arguments, and

    epochs   how many epochs the job has; default 3
    run      how many epochs to train for; default all
    pause    seconds that a step takes; default 0
    gates    a directory: after epoch N the rank reports, and waits for the file N in it
    until    a file: the rank stays until it exists
    of_node  by node, options that differ there
    secret   the job's secret
    mortal   the rank may be killed (with until): it is a process of its own, and this one stays
    environment  variables to set before anything is opened
    version  this package's version, instead of its own: that of the binary in HDMLP_BINARY
    folder   the dataset, instead of FOLDER
    occupy   a port of this node on which another socket listens
    stay     a file: with its loader closed, the rank stays connected to the daemon until it exists
    together a directory and the number of ranks: once all their daemons run, all open the loader
    lockstep a directory and the number of ranks: as in an allreduce, each step waits for all ranks
    hold     a step and a file: before that step of epoch 0 the rank waits until the file exists
    again    a file: after a SampleError the rank reports, waits until it exists, and starts over
    absent   true: the rank does not open the loader, and stays until
"""

import hashlib
import json
import logging
import os
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import hdmlp.data as data
from hdmlp import _daemon, errors


def tiers(loader) -> dict:
    """How many samples the node has read from where, so far."""
    return {tier["tier"]: tier["samples"] for tier in loader.report()["tiers"]}


class Lockstep:
    """A step of all ranks, as an allreduce is: none leaves it before the last one has come, or
    another has left for good.

    Attributes:
        steps: how many this rank has taken.
    """

    def __init__(self, place: str, ranks: int, rank: int):
        self.place, self.ranks, self.rank, self.steps, self.attempt = place, ranks, rank, 0, 0

    def step(self) -> None:
        self.steps += 1
        self._put(f"{self.steps}")
        while not all(self._has(f"{self.steps}", rank) for rank in range(self.ranks)):
            if any(self._has("left", rank) for rank in range(self.ranks)):
                break
            time.sleep(0.005)

    def leave(self) -> None:
        """Lets the others go; the next step is the first one of another attempt."""
        self._put("left")
        self.steps, self.attempt = 0, self.attempt + 1

    def _put(self, what: str) -> None:
        with open(os.path.join(self.place, f"{self.attempt}-{what}-{self.rank}"), "w"):
            pass

    def _has(self, what: str, rank: int) -> bool:
        return os.path.exists(os.path.join(self.place, f"{self.attempt}-{what}-{rank}"))


def main() -> None:
    logging.basicConfig()
    folder, options = sys.argv[1], json.loads(sys.argv[2])
    node = os.environ.get("GROUP_RANK")
    options.update(options.pop("of_node", {}).get(node, {}))
    pause, wait = options.pop("pause", 0.0), options.pop("until", None)
    epochs, gates = options.setdefault("epochs", 3), options.pop("gates", None)
    epochs = options.pop("run", epochs)
    secret = options.pop("secret", None)
    if secret is not None:
        os.environ["HDMLP_SECRET"] = secret
    if options.pop("mortal", False):
        child = os.fork()
        if child != 0:
            os.waitpid(child, 0)
            while not os.path.exists(wait):
                time.sleep(0.02)
            return
    said = {"rank": int(os.environ["RANK"]), "node": node, "epochs": []}
    os.environ.update(options.pop("environment", {}))
    _daemon.__version__ = options.pop("version", _daemon.__version__)
    folder, occupied = options.pop("folder", folder), options.pop("occupy", None)
    if occupied is not None:
        occupant = socket.socket()
        occupant.bind(("", occupied))
        occupant.listen()
    stay = options.pop("stay", None)
    together = options.pop("together", None)
    tamper = options.pop("tamper", None)
    hold, again = options.pop("hold", (0, None)), options.pop("again", None)
    lockstep = options.pop("lockstep", None)
    lockstep = lockstep and Lockstep(*lockstep, said["rank"])
    _keeper = _daemon.connect() if stay or together else None
    if together is not None:
        place, ranks = together
        with open(os.path.join(place, f"{said['rank']}-{node}"), "w"):
            pass
        while len(os.listdir(place)) < ranks:
            time.sleep(0.02)
    if options.pop("absent", False):
        while not os.path.exists(wait):
            time.sleep(0.02)
        return
    try:
        with data.DataLoader(data.Folder(folder), seed=5, **options) as loader:
            said["pid"] = loader._feeds[0].stream.daemon.pid
            print(
                json.dumps({"ready": said["rank"], "pid": said["pid"], "process": os.getpid()}),
                flush=True,
            )
            start = loader.state_dict()
            while len(said["epochs"]) < epochs:
                epoch, digest = len(said["epochs"]), hashlib.sha256()
                try:
                    batches = iter(loader)
                    for samples, labels in batches:
                        for sample in samples:
                            digest.update(sample)
                        digest.update(bytes(labels.tolist()))
                        if tamper == epoch:
                            batches.audit, tamper = batches.audit ^ 1, None
                        time.sleep(pause)
                        if lockstep is not None:
                            lockstep.step()
                        while (
                            lockstep is not None
                            and hold[1]
                            and lockstep.steps == hold[0]
                            and not os.path.exists(hold[1])
                        ):
                            time.sleep(0.02)
                except errors.SampleError as error:
                    if again is None:
                        raise
                    print(
                        json.dumps(
                            {
                                "caught": said["rank"],
                                "error": str(error),
                                "details": error.details,
                                "steps": lockstep.steps,
                            }
                        ),
                        flush=True,
                    )
                    lockstep.leave()
                    while not os.path.exists(again):
                        time.sleep(0.02)
                    again, said["epochs"] = None, []
                    loader.load_state_dict(start)
                    continue
                said["epochs"].append(digest.hexdigest())
                if gates is not None:
                    print(
                        json.dumps({"at": said["rank"], "epoch": epoch, "tiers": tiers(loader)}),
                        flush=True,
                    )
                    while epoch + 1 < epochs and not os.path.exists(
                        os.path.join(gates, str(epoch))
                    ):
                        time.sleep(0.02)
            said["tiers"] = tiers(loader)
            cluster = loader.report(cluster=True)
            said["cluster"] = {
                "sentence": str(cluster),
                "nodes": [node["node"] for node in cluster["nodes"]],
            }
            while wait is not None and not os.path.exists(
                wait
            ):  # so that the node can still be asked
                time.sleep(0.02)
    except errors.HDMLPError as error:
        said["error"], said["kind"], said["details"] = (
            str(error),
            type(error).__name__,
            error.details,
        )
        print(json.dumps(said), flush=True)
        if wait is None:
            raise
        while not os.path.exists(wait):
            time.sleep(0.02)
        return
    print(json.dumps(said), flush=True)
    if stay is not None:
        while not os.path.exists(stay):
            time.sleep(0.02)


if __name__ == "__main__":
    main()
