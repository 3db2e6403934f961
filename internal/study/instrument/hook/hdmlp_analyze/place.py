"""Which rank a process is."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A process's place among the ranks of its job."""

    rank: int
    ranks: int
    #: How many nodes the job has; 0: not known.
    nodes: int


def find() -> Place:
    """Returns this process's place: by torch.distributed, else by torchrun's variables."""
    if is_distributed():
        distributed: Any = sys.modules["torch.distributed"]
        rank, ranks = int(distributed.get_rank()), int(distributed.get_world_size())
    else:
        rank, ranks = _number("RANK", 0), _number("WORLD_SIZE", 1)
    on_node = _number("LOCAL_WORLD_SIZE", 0)
    nodes = -(-ranks // on_node) if on_node > 0 else int(ranks == 1)
    return Place(rank, ranks, nodes)


def is_distributed() -> bool:
    """Reports whether torch.distributed is initialised, so that the ranks have a store."""
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def node() -> str:
    """Returns this node's name: its number by torchrun or Slurm, else that of the host."""
    for name in ("GROUP_RANK", "SLURM_NODEID"):
        if os.environ.get(name):
            return f"{name}={os.environ[name]}"
    return socket.gethostname()


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default
