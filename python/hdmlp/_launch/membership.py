"""Which rank this process is, and how the ranks of one job find each other.

These are asked, in this order: arguments, an initialised ``torch.distributed``, the launchers
(launchers.py). If none does, the process is the only one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping

from .._lib.arguments import whole_number
from ..errors import ConfigError
from . import nodes as _nodes
from .launchers import LAUNCHERS, Launcher, Variables, number
from .place import Place

log = logging.getLogger("hdmlp")

#: The most bytes of a job's name (docs/FORMATS.md).
LONGEST_KEY = 256


def find(
    rank: int | None = None,
    world_size: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place:
    """Returns this process's place.

    Args:
        rank: The rank, if the user gives it.
        world_size: The number of ranks; given if and only if ``rank`` is.
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: Only one of the two is given, as an argument or a variable, or the rank is not
            in [0, world_size).
    """
    environ = os.environ if environ is None else environ
    if (rank is None) != (world_size is None):
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise ConfigError(f"{given} is given without {missing}: give both or neither")
    if rank is not None and world_size is not None:
        place = Place(
            whole_number("rank", rank, 0),
            whole_number("world_size", world_size, 1),
            number(environ, "LOCAL_RANK") or 0,
            "the arguments",
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
    place = _on_nodes(place, environ)
    unnamed = _nodes.unnamed(place, environ)
    if unnamed:
        log.warning("%s", unnamed)
    elif _has_no_siblings(place, environ):
        log.warning(
            "RANK=%d and WORLD_SIZE=%d are set, but the process that started this one (%d) has "
            "started no other rank, and nothing else says which ranks belong together: this rank "
            "has a job of its own. Start all ranks with torchrun, or set MASTER_ADDR and "
            "MASTER_PORT to the same values for all of them, such as 127.0.0.1 and 29500",
            place.rank,
            place.world_size,
            os.getppid(),
        )
    return place


def look(environ: Mapping[str, str] | None = None) -> Place:
    """Returns the place as :func:`find` does, without its warnings.

    Args:
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: Some of what gives it is missing.
    """
    environ = os.environ if environ is None else environ
    return _on_nodes(_looked(environ), environ)


def _on_nodes(place: Place, environ: Mapping[str, str]) -> Place:
    """Adds to a place the layout of the nodes."""
    layout = _nodes.layout(place.rank, place.world_size, place.local_rank, environ)
    return place._replace(
        nodes=layout.nodes,
        node=layout.node,
        local_world_size=layout.local_world_size,
        master=layout.master,
        node_source=layout.source,
        problem=layout.problem,
    )


def _looked(environ: Mapping[str, str]) -> Place:
    return (
        _from_torch(number(environ, "LOCAL_RANK") or 0)
        or from_environment(environ)
        or _alone(environ)
    )


def _alone(environ: Mapping[str, str]) -> Place:
    """Returns the place of the only process of a job.

    Raises:
        ConfigError: A variable speaks for several processes, or for several nodes.
    """
    for name, other, least in (("WORLD_SIZE", "RANK", 2), ("RANK", "WORLD_SIZE", 1)):
        if (number(environ, name) or 0) >= least:
            raise ConfigError(
                f"{name}={environ[name]} is set without {other}: set both, as torchrun does, "
                "or neither"
            )
    nodes = [node for node in environ.get("HDMLP_NODES", "").split(",") if node.strip()]
    if len(nodes) > 1:
        raise ConfigError(
            f"HDMLP_NODES={environ['HDMLP_NODES']} names {len(nodes)} nodes, and nothing says "
            "which rank of how many this process is: start it with torchrun, srun or mpirun, or "
            "set RANK and WORLD_SIZE"
        )
    return Place(0, 1, 0, "a single process")


def _from_torch(local: int) -> Place | None:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Place(distributed.get_rank(), distributed.get_world_size(), local, "torch.distributed")


def from_environment(environ: Mapping[str, str]) -> Place | None:
    """Returns the rank that a launcher's variables say; None if none does.

    Args:
        environ: The environment.

    Raises:
        ConfigError: The variables contradict each other, or are no numbers.
    """
    for launcher, variables in _variables():
        if variables.needed is not None and variables.needed not in environ:
            continue
        rank, size = number(environ, variables.rank), number(environ, *variables.sizes)
        if rank is not None and size is not None:
            if rank >= size:
                sizes = next(name for name in variables.sizes if number(environ, name) == size)
                raise ConfigError(
                    f"{variables.rank}={rank} and {sizes}={size}: ranks count from 0, and must be "
                    "below the number of ranks"
                )
            return Place(rank, size, number(environ, variables.local_rank) or 0, launcher.name)
        said = [name for name in (variables.rank, *variables.sizes) if environ.get(name)]
        wrong = [f"{name}={environ[name]!r}" for name in said if number(environ, name) is None]
        if wrong and len(said) > 1:
            raise ConfigError(f"{' and '.join(wrong)}: must be a whole number, from 0")
    return None


def _variables() -> Iterator[tuple[Launcher, Variables]]:
    """Returns where launchers say which rank a process is, in order of precedence."""
    return ((launcher, variables) for launcher in LAUNCHERS for variables in launcher.ranks)


def doubts(place: Place, environ: Mapping[str, str] | None = None) -> str:
    """Returns why the launcher's variables may be wrong, for a job that does not start.

    Args:
        place: This process's place.
        environ: The environment, ``os.environ`` by default.

    Returns:
        Empty if nothing suggests it.
    """
    environ = os.environ if environ is None else environ
    return _contradiction(place, environ) or _nodes.unknown_host(place, environ)


def _contradiction(place: Place, environ: Mapping[str, str]) -> str:
    """Returns what in the environment contradicts a place; empty if nothing does."""
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
                    f"RANK={place.rank} and WORLD_SIZE={size} come first, but {launcher.name} says "
                    f"{rank_name}={other} of {size_names[0]}={size}: unset RANK and WORLD_SIZE, "
                    "unless every process has a RANK of its own"
                )
    return ""


def job_key(place: Place, name: str, environ: Mapping[str, str] | None = None) -> str:
    """Returns the key that all ranks of a job, and no others, give the daemon.

    Args:
        place: This process's place.
        name: The loader's name within its process, the same on all ranks.
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: The name cannot be encoded as UTF-8.
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
        # Without an ID of its own torchrun says "none": the address distinguishes such runs.
        parts = ["torchrun", run, environ.get("TORCHELASTIC_RESTART_COUNT", "0"), master]
        return "-".join(part for part in parts if part)
    # The launcher's name for this launch: another one with the same address may follow at once.
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


_told_of: set[int] = set()


def _has_no_siblings(place: Place, environ: Mapping[str, str]) -> bool:
    """Reports, once in a process, whether the ranks' parent is all that they share, in vain.

    So it is if RANK and WORLD_SIZE are set by hand in two shells. Ranks that start later than this
    one looks are not seen.
    """
    if (
        place.source != LAUNCHERS[0].name
        or os.getpid() in _told_of
        or not _launch_key(place, environ).startswith("parent-")
    ):
        return False
    _told_of.add(os.getpid())
    return not any(rank != str(place.rank) for rank in _ranks_of(os.getppid()))


def _ranks_of(parent: int) -> Iterator[str]:
    """Returns RANK of each child of a process that has it; "unknown" if it cannot be read."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[1]) != parent:
                    continue
            with open(f"/proc/{name}/environ", encoding="utf-8", errors="replace") as file:
                variables = file.read().split("\0")
        except PermissionError:
            yield "unknown"
        except (OSError, ValueError, IndexError):  # not a process, or one that has just ended
            continue
        else:
            yield from (v.partition("=")[2] for v in variables if v.startswith("RANK="))


def cluster(
    place: Place, name: str, environ: Mapping[str, str] | None = None
) -> dict[str, object] | None:
    """Returns OPEN's object about the nodes of the job; None if there is one node.

    Args:
        place: This process's place.
        name: The loader's name.
        environ: The environment, ``os.environ`` by default.

    Raises:
        ConfigError: See :func:`hdmlp._launch.nodes.cluster`.
    """
    environ = os.environ if environ is None else environ
    if place.nodes <= 1:
        return None
    key = _launch_key(place, environ)
    return _nodes.cluster(place, name, None if key.startswith("nodes-") else key, environ)


def launch(environ: Mapping[str, str] | None = None) -> dict[str, object] | None:
    """Returns what calls about a dataset say of the nodes that open it; None if there is one node.

    What is missing or wrong, a loader reports: a dataset can be opened without other nodes.

    Args:
        environ: The environment, ``os.environ`` by default.
    """
    environ = os.environ if environ is None else environ
    try:
        place = look(environ)
        if place.nodes <= 1:
            return None
        key = _launch_key(place, environ)
        name = key if len(key.encode()) <= LONGEST_KEY else hashlib.sha256(key.encode()).hexdigest()
        return _nodes.launch(place, name, None if key.startswith("nodes-") else key, environ)
    except ConfigError as error:
        log.debug("indexes of datasets are not shared by the nodes: %s", error)
        return None


_nonces: dict[int, str] = {}


def _nonce() -> str:
    """Returns a random text, fixed for this process: process IDs are used again."""
    return _nonces.setdefault(os.getpid(), secrets.token_hex(4))


_ordinals = 0
_loaders = 0


def next_loader() -> int:
    """Returns a new loader's number in its process, from 0, whether or not ranks share it.

    It is the same in all processes that run the same script.
    """
    global _loaders
    _loaders += 1
    return _loaders - 1


def next_ordinal() -> int:
    """Returns a new loader's number in its process, from 0: the same on all ranks of a script."""
    global _ordinals
    _ordinals += 1
    return _ordinals - 1


def reserve_ordinal(number: int) -> None:
    """Gives later loaders larger numbers than that of a loader from another process."""
    global _ordinals
    _ordinals = max(_ordinals, number + 1)
