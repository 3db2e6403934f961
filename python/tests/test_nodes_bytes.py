"""All nodes together read from the source as little as their caches allow: real daemons in network
namespaces of their own.

In the first epoch every byte is read once; in every later one, what the caches do not hold. They
hold all that fits: each class is left with room for less than one sample, and by so much the bound,
which does not count samples, may be exceeded.
"""

import math
import os
import random

import pytest
from nodes import Nodes, binary  # noqa: F401

pytestmark = pytest.mark.slow

EPOCHS = 3
LARGEST = 1500  # bytes of a sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("bytes") / "data", random.Random(2)
    for number in range(1500):
        directory = root / "abc"[number % 3]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:04d}.jpg").write_bytes(
            rng.randbytes(500 + rng.randrange(LARGEST - 500))
        )
    return str(root)


def check(binary, folder, nodes, share, tmp_path, epochs):
    """Runs the first EPOCHS of a job with so many epochs, with caches that hold a share of the
    dataset."""
    total = sum(
        os.path.getsize(os.path.join(root, name))
        for root, _, names in os.walk(folder)
        for name in names
    )
    memory = math.ceil(total * share / nodes)
    options = {
        "batch_size": 8,
        "memory": f"{memory}B",
        "epochs": epochs,
        "run": EPOCHS,
        "gates": str(tmp_path),
        "until": str(tmp_path / "done"),
    }
    run = Nodes(binary, folder, nodes, options, 1, tmp_path)
    for epoch in range(EPOCHS):
        run.wait_epoch(epoch, range(nodes))
        run.go_on(epoch)
    reports = [run.report(node) for node in range(nodes)]
    with open(run.until, "w"):
        pass
    _, status = run.end()
    assert status == 0, "".join(run.other)
    read = sum(
        e["source"]["bytes"] for report in reports for e in report["epochs"] if e["epoch"] < EPOCHS
    )  # and not ahead of these
    left = max(0, total - nodes * memory)
    assert total <= read <= total + (EPOCHS - 1) * (left + nodes * LARGEST), "".join(run.other)
    assert read <= 1.01 * (total + (EPOCHS - 1) * left), "".join(run.other)


@pytest.mark.parametrize("share", [1, 0.5, 0.25])
@pytest.mark.parametrize("nodes", [2, 4])
def test_reads_from_the_source_are_minimal(binary, folder, tmp_path, nodes, share):
    check(binary, folder, nodes, share, tmp_path, EPOCHS)


@pytest.mark.parametrize("share", [1, 0.5])
def test_reads_from_the_source_are_minimal_while_planning(binary, folder, tmp_path, share):
    """The job has so many epochs that batches flow before the plan is made."""
    check(binary, folder, 3, share, tmp_path, 5000)
