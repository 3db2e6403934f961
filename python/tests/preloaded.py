"""Processes that have torch and torchvision imported already, which takes seconds of a processor.

:data:`PYTHON` is an interpreter for scripts that import torch: a server (``preloaded_server.py``),
which has imported it, forks for each. HDMLP is not imported there. Not for scripts which must have
a process of their own from its beginning: whose process ID, group, parent or resource limits
matter.

A directory's conftest.py takes part by importing the hooks.
"""

import multiprocessing.spawn
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

_HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(_HERE, "preloaded_python")
NAME = "PRELOADED_PYTHON"
_servers = {}  # by name: those that this process started


def pytest_configure():
    """Starts the server for this process and those that it starts, workers of pytest as well."""
    start(NAME, "torchvision")


def start(name, *modules):
    """Starts a server whose processes have imported these modules, unless there is one: of this
    process or one that started it. It imports nothing before it is first used, and ends with this
    process. :data:`PYTHON` uses the one of :data:`NAME`.

    Args:
        name: The environment variable with its address.
    """
    if name in os.environ:
        return
    os.environ[name] = os.path.join(tempfile.mkdtemp(prefix="preloaded-"), "socket")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[name])  # a path, which other network namespaces have as well
        listener.listen(64)
        number = str(listener.fileno())
        _servers[name] = subprocess.Popen(
            [sys.executable, os.path.join(_HERE, "preloaded_server.py"), number, *modules],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
        )


def pytest_unconfigure():
    for name, server in _servers.items():
        server.kill()
        server.wait()
        shutil.rmtree(os.path.dirname(os.environ.pop(name)))
    _servers.clear()


@pytest.fixture
def spawns_preloaded(monkeypatch):
    """Processes that this one spawns are preloaded."""
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(PYTHON))
