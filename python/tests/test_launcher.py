"""Ranks and nodes from the environments of launchers."""

import pathlib
import re

import pytest
from hdmlp import data, errors
from hdmlp._launch import membership as launcher
from hdmlp._launch.launchers import LAUNCHERS
from hdmlp._lib import arguments

OPERATIONS = pathlib.Path(__file__).parents[2] / "docs/OPERATIONS.md"


@pytest.mark.parametrize(
    "environ, place",
    [
        ({}, (0, 1, 0)),
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "8",
                "LOCAL_RANK": "1",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
            },
            (3, 8, 1),
        ),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "2"}, (5, 6, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0"}, (5, 6, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, (0, 1, 0)),  # a batch script, not a step
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            (1, 2, 1),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4, 0)),
    ],
)
def test_the_rank_is_found_in_the_environment(environ, place):
    assert launcher.find(environ=environ)[:3] == place


@pytest.mark.parametrize("environ", [{"RANK": "3"}, {"WORLD_SIZE": "4"}, {"HDMLP_NODES": "a,b"}])
def test_incomplete_environments_are_refused(environ):
    with pytest.raises(errors.ConfigError, match=r"RANK|names 2 nodes"):
        launcher.find(environ=environ)


def test_arguments_take_precedence():
    assert launcher.find(1, 2, {"RANK": "3", "WORLD_SIZE": "8"})[:2] == (1, 2)
    with pytest.raises(errors.ConfigError, match="world_size is given without rank"):
        launcher.find(world_size=2)
    with pytest.raises(errors.ConfigError, match=r"^RANK=8 and WORLD_SIZE=8: "):
        launcher.find(environ={"RANK": "8", "WORLD_SIZE": "8"})


MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_num_nodes": "2",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
STEP = {
    **SLURM,
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
# Of the srun by which mpirun starts what starts its processes, one per node.
ANOTHER = {
    **SLURM,
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "x",
}
INDEXED = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "JOB_COMPLETION_INDEX": "1",
    "MASTER_ADDR": "job-0.job",
}


@pytest.mark.parametrize(
    "environ, master, source",
    [
        (MPIRUN, None, "Open MPI"),
        ({**MPIRUN, "MASTER_ADDR": "n1"}, "n1", "Open MPI"),
        ({**MPIRUN, "HDMLP_NODES": "n1:7"}, "n1", "Open MPI"),
        ({**MPIRUN, **ANOTHER}, "n1", "Open MPI"),
        (HYDRA, None, "MPICH"),
        ({**HYDRA, **ANOTHER}, "n1", "MPICH"),
        (STEP, "n1", "Slurm"),
        ({**STEP, "MASTER_ADDR": "n1-ib"}, "n1-ib", "Slurm"),
        ({**STEP, **TORCHRUN}, "n1", "torchrun"),
        (TORCHRUN, "n1", "torchrun"),
        (INDEXED, "job-0.job", "Kubernetes"),
    ],
)
def test_the_layout_of_nodes_is_found_in_the_environment(environ, master, source, caplog):
    place = launcher.find(environ=environ)
    assert (place.rank, place.world_size, place.local_rank) == (2, 4, 0)
    assert (place.node, place.nodes, place.local_world_size, place.master, place.node_source) == (
        1,
        2,
        2,
        master,
        source,
    )
    assert not caplog.records


#: What each launcher gives to rank 2 of 4, which is the first of the second of two nodes; PMI says
#: nothing of nodes.
GIVEN = {
    "torchrun": TORCHRUN,
    "Open MPI": MPIRUN,
    "MPICH": HYDRA,
    "PMIx": {"PMIX_RANK": "2", "PMIX_SIZE": "4", "PMIX_LOCAL_RANK": "0", "PMIX_LOCAL_SIZE": "2"},
    "Slurm": STEP,
    "PMI": {"PMI_RANK": "2", "PMI_SIZE": "4"},
    "Kubernetes": INDEXED,
}


@pytest.mark.parametrize("each", LAUNCHERS, ids=lambda each: each.name)
def test_every_launcher_places_its_rank_and_is_described(each):
    assert each.name in GIVEN, f"add what {each.name} gives to rank 2 of 4 to GIVEN"
    place = launcher.find(environ=GIVEN[each.name])
    assert (place.rank, place.world_size, place.local_rank) == (2, 4, 0)
    assert each.name in (place.source, place.node_source)
    if each.name == place.node_source:
        assert (place.node, place.nodes, place.local_world_size) == (1, 2, 2)
    else:
        assert (place.node, place.nodes) == (0, 1)
    rows = re.findall(r"^\| ([^|]*) \|.*\|.*\|.*\|$", OPERATIONS.read_text(), re.M)
    assert any(re.search(rf"\b{re.escape(each.name)}\b", row) for row in rows), (
        f"add a row for {each.name} to the table of launchers in docs/OPERATIONS.md"
    )


def test_a_list_of_hosts_tells_which_node_this_is(monkeypatch):
    """For mpirun, which may not tell."""
    monkeypatch.setattr("socket.gethostname", lambda: "N2")
    uneven = {**MPIRUN, "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    assert launcher.find(environ=uneven).node is None
    for listed in ("n1,n2", "n1.example.com:7000,n2.example.com:7000"):
        assert launcher.find(environ={**uneven, "HDMLP_NODES": listed})[4:7] == (2, 1, 1)
    uneven = {
        **HYDRA,
        "PMI_SIZE": "3",
        "MPI_LOCALNRANKS": "1",
    }  # MPICH does not say how many nodes there are either
    assert launcher.find(environ={**uneven, "HDMLP_NODES": "n1,n2"})[4:7] == (2, 1, 1)
    assert launcher.find(environ={"RANK": "0", "WORLD_SIZE": "2", "HDMLP_NODES": "n1,n2"}).node == 1


@pytest.mark.parametrize(
    "environ, words",
    [
        ({"RANK": "0", "WORLD_SIZE": "four"}, "WORLD_SIZE='four'"),
        ({**TORCHRUN, "GROUP_RANK": "2"}, "GROUP_RANK=2.* GROUP_WORLD_SIZE=2"),
        ({**INDEXED, "WORLD_SIZE": "5"}, "WORLD_SIZE=5 .* LOCAL_WORLD_SIZE=2"),
        ({**INDEXED, "JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX=2"),
        ({**INDEXED, "MASTER_ADDR": ""}, "set MASTER_ADDR"),
        ({**INDEXED, "MASTER_PORT": "x"}, "MASTER_PORT='x'"),
        ({**MPIRUN, "OMPI_COMM_WORLD_SIZE": "3"}, "set HDMLP_NODE"),
        (MPIRUN, "Open MPI .* set MASTER_ADDR"),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "HDMLP_NODES": "n1,n2"},
            "HDMLP_NODES=n1,n2 .* HDMLP_NODE",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "3", "HDMLP_NODES": "n1,n2", "HDMLP_NODE": "0"},
            "3 ranks .* 2 nodes .* LOCAL_WORLD_SIZE",
        ),
    ],
)
def test_contradictory_environments_are_refused(environ, words, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "n3")
    with pytest.raises(errors.ConfigError, match=words):
        launcher.cluster(
            launcher.find(environ=environ), "0", {**environ, "HDMLP_SECRET": "0123456789abcdef"}
        )


@pytest.mark.parametrize(
    "environ, words",
    [
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "SLURM_NTASKS=4, .* srun"),
        ({**STEP, "RANK": "0", "WORLD_SIZE": "4"}, "RANK=0 .* SLURM_PROCID=2"),
        ({**MPIRUN, "RANK": "0", "WORLD_SIZE": "4"}, "RANK=0 .* OMPI_COMM_WORLD_RANK=2"),
        ({**STEP, "RANK": "2", "WORLD_SIZE": "4"}, None),  # set from what Slurm gives
        (
            {**STEP, "RANK": "0", "WORLD_SIZE": "8"},
            None,
        ),  # a launcher that starts several processes for each of Slurm's
    ],
)
def test_suspicious_environments_warn(environ, words, caplog):
    place = launcher.find(environ=environ)
    said = [record.getMessage() for record in caplog.records]
    assert said == [] if words is None else len(said) == 1 and re.search(words, said[0])
    assert words is None or launcher.doubts(place, environ) == said[0]


@pytest.mark.parametrize(
    "environ, warned",
    [
        ({"MASTER_ADDR": "192.0.2.1"}, True),
        ({"MASTER_ADDR": "127.0.0.1"}, False),
        ({"MASTER_ADDR": "nosuch.invalid"}, False),
        ({}, False),
        ({"MASTER_ADDR": "192.0.2.1", "HDMLP_NODES": "192.0.2.1,a", "HDMLP_NODE": "1"}, False),
        ({"MASTER_ADDR": "192.0.2.1", "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}, False),
        ({"MASTER_ADDR": "192.0.2.1", "WORLD_SIZE": "1", "RANK": "0"}, False),
    ],
)
def test_ranks_numbered_by_hand_on_several_hosts_warn(environ, warned, caplog, monkeypatch):
    # What this process's siblings are depends on how the tests are run.
    monkeypatch.setattr(launcher, "_has_no_siblings", lambda *_: False)
    launcher.find(environ={"RANK": "1", "WORLD_SIZE": "2", **environ})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warned
    assert all(
        "MASTER_ADDR=192.0.2.1 is another host" in text and "HDMLP_NODES" in text for text in said
    )


def test_an_unknown_host_is_named():
    environ = {**INDEXED, "MASTER_ADDR": "nosuch.invalid"}
    assert "nosuch.invalid, from MASTER_ADDR, is not known" in launcher.doubts(
        launcher.find(environ=environ), environ
    )
    assert (
        launcher.doubts(launcher.find(environ={**environ, "MASTER_ADDR": "127.0.0.1"}), environ)
        == ""
    )


@pytest.mark.slow
def test_an_error_repeats_the_warning_about_the_environment(real, folder, monkeypatch):
    """Two processes have one rank, because RANK was exported before srun."""
    with data.DataLoader(data.Folder(folder), batch_size=4, rank=0, world_size=2, name="d"):
        for name, value in {
            "RANK": "0",
            "WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(
            errors.BusyError, match=r"rank 0 .* is in use .* OMPI_COMM_WORLD_RANK=1"
        ):
            data.DataLoader(data.Folder(folder), batch_size=4, name="d")


def test_torch_distributed_takes_precedence(tmp_path):
    torch = pytest.importorskip("torch")
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("no torch.distributed")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        assert launcher.find(environ={"RANK": "3", "WORLD_SIZE": "8"})[:2] == (0, 1)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    "path, words",
    [
        ("/dev/zero", "not a regular file"),
        ("/", "not a regular file"),
        ("/nowhere", "there is no such file"),
    ],
)
def test_a_configuration_that_is_not_a_file_is_refused(path, words):
    with pytest.raises(errors.ConfigError, match=f"^config_file='{path}': {words}"):
        arguments.settings({}, path)
