"""Which rank this process is, and how the ranks of one job find each other.

In this order: arguments, an initialised ``torch.distributed``, the launchers (_launchers.py), a single process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from . import _nodes
from ._launchers import LAUNCHERS, Launcher, Variables, number
from .errors import ConfigError

log = logging.getLogger("hdmlp")

#: Bytes of a job's name, at most (docs/FORMATS.md).
LONGEST_KEY = 256


class Place(NamedTuple):
    """This process among those of its job.

    Attributes:
        rank: in [0, world_size).
        world_size: the number of training processes.
        local_rank: among those of this node; 0 if the launcher does not say.
        source: who said so, for messages.
        nodes: how many nodes the job runs on, as far as anybody says.
        node: this process's, from 0; None if nobody says.
        local_world_size: ranks of this node; 0 if nobody says.
        master: node 0's host; None if nobody says.
        node_source: who said so.
        problem: why ``node`` is None.
    """

    rank: int
    world_size: int
    local_rank: int
    source: str
    nodes: int = 1
    node: int | None = 0
    local_world_size: int = 0
    master: str | None = None
    node_source: str = "a single node"
    problem: str = ""


def find(
    rank: int | None = None,
    world_size: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place:
    """This process's place.

    Args:
        rank, world_size: what the user said; both or neither.
        environ: the environment, ``os.environ`` by default.

    Raises:
        ConfigError: only one of the two is given, as an argument or a variable, or the rank is not in [0, world_size).
    """
    environ = os.environ if environ is None else environ
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise ConfigError(f"{given} is given without {missing}: give both or neither")
    if rank is not None:
        place = Place(
            int(rank), int(world_size), number(environ, "LOCAL_RANK") or 0, "the arguments"
        )
    else:
        place = _looked(environ)
    if place.world_size < 1 or not 0 <= place.rank < place.world_size:
        raise ConfigError(
            f"rank {place.rank} of world_size {place.world_size}, from {place.source}: "
            "rank must be in [0, world_size)"
        )
    contradiction = _contradiction(place, environ)
    if contradiction:
        log.warning("%s", contradiction)
    place = Place(
        *place[:4], *_nodes.layout(place.rank, place.world_size, place.local_rank, environ)
    )
    unnamed = _nodes.unnamed(place, environ)
    if unnamed:
        log.warning("%s", unnamed)
    return place


def look(environ: Mapping[str, str] | None = None) -> Place:
    """The place as :func:`find` has it, without its warnings.

    Raises:
        ConfigError: what says it says half of it.
    """
    environ = os.environ if environ is None else environ
    place = _looked(environ)
    return Place(
        *place[:4], *_nodes.layout(place.rank, place.world_size, place.local_rank, environ)
    )


def _looked(environ: Mapping[str, str]) -> Place:
    return (
        _from_torch(number(environ, "LOCAL_RANK") or 0)
        or _from_environment(environ)
        or _alone(environ)
    )


def _alone(environ: Mapping[str, str]) -> Place:
    """The place of a process that nothing says to be one of several."""
    for name, other, least in (("WORLD_SIZE", "RANK", 2), ("RANK", "WORLD_SIZE", 1)):
        if (number(environ, name) or 0) >= least:
            raise ConfigError(
                f"{name}={environ[name]} is set without {other}: set both, as torchrun does, or neither"
            )
    nodes = [node for node in environ.get("HDMLP_NODES", "").split(",") if node.strip()]
    if len(nodes) > 1:
        raise ConfigError(
            f"HDMLP_NODES={environ['HDMLP_NODES']} names {len(nodes)} nodes, and nothing says which rank of how many this process is: "
            "start it by torchrun, srun or mpirun, or set RANK and WORLD_SIZE"
        )
    return Place(0, 1, 0, "a single process")


def _from_torch(local: int) -> Place | None:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Place(distributed.get_rank(), distributed.get_world_size(), local, "torch.distributed")


def _from_environment(environ: Mapping[str, str]) -> Place | None:
    for launcher, variables in _variables():
        if variables.needed is not None and variables.needed not in environ:
            continue
        rank, size = number(environ, variables.rank), number(environ, *variables.sizes)
        if rank is not None and size is not None:
            return Place(rank, size, number(environ, variables.local_rank) or 0, launcher.name)
        said = [name for name in (variables.rank, *variables.sizes) if environ.get(name)]
        wrong = [f"{name}={environ[name]!r}" for name in said if number(environ, name) is None]
        if wrong and len(said) > 1:
            raise ConfigError(f"{' and '.join(wrong)}: must be a whole number, from 0")
    return None


def _variables() -> Iterator[tuple[Launcher, Variables]]:
    """Where launchers say which rank a process is, in the order in which they are believed."""
    return ((launcher, variables) for launcher in LAUNCHERS for variables in launcher.ranks)


def doubts(place: Place, environ: Mapping[str, str] | None = None) -> str:
    """Why the launcher's variables may be what is wrong when a job does not start; empty if nothing speaks for it."""
    environ = os.environ if environ is None else environ
    return _contradiction(place, environ) or _nodes.unknown_host(place, environ)


def _contradiction(place: Place, environ: Mapping[str, str]) -> str:
    """What in the environment speaks against this place; empty if nothing does."""
    if place.source == "a single process":
        return next(filter(None, (launcher.doubt(environ) for launcher in LAUNCHERS)), "")
    if (
        place.source == LAUNCHERS[0].name and "TORCHELASTIC_RUN_ID" not in environ
    ):  # something else has set RANK
        for launcher, (rank_name, size_names, _, needed) in _variables():
            other, size = number(environ, rank_name), number(environ, size_names[0])
            if (
                size == place.world_size
                and other not in (None, place.rank)
                and (needed is None or needed in environ)
            ):
                return (
                    f"RANK={place.rank} and WORLD_SIZE={size} come first, but {launcher.name} says {rank_name}={other} of "
                    f"{size_names[0]}={size}: unset RANK and WORLD_SIZE, unless every process has a RANK of its own"
                )
    return ""


def job_key(place: Place, name: str, environ: Mapping[str, str] | None = None) -> str:
    """What all ranks of one job, and nobody else, say to the daemon.

    Args:
        place: this process's place.
        name: the loader's name within its process, the same on all ranks.
        environ: the environment, ``os.environ`` by default.

    Raises:
        ConfigError: the name is no text that UTF-8 can hold.
    """
    environ = os.environ if environ is None else environ
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"name={name!a}: it has surrogates, which UTF-8 cannot hold; allowed: any other text"
        ) from None
    key = f"{_launch_key(place, environ)}/{name}"
    if len(key.encode()) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{key.encode()[: LONGEST_KEY - 1 - len(digest)].decode(errors='ignore')}-{digest}"


def _launch_key(place: Place, environ: Mapping[str, str]) -> str:
    if place.world_size == 1:
        return f"process-{os.getpid()}-{_nonce()}"
    master = None
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        master = f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    run = environ.get("TORCHELASTIC_RUN_ID")
    if run:
        # Without an ID of its own torchrun says "none": the address tells such runs apart.
        parts = ["torchrun", run, environ.get("TORCHELASTIC_RESTART_COUNT", "0"), master]
        return "-".join(part for part in parts if part)
    # What the launcher calls this launch, which another one with the same address may follow at once.
    launch = _nodes.first(
        launcher.launch(environ) for launcher in LAUNCHERS if launcher.name == place.node_source
    )
    if master:
        return f"{launch}-{master}" if launch else f"master-{master}"
    launch = launch or _nodes.first(launcher.launch(environ) for launcher in LAUNCHERS)
    if launch:
        return launch
    if place.nodes > 1:  # nothing but node 0's address is the same on all of them
        return f"nodes-{place.master}:{_nodes.port(None, environ)}"
    return f"parent-{os.getppid()}"


def cluster(
    place: Place, name: str, environ: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """What OPEN says about the nodes of the job; None if there is one. See :func:`hdmlp._nodes.cluster`."""
    environ = os.environ if environ is None else environ
    if place.nodes <= 1:
        return None
    key = _launch_key(place, environ)
    return _nodes.cluster(place, name, None if key.startswith("nodes-") else key, environ)


_nonces: dict[int, str] = {}


def _nonce() -> str:
    """Random, and fixed for this process: a process ID alone comes round again."""
    return _nonces.setdefault(os.getpid(), secrets.token_hex(4))


_ordinals = 0


def next_ordinal() -> int:
    """The number of this loader in its process, from 0: the same on all ranks of a script."""
    global _ordinals
    _ordinals += 1
    return _ordinals - 1


def reserve_ordinal(number: int) -> None:
    """Keeps later loaders of this process from having the number of one that came from another process."""
    global _ordinals
    _ordinals = max(_ordinals, number + 1)
