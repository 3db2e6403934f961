"""Slurm's launchers on several hosts."""

import os
import re

import pytest
from launched import (
    EPOCHS,
    MPI,
    alone,  # noqa: F401
    alone_raw,  # noqa: F401
    binary,  # noqa: F401
    check,
    documented,
    folder,  # noqa: F401
    hosts,  # noqa: F401
    mpirun,
    needed,
    raw,  # noqa: F401
    slurm,  # noqa: F401
    work,  # noqa: F401
)

pytest.importorskip("torch")
pytest.importorskip("torchvision")

pytestmark = [pytest.mark.slow, pytest.mark.ci]


def sbatch(hosts, slurm, work, *command):
    """Submits a batch script and waits for its end; returns the job's state and output."""
    status, job = hosts.run(
        0, ["sbatch", "--parsable", "--output=out", *command], slurm, cwd=work.path
    )
    assert status == 0, job
    # Not sbatch --wait: it looks only now and then.
    hosts.wait_for(0, f"squeue -h -j {job.strip()} -t pending,running,completing", "", slurm)
    _, state = hosts.run(0, f"squeue -h -j {job.strip()} -t all -o %T", slurm)
    with open(os.path.join(work.path, "out")) as file:
        return state.strip(), file.read()


def test_sbatch_gives_every_rank_its_samples(hosts, slurm, folder, alone, work):
    (line,) = documented("README.md", "sbatch", folder)
    state, out = sbatch(hosts, slurm, work, *line.split()[1:])
    assert state == "COMPLETED", out
    check(work, alone)
    assert re.findall("epoch [0-3]: loss", out) == [
        f"epoch {epoch}: loss" for epoch in range(EPOCHS)
    ]


@pytest.mark.parametrize(
    "more, nodes", [((), (0, 0, 1, 1)), (("--distribution=cyclic",), (0, 1, 0, 1))]
)
def test_srun_without_torch_gives_every_rank_its_samples(
    hosts, slurm, folder, alone_raw, raw, more, nodes
):
    """Without configuration: node 0 is the first of the step's nodes, and the secret is the
    user's."""
    status, out = hosts.run(
        0, ["srun", "-N2", "-n4", *more, "python", "train.py", folder], slurm, cwd=raw.path
    )
    assert status == 0, out
    check(raw, alone_raw, nodes)


def test_an_unknown_host_is_named(hosts, slurm, folder, raw):
    status, out = hosts.run(
        0,
        ["srun", "-N2", "-n2", "python", "train.py", folder],
        {**slurm, "MASTER_ADDR": "nosuch.invalid", "HDMLP_START_TIMEOUT": "3s"},
        cwd=raw.path,
    )
    assert status != 0
    assert not raw.records()
    assert "node 1 of 2 did not join" in out
    assert "nosuch.invalid, from MASTER_ADDR, is not known on node1" in out


def test_wrong_input_ends_the_launcher_with_status_1(hosts, slurm, raw):
    command = "python train.py /nowhere"
    ends = [
        mpirun(hosts, "openmpi", raw, f"mpirun --hostfile hosts -n 4 {command}"),
        mpirun(hosts, "mpich", raw, f"mpirun -f hosts -n 4 {command}"),
        hosts.run(0, f"srun -N2 -n4 {command}", slurm, cwd=raw.path),
    ]
    for status, out in ends:
        assert status == 1, out
        assert "/nowhere: there is no such directory" in out, out


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_mpirun_in_a_slurm_job_gives_every_rank_its_samples(
    hosts, slurm, folder, alone_raw, raw, kind
):
    """mpirun starts its processes through srun, whose variables then describe other processes."""
    needed(MPI[kind])
    script = os.path.join(raw.path, "job")
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\n{MPI[kind]} -n 4 python train.py {folder}\n")
    environment = {**slurm, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    state, out = sbatch(hosts, environment, raw, "--nodes=2", "--ntasks-per-node=2", script)
    assert state == "COMPLETED", out
    check(raw, alone_raw)
