"""Which node this process is on among those of its job, where node 0 is, and what secret they share.

The launcher's variables say the first, or ``HDMLP_NODES`` and ``HDMLP_NODE`` by hand. Nothing
here talks to another machine, but for the store of ``torch.distributed``, where the secret may lie.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import stat
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ._launchers import LAUNCHERS, Layout, Process, addresses, number
from .errors import ConfigError

_T = TypeVar("_T")

#: Ports between those of two loaders.
PORTS = 4
#: The first port where the launcher gives none to derive it from.
DEFAULT_PORT = 29510
#: A secret's bytes, at least.
MIN_SECRET = 16


def layout(rank: int, world_size: int, local_rank: int, environ: Mapping[str, str]) -> Layout:
    """Where this rank is. Never fails for jobs of one node.

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
    """The first that is something."""
    return next((one for one in found if one is not None), None)


def _master(found: Layout, environ: Mapping[str, str]) -> Layout:
    """Node 0's host: where torch's rank 0 is, or the launcher's first host, or the first one of what a launcher allocated."""
    master = (
        (environ.get("MASTER_ADDR") or "").strip()
        or found.master
        or first(launcher.first_host(found.nodes, environ) for launcher in LAUNCHERS)
    )
    return found._replace(master=master or None)


def _by_hand(found: Layout, environ: Mapping[str, str]) -> Layout:
    """What HDMLP_NODES (all nodes' addresses, or node 0's alone) and HDMLP_NODE add."""
    listed = addresses(environ)
    node = number(environ, "HDMLP_NODE")
    if node is None and environ.get("HDMLP_NODE"):
        raise ConfigError(
            f"HDMLP_NODE={environ['HDMLP_NODE']!r}: must be this node's number, from 0"
        )
    if len(listed) > 1:
        if found.nodes > 1 and found.nodes != len(listed):
            raise ConfigError(
                f"HDMLP_NODES names {len(listed)} nodes, but {found.source} says that there are {found.nodes}"
            )
        if (
            found.nodes == 1 and node is None
        ):  # a launcher that started each node by itself says nothing of the others
            node = first(launcher.node(environ) for launcher in LAUNCHERS)
            if node is None:
                node = _own(listed)
            if node is None:
                raise ConfigError(
                    f"HDMLP_NODES={environ['HDMLP_NODES']} names {len(listed)} nodes, and none of them is called "
                    f"{socket.gethostname()!r} as this host: say by HDMLP_NODE which one this is, from 0"
                )
        if node is None and found.node is None:
            node = _own(listed)
        found = found._replace(nodes=len(listed), source="HDMLP_NODES")
    if node is not None:
        if node >= found.nodes:
            raise ConfigError(
                f"HDMLP_NODE={node}: must be below the number of nodes, {found.nodes} ({found.source})"
            )
        found = found._replace(node=node, problem="")
    if listed and found.nodes > 1:
        found = found._replace(master=split_address(listed[0])[0])
    return found


def _own(listed: list[str]) -> int | None:
    """Which of these nodes this host is, by its name; None if it is none, or several."""
    own = socket.gethostname().lower().split(".")[0]
    found = [
        at
        for at, address in enumerate(listed)
        if split_address(address)[0].lower().split(".")[0] == own
    ]
    return found[0] if len(found) == 1 else None


def split_address(address: str) -> tuple[str, int | None]:
    """``host``, ``host:port``, ``[address]``, ``[address]:port`` or a bare IPv6 address."""
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
    """The first of the ports of the job's first loader, if the configuration has no ``port``: node 0's daemon is found there.

    From HDMLP_PORT, the port in HDMLP_NODES, ten above MASTER_PORT, or the launch's key, in this order.
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
            f"MASTER_PORT={environ['MASTER_PORT']!r}: must be a port, in [1, 65535], the same on all nodes"
        )
    if master is not None:
        return master + 10 if master + 10 < 65536 else master - 10
    if launch_key is not None:
        return (
            20000 + zlib.crc32(launch_key.encode()) % 3000 * PORTS
        )  # below Linux's ports for outgoing connections
    return DEFAULT_PORT


def ordinal(name: str) -> int:
    """The number of the loader of that name, below 256: it has ports of its own."""
    return int(name) % 64 if name.isdigit() else 64 + zlib.crc32(name.encode()) % 192


def cluster(
    place: Any, name: str, launch_key: str | None, environ: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """What OPEN says about the nodes of the job; None if there is one.

    Args:
        place: this process's place.
        name: the loader's name.
        launch_key: what all ranks of the launch have in common; None if nothing is known.

    Raises:
        ConfigError: the node's number, node 0's address or a secret is missing.
    """
    environ = os.environ if environ is None else environ
    if place.nodes <= 1:
        return None
    if place.node is None:
        raise ConfigError(
            f"{place.problem}. Name all nodes' hosts in HDMLP_NODES, separated by commas, or set HDMLP_NODE on "
            "each node to its number, from 0"
        )
    if not place.master:
        raise ConfigError(
            f"{place.node_source} says that there are {place.nodes} nodes, but not where node 0 is: "
            "set MASTER_ADDR or HDMLP_NODES to node 0's host, on all nodes"
        )
    local = place.local_world_size
    if not local:
        if place.world_size % place.nodes:
            raise ConfigError(
                f"{place.world_size} ranks ({place.source}) cannot be the same number on each of {place.nodes} nodes "
                f"({place.node_source}), and nobody says how many are on this one: set LOCAL_WORLD_SIZE"
            )
        local = place.world_size // place.nodes
    # Node 0 listens on all its addresses: on Debian a host's own name is often one of loopback's.
    host = "" if place.node == 0 else f"[{place.master}]" if ":" in place.master else place.master
    return {
        "nodes": place.nodes,
        "node": place.node,
        "local_world_size": local,
        "address": f"{host}:{port(launch_key, environ)}",
        "loader": ordinal(name),
        "secret": secret(place, environ),
    }


def unnamed(place: Any, environ: Mapping[str, str]) -> str:
    """What to say where rank 0 is on another host, and nothing tells of several nodes; empty if all is well. May ask a name server."""
    master = (environ.get("MASTER_ADDR") or "").strip()
    if (
        place.world_size == 1
        or place.node_source != Layout().source
        or not master
        or _is_own(master)
    ):
        return ""
    return (
        f"MASTER_ADDR={master} is another host, but nothing says which nodes the job has: the ranks of each have a job of their own there, "
        "and read all from the source that their own node does not hold. Name all nodes' hosts in HDMLP_NODES, separated by commas"
    )


def _is_own(host: str) -> bool:
    """Whether this is one of this host's addresses, or a name of one; also where nobody knows."""
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


def unknown_host(place: Any, environ: Mapping[str, str]) -> str:
    """What to say of a name of node 0 that leads nowhere; empty if it leads somewhere. May ask a name server."""
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
            f"Node 0's host {place.master}, from {source}, is not known on {socket.gethostname()} ({error}): "
            "give it by a name or an address that all nodes know"
        )


def secret(place: Any, environ: Mapping[str, str]) -> str:
    """What the job's nodes know and nobody else does; see docs/OPERATIONS.md for what each is worth.

    In this order: HDMLP_SECRET, the file HDMLP_SECRET_FILE, torch's store, the launcher's,
    the user's own ``~/.hdmlp/secret``, which is made if it is not there.
    """
    given = environ.get("HDMLP_SECRET")
    if given:
        return _long_enough(given, "HDMLP_SECRET")
    path = environ.get("HDMLP_SECRET_FILE")
    if path:
        return _read(path, "HDMLP_SECRET_FILE")
    shared = _from_store(place, environ)
    if shared:
        return shared
    return first(launcher.secret(environ) for launcher in LAUNCHERS) or _users_own(environ)


def _long_enough(value: str, source: str) -> str:
    value = value.strip()
    if len(value.encode()) < MIN_SECRET:
        raise ConfigError(
            f"{source} has {len(value.encode())} bytes, a secret needs at least {MIN_SECRET}: "
            "'openssl rand -hex 32' draws a good one"
        )
    return value


def _read(path: str, source: str) -> str:
    try:
        with open(
            path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:  # a FIFO must not keep us
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{source}={path}: is not a regular file")
            if status.st_uid not in (os.getuid(), 0):
                raise ConfigError(f"{source}={path}: belongs to user {status.st_uid}, not to you")
            if status.st_mode & 0o077:
                raise ConfigError(
                    f"{source}={path}: others than its owner may read or write it (mode {status.st_mode & 0o777:04o}), "
                    f"so it is no secret: chmod 600 {path}, and draw a new one"
                )
            return _long_enough(file.read(4096), f"{source}={path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}={path}: {error}") from None


def _from_store(place: Any, environ: Mapping[str, str]) -> str | None:
    """By torch's store: rank 0 draws. Whoever reaches the store can read it."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return None
    try:
        if distributed.is_initialized():
            store = distributed.distributed_c10d._get_default_store()
        elif environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            import datetime

            store = distributed.TCPStore(
                environ["MASTER_ADDR"],
                int(environ["MASTER_PORT"]),
                place.world_size,
                False,
                timeout=datetime.timedelta(seconds=60),
            )
        else:
            return None
        key = f"hdmlp/secret/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if place.rank == 0:
            # compare_set keeps the first: every loader of the job gets the same. It wakes nobody who waits already, as set does.
            kept = bytes(store.compare_set(key, "", secrets.token_hex(32))).decode()
            store.set(key, kept)
            return kept
        return bytes(store.get(key)).decode()
    except (RuntimeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"the nodes' secret could not be exchanged by torch.distributed's store ({error}): set HDMLP_SECRET on all nodes"
        ) from None


def _users_own(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    directory = os.path.join(home, ".hdmlp")
    path = os.path.join(directory, "secret")
    if not os.path.exists(path):
        draft = f"{path}.{secrets.token_hex(8)}"
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, secrets.token_hex(32).encode() + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(draft, path)  # the first one counts, whole
            except FileExistsError:
                pass
            finally:
                os.unlink(draft)
        except OSError as error:
            raise ConfigError(
                f"the nodes of the job need a secret in common, and none could be kept in {path} ({error}): "
                "set HDMLP_SECRET, or HDMLP_SECRET_FILE in a shared directory"
            ) from None
    return _read(path, "the user's secret")
