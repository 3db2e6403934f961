"""Which rank this process is, and how the ranks of one job find each other.

In this order: arguments, an initialised ``torch.distributed``, torchrun, Open MPI, MPICH, a
Slurm step, PMI, a single process. The MPIs' own launchers stand before Slurm: within a Slurm job they
start their processes by srun, one per node, and what Slurm says is about those.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
from typing import Any, Dict, Mapping, NamedTuple, Optional

from . import _nodes
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
    node: Optional[int] = 0
    local_world_size: int = 0
    master: Optional[str] = None
    node_source: str = "a single node"
    problem: str = ""


_VARIABLES = (
    # source, rank, world size, local rank, and a variable that must be there too
    ("torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", None),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_RANK", None),
    ("MPICH", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS",), "SLURM_LOCALID", None),
    ("Slurm", "SLURM_PROCID", ("SLURM_NTASKS", "SLURM_NPROCS"), "SLURM_LOCALID", "SLURM_STEP_ID"),
    ("PMI", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", None),
    ("PMIx", "PMIX_RANK", ("PMIX_SIZE",), "PMIX_LOCAL_RANK", None),
)


def _number(environ: Mapping[str, str], name: str) -> Optional[int]:
    value = environ.get(name)
    if value is None or not value.strip().isdigit():
        return None
    return int(value)


def find(rank: Optional[int] = None, world_size: Optional[int] = None,
         environ: Optional[Mapping[str, str]] = None) -> Place:
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
        place = Place(int(rank), int(world_size), _number(environ, "LOCAL_RANK") or 0, "the arguments")
    else:
        place = _looked(environ)
    if place.world_size < 1 or not 0 <= place.rank < place.world_size:
        raise ConfigError(f"rank {place.rank} of world_size {place.world_size}, from {place.source}: "
                          "rank must be in [0, world_size)")
    contradiction = _contradiction(place, environ)
    if contradiction:
        log.warning("%s", contradiction)
    place = Place(*place[:4], *_nodes.layout(place.rank, place.world_size, place.local_rank, environ))
    unnamed = _nodes.unnamed(place, environ)
    if unnamed:
        log.warning("%s", unnamed)
    return place


def look(environ: Optional[Mapping[str, str]] = None) -> Place:
    """The place as :func:`find` has it, without its warnings.

    Raises:
        ConfigError: what says it says half of it.
    """
    environ = os.environ if environ is None else environ
    place = _looked(environ)
    return Place(*place[:4], *_nodes.layout(place.rank, place.world_size, place.local_rank, environ))


def _looked(environ: Mapping[str, str]) -> Place:
    return _from_torch(_number(environ, "LOCAL_RANK") or 0) or _from_environment(environ) or _alone(environ)


def _alone(environ: Mapping[str, str]) -> Place:
    """The place of a process that nothing says to be one of several."""
    for name, other, least in (("WORLD_SIZE", "RANK", 2), ("RANK", "WORLD_SIZE", 1)):
        if (_number(environ, name) or 0) >= least:
            raise ConfigError(f"{name}={environ[name]} is set without {other}: set both, as torchrun does, or neither")
    nodes = [node for node in environ.get("HDMLP_NODES", "").split(",") if node.strip()]
    if len(nodes) > 1:
        raise ConfigError(f"HDMLP_NODES={environ['HDMLP_NODES']} names {len(nodes)} nodes, and nothing says which rank of how many this process is: "
                          "start it by torchrun, srun or mpirun, or set RANK and WORLD_SIZE")
    return Place(0, 1, 0, "a single process")


def _from_torch(local: int) -> Optional[Place]:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Place(distributed.get_rank(), distributed.get_world_size(), local, "torch.distributed")


def _from_environment(environ: Mapping[str, str]) -> Optional[Place]:
    for source, rank_name, size_names, local_name, needed in _VARIABLES:
        if needed is not None and needed not in environ:
            continue
        rank = _number(environ, rank_name)
        size = next((s for s in (_number(environ, n) for n in size_names) if s is not None), None)
        if rank is not None and size is not None:
            return Place(rank, size, _number(environ, local_name) or 0, source)
        said = [name for name in (rank_name, *size_names) if environ.get(name)]
        wrong = [f"{name}={environ[name]!r}" for name in said if _number(environ, name) is None]
        if wrong and len(said) > 1:
            raise ConfigError(f"{' and '.join(wrong)}: must be a whole number, from 0")
    return None


def doubts(place: Place, environ: Optional[Mapping[str, str]] = None) -> str:
    """Why the launcher's variables may be what is wrong when a job does not start; empty if nothing speaks for it."""
    environ = os.environ if environ is None else environ
    return _contradiction(place, environ) or _nodes.unknown_host(place, environ)


def _contradiction(place: Place, environ: Mapping[str, str]) -> str:
    """What in the environment speaks against this place; empty if nothing does."""
    if place.source == "a single process":
        tasks = _number(environ, "SLURM_NTASKS")
        if tasks is not None and tasks > 1 and "SLURM_STEP_ID" not in environ:
            return (f"SLURM_NTASKS={tasks}, but this process was not started by srun: it is a job of its own, with one rank. "
                    "Start it by srun to have all tasks in one job")
    if place.source == "torchrun" and "TORCHELASTIC_RUN_ID" not in environ:  # somebody else has set RANK
        for source, rank_name, size_names, _, needed in _VARIABLES[1:]:
            other, size = _number(environ, rank_name), _number(environ, size_names[0])
            if size == place.world_size and other not in (None, place.rank) and (needed is None or needed in environ):
                return (f"RANK={place.rank} and WORLD_SIZE={size} come first, but {source} says {rank_name}={other} of "
                        f"{size_names[0]}={size}: unset RANK and WORLD_SIZE, unless every process has a RANK of its own")
    return ""


def job_key(place: Place, name: str, environ: Optional[Mapping[str, str]] = None) -> str:
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
        raise ConfigError(f"name={name!a}: it has surrogates, which UTF-8 cannot hold; allowed: any other text") from None
    key = f"{_launch_key(place, environ)}/{name}"
    if len(key.encode()) <= LONGEST_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{key.encode()[:LONGEST_KEY - 1 - len(digest)].decode(errors='ignore')}-{digest}"


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
    launch = None
    if place.node_source in ("Open MPI", "MPICH", "PMIx"):
        launch = _mpi_job(environ)
    elif place.node_source == "Slurm":
        launch = _slurm_step(environ)
    if master:
        return f"{launch}-{master}" if launch else f"master-{master}"
    launch = launch or _mpi_job(environ) or _slurm_step(environ)
    if launch:
        return launch
    if place.nodes > 1:  # nothing but node 0's address is the same on all of them
        return f"nodes-{place.master}:{_nodes.port(None, environ)}"
    return f"parent-{os.getppid()}"


def _mpi_job(environ: Mapping[str, str]) -> Optional[str]:
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
    job = next((environ[name] for name in names if environ.get(name)), None) or _hydra(environ)
    return f"mpi-{job}" if job else None


def _hydra(environ: Mapping[str, str]) -> Optional[str]:
    """Where MPICH's mpirun listens, host:port: no variable of its own tells one launch from the next.

    It says so to its proxy on each node, an ancestor of all ranks there. None if there is no such ancestor to be seen.
    """
    if "PMI_RANK" not in environ or "MPI_LOCALNRANKS" not in environ:
        return None
    process = os.getppid()
    try:
        while process > 1:
            with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
                words = file.read().split("\0")
            if os.path.basename(words[0]) == "hydra_pmi_proxy" and "--control-port" in words[:-1]:
                return words[words.index("--control-port") + 1]
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _slurm_step(environ: Mapping[str, str]) -> Optional[str]:
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    return None


def cluster(place: Place, name: str, environ: Optional[Mapping[str, str]] = None) -> Optional[Dict[str, Any]]:
    """What OPEN says about the nodes of the job; None if there is one. See :func:`hdmlp._nodes.cluster`."""
    environ = os.environ if environ is None else environ
    if place.nodes <= 1:
        return None
    key = _launch_key(place, environ)
    return _nodes.cluster(place, name, None if key.startswith("nodes-") else key, environ)


_nonces: Dict[int, str] = {}


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
