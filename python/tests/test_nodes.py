"""Jobs over several nodes: real daemons in network namespaces of their own, started by `hdmlp dev
cluster`.

What a rank is given must be what it is given where all ranks are on one node, whatever happens to
nodes and links.
"""

import os
import signal
import time

import pytest
from nodes import SAMPLES, Nodes, alone, binary, folder, streams  # noqa: F401

pytestmark = pytest.mark.slow

EPOCHS = 3  # of the run alone


@pytest.mark.parametrize("policy", ["cooperative", "frequency", "partitioned", "minio"])
def test_nodes_get_the_stream_of_one_node(binary, folder, alone, tmp_path, policy):
    options = {
        "batch_size": 8,
        "memory": "2MB",
        "policy": policy,
        "gates": str(tmp_path),
        "until": str(tmp_path / "done"),
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.together(3, 3)
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == alone
    assert all((value["tiers"]["peer"] > 0) == (policy != "minio") for value in said.values())
    if policy == "cooperative":  # their caches together hold everything
        assert sum(value["tiers"]["source"] for value in said.values()) == SAMPLES


def test_several_ranks_per_node_get_the_stream_of_one_node(binary, folder, tmp_path):
    one, status = Nodes(binary, folder, 1, {"batch_size": 8, "epochs": 2}, 4, tmp_path).end()
    two, status2 = Nodes(
        binary, folder, 2, {"batch_size": 8, "epochs": 2, "memory": "3MB"}, 2, tmp_path
    ).end()
    assert status == status2 == 0
    assert streams(one) == streams(two)


def free(tmp_path):
    """Open gates: ranks report at the end of each epoch, and do not wait."""
    gates = tmp_path / "gates"
    gates.mkdir()
    for epoch in range(EPOCHS):
        (gates / str(epoch)).touch()
    return {"epochs": EPOCHS, "gates": str(gates)}


def test_a_killed_daemon_ends_its_own_ranks_only(binary, folder, alone, tmp_path):
    """The other ranks continue and receive their samples."""
    done = tmp_path / "done"
    options = {
        "batch_size": 8,
        "memory": "2MB",
        "pause": 0.05,
        "until": str(done),
        **free(tmp_path),
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    os.kill(run.ready[2], signal.SIGKILL)
    run.wait(lambda: 2 in run.said, "the dead daemon's rank gives up")
    run.wait_epoch(EPOCHS - 1, [0, 1])
    done.touch()
    said, _ = run.end()
    assert said[2]["kind"] == "DaemonDiedError"
    assert said[0]["epochs"] == alone[0]
    assert said[1]["epochs"] == alone[1]


def test_a_cut_link_does_not_change_the_stream(binary, folder, alone, tmp_path):
    done = tmp_path / "done"
    options = {"batch_size": 8, "memory": "2MB", "pause": 0.1, "until": str(done), **free(tmp_path)}
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    run.link(1, "--down")
    time.sleep(5)  # how long the cut lasts
    run.link(1, "--up")
    run.wait_epoch(EPOCHS - 1, [0, 1, 2])
    done.touch()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == alone, "".join(run.other)


def test_a_slow_link_does_not_change_the_stream(binary, folder, alone, tmp_path):
    run = Nodes(
        binary, folder, 3, {"batch_size": 8, "memory": "2MB"}, 1, tmp_path, "--rate-of", "2=2mbit"
    )
    said, status = run.end(120)
    assert status == 0
    assert streams(said) == alone


@pytest.mark.parametrize(
    "differs, kind, words",
    [
        ({"batch_size": 9}, "MismatchError", "global batch size is 27 on node 1"),
        ({"policy": "naive"}, "MismatchError", "policy is naive on node 1"),
        ({"drop_last": True}, "MismatchError", "drop_last is true on node 1"),
    ],
)
def test_nodes_with_different_arguments_are_refused(binary, folder, tmp_path, differs, kind, words):
    done = tmp_path / "done"
    run = Nodes(
        binary,
        folder,
        3,
        {"batch_size": 8, "of_node": {"1": differs}, "until": str(done)},
        1,
        tmp_path,
    )
    run.wait(lambda: {0, 1} <= run.said.keys(), "both ranks give up")
    done.touch()
    said, _ = run.end()
    for rank in (0, 1):
        assert said[rank]["kind"] == kind, said
        assert words in said[rank]["error"], said


def test_a_node_with_a_wrong_secret_is_refused_and_the_job_waits(binary, folder, tmp_path):
    """A client without the secret must not be able to stop the job."""
    options = {"batch_size": 8, "of_node": {"1": {"secret": "0123456789abcdef0123456789abcdef"}}}
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    said, status = run.end()
    assert status == 1
    assert said[1]["kind"] == "ConfigError"
    assert "secret" in said[1]["error"]
    assert 0 not in said
