"""The examples of files by a table and of tar shards, as scripts that a user starts."""

import csv
import os
import subprocess

import preloaded
import pytest

pytest.importorskip("torchvision")

from recordfiles import shards, write

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow]

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")


def run(script, *arguments):
    """The lines that an example prints, and its exit status and errors."""
    command = [preloaded.PYTHON, os.path.join(EXAMPLES, script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines(), done.returncode, done.stderr


def test_images_that_a_table_lists(tmp_path):
    paths = [path for path, *_ in write(tmp_path / "images", 25)]
    table = tmp_path / "images.csv"

    def save(label):
        with open(table, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["path", "label", "split"])
            for i, path in enumerate(paths):
                split = "val" if i % 5 == 0 else "train"
                rows.writerow([os.path.relpath(path, tmp_path), label(i, split), split])

    save(lambda i, split: "ab"[i % 2])
    lines, status, err = run("csv_labels.py", table)
    assert status == 0, err
    assert [line.split(":")[0] for line in lines[:3]] == ["epoch 0", "epoch 1", "epoch 2"]
    assert lines[3].startswith("In 3 epochs the process waited")
    save(lambda i, split: "ab"[i % 2] + split)
    lines, status, err = run("csv_labels.py", table)
    assert (lines, status) == ([], 1)
    assert "the splits have different labels" in err
    assert "usage: " in run("csv_labels.py")[2]


def test_tar_shards(tmp_path):
    shards(tmp_path / "shards")
    lines, status, err = run("webdataset_shards.py", f"{tmp_path}/shards/{{000..002}}.tar")
    assert status == 0, err
    assert [line.split(":")[0] for line in lines[:3]] == ["epoch 0", "epoch 1", "epoch 2"]
    assert lines[0].endswith(" of 23 samples")
    assert "usage: " in run("webdataset_shards.py")[2]
