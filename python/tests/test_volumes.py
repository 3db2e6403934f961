"""examples/volumes.py, alone and on two ranks."""

import os
import pathlib
import re
import subprocess
import sys

import preloaded
import pytest

pytest.importorskip("torch")
pytest.importorskip("h5py")

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/volumes.py"


def run(command, tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
        "HDMLP_SOCKET": f"volumes-{os.getpid()}",
        "HDMLP_LINGER": "0",
        "HDMLP_MEMORY": "64MiB",
        "OMP_NUM_THREADS": "1",
        "PYTHON_EXEC": preloaded.PYTHON,
    }
    done = subprocess.run(
        [preloaded.PYTHON, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"epoch (\d): (\d+) volumes, loss ([\d.]+)", done.stdout)
    return [(int(epoch), int(count), float(loss)) for epoch, count, loss in lines]


def test_it_trains(tmp_path):
    lines = run([EXAMPLE], tmp_path)
    assert [line[:2] for line in lines] == [(0, 32), (1, 32), (2, 32)]
    assert lines[2][2] < lines[0][2]


def test_ranks_share_the_volumes(tmp_path):
    command = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", EXAMPLE]
    directory = tmp_path / "data"
    directory.mkdir()
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        import volumes
    finally:
        sys.path.remove(str(EXAMPLE.parent))
    volumes.write(str(directory), count=12)
    lines = run([*command, directory, "--epochs", "2"], tmp_path)
    assert sorted(line[:2] for line in lines) == [(0, 6), (0, 6), (1, 6), (1, 6)]
