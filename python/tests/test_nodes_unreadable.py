"""A sample that no node can read: all ranks of a job over several nodes end before the same step,
with an error that names it, and can begin again.
"""

import os
import subprocess
import uuid

import hdmlp.data as data
import pytest
from nodes import Nodes, binary, folder, shaky, streams  # noqa: F401

pytestmark = pytest.mark.slow


def stopped(run, ranks, words):
    """Waits until all ranks were notified of a sample that cannot be read, and returns the reports
    that name another rank; run.caught has all of them."""
    run.wait(lambda: len(run.caught) == ranks, "all ranks are told", 30)
    told = [value for value in run.caught.values() if "rank" in value["details"]]
    for value in told:
        details = value["details"]
        own = run.caught[details["rank"]]
        where = f"rank {details['rank']}" + (
            f" on node {details['node']} ({details['host']})" if "node" in details else ""
        )
        assert "rank" not in own["details"], run.caught
        assert value["error"] == f"{where} stopped: {own['error']}", run.caught
        assert {key: details[key] for key in ("sample", "path")} == own["details"], run.caught
    assert len(told) < ranks, run.caught
    assert all(words in value["error"] for value in run.caught.values()), run.caught
    return told


def again(run, options, source, world, tmp_path):
    """Lets the ranks start over, and checks that they get the stream of one node."""
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
    """One of these files that is not read when the dataset is opened: 64 files identify its
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
def test_all_ranks_end_before_the_same_step(binary, folder, shaky, tmp_path, nodes, ranks, epochs):
    """A rank prefetches the sample; when no node can read it, all ranks end before that step, even
    if later batches were sent to them. Then they start over."""
    world, step = nodes * ranks, 8
    name = needed(folder, tmp_path, world, epochs, step)[0]
    shaky.set(fail=name)
    options = in_lockstep(tmp_path, world, epochs=epochs, hold=[5, str(tmp_path / "free")])
    run = Nodes(binary, shaky.path, nodes, options, ranks, tmp_path)
    run.wait_ready(world)
    for rank in range(world):
        run.wait(
            lambda rank=rank: "stopped: sample" in run.log(rank),
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


def test_a_node_that_was_cut_off_ends_before_the_same_step(binary, folder, shaky, tmp_path):
    """It is notified when its link is restored."""
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
    assert len(stopped(run, 3, name)) == 2, run.caught
    assert {value["steps"] for value in run.caught.values()} == {step}, run.caught
    shaky.set(fail="")
    again(run, options, shaky.path, 3, tmp_path)


@pytest.mark.parametrize("nodes, ranks", [(1, 2), (3, 1)])
def test_an_unreadable_sample_is_named_on_all_ranks(binary, shaky, tmp_path, nodes, ranks):
    """Though the others have begun the step in which it is missing. Then they start over."""
    shaky.set(fail="0100.jpg")
    # One epoch: another rank may need it too in the next one.
    options = in_lockstep(tmp_path, nodes * ranks, epochs=1, hold=[0, str(tmp_path / "free")])
    run = Nodes(binary, shaky.path, nodes, options, ranks, tmp_path)
    run.wait_ready(nodes * ranks)
    for rank in range(nodes * ranks):
        run.wait(
            lambda rank=rank: "stopped: sample" in run.log(rank),
            f"the node of rank {rank} knows that a rank has stopped",
        )
    open(options["hold"][1], "w").close()
    assert len(stopped(run, nodes * ranks, "a/0100.jpg")) == nodes * ranks - 1
    shaky.set(fail="")
    again(run, options, shaky.path, nodes * ranks, tmp_path)


def test_a_source_that_fails_for_all_nodes_ends_all_ranks(binary, shaky, tmp_path):
    """When it works again, they start over."""
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
