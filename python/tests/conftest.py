"""Fixtures: a small folder of samples, and a daemon on the test's own socket: a fake or the real
one."""

import gc
import os
import signal
import time
import uuid

import pytest
from fakedaemon import FakeDaemon
from hdmlp import errors
from hdmlp._daemon import connecting
from preloaded import pytest_configure, pytest_unconfigure, spawns_preloaded  # noqa: F401
from timelimit import (  # noqa: F401
    pytest_runtest_call,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)

if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # as a shell leaves it to what it starts in the background: tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Keeps the garbage collector from what was imported, here and in forked processes."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    gc.unfreeze()


@pytest.fixture
def socket_name(monkeypatch):
    name = f"hdmlp-test-{uuid.uuid4().hex}"
    monkeypatch.setenv("HDMLP_SOCKET", name)
    for variable in list(os.environ):
        if variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK") or variable.startswith(
            ("SLURM_", "OMPI_", "PMI")
        ):
            monkeypatch.delenv(variable)
    return name


@pytest.fixture
def daemon(socket_name):
    fake = FakeDaemon(socket_name)
    yield fake
    fake.close()


@pytest.fixture
def real(socket_name, monkeypatch, tmp_path):
    """The real daemon, which the first loader starts."""
    try:
        connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("HDMLP_LINGER", "1s")
    monkeypatch.setenv("HDMLP_MEMORY", "64MiB")
    monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "index"))
    yield
    call = {"id": 1, "method": "shutdown", "params": {"force": True}}
    try:
        client = connecting._try_connect(time.monotonic() + 1)
        if client is not None:
            frame = connecting.protocol.encode_json(connecting.protocol.CALL, call)
            connecting.request(client, frame, (connecting.protocol.REPLY,))
            client.close()
    except errors.HDMLPError:
        pass


@pytest.fixture
def folder(tmp_path):
    """25 samples in 3 classes; each sample's bytes contain its ID."""
    number = 0
    for name, count in (("ant", 10), ("bee", 8), ("cat", 7)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(count):
            (tmp_path / "data" / name / f"{i:03d}.jpg").write_bytes(
                f"sample {number} ".encode() * (5 + number)
            )
            number += 1
    return str(tmp_path / "data")
