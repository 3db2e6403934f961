"""Real frameworks beside torch's loader: each test runs a script twice, with torch's loader and
with ours, and compares what every rank was given."""

import json
import os
import subprocess
import sys
import uuid
from importlib.util import find_spec

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))

import preloaded
from preloaded import pytest_unconfigure  # noqa: F401
from timelimit import (  # noqa: F401
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)
from torchrun import free_port

#: The environment variable of processes that have imported Lightning as well, which takes as long
#: as torch, and what torch imports for DistributedDataParallel.
LIGHTNING = "PRELOADED_LIGHTNING"
#: The same for transformers, with what it imports for its Trainer.
TRANSFORMERS = "PRELOADED_TRANSFORMERS"


def pytest_configure():
    """As for all tests; and servers for those of Lightning and of transformers."""
    preloaded.pytest_configure()
    preloaded.start(LIGHTNING, "torchvision", "torch._dynamo", "lightning")
    optional = ["datasets"] if find_spec("datasets") is not None else []
    modules = "torchvision", "torch._dynamo", *optional, "accelerate", "transformers.trainer"
    preloaded.start(TRANSFORMERS, *modules)


@pytest.fixture
def with_lightning(monkeypatch):
    """Preloaded processes have imported Lightning."""
    monkeypatch.setenv(preloaded.NAME, os.environ[LIGHTNING])


@pytest.fixture
def with_transformers(monkeypatch):
    """Preloaded processes have imported accelerate and transformers."""
    monkeypatch.setenv(preloaded.NAME, os.environ[TRANSFORMERS])


def pytest_collection_modifyitems(items):
    """Each test trains several times: the scripts have limits of their own."""
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.limit(3600))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """26 files of different lengths in two classes: a sample is told by its length."""
    root = tmp_path_factory.mktemp("frameworks") / "data"
    for name, size in (("ant", 100), ("bee", 300)):
        (root / name).mkdir(parents=True)
        for i in range(13):
            (root / name / f"{i:02d}.jpg").write_bytes(b"x" * (size + i))
    return str(root)


@pytest.fixture
def script(tmp_path, folder):
    """Runs a script of this directory: script(name, "torch" or "ours", ranks, ...) returns what it
    wrote, by rank and name, and what it said. Of "torch,ours" it returns that by loader."""

    def written(out, ranks):
        found = {}
        for rank in range(ranks):
            with open(out / str(rank)) as file:
                found[rank] = dict(json.loads(line) for line in file)
        return found

    def run(name, which, ranks, *arguments, launcher="torchrun", data=folder):
        out = tmp_path / f"{which}-{uuid.uuid4().hex}"
        out.mkdir()
        command = [preloaded.PYTHON]
        if launcher == "torchrun" and ranks > 1:
            command += [
                "-m",
                "torch.distributed.run",
                f"--nproc-per-node={ranks}",
                f"--master-port={free_port()}",
            ]
        command += [
            os.path.join(HERE, name),
            data,
            which,
            str(out),
            str(ranks),
            *map(str, arguments),
        ]
        path = os.pathsep.join([os.path.dirname(HERE), HERE])
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=900,
            cwd=str(out),
            env={
                **os.environ,
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                "PYTHON_EXEC": preloaded.PYTHON,
                "HDMLP_SOCKET": f"frameworks-{os.getpid()}",
                "HDMLP_MEMORY": "64MiB",
                "PYTHONFAULTHANDLER": "1",
            },
        )
        assert done.returncode == 0, done.stderr[-4000:]
        if "," in which:
            found = {each: written(out / each, ranks) for each in which.split(",")}
        else:
            found = written(out, ranks)
        return {**found, "said": done.stderr}

    return run


@pytest.fixture
def same(script):
    """Runs a script with both loaders. Every rank must have been given the same, but for what only
    ours does, which begins with an underscore."""

    def compare(name, ranks, *arguments, **options):
        theirs, ours = (
            script(name, which, ranks, *arguments, **options) for which in ("torch", "ours")
        )
        for rank in range(ranks):
            for key, value in theirs[rank].items():
                assert key.startswith("_") or ours[rank][key] == value, (rank, key)
        assert "a loader other than hdmlp.torch.DataLoader reads" not in ours["said"]
        return ours, theirs

    return compare
