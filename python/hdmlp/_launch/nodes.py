"""Which node of its job this process is on, and where node 0 is.

The launcher's variables say so, or ``HDMLP_NODES`` and ``HDMLP_NODE``, which the user sets. Nothing
here talks to another machine, except for looking up names.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import zlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ..errors import ConfigError
from .launchers import LAUNCHERS, Layout, Process, addresses, number
from .place import Place
from .secret import secret

_T = TypeVar("_T")

#: Seconds that a dataset waits for the secret of its job's nodes, which rank 0 draws.
_SECRET_TIME = 10.0

#: Ports from one loader's first port to the next loader's.
PORTS = 4
#: The first port if it cannot be derived from what the launcher gives.
DEFAULT_PORT = 29510


def layout(rank: int, world_size: int, local_rank: int, environ: Mapping[str, str]) -> Layout:
    """Returns which node this rank is on. Never fails for jobs of 1 rank.

    Args:
        rank: The rank.
        world_size: The number of ranks.
        local_rank: The rank on its node.
        environ: The environment.

    Raises:
        ConfigError: ``HDMLP_NODES`` or ``HDMLP_NODE`` contradict each other or the launcher.
    """
    if world_size == 1:
        return Layout(local_world_size=1)
    process = Process(rank, world_size, local_rank)
    found = first(launcher.layout(process, environ) for launcher in LAUNCHERS) or Layout(
        local_world_size=number(environ, "LOCAL_WORLD_SIZE") or 0
    )
    return _by_hand(_master(found, environ), environ)


def first(found: Iterable[_T | None]) -> _T | None:
    """Returns the first that is not None."""
    return next((one for one in found if one is not None), None)


def _master(found: Layout, environ: Mapping[str, str]) -> Layout:
    """Adds node 0's host: torch's rank 0's, else the launcher's first, else an allocation's."""
    master = (
        (environ.get("MASTER_ADDR") or "").strip()
        or found.master
        or first(launcher.first_host(found.nodes, environ) for launcher in LAUNCHERS)
    )
    return found._replace(master=master or None)


def _by_hand(found: Layout, environ: Mapping[str, str]) -> Layout:
    """Adds HDMLP_NODES, the addresses of all nodes or of node 0 alone, and HDMLP_NODE."""
    listed = addresses(environ)
    node = number(environ, "HDMLP_NODE")
    if node is None and environ.get("HDMLP_NODE"):
        raise ConfigError(
            f"HDMLP_NODE={environ['HDMLP_NODE']!r}: must be this node's number, from 0"
        )
    if len(listed) > 1:
        if found.nodes > 1 and found.nodes != len(listed):
            raise ConfigError(
                f"HDMLP_NODES names {len(listed)} nodes, but {found.source} says that there are "
                f"{found.nodes}"
            )
        # A launcher that started each node separately does not know the others.
        if found.nodes == 1 and node is None:
            node = first(launcher.node(environ) for launcher in LAUNCHERS)
            if node is None:
                node = _own(listed)
            if node is None:
                raise ConfigError(
                    f"HDMLP_NODES={environ['HDMLP_NODES']} names {len(listed)} nodes, and none of "
                    f"them is called {socket.gethostname()!r} as this host: set HDMLP_NODE to this "
                    "node's number, from 0"
                )
        if node is None and found.node is None:
            node = _own(listed)
        found = found._replace(nodes=len(listed), source="HDMLP_NODES")
    if node is not None:
        if node >= found.nodes:
            raise ConfigError(
                f"HDMLP_NODE={node}: must be below the number of nodes, {found.nodes} "
                f"({found.source})"
            )
        found = found._replace(node=node, problem="")
    if listed and found.nodes > 1:
        found = found._replace(master=split_address(listed[0])[0])
    return found


def _own(listed: list[str]) -> int | None:
    """Returns which of these nodes this host is, by its name; None if none or several are."""
    own = socket.gethostname().lower().split(".")[0]
    found = [
        at
        for at, address in enumerate(listed)
        if split_address(address)[0].lower().split(".")[0] == own
    ]
    return found[0] if len(found) == 1 else None


def split_address(address: str) -> tuple[str, int | None]:
    """Splits ``host``, ``host:port``, ``[address]``, ``[address]:port`` or a bare IPv6 address.

    Raises:
        ConfigError: It is none of these.
    """
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", address) or re.fullmatch(
        r"([^:]+)(?::(\d+))?", address
    )
    if match is None:
        if address.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.%\w]+", address):
            return address, None
        raise ConfigError(f"HDMLP_NODES: {address!r} is not host or host:port")
    port = match.group(2)
    if port is not None and not 0 < int(port) < 65536:
        raise ConfigError(f"HDMLP_NODES: {address!r}: the port must be in [1, 65535]")
    return match.group(1), None if port is None else int(port)


def port(launch_key: str | None, environ: Mapping[str, str]) -> int:
    """Returns the first port of the job's first loader, where node 0's daemon listens.

    It counts if the configuration has no ``port``. It is, in this order: HDMLP_PORT, the port in
    HDMLP_NODES, MASTER_PORT + 10, or derived from the launch's key.

    Args:
        launch_key: What all ranks of the launch have in common; None if it is not known.
        environ: The environment.

    Raises:
        ConfigError: MASTER_PORT is no port.
    """
    base = number(environ, "HDMLP_PORT")
    listed = addresses(environ)
    if base is None and listed:
        base = split_address(listed[0])[1]
    if base is not None:
        return base
    master = number(environ, "MASTER_PORT")
    if environ.get("MASTER_PORT") and (master is None or not 0 < master < 65536):
        raise ConfigError(
            f"MASTER_PORT={environ['MASTER_PORT']!r}: must be a port, in [1, 65535], the same on "
            "all nodes"
        )
    if master is not None:
        return master + 10 if master + 10 < 65536 else master - 10
    if launch_key is not None:
        # Below Linux's ports for outgoing connections.
        return 20000 + zlib.crc32(launch_key.encode()) % 3000 * PORTS
    return DEFAULT_PORT


def ordinal(name: str) -> int:
    """Returns the number of the loader of that name, below 256: each has its own ports."""
    return int(name) % 64 if name.isdigit() else 64 + zlib.crc32(name.encode()) % 192


def cluster(
    place: Place, name: str, launch_key: str | None, environ: Mapping[str, str] | None = None
) -> dict[str, object] | None:
    """Returns OPEN's object about the nodes of the job; None if there is one node.

    Args:
        place: This process's place.
        name: The loader's name.
        launch_key: What all ranks of the launch have in common; None if it is not known.
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: The node's number, node 0's address or a secret is missing.
    """
    environ = os.environ if environ is None else environ
    if place.nodes <= 1:
        return None
    if place.node is None:
        raise ConfigError(
            f"{place.problem}. Name all nodes' hosts in HDMLP_NODES, separated by commas, or set "
            "HDMLP_NODE on each node to its number, from 0"
        )
    if not place.master:
        raise ConfigError(
            f"{place.node_source} says that there are {place.nodes} nodes, but not where node 0 "
            "is: set MASTER_ADDR or HDMLP_NODES to node 0's host, on all nodes"
        )
    local = place.local_world_size
    if not local:
        if place.world_size % place.nodes:
            raise ConfigError(
                f"{place.world_size} ranks ({place.source}) cannot be the same number on each of "
                f"{place.nodes} nodes ({place.node_source}), and nothing says how many are on this "
                "one: set LOCAL_WORLD_SIZE"
            )
        local = place.world_size // place.nodes
    return {
        "nodes": place.nodes,
        "node": place.node,
        "local_world_size": local,
        "address": _address(place, place.master, launch_key, environ),
        "loader": ordinal(name),
        "secret": secret(place, environ),
    }


def launch(
    place: Place, name: str, launch_key: str | None, environ: Mapping[str, str]
) -> dict[str, object] | None:
    """Returns what calls about a dataset say of the job's nodes; None if these are not known.

    Args:
        place: This process's place.
        name: What all ranks of the launch have in common.
        launch_key: The same, if the port follows from it.
        environ: The environment.

    Raises:
        ConfigError: The port or the secret is wrong, or rank 0 has drawn none.
    """
    if place.nodes <= 1 or place.node is None or not place.master:
        return None
    return {
        "name": name,
        "nodes": place.nodes,
        "node": place.node,
        "address": _address(place, place.master, launch_key, environ),
        "secret": secret(place, environ, _SECRET_TIME),
    }


def _address(place: Place, master: str, launch_key: str | None, environ: Mapping[str, str]) -> str:
    """Returns the address of node 0's daemon for the job's first loader."""
    # Node 0 listens on all its addresses: on Debian a host's own name often means loopback.
    host = "" if place.node == 0 else f"[{master}]" if ":" in master else master
    return f"{host}:{port(launch_key, environ)}"


def unnamed(place: Place, environ: Mapping[str, str]) -> str:
    """Returns a warning if rank 0 is on another host, and nothing gives which nodes there are.

    Empty if all is well. May ask a name server.
    """
    master = (environ.get("MASTER_ADDR") or "").strip()
    if (
        place.world_size == 1
        or place.node_source != Layout().source
        or not master
        or _is_own(master)
    ):
        return ""
    return (
        f"MASTER_ADDR={master} is another host, but nothing says which nodes the job has: the "
        "ranks of each node have a job of their own, and read from the source all that their node "
        "does not hold. Name all nodes' hosts in HDMLP_NODES, separated by commas"
    )


def _is_own(host: str) -> bool:
    """Reports whether ``host`` is or names one of this host's addresses; True if unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)  # any port: nothing listens
            return True
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return True
    return False


def unknown_host(place: Place, environ: Mapping[str, str]) -> str:
    """Returns a sentence about node 0's host if its name cannot be resolved, else nothing.

    May ask a name server.
    """
    if not place.master or not place.node:
        return ""
    try:
        socket.getaddrinfo(place.master, None)
        return ""
    except (OSError, UnicodeError) as error:
        source = (
            "HDMLP_NODES"
            if addresses(environ)
            else "MASTER_ADDR"
            if environ.get("MASTER_ADDR")
            else place.node_source
        )
        return (
            f"Node 0's host {place.master}, from {source}, is not known on {socket.gethostname()} "
            f"({error}): give it by a name or an address that all nodes know"
        )
