"""Which rank of its job a process is, and on which node."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """This process among those of its job.

    Attributes:
        rank: In [0, world_size).
        world_size: The number of training processes.
        local_rank: The rank among those of this node; 0 if it is not known.
        source: Where these come from, for messages.
        nodes: The number of nodes of the job; 1 if it is not known.
        node: This process's node, from 0; None if it is not known.
        local_world_size: The number of ranks of this node; 0 if it is not known.
        master: Node 0's host; None if it is not known.
        node_source: Where the layout of nodes comes from.
        problem: Why ``node`` is None.
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
