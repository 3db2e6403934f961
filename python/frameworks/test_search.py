"""Searches of Optuna and Ray Tune whose trials share what is prepared (examples/search_*.py): the
winner has the loss that it has alone, also where other trials are stopped and killed."""

import json
import os
import subprocess

import preloaded
import pytest
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def images(tmp_path):
    """64 images of two classes."""
    for shade, name in ((90, "ant"), (160, "bee")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(32):
            color = (shade + i, 200 - 2 * i, 3 * i)
            Image.new("RGB", (110 + i, 120), color).save(tmp_path / "data" / name / f"{i:02d}.jpg")
    return str(tmp_path / "data")


@pytest.mark.parametrize("name", ["optuna", "ray"])
def test_the_winner_has_the_loss_that_it_has_alone(name, images, tmp_path):
    pytest.importorskip(name)
    done = subprocess.run(
        [preloaded.PYTHON, os.path.join(HERE, "search.py"), name, images, str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        timeout=900,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [os.path.dirname(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "OMP_NUM_THREADS": "1",
            "PYTHON_EXEC": preloaded.PYTHON,
            "HDMLP_SOCKET": f"frameworks-{os.getpid()}",
            "HDMLP_MEMORY": "64MiB",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["whole"] + found["stopped"] + found["killed"] == 8
    assert found["whole"] > 0
    assert found["stopped"] > 0
    assert found["killed"] > 0
    assert found["loss"] == found["alone"]
