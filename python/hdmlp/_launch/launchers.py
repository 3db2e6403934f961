"""The launchers: what each gives of a process, and in which variables.

A launcher is a class with an object in :data:`LAUNCHERS`; nothing else names one. It gives
what it can: the variables of the rank, the node, the name of the launch, a secret. Nothing here
talks to another machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import ConfigError
from .slurm_lists import expand_counts, expand_hosts

Environ = Mapping[str, str]


class Layout(NamedTuple):
    """The nodes of a job, as far as the launcher gives them.

    Attributes:
        nodes: The number of nodes.
        node: This process's node, from 0; None if it is not known.
        local_world_size: The number of ranks of this node; 0 if it is not known.
        master: Node 0's host; None if it is not known.
        source: The launcher's name.
        problem: Why ``node`` is None.
    """

    nodes: int = 1
    node: int | None = 0
    local_world_size: int = 0
    master: str | None = None
    source: str = "a single node"
    problem: str = ""


class Process(NamedTuple):
    """A process among those of its job."""

    rank: int
    world_size: int
    local_rank: int


class Variables(NamedTuple):
    """Where a launcher gives which rank a process is.

    Attributes:
        rank: The variable of the rank.
        sizes: Variables of the world size; the first that is a number counts.
        local_rank: The variable of the rank on its node.
        needed: A variable without which the others mean something else.
    """

    rank: str
    sizes: tuple[str, ...]
    local_rank: str
    needed: str | None = None


class Launcher:
    """What a launcher may say; by default nothing.

    Attributes:
        name: The launcher's name, for messages.
        ranks: Where it gives which rank this is; the first that is complete counts.
    """

    name = ""
    ranks: tuple[Variables, ...] = ()

    def layout(self, process: Process, environ: Environ) -> Layout | None:
        """Returns the process's node; None if this launcher did not start it, or does not say."""
        return None

    def launch(self, environ: Environ) -> str | None:
        """Returns the launch's name: the same in all its processes, and another one in the next."""
        return None

    def first_host(self, nodes: int, environ: Environ) -> str | None:
        """Returns node 0's host in an allocation of that many nodes; None if it is not known."""
        return None

    def node(self, environ: Environ) -> int | None:
        """Returns this node's number if the launcher gives it without the others."""
        return None

    def secret(self, environ: Environ) -> str | None:
        """Returns what only the processes of the launch know; None if there is no such thing.

        Raises:
            ConfigError: The processes have no secret in common unless the user gives one.
        """
        return None

    def doubt(self, environ: Environ) -> str:
        """Returns why a process that seems to be alone may be meant to be one of several.

        Returns:
            Empty if nothing suggests it.
        """
        return ""


class Torchrun(Launcher):
    """torchrun, or anything else that sets RANK and WORLD_SIZE."""

    name = "torchrun"
    ranks = (Variables("RANK", ("WORLD_SIZE",), "LOCAL_RANK"),)

    def layout(self, process: Process, environ: Environ) -> Layout | None:
        nodes, node = number(environ, "GROUP_WORLD_SIZE"), number(environ, "GROUP_RANK")
        if nodes is None or node is None:
            return None
        if node >= nodes:
            raise ConfigError(
                f"GROUP_RANK={node}, this node's number, must be below GROUP_WORLD_SIZE={nodes}, "
                "the number of nodes: leave both to torchrun, or correct them"
            )
        return Layout(nodes, node, number(environ, "LOCAL_WORLD_SIZE") or 0, None, self.name)

    def doubt(self, environ: Environ) -> str:
        if not environ.get("RANK") or environ.get("WORLD_SIZE"):
            return ""
        return (
            f"RANK={environ['RANK']} is set without WORLD_SIZE, so that this process is taken for "
            "the only one: set both, as torchrun does, or neither"
        )


class MPI(Launcher):
    """An MPI launcher, which gives how many ranks a node has, but not which node it is.

    Attributes:
        local_size: The variable of the number of this node's ranks.
        size: The variable of the number of all ranks.
        local_rank: The variable of the rank among this node's.
    """

    local_size = size = local_rank = ""

    def layout(self, process: Process, environ: Environ) -> Layout | None:
        rank, world_size = process.rank, process.world_size
        local = number(environ, self.local_size)
        if not local or number(environ, self.size) not in (None, world_size):
            return None
        if local >= world_size:
            return Layout(1, 0, world_size, None, self.name)
        known = number(environ, self.local_rank)
        local_rank = process.local_rank if known is None else known
        listed = len(addresses(environ))
        nodes = number(environ, "OMPI_MCA_orte_num_nodes") or (
            listed if listed > 1 else -(-world_size // local)
        )
        if nodes * local == world_size:
            if rank % local == local_rank:  # ranks fill one node after the other
                return Layout(nodes, rank // local, local, None, self.name)
            if rank // nodes == local_rank:  # or are dealt to the nodes in turn
                return Layout(nodes, rank % nodes, local, None, self.name)
        return Layout(
            nodes,
            None,
            local,
            None,
            self.name,
            f"{self.name} does not say which node this is, and it does not follow from rank {rank} "
            f"of {world_size} with {local} rank{'s' * (local != 1)} on this node (local rank "
            f"{local_rank}) of {nodes}",
        )

    def launch(self, environ: Environ) -> str | None:
        names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
        job = next((environ[name] for name in names if environ.get(name)), None) or hydra(environ)
        return f"mpi-{job}" if job else None


class OpenMPI(MPI):
    """Open MPI's mpirun."""

    name = "Open MPI"
    ranks = (
        Variables("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_RANK"),
    )
    local_size, size, local_rank = (
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    )

    def secret(self, environ: Environ) -> str | None:
        key = environ.get("OMPI_MCA_orte_precondition_transports", "")
        # 128 random bits, which mpirun draws for the job.
        if len(re.sub("[^0-9a-f]", "", key)) >= 32 and set(key) - set("0-"):
            return hashlib.sha256(b"hdmlp secret from mpirun\0" + key.encode()).hexdigest()
        return None


class MPICH(MPI):
    """MPICH's and Intel MPI's mpirun."""

    name = "MPICH"
    ranks = (Variables("PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),)
    local_size, size, local_rank = "MPI_LOCALNRANKS", "PMI_SIZE", "MPI_LOCALRANKID"


class PMIx(MPI):
    """Launchers that speak PMIx."""

    name = "PMIx"
    ranks = (Variables("PMIX_RANK", ("PMIX_SIZE",), "PMIX_LOCAL_RANK"),)
    local_size, size, local_rank = "PMIX_LOCAL_SIZE", "PMIX_SIZE", "PMIX_LOCAL_RANK"


class Slurm(Launcher):
    """Slurm's srun."""

    name = "Slurm"
    ranks = (
        Variables("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS",), "SLURM_LOCALID"),
        Variables(
            "SLURM_PROCID", ("SLURM_NTASKS", "SLURM_NPROCS"), "SLURM_LOCALID", "SLURM_STEP_ID"
        ),
    )

    def layout(self, process: Process, environ: Environ) -> Layout | None:
        tasks = number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
        nodes, node = (
            number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
            number(environ, "SLURM_NODEID"),
        )
        if (
            nodes is None
            or node is None
            or tasks != process.world_size
            or "SLURM_PROCID" not in environ
        ):
            return None  # an allocation, in which something else started this process
        counts = expand_counts(
            environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or ""
        )
        hosts = expand_hosts(environ.get("SLURM_STEP_NODELIST") or "")
        local = counts[node] if node < len(counts) else 0
        return Layout(nodes, node, local, hosts[0] if hosts else None, self.name)

    def launch(self, environ: Environ) -> str | None:
        if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
            return f"slurm-{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
        return None

    def first_host(self, nodes: int, environ: Environ) -> str | None:
        if nodes < 2 or number(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES") != nodes:
            return None
        return next(
            iter(
                expand_hosts(
                    environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
                )
            ),
            None,
        )

    def doubt(self, environ: Environ) -> str:
        tasks = number(environ, "SLURM_NTASKS")
        if tasks is None or tasks < 2 or "SLURM_STEP_ID" in environ:
            return ""
        return (
            f"SLURM_NTASKS={tasks}, but this process was not started by srun: it is a job of its "
            "own, with 1 rank. Start it with srun to have all tasks in one job"
        )


class PMI(Launcher):
    """Other launchers that speak PMI."""

    name = "PMI"
    ranks = (Variables("PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID"),)


class Kubernetes(Launcher):
    """An indexed job: a pod per node, whose processes get RANK and WORLD_SIZE from the manifest."""

    name = "Kubernetes"

    def layout(self, process: Process, environ: Environ) -> Layout | None:
        node, world_size = self.node(environ), process.world_size
        if node is None:
            return None
        local = number(environ, "LOCAL_WORLD_SIZE") or 1
        if world_size % local:
            raise ConfigError(
                f"WORLD_SIZE={world_size} is not a multiple of LOCAL_WORLD_SIZE={local}, the ranks "
                "of each pod of the Kubernetes job: set WORLD_SIZE to pods times LOCAL_WORLD_SIZE"
            )
        if node >= world_size // local:
            raise ConfigError(
                f"JOB_COMPLETION_INDEX={node}, but with WORLD_SIZE={world_size} and "
                f"LOCAL_WORLD_SIZE={local} there are only {world_size // local} pods: set "
                "WORLD_SIZE to pods times LOCAL_WORLD_SIZE"
            )
        return Layout(world_size // local, node, local, None, self.name)

    def node(self, environ: Environ) -> int | None:
        return number(environ, "JOB_COMPLETION_INDEX")

    def secret(self, environ: Environ) -> str | None:
        if "JOB_COMPLETION_INDEX" in environ or "KUBERNETES_SERVICE_HOST" in environ:
            raise ConfigError(
                "the nodes of the job need a secret in common, and pods share no home directory: "
                "set HDMLP_SECRET from a Kubernetes secret, in all pods"
            )
        return None


#: All launchers, in order of precedence. MPI's come before Slurm: within a Slurm job they start
#: their own daemons by srun, one per node, and Slurm's variables are about those.
LAUNCHERS: tuple[Launcher, ...] = (
    Torchrun(),
    OpenMPI(),
    MPICH(),
    PMIx(),
    Slurm(),
    PMI(),
    Kubernetes(),
)


def number(environ: Environ, *names: str) -> int | None:
    """Returns the value of the first of these variables that is a whole number."""
    for name in names:
        value = (environ.get(name) or "").strip()
        if value.isdigit():
            return int(value)
    return None


def addresses(environ: Environ) -> list[str]:
    """Returns the addresses in ``HDMLP_NODES``."""
    return [part.strip() for part in (environ.get("HDMLP_NODES") or "").split(",") if part.strip()]


def hydra(environ: Environ) -> str | None:
    """Returns the address at which MPICH's mpirun listens, which differs from launch to launch.

    None of its variables does. The address is an argument of its proxy on each node, an ancestor of
    all ranks there.

    Returns:
        None if this process sees no such ancestor.
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
