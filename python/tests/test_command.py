"""What the `hdmlp` command passes to the binary of what a launcher gives."""

import subprocess
import sys
import zlib

import pytest
from hdmlp import errors
from hdmlp._launch import command

SECRET = {"HDMLP_SECRET": "sixteen bytes or more"}
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "GROUP_RANK": "2"} | {
    "GROUP_WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
}
SLURM_PORT = 20000 + zlib.crc32(b"slurm-77.3") % 3000 * 4


def flags(variables):
    """The further arguments of `hdmlp probe`, if there is a secret."""
    called = command.complete(["probe", "data"], SECRET | variables)
    assert called.arguments[:2] == ["probe", "data"]
    assert not called.instead
    assert called.variables == (SECRET if len(called.arguments) > 3 else {})
    return called.arguments[2:]


@pytest.mark.parametrize(
    "variables, want",
    [
        ({}, ["--nodes=1"]),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "GROUP_RANK": "0"}
            | {"GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "localhost"},
            ["--nodes=1"],
        ),
        (
            TORCHRUN | {"MASTER_ADDR": "node-0", "MASTER_PORT": "29500"},
            ["--nodes=4", "--node=2", "--address=node-0:29510"],
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_ID": "3", "SLURM_JOB_ID": "77", "SLURM_NODEID": "1"}
            | {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
            | {"SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
            ["--nodes=2", "--node=1", f"--address=gpu03:{SLURM_PORT}"],
        ),
        ({"SLURM_NNODES": "2", "SLURM_NODEID": "0"}, ["--nodes=1"]),
        (
            {"HDMLP_NODES": "a:7000,b", "HDMLP_NODE": "1"},
            ["--nodes=2", "--node=1", "--address=a:7000"],
        ),
        (
            {"HDMLP_NODES": "[fe80::1]:7000,fe80::2", "HDMLP_NODE": "0"},
            ["--nodes=2", "--node=0", "--address=:7000"],
        ),
        (
            {"HDMLP_NODES": "a,b", "JOB_COMPLETION_INDEX": "1"},
            ["--nodes=2", "--node=1", "--address=a:29510"],
        ),
    ],
)
def test_the_place_follows_from_variables(variables, want):
    assert flags(variables) == want


@pytest.mark.parametrize(
    "variables, want",
    [
        (TORCHRUN, "not where node 0 is"),
        (TORCHRUN | {"HDMLP_NODES": "a,b,c"}, "HDMLP_NODES names 3 nodes, but torchrun says that"),
        ({"HDMLP_NODES": "no-host-is-called-so,nor-so"}, "none of them is called"),
        ({"HDMLP_NODES": "a,b", "HDMLP_NODE": "2"}, "must be below the number of nodes, 2"),
        ({"HDMLP_NODES": "a:0,b", "HDMLP_NODE": "0"}, "the port must be"),
        ({"HDMLP_NODES": "a,b", "HDMLP_NODE": "0", "HDMLP_SECRET": "short"}, "has 5 bytes"),
    ],
)
def test_contradictions_are_refused(variables, want):
    with pytest.raises(errors.ConfigError, match=want):
        flags(variables)


def test_one_process_of_each_node_measures_it():
    called = command.complete(["--json", "probe", "data"], TORCHRUN | {"LOCAL_RANK": "1"})
    assert called.instead == "local rank 1: the first process of each node measures it"


@pytest.mark.parametrize(
    "arguments",
    [[], ["serve"], ["stats", "probe"], ["probe", "--nodes=2"], ["probe", "--help"]],
)
def test_other_commands_are_as_they_were_typed(arguments):
    assert command.complete(arguments, TORCHRUN) == command.Command(arguments, {})


def test_an_error_is_wrong_input():
    done = subprocess.run(
        [sys.executable, "-m", "hdmlp", "probe", "data"],
        env={"PYTHONPATH": ":".join(sys.path), "HDMLP_NODES": "no-host-is-called-so,nor-so"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hdmlp: HDMLP_NODES=")
