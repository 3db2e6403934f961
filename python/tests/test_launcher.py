"""Ranks and job keys from the environments of launchers."""

import os
import pathlib
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hdmlp import _arguments, _nodes, data, errors
from hdmlp import _launcher as launcher
from hdmlp._launchers import LAUNCHERS
from hdmlp._place import Place

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
def test_environments(environ, place):
    assert launcher.find(environ=environ)[:3] == place


@pytest.mark.parametrize("environ", [{"RANK": "3"}, {"WORLD_SIZE": "4"}, {"HDMLP_NODES": "a,b"}])
def test_half_of_a_place(environ):
    with pytest.raises(errors.ConfigError, match=r"RANK|names 2 nodes"):
        launcher.find(environ=environ)


def test_arguments_come_first():
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
def test_nodes(environ, master, source, caplog):
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


def test_nodes_by_name(monkeypatch):
    """Where mpirun does not say which node this is, a list of all of them does."""
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
def test_wrong_environments(environ, words, monkeypatch):
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
        ({**STEP, "RANK": "2", "WORLD_SIZE": "4"}, None),  # set from what Slurm says
        (
            {**STEP, "RANK": "0", "WORLD_SIZE": "8"},
            None,
        ),  # a launcher that starts several processes for each of Slurm's
    ],
)
def test_doubts(environ, words, caplog):
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
def test_nodes_that_nobody_names(environ, warned, caplog):
    """Ranks that were numbered by hand, on several hosts."""
    launcher.find(environ={"RANK": "1", "WORLD_SIZE": "2", **environ})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warned and all(
        "MASTER_ADDR=192.0.2.1 is another host" in text and "HDMLP_NODES" in text for text in said
    )


def test_a_host_that_nobody_knows():
    environ = {**INDEXED, "MASTER_ADDR": "nosuch.invalid"}
    assert "nosuch.invalid, from MASTER_ADDR, is not known" in launcher.doubts(
        launcher.find(environ=environ), environ
    )
    assert (
        launcher.doubts(launcher.find(environ={**environ, "MASTER_ADDR": "127.0.0.1"}), environ)
        == ""
    )


@pytest.mark.slow
def test_doubts_stand_in_the_error(real, folder, monkeypatch):
    """Two processes with one rank, because RANK was exported before srun."""
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


def test_torch_distributed(tmp_path):
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


def test_keys():
    two = Place(0, 2, 0, "")
    master = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    key = launcher.job_key
    assert (
        key(two, "0", {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2", **master})
        == "torchrun-none-2-n1:29500/0"
    )
    assert key(two, "a", master) == "master-n1:29500/a"
    assert key(two, "0", {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}) == "slurm-7.1/0"
    assert key(two, "0", {"PMIX_NAMESPACE": "x"}) == "mpi-x/0"
    assert key(two, "0", {}).startswith("parent-")
    # With an address too: two launches after each other have the same one.
    slurm, mpi = two._replace(node_source="Slurm"), two._replace(node_source="Open MPI")
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", **master}
    assert key(slurm, "0", step) == "slurm-7.1-n1:29500/0"
    assert key(mpi, "0", {"PMIX_NAMESPACE": "x", **step}) == "mpi-x-n1:29500/0"
    assert key(two, "0", step) == "master-n1:29500/0"  # Slurm started only some of the ranks
    one = Place(0, 1, 0, "")
    assert key(one, "0", master) == key(one, "0", master) != key(one, "1", master)


def test_a_process_id_that_comes_again_is_another_job(monkeypatch):
    one, key = Place(0, 1, 0, ""), launcher.job_key
    before = key(one, "0", {})
    assert before.startswith(f"process-{os.getpid()}-") and key(one, "0", {}) == before
    monkeypatch.setattr(launcher, "_nonces", {})  # as in a new process
    assert key(one, "0", {}) != before


def test_long_keys_are_cut():
    two = Place(0, 2, 0, "")

    def key(run, name="0"):
        return launcher.job_key(
            two, name, {"TORCHELASTIC_RUN_ID": run, "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
        )

    fits = "x" * (launcher.LONGEST_KEY - len(key("x")) + 1)
    assert key(fits) == f"torchrun-{fits}-0-n1:29500/0" and len(key(fits)) == launcher.LONGEST_KEY
    long = [key(fits + "x"), key(fits + "y"), key(fits + "x", "1"), key("\u00e4" * 300)]
    assert len(set(long)) == 4 and all(
        launcher.LONGEST_KEY - 1 <= len(k.encode()) <= launcher.LONGEST_KEY for k in long
    )
    assert long[0] == key(fits + "x") and long[0].startswith("torchrun-xxx")


def test_a_launch_of_mpich_has_a_name():
    """The same for all ranks, whatever stands between mpirun and them, and another one each
    time."""
    if not os.path.exists("/usr/bin/mpirun.mpich"):
        pytest.skip("no /usr/bin/mpirun.mpich: `scripts/setup test` installs it")
    say = (
        "import os; from hdmlp import _launcher as launcher; "
        "os.write(1, (launcher.job_key(launcher.find(), '0') + '\\n').encode())"
    )
    named = []
    for before in ([], ["sh", "-c", '"$@"; true', "sh"]):
        out = subprocess.run(
            ["/usr/bin/mpirun.mpich", "-n", "3", *before, sys.executable, "-c", say],
            check=True,
            timeout=60,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(data.__file__))},
        ).stdout
        keys = out.split()
        assert (
            len(keys) == 3 and len(set(keys)) == 1 and re.fullmatch(r"mpi-[^:]+:\d+/0", keys[0])
        ), out
        named.append(keys[0])
    assert named[0] != named[1]


class Store:
    """As torch's TCPStore: compare_set wakes no waiting process."""

    def __init__(self):
        self._changed, self._values = threading.Condition(), {}
        self.waited_for = threading.Event()

    def compare_set(self, key, expected, value):
        with self._changed:
            return self._values.setdefault(key, value).encode()

    def set(self, key, value):
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key):
        with self._changed:
            self.waited_for.set()
            while key not in self._values:
                if not self._changed.wait(20):
                    raise RuntimeError("Socket Timeout")
            return self._values[key].encode()


def test_secret_by_torchs_store(monkeypatch):
    """Ranks get it, whether they ask before rank 0 has drawn it or after; and each loader of a
    process gets the same."""
    store = Store()
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    with ThreadPoolExecutor() as pool:
        early = pool.submit(_nodes.secret, Place(1, 2, 0, ""), {})
        assert store.waited_for.wait(20)
        drawn = _nodes.secret(Place(0, 2, 0, ""), {})
        assert (
            early.result()
            == drawn
            == _nodes.secret(Place(0, 2, 0, ""), {})
            == _nodes.secret(Place(1, 2, 0, ""), {})
        )


@pytest.mark.parametrize(
    "launch_key, environ, port",
    [
        (None, {}, _nodes.DEFAULT_PORT),
        (None, {"MASTER_PORT": "29500"}, 29510),
        (None, {"MASTER_PORT": "65530"}, 65520),
        (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0:7000,n1"}, 7000),
        (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0,n1"}, 29510),
        (None, {"HDMLP_NODES": "n0:7000,n1", "HDMLP_PORT": "8000"}, 8000),
    ],
)
def test_port(launch_key, environ, port):
    assert _nodes.port(launch_key, environ) == port


def test_ports_of_launches_and_loaders():
    ports = {_nodes.port(f"slurm-{job}.0", {}) for job in range(1000)}
    assert len(ports) > 800 and all(
        20000 <= port < 32000 and port % _nodes.PORTS == 0 for port in ports
    )
    assert [_nodes.ordinal(name) for name in ("0", "1", "63")] == [
        0,
        1,
        63,
    ] and 64 <= _nodes.ordinal("train") < 256


def test_a_name_that_is_no_text():
    with pytest.raises(
        errors.ConfigError,
        match=r"^name='a\\udc80': it has surrogates, which UTF-8 cannot hold; allowed: any other "
        r"text$",
    ):
        launcher.job_key(Place(0, 1, 0, "arguments"), "a\udc80", {})


@pytest.mark.parametrize(
    "path, words",
    [
        ("/dev/zero", "not a regular file"),
        ("/", "not a regular file"),
        ("/nowhere", "there is no such file"),
    ],
)
def test_configurations_that_are_no_files(path, words):
    with pytest.raises(errors.ConfigError, match=f"^config_file='{path}': {words}"):
        _arguments.settings({}, path)
