"""What a job over several nodes does when nodes, links, peers and the source fail.

Every run ends in the stream that its ranks would be given on one node, or in an error on all of them; never in a hang.
"""

import os
import signal

import pytest
from nodes import SAMPLES, Nodes, binary, folder, streams  # noqa: F401: fixtures

EPOCHS = 8


@pytest.fixture(scope="module")
def reference(binary, folder, tmp_path_factory):
    """What three ranks are given on one node: per rank, a digest per epoch."""
    said, status = Nodes(binary, folder, 1, {"batch_size": 8, "epochs": EPOCHS}, 3, tmp_path_factory.mktemp("alone")).end()
    assert status == 0
    return streams(said)


@pytest.fixture
def gates(tmp_path):
    (tmp_path / "gates").mkdir()
    return str(tmp_path / "gates")


def source(places):
    """How many samples nodes have read from the source, all together."""
    return sum(place["source"] for place in places)


def test_taken_over(binary, folder, reference, tmp_path, gates):
    """The samples of a node that dies are read once more, by one of the others, which gives them to all."""
    options = {"batch_size": 8, "epochs": EPOCHS, "prefetch_batches": 1, "staging_buffer": "1MB", "gates": gates, "until": str(tmp_path / "done"),
               "of_node": {"0": {"memory": "20MB"}, "1": {"memory": "1MB"}, "2": {"memory": "3MB"}}}
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    before = [run.at[rank][0]["places"] for rank in range(3)]
    assert source(before) == SAMPLES  # together they hold everything
    os.kill(run.ready[2], signal.SIGKILL)
    for node in (0, 1):
        run.wait_alive(node, 2, False)
    for epoch in range(EPOCHS):
        run.go_on(epoch)
    run.wait_epoch(EPOCHS - 1, [0, 1])
    after = [run.at[rank][-1]["places"] for rank in (0, 1)]
    assert source(after) - source(before[:2]) <= before[2]["source"]
    open(options["until"], "w").close()
    said, _ = run.end()
    assert said[2]["kind"] == "DaemonDied"
    assert said[0]["epochs"] == reference[0] and said[1]["epochs"] == reference[1]
