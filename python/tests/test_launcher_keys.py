"""Names of jobs, ports and secrets, which all ranks of a launch derive independently."""

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hdmlp import data, errors
from hdmlp._launch import membership as launcher
from hdmlp._launch import nodes
from hdmlp._launch.place import Place


def test_jobs_are_named_after_their_launch():
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


def test_a_reused_process_id_is_another_job(monkeypatch):
    one, key = Place(0, 1, 0, ""), launcher.job_key
    before = key(one, "0", {})
    assert before.startswith(f"process-{os.getpid()}-")
    assert key(one, "0", {}) == before
    monkeypatch.setattr(launcher, "_nonces", {})  # as in a new process
    assert key(one, "0", {}) != before


def test_long_names_are_shortened_and_stay_distinct():
    two = Place(0, 2, 0, "")

    def key(run, name="0"):
        return launcher.job_key(
            two, name, {"TORCHELASTIC_RUN_ID": run, "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
        )

    fits = "x" * (launcher.LONGEST_KEY - len(key("x")) + 1)
    assert key(fits) == f"torchrun-{fits}-0-n1:29500/0"
    assert len(key(fits)) == launcher.LONGEST_KEY
    long = [key(fits + "x"), key(fits + "y"), key(fits + "x", "1"), key("\u00e4" * 300)]
    assert len(set(long)) == 4
    assert all(launcher.LONGEST_KEY - 1 <= len(k.encode()) <= launcher.LONGEST_KEY for k in long)
    assert long[0] == key(fits + "x")
    assert long[0].startswith("torchrun-xxx")


def test_all_ranks_of_an_mpich_launch_have_its_name():
    """Whatever process is between mpirun and them; each launch has another name."""
    if not os.path.exists("/usr/bin/mpirun.mpich"):
        pytest.skip("no /usr/bin/mpirun.mpich: `scripts/setup test` installs it")
    say = (
        "import os; from hdmlp._launch import membership; "
        "os.write(1, (membership.job_key(membership.find(), '0') + '\\n').encode())"
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
        assert len(keys) == 3, out
        assert len(set(keys)) == 1, out
        assert re.fullmatch(r"mpi-[^:]+:\d+/0", keys[0]), out
        named.append(keys[0])
    assert named[0] != named[1]


class Store:
    """As torch's TCPStore, in which compare_set wakes no waiting get."""

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

    def wait(self, keys, timeout):
        assert timeout.total_seconds() > 0
        with self._changed:
            if any(key not in self._values for key in keys):
                raise RuntimeError("Socket Timeout")


TWO_NODES = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "HDMLP_NODES": "n0,n1",
    "HDMLP_NODE": "1",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
    "HDMLP_SECRET": "a secret of the nodes",
}


def test_a_dataset_says_on_which_node_it_is_opened():
    zero = {**TWO_NODES, "RANK": "0", "HDMLP_NODE": "0"}
    at = {"name": "master-n0:29500", "nodes": 2, "secret": "a secret of the nodes"}
    assert launcher.launch(TWO_NODES) == {**at, "node": 1, "address": "n0:29510"}
    assert launcher.launch(zero) == {**at, "node": 0, "address": ":29510"}
    job = launcher.cluster(launcher.look(TWO_NODES), "0", TWO_NODES)
    assert job is not None
    assert all(job[key] == launcher.launch(TWO_NODES)[key] for key in ("nodes", "node", "address"))
    long = {**TWO_NODES, "MASTER_ADDR": "n" * 300, "HDMLP_NODES": "n" * 300 + ",n1"}
    assert len(launcher.launch(long)["name"]) <= launcher.LONGEST_KEY


@pytest.mark.parametrize(
    "change",
    [
        {"WORLD_SIZE": "1", "RANK": "0", "HDMLP_NODES": "", "HDMLP_NODE": ""},
        {"HDMLP_SECRET": "short"},
        {"HDMLP_NODE": "7"},
        {"MASTER_PORT": "x"},
    ],
)
def test_a_dataset_is_opened_without_other_nodes(change):
    """What is wrong, the loader reports."""
    assert launcher.launch({**TWO_NODES, **change}) is None


def test_a_dataset_does_not_wait_for_a_secret_that_rank_0_has_not_drawn(monkeypatch):
    store = Store()
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    environ = {key: value for key, value in TWO_NODES.items() if key != "HDMLP_SECRET"}
    assert launcher.launch(environ) is None
    drawn = nodes.secret(Place(0, 2, 0, ""), {})
    assert launcher.launch(environ)["secret"] == drawn


def test_ranks_share_a_secret_through_torchs_store(monkeypatch):
    """Whether they ask before or after rank 0 has drawn it; each loader of a process gets the
    same."""
    store = Store()
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    with ThreadPoolExecutor() as pool:
        early = pool.submit(nodes.secret, Place(1, 2, 0, ""), {})
        assert store.waited_for.wait(20)
        drawn = nodes.secret(Place(0, 2, 0, ""), {})
        assert (
            early.result()
            == drawn
            == nodes.secret(Place(0, 2, 0, ""), {})
            == nodes.secret(Place(1, 2, 0, ""), {})
        )


@pytest.mark.parametrize(
    "launch_key, environ, port",
    [
        (None, {}, nodes.DEFAULT_PORT),
        (None, {"MASTER_PORT": "29500"}, 29510),
        (None, {"MASTER_PORT": "65530"}, 65520),
        (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0:7000,n1"}, 7000),
        (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0,n1"}, 29510),
        (None, {"HDMLP_NODES": "n0:7000,n1", "HDMLP_PORT": "8000"}, 8000),
    ],
)
def test_the_port_follows_from_the_environment(launch_key, environ, port):
    assert nodes.port(launch_key, environ) == port


def test_launches_and_loaders_have_different_ports():
    ports = {nodes.port(f"slurm-{job}.0", {}) for job in range(1000)}
    assert len(ports) > 800
    assert all(20000 <= port < 32000 and port % nodes.PORTS == 0 for port in ports)
    assert [nodes.ordinal(name) for name in ("0", "1", "63")] == [
        0,
        1,
        63,
    ]
    assert 64 <= nodes.ordinal("train") < 256


def test_a_name_with_surrogates_is_refused():
    with pytest.raises(
        errors.ConfigError,
        match=r"^name='a\\udc80': it has surrogates, which UTF-8 cannot hold; allowed: any other "
        r"text$",
    ):
        launcher.job_key(Place(0, 1, 0, "arguments"), "a\udc80", {})
