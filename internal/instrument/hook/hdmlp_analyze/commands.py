"""The ranks of a job that several ``hdmlp analyze`` measure, each on a node of its own.

Its ranks find each other through the store of torch.distributed, and change phases at iterations
that rank 0 announces there: schedule.py does the same for the ranks of one node. Nothing blocks: a
rank asks the store in each ``next()``, and a training goes on until all ranks have come. Counters
are used because adding nothing to one is the only way of asking that all releases of torch have
and that does not wait.

States: until all ranks have begun, no phase is announced. Then rank 0 stores which command has
which ranks, and a secret and an address by which the commands themselves find each other.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from typing import Any

from . import place
from .channel import SETTINGS, Channel, path
from .schedule import AHEAD, Schedule

#: Seconds to wait for all ranks to begin, beyond thrice the time for the job as it is.
PATIENCE = 30.0
_PREFIX = "hdmlp_analyze/"


class Refused(Exception):
    """The job cannot be measured; the text says why, and what to do."""


class Lost(Exception):
    """Rank 0, or what it stores, is gone."""


class Commands:
    """The schedule of a job whose ranks may belong to several commands.

    Args:
        where: This process's place.
        channel: A connection, to which the first rank of a command says what the command needs to
            know of the others.

    Attributes:
        here: How many ranks this command has.

    Raises:
        Refused: There is no store.
        Lost: The store does not answer.
    """

    def __init__(self, where: place.Place, channel: Channel):
        self.here = where.ranks
        self._where, self._channel = where, channel
        self._store = _default_store()
        if self._store is None:
            raise Refused(
                f"the job has {where.nodes} nodes, whose processes find each other through "
                "torch.distributed, and this one had not initialised it when it began to iterate "
                "the loader: call torch.distributed.init_process_group before, or start the script "
                "on one node"
            )
        self._own = f"{socket.gethostname()}:{path('')}"
        self._since = time.perf_counter()
        self._agreed: Schedule | None = None  # all ranks are of this command
        self._several = False  # all have begun, and are of several commands
        self._at: dict[int, int] = {}  # when phases begin
        self._port: socket.socket | None = None  # of rank 0's command, kept from others
        self._set(f"rank/{where.rank}", {"command": self._own, "node": place.node()})
        self._add("begun", 1)

    def announce(self, phase: int, now: int) -> None:
        """Sets when a phase begins, if that is not set yet and all ranks have begun."""
        if self._agreed is not None:
            self._agreed.announce(phase, now)
        elif self._several and not self._at.get(phase):
            self._at[phase] = self._add(f"phase/{phase}", now + AHEAD)

    def has_begun(self, phase: int, now: int) -> bool:
        """Reports whether a phase begins with this iteration or began before it.

        Raises:
            Refused: Some ranks have not begun in time, or a node has several commands.
            Lost: The store does not answer.
        """
        if self._agreed is None and not self._several:
            self._meet()
        if self._agreed is not None:
            return self._agreed.has_begun(phase, now)
        if self._several and not self._at.get(phase):
            self._at[phase] = self._add(f"phase/{phase}", 0)
        at = self._at.get(phase, 0)
        return bool(at) and now >= at

    def _meet(self) -> None:
        """Finds out whether all ranks have begun, and who measures them."""
        begun = self._add("begun", 0)
        if self._where.rank == 0 and begun >= self._where.ranks and self._port is None:
            self._set("commands", self._listed())
            self._add("ready", 1)
        if not self._add("ready", 0):
            if time.perf_counter() - self._since > 3 * SETTINGS["as_is"] + PATIENCE:
                raise Refused(
                    f"only {begun} of the job's {self._where.ranks} ranks iterate a loader that is "
                    "measured: start hdmlp analyze on each node, once, with the same arguments"
                )
            return
        job: dict[str, Any] = json.loads(self._get("commands"))
        commands = job.pop("commands")
        nodes = [each["node"] for each in commands]
        twice = [each for each in nodes if nodes.count(each) > 1]
        if twice:
            raise Refused(
                f"{len(twice)} commands measure ranks on one node ({twice[0]}): start hdmlp "
                "analyze once on each node, with a launcher of the node's ranks, such as torchrun"
            )
        number = [each["command"] for each in commands].index(self._own)
        self.here = commands[number]["ranks"]
        if len(commands) == 1:
            self._agreed = Schedule(self._where.ranks)
            return
        self._several = True
        if commands[number]["first"] == self._where.rank:
            self._channel.send("nodes", node=number, nodes=len(commands), ranks=self.here, **job)

    def _listed(self) -> dict[str, Any]:
        """Returns the commands by their first ranks, and how they find each other."""
        commands: dict[str, dict[str, Any]] = {}
        for rank in range(self._where.ranks):
            said = json.loads(self._get(f"rank/{rank}"))
            new = {**said, "first": rank, "ranks": 0}
            commands.setdefault(said["command"], new)["ranks"] += 1
        # A bound socket that does not listen keeps its port from programs that ask for any.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("", 0))
        return {
            "commands": list(commands.values()),
            "host": _host(self._store),
            "port": self._port.getsockname()[1],
            "secret": secrets.token_hex(32),
        }

    def _set(self, key: str, value: dict[str, Any]) -> None:
        self._do("set", key, json.dumps(value))

    def _get(self, key: str) -> str:
        return bytes(self._do("get", key)).decode()

    def _add(self, key: str, amount: int) -> int:
        return int(self._do("add", key, amount))

    def _do(self, what: str, key: str, *arguments: Any) -> Any:
        try:
            return getattr(self._store, what)(_PREFIX + key, *arguments)
        except RuntimeError as error:  # such as a connection that was reset
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise Lost(
                "the store of torch.distributed does not answer, so that node 0, or the process "
                f"that has it, has probably ended: {text[0]}"
            ) from None


def _default_store() -> Any:
    """Returns the store of the job's process group; None: there is none."""
    if not place.is_distributed():
        return None
    from torch.distributed import distributed_c10d

    find: Any = getattr(distributed_c10d, "_get_default_store", None)
    return None if find is None else find()


def _host(store: Any) -> str:
    """Returns where the other nodes reach the node of rank 0."""
    said = os.environ.get("MASTER_ADDR")
    while not said and store is not None:
        said, store = getattr(store, "host", None), getattr(store, "underlying_store", None)
    return said or socket.getfqdn()
