"""What the ``hdmlp`` command passes to ``hdmlp probe`` of what the launcher gives.

The binary reads no launcher's variables: it is given the number of nodes, this node's, and node
0's address by flags, and the nodes' secret by ``HDMLP_SECRET``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from . import membership, nodes
from .launchers import addresses
from .place import Place


class Command(NamedTuple):
    """How the binary is to be called.

    Attributes:
        arguments: Its arguments.
        variables: Variables that are added to its environment.
        instead: What is printed in its place; empty if it is called.
    """

    arguments: list[str]
    variables: dict[str, str]
    instead: str = ""


def complete(arguments: list[str], environ: Mapping[str, str] | None = None) -> Command:
    """Returns how the binary is to be called for what a user has typed.

    Args:
        arguments: The arguments of the ``hdmlp`` command.
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: The launcher's variables contradict each other, or do not say enough.
    """
    environ = os.environ if environ is None else environ
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    by_hand = any(argument.split("=")[0] == "--nodes" for argument in arguments)
    if name != "probe" or by_hand or {"-h", "--help"} & set(arguments):
        return Command(arguments, {})
    place = _place(environ)
    if place.local_rank > 0:
        why = f"local rank {place.local_rank}: the first process of each node measures it"
        return Command(arguments, {}, why)
    cluster = membership.cluster(place, "0", environ)
    if cluster is None:
        return Command([*arguments, "--nodes=1"], {})
    flags = [f"--{key}={cluster[key]}" for key in ("nodes", "node", "address")]
    return Command([*arguments, *flags], {"HDMLP_SECRET": str(cluster["secret"])})


def _place(environ: Mapping[str, str]) -> Place:
    """Returns this process's place. Nodes that HDMLP_NODES names have one process each."""
    listed = len(addresses(environ))
    if listed < 2 or membership.from_environment(environ) is not None:
        return membership.look(environ)
    found = nodes.layout(0, listed, 0, environ)
    return Place(
        found.node or 0,
        listed,
        0,
        found.source,
        found.nodes,
        found.node,
        1,
        found.master,
        found.source,
        found.problem,
    )
