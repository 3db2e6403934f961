"""Ranks and commands as real processes, for the tests of the daemon's socket."""

import json
import os
import subprocess
import sys

import pytest
from hdmlp import errors
from hdmlp._daemon import connecting

# Prints what a loader gives, or the error, as one line of JSON, and keeps the loader until its
# input ends.
RANK = """
import json, sys
import hdmlp.data as data
from hdmlp._daemon import connecting
try:
    client = connecting.connect()
    print(json.dumps({"pid": client.pid}), flush=True)
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def binary():
    try:
        return connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def runtime(tmp_path):
    """A directory such as XDG_RUNTIME_DIR names."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return str(directory)


def variables(**changes):
    """The environment with changes; None removes a variable. Tests must not depend on the user's
    own daemon."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("HDMLP_") and key != "XDG_RUNTIME_DIR"
    }
    environment.update(
        PYTHONPATH=os.path.dirname(os.path.dirname(errors.__file__)), HDMLP_LINGER="0s"
    )
    environment.update({key: value for key, value in changes.items() if value is not None})
    return environment


class Ranks:
    """Processes that connect at the same time and stay connected; ``said`` has the output of
    each."""

    def __init__(self, count, environment, prefix=()):
        self.processes = [
            subprocess.Popen(
                [*prefix, sys.executable, "-c", RANK],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        self.said = [json.loads(process.stdout.readline()) for process in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.communicate(timeout=30)


def command(binary, environment, *words):
    ended = subprocess.run(
        [binary, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return ended.returncode, ended.stdout + ended.stderr
