"""Jobs over several nodes of which nodes, links, peers and the source fail.

Every run ends in the stream that its ranks would be given on one node, or in an error on all of
them; never in a hang.
"""

import os
import shutil
import signal
import subprocess
import time

import hdmlp
import pytest
from nodes import (
    SAMPLES,
    Nodes,
    binary,  # noqa: F401
    folder,  # noqa: F401
    shaky,  # noqa: F401
    streams,
    streams_of_one_node,
)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

pytestmark = [pytest.mark.slow, pytest.mark.ci]

EPOCHS = 8
# Little is read ahead, so that faults meet reads of later batches.
LEAN = {
    "batch_size": 8,
    "epochs": EPOCHS,
    "memory": "2MB",
    "prefetch_batches": 1,
    "staging_buffer": "64KiB",
}


@pytest.fixture(scope="module")
def reference(binary, folder, tmp_path_factory):
    """What three ranks receive on one node: by rank, a digest per epoch."""
    return streams_of_one_node(
        binary, folder, tmp_path_factory.mktemp("alone"), batch_size=8, epochs=EPOCHS
    )


@pytest.fixture
def gates(tmp_path):
    (tmp_path / "gates").mkdir()
    return str(tmp_path / "gates")


def source(tiers):
    """The number of samples that all nodes together have read from the source."""
    return sum(tier["source"] for tier in tiers)


def test_samples_of_a_dead_node_are_read_once_more_by_one_node(
    binary, folder, reference, tmp_path, gates
):
    """It gives them to all others."""
    options = {
        **LEAN,
        "gates": gates,
        "until": str(tmp_path / "done"),
        "of_node": {"0": {"memory": "20MB"}, "1": {"memory": "1MB"}, "2": {"memory": "3MB"}},
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    before = [run.at[rank][0]["tiers"] for rank in range(3)]
    assert source(before) == SAMPLES  # together they hold everything
    os.kill(run.ready[2], signal.SIGKILL)
    for node in (0, 1):
        run.wait_gone(node, 2)
    for epoch in range(EPOCHS):
        run.go_on(epoch)
    run.wait_epoch(EPOCHS - 1, [0, 1])
    after = [run.at[rank][-1]["tiers"] for rank in (0, 1)]
    assert source(after) - source(before[:2]) <= before[2]["source"]
    open(options["until"], "w").close()
    said, _ = run.end()
    assert said[2]["kind"] == "DaemonDiedError"
    assert said[0]["epochs"] == reference[0]
    assert said[1]["epochs"] == reference[1]


def test_nodes_read_from_each_other_again_after_a_minutes_cut(
    binary, folder, reference, tmp_path, gates
):
    """Meanwhile the nodes on both sides continue without each other."""
    options = {
        **LEAN,
        "gates": gates,
        "until": str(tmp_path / "done"),
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    run.link(1, "--down")
    mended = time.monotonic() + 60
    run.go_on(0)
    run.wait_epoch(1, [0, 1, 2])
    across = [(0, 1), (2, 1), (1, 0), (1, 2)]
    for node, other in across:
        run.wait_gone(node, other)
    for epoch in (1, 2):
        run.go_on(epoch)
    run.wait_epoch(3, [0, 1, 2])
    time.sleep(max(mended - time.monotonic(), 0))
    run.link(1, "--up")
    for epoch in range(3, EPOCHS):
        for node, other in across:
            run.wait_asked(node, other)
        run.go_on(epoch)
        run.wait_epoch(min(epoch + 1, EPOCHS - 1), [0, 1, 2])
    logs = run.logs()
    open(options["until"], "w").close()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == reference, "".join(run.other)
    read = [source([run.at[rank][epoch]["tiers"] for rank in range(3)]) for epoch in range(EPOCHS)]
    assert any(read[epoch] == read[epoch - 1] for epoch in range(5, EPOCHS)), f"{read}{logs}"


def test_other_nodes_continue_after_stops_and_kills(binary, folder, reference, tmp_path, gates):
    """A daemon is stopped for a while, a rank is killed, and then node 0's daemon."""
    options = {
        **LEAN,
        "gates": gates,
        "until": str(tmp_path / "done"),
        "mortal": True,
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_epoch(0, [0, 1, 2])
    os.kill(run.ready[2], signal.SIGSTOP)
    run.go_on(0)
    run.wait_epoch(1, [0, 1])
    os.kill(run.ready[2], signal.SIGCONT)
    run.wait_epoch(1, [2])
    os.kill(run.process_of[2], signal.SIGKILL)
    for node in (0, 1):
        run.wait_gone(node, 2)
    run.go_on(1)
    run.wait_epoch(2, [0, 1])
    os.kill(run.ready[0], signal.SIGKILL)
    run.wait_gone(1, 0)
    for epoch in range(2, EPOCHS):
        run.go_on(epoch)
    run.wait(lambda: 0 in run.said, "rank 0 reports its daemon's end")
    run.wait_epoch(EPOCHS - 1, [1])
    open(options["until"], "w").close()
    said, status = run.end()
    assert status == 0
    assert 2 not in said
    assert said[0]["kind"] == "DaemonDiedError"
    assert said[0]["epochs"] == reference[0][: len(said[0]["epochs"])]
    assert said[1]["epochs"] == reference[1]


def test_a_link_a_hundred_times_slower_does_not_change_the_stream(
    binary, folder, reference, tmp_path, gates
):
    """Nor does the link's return to its speed."""
    options = {
        **LEAN,
        "gates": gates,
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path, "--rate", "1gbit")
    run.wait_epoch(0, [0, 1, 2])
    run.link(1, "--rate", "10mbit")
    for epoch in range(2):
        run.go_on(epoch)
    run.wait_epoch(2, [0, 1, 2])
    run.link(1, "--rate", "1gbit")
    for epoch in range(2, EPOCHS):
        run.go_on(epoch)
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == reference, "".join(run.other)


def test_planning_does_not_wait_for_a_node_that_is_gone(binary, folder, reference, tmp_path):
    """A plan for so many epochs is made while batches flow."""
    options = {
        **LEAN,
        "epochs": 8_000,
        "run": 3,
        "pause": 0.05,
        "until": str(tmp_path / "done"),
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path, "--env", "HDMLP_LOG_LEVEL=debug")
    run.wait_ready(3)
    assert not any("msg=planned" in run.log(rank) for rank in range(3))
    run.link(2, "--down")
    run.wait(
        lambda: all("msg=planned" in run.log(rank) for rank in range(3)),
        "all nodes have a plan",
        120,
    )
    open(options["until"], "w").close()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == {rank: epochs[:3] for rank, epochs in reference.items()}, "".join(
        run.other
    )


def test_failed_reads_of_the_source_are_retried(binary, shaky, reference, tmp_path):
    """One of ten reads fails; the node that reads retries, and so does a node that asked it."""
    shaky.set(fail_rate=0.1)
    run = Nodes(binary, shaky.path, 3, {"batch_size": 8, "memory": "1MB"}, 1, tmp_path)
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == {rank: epochs[:3] for rank, epochs in reference.items()}, "".join(
        run.other
    )
    assert shaky.counters()["failed"] > 0


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    """A daemon that sends wrong data to other nodes; TEST_LIE selects which."""
    if shutil.which("go") is None:
        pytest.skip("the lying daemon is built with Go")
    path = tmp_path_factory.mktemp("liar") / "hdmlp"
    version = f"-X github.com/hdmlp/hdmlp/cmd/hdmlp.version={hdmlp.__version__}"
    subprocess.run(
        ["go", "test", "-c", "-ldflags", version, "-o", str(path), "./cmd/hdmlp"],
        check=True,
        cwd=ROOT,
    )
    return str(path)


@pytest.mark.parametrize(
    "lie, words",
    [
        ("garbage", "invalid frame of the sample exchange"),
        ("another-byte", "its checksum does not match"),
        ("too-long", "as the answer to sample"),
        ("half", "corrupt answer from peer"),
        ("nothing", "no answer for"),
    ],
)
def test_wrong_answers_of_a_peer_are_replaced_by_reads_of_the_source(
    binary, folder, liar, reference, tmp_path, lie, words
):
    """The peer has the secret, but sends something else than samples."""
    for node in range(3):
        os.symlink(liar if node == 2 else binary, tmp_path / f"hdmlp-{node}")
    options = {"batch_size": 8, "memory": "2MB", "until": str(tmp_path / "done")}
    run = Nodes(
        binary,
        folder,
        3,
        options,
        1,
        tmp_path,
        "--env",
        f"HDMLP_BINARY={tmp_path}/hdmlp-{{node}}",
        "--env",
        f"TEST_LIE={lie}",
    )
    run.wait_ready(3)
    for rank in (0, 1):
        run.wait(
            lambda rank=rank: any(
                "node 2 is bypassed" in line and words in line
                for line in run.log(rank).splitlines()
            ),
            f"node {rank} tells of the liar",
        )
    open(options["until"], "w").close()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == {rank: epochs[:3] for rank, epochs in reference.items()}, "".join(
        run.other
    )
