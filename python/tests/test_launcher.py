"""Ranks and job keys from the environments of launchers."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from hdmlp import _launcher as launcher
from hdmlp import _nodes, errors


@pytest.mark.parametrize("environ, place", [
    ({}, (0, 1, 0)),
    ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (3, 8, 1)),
    ({"RANK": "3"}, (0, 1, 0)),
    ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "2"}, (5, 6, 2)),
    ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0"}, (5, 6, 0)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, (0, 1, 0)),  # a batch script, not a step
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, (1, 2, 1)),
    ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4, 0)),
])
def test_environments(environ, place):
    assert launcher.find(environ=environ)[:3] == place


def test_arguments_come_first():
    assert launcher.find(1, 2, {"RANK": "3", "WORLD_SIZE": "8"})[:2] == (1, 2)
    with pytest.raises(errors.ConfigError, match="world_size is given without rank"):
        launcher.find(world_size=2)
    with pytest.raises(errors.ConfigError, match="torchrun"):
        launcher.find(environ={"RANK": "8", "WORLD_SIZE": "8"})


def test_torch_distributed(tmp_path):
    torch = pytest.importorskip("torch")
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("no torch.distributed")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        assert launcher.find(environ={"RANK": "3", "WORLD_SIZE": "8"})[:2] == (0, 1)
    finally:
        distributed.destroy_process_group()


def test_keys():
    two = launcher.Place(0, 2, 0, "")
    master = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    key = launcher.job_key
    assert key(two, "0", {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2", **master}) \
        == "torchrun-none-2-n1:29500/0"
    assert key(two, "a", master) == "master-n1:29500/a"
    assert key(two, "0", {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}) == "slurm-7.1/0"
    assert key(two, "0", {"PMIX_NAMESPACE": "x"}) == "mpi-x/0"
    assert key(two, "0", {}).startswith("parent-")
    one = launcher.Place(0, 1, 0, "")
    assert key(one, "0", master) == key(one, "0", master) != key(one, "1", master)


class Store:
    """As torch's TCPStore: compare_set wakes nobody."""

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
    """Ranks get it, whether they ask before rank 0 has drawn it or after; and each loader of a process gets the same."""
    store = Store()
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True,
                                  distributed_c10d=SimpleNamespace(_get_default_store=lambda: store))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    with ThreadPoolExecutor() as pool:
        early = pool.submit(_nodes.secret, launcher.Place(1, 2, 0, ""), {})
        assert store.waited_for.wait(20)
        drawn = _nodes.secret(launcher.Place(0, 2, 0, ""), {})
        assert early.result() == drawn == _nodes.secret(launcher.Place(0, 2, 0, ""), {}) == _nodes.secret(launcher.Place(1, 2, 0, ""), {})


@pytest.mark.parametrize("launch_key, environ, port", [
    (None, {}, _nodes.DEFAULT_PORT),
    (None, {"MASTER_PORT": "29500"}, 29510),
    (None, {"MASTER_PORT": "65530"}, 65520),
    (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0:7000,n1"}, 7000),
    (None, {"MASTER_PORT": "29500", "HDMLP_NODES": "n0,n1"}, 29510),
    (None, {"HDMLP_NODES": "n0:7000,n1", "HDMLP_PORT": "8000"}, 8000),
])
def test_port(launch_key, environ, port):
    assert _nodes.port(launch_key, environ) == port


def test_ports_of_launches_and_loaders():
    ports = {_nodes.port(f"slurm-{job}.0", {}) for job in range(1000)}
    assert len(ports) > 800 and all(20000 <= port < 32000 and port % _nodes.PORTS == 0 for port in ports)
    assert [_nodes.ordinal(name) for name in ("0", "1", "63")] == [0, 1, 63] and 64 <= _nodes.ordinal("train") < 256
