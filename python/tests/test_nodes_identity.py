"""Nodes of one job whose datasets look alike and differ."""

import json
import os
import shutil
import signal
import subprocess

import pytest
from nodes import SAMPLES, Nodes, binary, folder  # noqa: F401

pytestmark = pytest.mark.slow


def version(binary, root, index):
    done = subprocess.run(
        [binary, "dataset", root, "--json", "--rescan", "--index-dir", index],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["fingerprint"]


def rewrite(path):
    """Replaces bytes of the file, and keeps its length and times."""
    times = os.stat(path)
    with open(path, "r+b") as file:
        first = file.read(5)
        file.seek(0)
        file.write(bytes(b ^ 0xFF for b in first))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture
def other(binary, folder, tmp_path):
    """A copy of the dataset with different files that its version does not cover."""
    root, index = str(tmp_path / "other"), str(tmp_path / "index-of-copies")
    shutil.copytree(folder, root)
    same, changed = version(binary, folder, index), []
    for directory, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            path = os.path.join(directory, name)
            rewrite(path)
            if version(binary, root, index) == same:
                changed.append(path)
            else:
                rewrite(path)
            if len(changed) == 60:
                return root
    pytest.fail("the version covers all files")


def test_different_bytes_met_later_end_the_job(binary, folder, other, tmp_path):
    """A sample that another node gave has other bytes in the node's own source: the error names
    both."""
    (tmp_path / "gates").mkdir()
    options = {
        "batch_size": 8,
        "epochs": 6,
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
        "gates": str(tmp_path / "gates"),
        "of_node": {"0": {"memory": "0B"}, "1": {"memory": "20MB", "folder": other}},
    }
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1])
    assert sum(run.at[rank][0]["tiers"]["source"] for rank in (0, 1)) == SAMPLES
    run.go_on(0)
    run.wait_epoch(1, [0, 1])
    os.kill(run.ready[1], signal.SIGKILL)
    run.wait_gone(0, 1)
    for epoch in range(1, 6):
        run.go_on(epoch)
    said, _ = run.end()
    assert said[0]["kind"] == "MismatchError", said[0]
    assert "node 1 has other bytes" in said[0]["error"], said[0]
    assert folder in said[0]["error"], said[0]


def test_different_bytes_met_at_the_start_are_refused(binary, folder, tmp_path):
    """The error names a sample."""
    other = str(tmp_path / "other")
    shutil.copytree(folder, other)
    for directory, _, names in os.walk(other):
        for name in names:
            rewrite(os.path.join(directory, name))
    done = tmp_path / "done"
    options = {"batch_size": 8, "of_node": {"1": {"folder": other}}, "until": str(done)}
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    run.wait(lambda: {0, 1} <= run.said.keys(), "both ranks give up")
    done.touch()
    said, _ = run.end()
    for rank in (0, 1):
        assert said[rank]["kind"] == "MismatchError", said
        assert "has other bytes on node 1 than on node 0" in said[rank]["error"], said
