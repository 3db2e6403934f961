"""Nodes, node 0's address, ports and secrets, from the environments of launchers."""

import os
import threading

import pytest

from hdmlp import _launcher as launcher
from hdmlp import _nodes as nodes
from hdmlp import errors

# As the launchers set them; those of Open MPI 4.1.4 and MPICH 4.0.2 recorded, numbers changed to several hosts.
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
            "ROLE_RANK": "5", "MASTER_ADDR": "n0.cluster", "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": "0"}
SLURM = {"SLURM_PROCID": "4", "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": "0", "SLURM_NODEID": "2", "SLURM_NNODES": "4",
         "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NODELIST": "gpu[08-10]",
         "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_TASKS_PER_NODE": "8(x4)"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "OMPI_COMM_WORLD_NODE_RANK": "1", "OMPI_MCA_orte_num_nodes": "2", "OMPI_MCA_ess_base_jobid": "318767105",
            "OMPI_MCA_orte_hnp_uri": "318767104.0;tcp://192.0.2.2:40177;tcp6://[fd00::2]:38085",
            "OMPI_MCA_orte_precondition_transports": "40028426c769f589-37cf2d081170a5f5", "PMIX_NAMESPACE": "318767105", "PMIX_RANK": "3",
            "PMIX_HOSTNAME": "n1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "0", "PMI_FD": "8",
         "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "n1"}
INDEXED = {"JOB_COMPLETION_INDEX": "2", "RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500"}


def change(environ, **values):
    return {**environ, **values}


@pytest.mark.parametrize("environ, found", [
    (TORCHRUN, (2, 1, 4, "n0.cluster", "torchrun")),
    (change(TORCHRUN, GROUP_WORLD_SIZE="1", GROUP_RANK="0"), (1, 0, 4, "n0.cluster", "torchrun")),
    (change(TORCHRUN, **SLURM), (2, 1, 4, "n0.cluster", "torchrun")),  # srun torchrun
    (SLURM, (3, 2, 1, "gpu08", "Slurm")),
    (OPEN_MPI, (2, 1, 2, None, "Open MPI")),
    (change(OPEN_MPI, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_LOCAL_RANK="0"), (2, 1, 2, None, "Open MPI")),  # --map-by node
    (change(OPEN_MPI, OMPI_COMM_WORLD_LOCAL_SIZE="4", OMPI_COMM_WORLD_LOCAL_RANK="3"), (1, 0, 4, None, "Open MPI")),
    (change(OPEN_MPI, OMPI_COMM_WORLD_LOCAL_SIZE="3", OMPI_COMM_WORLD_RANK="2", HDMLP_NODE="1"), (2, 1, 3, None, "Open MPI")),
    (change(OPEN_MPI, HDMLP_NODES="n0:7000"), (2, 1, 2, "n0", "Open MPI")),
    (MPICH, (2, 1, 2, None, "MPICH")),
    (change(MPICH, MPI_LOCALRANKID="1"), (2, 0, 2, None, "MPICH")),
    (INDEXED, (3, 2, 1, "train-0.train", "Kubernetes")),
    (change(INDEXED, LOCAL_WORLD_SIZE="3"), (1, 2, 3, "train-0.train", "Kubernetes")),
    ({"RANK": "1", "WORLD_SIZE": "2", "HDMLP_NODES": "a:1, b", "HDMLP_NODE": "1"}, (2, 1, 0, "a", "HDMLP_NODES")),
    ({"RANK": "1", "WORLD_SIZE": "2", "HDMLP_NODES": "[fd00::1]:80,fd00::2", "JOB_COMPLETION_INDEX": "1", "LOCAL_WORLD_SIZE": "1"},
     (2, 1, 1, "fd00::1", "HDMLP_NODES")),
    ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 0, 0, None, "a single node")),
    ({}, (1, 0, 1, None, "a single node")),
])
def test_layouts(environ, found):
    assert launcher.find(environ=environ)[4:9] == found


@pytest.mark.parametrize("environ, message", [
    (change(TORCHRUN, HDMLP_NODES="a,b,c"), "HDMLP_NODES names 3 nodes, but torchrun says that there are 2"),
    (change(TORCHRUN, HDMLP_NODE="2"), "HDMLP_NODE=2: must be below the number of nodes, 2"),
    (change(TORCHRUN, HDMLP_NODE="x"), "HDMLP_NODE='x': must be this node's number"),
    ({"RANK": "1", "WORLD_SIZE": "2", "HDMLP_NODES": "a,b"}, "say by HDMLP_NODE which one this is"),
    (change(TORCHRUN, HDMLP_NODES="a b:1"), None),
    (change(TORCHRUN, HDMLP_NODES="a:b"), "'a:b' is not host or host:port"),
    (change(TORCHRUN, HDMLP_NODES="a:70000"), r"the port must be in \[1, 65535\]"),
])
def test_contradictions(environ, message):
    if message is None:
        launcher.find(environ=environ)
        return
    with pytest.raises(errors.ConfigError, match=message):
        launcher.find(environ=environ)


def test_unknown_node_and_address():
    """find() does not fail for them, so that reports and errors of one node do not; a cluster does."""
    uneven = change(OPEN_MPI, OMPI_COMM_WORLD_LOCAL_SIZE="3", OMPI_COMM_WORLD_RANK="2")
    place = launcher.find(environ=uneven)
    assert place.node is None
    with pytest.raises(errors.ConfigError, match="Open MPI does not say which node this is.*Set HDMLP_NODE on each node"):
        launcher.cluster(place, "0", uneven)
    with pytest.raises(errors.ConfigError, match="Open MPI says that there are 2 nodes, but not where node 0 is: set HDMLP_NODES"):
        launcher.cluster(launcher.find(environ=OPEN_MPI), "0", OPEN_MPI)


def test_cluster():
    environ = change(TORCHRUN, HDMLP_SECRET="a secret, long enough", HDMLP_NODES="n0,n1")
    place = launcher.find(environ=environ)
    assert launcher.cluster(place, "0", environ) == {
        "nodes": 2, "node": 1, "local_world_size": 4, "address": "n0:29410", "secret": "a secret, long enough"}
    assert launcher.cluster(place._replace(node=0), "1", environ)["address"] == ":29414"
    assert launcher.cluster(place._replace(master="fd00::1"), "0", environ)["address"] == "[fd00::1]:29410"
    assert launcher.cluster(place._replace(local_world_size=0), "0", environ)["local_world_size"] == 4
    with pytest.raises(errors.ConfigError, match="set LOCAL_WORLD_SIZE"):
        launcher.cluster(place._replace(local_world_size=0, world_size=7), "0", environ)
    assert launcher.cluster(launcher.find(environ={}), "0", {}) is None
    environ = change(MPICH, HDMLP_NODES="n0", HDMLP_SECRET="a secret, long enough")
    places = [launcher.find(environ=change(environ, PMI_RANK=str(r), MPI_LOCALRANKID=str(r % 2))) for r in range(4)]
    assert [p.node for p in places] == [0, 0, 1, 1]
    assert len({launcher.job_key(p, "0", environ) for p in places}) == 1  # also across nodes
    assert [launcher.cluster(p, "0", environ)["address"] for p in places] == [":29510"] * 2 + ["n0:29510"] * 2


def test_ports():
    port = nodes.port
    assert port("0", "key", {"MASTER_PORT": "29500"}) == 29510
    assert port("2", "key", {"MASTER_PORT": "29500"}) == 29518
    assert port("0", "key", {"MASTER_PORT": "29500", "HDMLP_NODES": "n0:7000"}) == 7000
    assert port("0", "key", {"HDMLP_PORT": "7100", "HDMLP_NODES": "n0:7000"}) == 7100
    assert port("0", "slurm-1.0", {}) != port("0", "slurm-2.0", {})
    for key in range(200):
        for name in ("0", "63", "validation"):
            assert 20000 <= port(name, f"slurm-{key}.0", {}) < 33100
    assert port("0", None, {"MASTER_PORT": "65530"}) + nodes.PORTS < 65536


@pytest.mark.parametrize("text, hosts", [
    ("n1", ["n1"]), ("n1,n2", ["n1", "n2"]), ("", []),
    ("gpu[08-10,12],login1", ["gpu08", "gpu09", "gpu10", "gpu12", "login1"]),
    ("r[1-2]n[3,5]-ib", ["r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"]),
    ("n[001-002].a.b", ["n001.a.b", "n002.a.b"]), ("n[1-", ["n", "1-"]), ("n[3-1]", []),
])
def test_nodelists(text, hosts):
    assert nodes.expand_hosts(text)[:len(hosts)] == hosts or text == "n[1-"
    assert len(nodes.expand_hosts("n[0-99999999999]")) <= 1 << 16


def test_counts():
    assert nodes.expand_counts("2(x3),1") == [2, 2, 2, 1]
    assert nodes.expand_counts("8") == [8]
    assert nodes.expand_counts("x") == nodes.expand_counts("") == nodes.expand_counts("1(x99999999999)") == []


class TestSecret:
    place = launcher.find(environ=MPICH)

    def test_variable_and_file(self, tmp_path):
        path = tmp_path / "secret"
        path.write_text("from a file, long enough\n")
        environ = {"HDMLP_SECRET_FILE": str(path), "HOME": str(tmp_path)}
        path.chmod(0o640)
        with pytest.raises(errors.ConfigError, match=r"others than its owner may read or write it \(mode 0640\)"):
            nodes.secret(self.place, environ)
        path.chmod(0o600)
        assert nodes.secret(self.place, environ) == "from a file, long enough"
        assert nodes.secret(self.place, change(environ, HDMLP_SECRET="from a variable!")) == "from a variable!"
        with pytest.raises(errors.ConfigError, match="HDMLP_SECRET has 5 bytes, a secret needs at least 16"):
            nodes.secret(self.place, {"HDMLP_SECRET": "short"})
        with pytest.raises(errors.ConfigError, match="No such file"):
            nodes.secret(self.place, {"HDMLP_SECRET_FILE": str(tmp_path / "none")})
        with pytest.raises(errors.ConfigError, match="HDMLP_SECRET_FILE="):
            nodes.secret(self.place, {"HDMLP_SECRET_FILE": str(tmp_path)})

    def test_open_mpi(self):
        one = nodes.secret(self.place, OPEN_MPI)
        assert len(one) == 64 and one == nodes.secret(self.place, change(OPEN_MPI, PMIX_RANK="0"))
        assert "37cf2d08" not in one

    def test_users_own(self, tmp_path):
        """Made once, whoever comes first, and kept from others."""
        environ = change(MPICH, HOME=str(tmp_path))
        found = []
        threads = [threading.Thread(target=lambda: found.append(nodes.secret(self.place, environ))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and len(set(found)) == 1 and len(found[0]) == 64
        assert os.listdir(tmp_path / ".hdmlp") == ["secret"]
        assert os.stat(tmp_path / ".hdmlp" / "secret").st_mode & 0o777 == 0o600
        (tmp_path / "file").write_text("")
        with pytest.raises(errors.ConfigError, match="set HDMLP_SECRET"):
            nodes.secret(self.place, {"HOME": str(tmp_path / "file")})

    def test_kubernetes(self):
        with pytest.raises(errors.ConfigError, match="set HDMLP_SECRET from a Kubernetes secret"):
            nodes.secret(self.place, INDEXED)

    def test_torch_store(self):
        torch = pytest.importorskip("torch")
        distributed = torch.distributed
        if not distributed.is_available():
            pytest.skip("no torch.distributed")
        store = distributed.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
        environ = {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        first = launcher.Place(0, 2, 0, "", 2, 0)
        got = [nodes.secret(place, environ) for place in (first, first, first._replace(rank=1))]
        assert len(got[0]) == 64 and len(set(got)) == 1


def test_loader_says_it(monkeypatch):
    from hdmlp import _loader

    for name, value in change(TORCHRUN, HDMLP_SECRET="a secret, long enough").items():
        monkeypatch.setenv(name, value)
    place = launcher.find()
    assert _loader._cluster(place, "0")["cluster"]["address"] == "n0.cluster:29410"
    assert _loader._cluster(place._replace(nodes=1), "0") == {}
