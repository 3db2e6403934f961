"""Which commands measure the ranks of a job, one on each node, and how they find each other.

Ranks say it in the store of torch.distributed, as soon as their script has initialised that: from
then on a command notices if another one ends, also if no loader is iterated yet. Rank 0 stores
which command has which ranks, and a secret and an address by which the commands find each other;
the first rank of each command sends it.

Counters are used because adding nothing to one is the only way of asking that all releases of torch
have and that does not wait.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import socket
import time
from typing import Any, Callable

from . import place
from .channel import Channel, Gone, path

#: Seconds in which ranks see each other while their scripts initialise torch.distributed. Slower
#: ones are seen when they iterate their loaders.
TOGETHER = 5.0
#: Seconds between two looks.
_LOOK = 0.02
_PREFIX = "hdmlp_analyze/"


class Refused(Exception):
    """The job cannot be measured; the text says why, and what to do."""


class Lost(Exception):
    """Rank 0, or what it stores, is gone."""


class Store:
    """The store of the job's process group.

    Raises:
        Refused: There is none.
        Lost: It does not answer.
    """

    def __init__(self, where: place.Place):
        self._store = _default_store()
        if self._store is None:
            raise Refused(
                f"the job has {where.nodes} nodes, whose processes find each other through "
                "torch.distributed, and this one had not initialised it when it began to iterate "
                "the loader: call torch.distributed.init_process_group before, or start the script "
                "on one node"
            )

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Stores a value."""
        self._do("set", key, json.dumps(value))

    def get(self, key: str) -> dict[str, Any]:
        """Returns a value, which must be there."""
        found: dict[str, Any] = json.loads(bytes(self._do("get", key)).decode())
        return found

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, and returns it."""
        return int(self._do("add", key, amount))

    def host(self) -> str:
        """Returns where the other nodes reach the node of rank 0."""
        said, store = os.environ.get("MASTER_ADDR"), self._store
        while not said and store is not None:
            said, store = getattr(store, "host", None), getattr(store, "underlying_store", None)
        return said or socket.getfqdn()

    def _do(self, what: str, key: str, *arguments: Any) -> Any:
        try:
            return getattr(self._store, what)(_PREFIX + key, *arguments)
        except RuntimeError as error:  # such as a connection that was reset
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise Lost(
                "the store of torch.distributed does not answer, so that node 0, or the process "
                f"that has it, has probably ended: {text[0]}"
            ) from None


class Meeting:
    """This process among the ranks of its job.

    Args:
        where: Its place.

    Attributes:
        commands: How many commands measure ranks of the job; 0: that is not known yet.
        here: How many ranks this process's command has.

    Raises:
        Refused: There is no store.
        Lost: The store does not answer.
    """

    def __init__(self, where: place.Place):
        self.commands, self.here = 0, where.ranks
        self._where, self._store = where, Store(where)
        self._own = f"{socket.gethostname()}:{path('')}"
        self._port: socket.socket | None = None  # of rank 0's command, kept from others
        self._store.set(f"rank/{where.rank}", {"command": self._own, "node": place.node()})
        self._store.add("came", 1)

    def look(self) -> bool:
        """Reports whether the commands are known; the first time, informs this process's of them.

        Raises:
            Refused: A node has several commands.
            Lost: The store does not answer.
        """
        if self.commands:
            return True
        ranks = self._where.ranks
        if self._where.rank == 0 and self._port is None and self._store.add("came", 0) >= ranks:
            self._store.set("commands", self._listed())
            self._store.add("listed", 1)
        if not self._store.add("listed", 0):
            return False
        job = self._store.get("commands")
        commands = job.pop("commands")
        nodes = [each["node"] for each in commands]
        twice = [each for each in nodes if nodes.count(each) > 1]
        if twice:
            raise Refused(
                f"{len(twice)} commands measure ranks on one node ({twice[0]}): start hdmlp "
                "analyze once on each node, with a launcher of the node's ranks, such as torchrun"
            )
        number = [each["command"] for each in commands].index(self._own)
        own = commands[number]
        if len(commands) > 1 and own["first"] == self._where.rank:
            channel = Channel()
            channel.send("nodes", node=number, nodes=len(commands), ranks=own["ranks"], **job)
            channel.close()
        self.commands, self.here = len(commands), own["ranks"]
        return True

    def _listed(self) -> dict[str, Any]:
        """Returns the commands by their first ranks, and how they find each other."""
        commands: dict[str, dict[str, Any]] = {}
        for rank in range(self._where.ranks):
            said = self._store.get(f"rank/{rank}")
            new = {**said, "first": rank, "ranks": 0}
            commands.setdefault(said["command"], new)["ranks"] += 1
        # A bound socket that does not listen keeps its port from programs that ask for any.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("", 0))
        return {
            "commands": list(commands.values()),
            "host": self._store.host(),
            "port": self._port.getsockname()[1],
            "secret": secrets.token_hex(32),
        }


#: This process's; None: its job has one node, or has not initialised torch.distributed.
_meeting: Meeting | None = None


def of(where: place.Place) -> Meeting:
    """Returns this process's meeting.

    Raises:
        Refused: There is no store.
        Lost: The store does not answer.
    """
    global _meeting
    if _meeting is None:
        _meeting = Meeting(where)
    return _meeting


def begin(is_over: Callable[[], bool]) -> None:
    """Has the commands find each other, once the script has initialised torch.distributed.

    It waits for the other ranks, as that has done, but not for long. ``is_over`` reports whether
    this process has nothing more to measure.
    """
    where = place.find()
    if where.ranks == 1 or where.nodes == 1:
        return
    try:
        met = of(where)
        until = time.perf_counter() + TOGETHER
        while not met.look() and time.perf_counter() < until:
            time.sleep(_LOOK)
        atexit.register(_leave, where.rank, os.getpid(), is_over)
    except Refused as error:
        with contextlib.suppress(Gone):
            channel = Channel()
            channel.send("refused", text=str(error))
            channel.close()
    except (Gone, Lost):
        pass  # the script goes on; if it iterates a loader, that reports what is wrong


def _leave(rank: int, pid: int, is_over: Callable[[], bool]) -> None:
    """Tells the command that a rank of several commands' ends early.

    Its launcher may go on: torchrun waits for those of other nodes, and these for this rank.
    """
    if _meeting is None or _meeting.commands < 2 or os.getpid() != pid or is_over():
        return
    with contextlib.suppress(Gone):
        channel = Channel()
        text = f"rank {rank} ended before everything was measured; its own messages say why"
        channel.send("lost", text=text)
        channel.close()


def _default_store() -> Any:
    """Returns the store of the job's process group; None: there is none."""
    if not place.is_distributed():
        return None
    from torch.distributed import distributed_c10d

    find: Any = getattr(distributed_c10d, "_get_default_store", None)
    return None if find is None else find()
