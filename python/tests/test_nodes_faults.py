"""What a job over several nodes does when nodes, links, peers and the source fail.

Every run ends in the stream that its ranks would be given on one node, or in an error on all of
them; never in a hang.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest
from nodes import SAMPLES, Nodes, binary, folder, streams  # noqa: F401

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import hdmlp
import hdmlp.data as data
from throttled import Throttled, Unavailable

pytestmark = pytest.mark.slow

EPOCHS = 8


@pytest.fixture(scope="module")
def reference(binary, folder, tmp_path_factory):
    """What three ranks are given on one node: per rank, a digest per epoch."""
    said, status = Nodes(
        binary, folder, 1, {"batch_size": 8, "epochs": EPOCHS}, 3, tmp_path_factory.mktemp("alone")
    ).end()
    assert status == 0
    return streams(said)


@pytest.fixture
def gates(tmp_path):
    (tmp_path / "gates").mkdir()
    return str(tmp_path / "gates")


def source(tiers):
    """How many samples nodes have read from the source, all together."""
    return sum(tier["source"] for tier in tiers)


def test_taken_over(binary, folder, reference, tmp_path, gates):
    """The samples of a node that dies are read once more, by one of the others, which gives them to
    all."""
    options = {
        "batch_size": 8,
        "epochs": EPOCHS,
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
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
    assert said[0]["epochs"] == reference[0] and said[1]["epochs"] == reference[1]


def test_link_cut_for_a_minute(binary, folder, reference, tmp_path, gates):
    """The nodes on either side of the cut go on without each other; when it is mended they read
    from each other again."""
    options = {
        "batch_size": 8,
        "epochs": EPOCHS,
        "memory": "2MB",
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
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
    assert status == 0 and streams(said) == reference, "".join(run.other)
    read = [source([run.at[rank][epoch]["tiers"] for rank in range(3)]) for epoch in range(EPOCHS)]
    assert any(read[epoch] == read[epoch - 1] for epoch in range(5, EPOCHS)), f"{read}{logs}"


def test_stopped_and_killed(binary, folder, reference, tmp_path, gates):
    """A daemon that does nothing for a while, a rank that is killed, and node 0's daemon too: the
    others go on."""
    options = {
        "batch_size": 8,
        "epochs": EPOCHS,
        "memory": "2MB",
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
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
    assert status == 0 and 2 not in said
    assert (
        said[0]["kind"] == "DaemonDiedError"
        and said[0]["epochs"] == reference[0][: len(said[0]["epochs"])]
    )
    assert said[1]["epochs"] == reference[1]


def test_link_at_a_hundredth(binary, folder, reference, tmp_path, gates):
    """A link that becomes a hundred times slower than the others, and fast again."""
    options = {
        "batch_size": 8,
        "epochs": EPOCHS,
        "memory": "2MB",
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
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
    assert status == 0 and streams(said) == reference, "".join(run.other)


def test_cut_before_there_is_a_plan(binary, folder, reference, tmp_path):
    """A plan for so many epochs is made while batches flow; the nodes do not wait for one that is
    gone in order to agree on it."""
    options = {
        "batch_size": 8,
        "epochs": 8_000,
        "run": 3,
        "memory": "2MB",
        "prefetch_batches": 1,
        "staging_buffer": "64KiB",
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
    assert status == 0 and streams(said) == {
        rank: epochs[:3] for rank, epochs in reference.items()
    }, "".join(run.other)


@pytest.fixture
def shaky(folder):
    """The folder behind a mount that can be made to fail."""
    try:
        with Throttled(folder, 0) as mount:
            yield mount
    except Unavailable as error:
        pytest.skip(str(error))


def test_source_fails_now_and_then(binary, shaky, reference, tmp_path):
    """One of ten reads fails: every node tries again, and so does the node that asked it."""
    shaky.set(fail_rate=0.1)
    run = Nodes(binary, shaky.path, 3, {"batch_size": 8, "memory": "1MB"}, 1, tmp_path)
    said, status = run.end()
    assert status == 0 and streams(said) == {
        rank: epochs[:3] for rank, epochs in reference.items()
    }, "".join(run.other)
    assert shaky.counters()["failed"] > 0


def stopped(run, ranks, words):
    """Waits until all ranks were told that a sample cannot be read, and returns the ranks that were
    told of another rank's; by rank, what they were told is in run.caught."""
    run.wait(lambda: len(run.caught) == ranks, "all ranks are told", 30)
    told = [value for value in run.caught.values() if "rank" in value["details"]]
    for value in told:
        details = value["details"]
        own = run.caught[details["rank"]]
        where = f"rank {details['rank']}" + (
            f" on node {details['node']} ({details['host']})" if "node" in details else ""
        )
        assert (
            "rank" not in own["details"] and value["error"] == f"{where} stopped: {own['error']}"
        ), run.caught
        assert {key: details[key] for key in ("sample", "path")} == own["details"], run.caught
    assert len(told) < ranks and all(words in value["error"] for value in run.caught.values()), (
        run.caught
    )
    return told


def again(run, options, source, world, tmp_path):
    """Lets the ranks begin again: they get what they would get on one node."""
    open(options["again"], "w").close()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    (tmp_path / "alone").mkdir()
    options = {
        key: value for key, value in options.items() if key not in ("again", "lockstep", "hold")
    }
    alone, _ = Nodes(run.binary, source, 1, options, world, tmp_path / "alone").end()
    assert streams(said) == streams(alone)


def in_lockstep(tmp_path, world, **options):
    (tmp_path / "steps").mkdir()
    return {
        "batch_size": 24 // world,
        "memory": "1MB",
        "source_timeout": "1s",
        "lockstep": [str(tmp_path / "steps"), world],
        "again": str(tmp_path / "again"),
        **options,
    }


def needed(folder, index_dir, world, epochs, step):
    """The names of the files that the last rank needs in this step of epoch 0."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HDMLP_SOCKET", f"hdmlp-test-{uuid.uuid4().hex}")
        environment.setenv("HDMLP_LINGER", "0s")
        with data.DataLoader(
            data.Folder(folder),
            batch_size=24 // world,
            epochs=epochs,
            seed=5,
            rank=0,
            world_size=world,
            index_dir=str(index_dir),
        ) as loader:
            return [os.path.basename(path) for path in loader.explain(0, step, world - 1).paths]


def not_read_at_the_start(binary, shaky, names):
    """One of these that opening the dataset does not read: 64 of its files identify its
    contents."""
    for name in names:
        shaky.set(fail=name)
        before = shaky.counters()["failed"]
        subprocess.run([binary, "dataset", shaky.path], check=True, capture_output=True)
        read = shaky.counters()["failed"] > before
        shaky.set(fail="")
        if not read:
            return name
    raise AssertionError(f"opening {shaky.path} reads all of {names}")


@pytest.mark.parametrize("nodes, ranks, epochs", [(1, 2, 1), (2, 2, 1), (2, 2, 3)])
def test_all_end_before_the_same_step(binary, folder, shaky, tmp_path, nodes, ranks, epochs):
    """The rank that needs the sample is staged ahead, and when it finds that no node can read it
    all ranks end before that step, whatever was sent to their processes already. When it can be
    read they begin again, and get the stream."""
    world, step = nodes * ranks, 8
    name = needed(folder, tmp_path, world, epochs, step)[0]
    shaky.set(fail=name)
    options = in_lockstep(tmp_path, world, epochs=epochs, hold=[5, str(tmp_path / "free")])
    run = Nodes(binary, shaky.path, nodes, options, ranks, tmp_path)
    run.wait_ready(world)
    for rank in range(world):
        run.wait(
            lambda: "stopped: sample" in run.log(rank),
            f"the node of rank {rank} knows that a rank has stopped",
        )
    open(options["hold"][1], "w").close()
    told = stopped(run, world, name)
    assert {value["steps"] for value in run.caught.values()} == {step}, run.caught
    assert epochs > 1 or len(told) == world - 1, (
        run.caught
    )  # others may need it themselves, in the next epoch
    shaky.set(fail="")
    again(run, options, shaky.path, world, tmp_path)


def test_cut_off_while_a_rank_stops(binary, folder, shaky, tmp_path):
    """A node that cannot be told is told when its link is mended, and its rank ends before the same
    step as the others."""
    step = 8
    name = not_read_at_the_start(binary, shaky, needed(folder, tmp_path, 3, 1, step))
    shaky.set(hang=name)
    options = in_lockstep(
        tmp_path, 3, epochs=1, hold=[5, str(tmp_path / "free")], source_timeout="60s"
    )
    run = Nodes(binary, shaky.path, 3, options, 1, tmp_path)
    run.wait(
        lambda: len(list((tmp_path / "steps").iterdir())) == 5 * 3,
        "three ranks have taken five steps",
    )
    run.link(1, "--down")
    shaky.set(hang="", fail=name)
    run.wait(lambda: "stopped: sample" in run.log(0), "node 0 knows that a rank has stopped")
    run.wait_gone(0, 1)
    assert "stopped: sample" not in run.log(1)
    run.link(1, "--up")
    run.wait(lambda: "stopped: sample" in run.log(1), "node 1 knows that a rank has stopped")
    open(options["hold"][1], "w").close()
    assert len(stopped(run, 3, name)) == 2 and {
        value["steps"] for value in run.caught.values()
    } == {step}, run.caught
    shaky.set(fail="")
    again(run, options, shaky.path, 3, tmp_path)


@pytest.mark.parametrize("nodes, ranks", [(1, 2), (3, 1)])
def test_sample_that_nobody_can_read(binary, shaky, tmp_path, nodes, ranks):
    """All ranks get an error that names it, and where that was, though the others went into the
    step that it is missing in. When it can be read they begin again, and get the stream."""
    shaky.set(fail="0100.jpg")
    options = in_lockstep(
        tmp_path, nodes * ranks, epochs=1
    )  # or another rank may need it too, in the next epoch
    run = Nodes(binary, shaky.path, nodes, options, ranks, tmp_path)
    assert len(stopped(run, nodes * ranks, "a/0100.jpg")) == nodes * ranks - 1
    shaky.set(fail="")
    again(run, options, shaky.path, nodes * ranks, tmp_path)


def test_source_is_gone(binary, shaky, tmp_path):
    """The source fails for all nodes: every rank is told. When it is well they begin again, and get
    the stream."""
    options = in_lockstep(tmp_path, 4, hold=[5, str(tmp_path / "free")])
    run = Nodes(binary, shaky.path, 2, options, 2, tmp_path)
    run.wait(
        lambda: len(list((tmp_path / "steps").iterdir())) == 5 * 4,
        "four ranks have taken five steps",
    )
    shaky.set(fail_rate=1.0)
    open(options["hold"][1], "w").close()
    stopped(run, 4, "did not answer")
    shaky.set(fail_rate=0.0)
    again(run, options, shaky.path, 4, tmp_path)


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    """The daemon, but for what it sends other nodes that ask for samples: TEST_LIE says what
    becomes of it."""
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
        ("nothing", "no answer within"),
    ],
)
def test_peer_lies(binary, folder, liar, reference, tmp_path, lie, words):
    """A node that knows the secret, and sends something else than samples: the others read its
    samples from the source."""
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
            lambda: any(
                "node 2 is bypassed" in line and words in line
                for line in run.log(rank).splitlines()
            ),
            f"node {rank} tells of the liar",
        )
    open(options["until"], "w").close()
    said, status = run.end()
    assert status == 0 and streams(said) == {
        rank: epochs[:3] for rank, epochs in reference.items()
    }, "".join(run.other)
