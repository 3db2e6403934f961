"""Which rank a process is."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A process's place among the ranks of its job."""

    rank: int
    ranks: int
    nodes: int


def find() -> Place:
    """Returns this process's place: by torch.distributed, else by torchrun's variables."""
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, ranks = int(distributed.get_rank()), int(distributed.get_world_size())
    else:
        rank, ranks = _number("RANK", 0), _number("WORLD_SIZE", 1)
    on_node = _number("LOCAL_WORLD_SIZE", ranks)
    return Place(rank, ranks, -(-ranks // max(on_node, 1)))


def _number(name: str, default: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default
