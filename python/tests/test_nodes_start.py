"""How the nodes of a job find each other, and what is reported if they do not: real daemons in
network namespaces of their own.

Whatever is wrong is said on the node concerned and, as far as it can know, on node 0.
"""

import os
import shutil
import subprocess

import pytest
from hdmlp._lib.version import __version__
from joining import BASE, IP, check, start
from nodes import Nodes, binary, folder  # noqa: F401

pytestmark = pytest.mark.slow


def test_another_version_of_hdmlp_is_refused(binary, folder, tmp_path):
    """A node has an older or newer hdmlp."""
    old, new = __version__.encode(), b"9" * (len(__version__) - 4) + b".9.9"
    with open(binary, "rb") as file:
        program = file.read()
    assert old in program
    other = tmp_path / "hdmlp"
    other.write_bytes(program.replace(old, new))
    other.chmod(0o755)
    assert (
        new.decode() in subprocess.run([other, "--version"], capture_output=True, text=True).stdout
    )
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {1: {"version": new.decode(), "environment": {"HDMLP_BINARY": str(other)}}},
        [0, 1],
    )
    for rank in (0, 1):
        check(
            said[rank],
            "MismatchError",
            rf"^hdmlp's version is {new.decode()} on node 1 \({IP}\), but {__version__} on "
            rf"node 0",
        )
        mine, theirs = (__version__, new.decode())[:: 1 if rank == 0 else -1]
        assert said[rank]["details"] == {
            "key": "hdmlp's version",
            "mine": mine,
            "theirs": theirs,
            "node": 1,
        }


@pytest.mark.parametrize("change", ["remove", "rename", "touch", "add a class"])
def test_another_dataset_is_refused_with_the_difference(binary, folder, tmp_path, change):
    """The error names the class, its number of samples, or that only the times differ."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    file = min(other.glob("*/*"))
    facts = r"{} samples? with \d+ bytes \(hash of names and sizes: [0-9a-f]{{16}}\)"
    count = len(list(file.parent.iterdir()))
    key, theirs, mine = (
        f'class "{file.parent.name}" of the dataset',
        facts.format(count),
        facts.format(count),
    )
    if change == "remove":
        file.unlink()
        theirs = facts.format(count - 1)
    elif change == "rename":
        file.rename(file.with_name("another.jpg"))
    elif change == "touch":
        os.utime(file, (1, 1))
        key, theirs, mine = (
            r"dataset fingerprint \(names and sizes are equal, modification times differ\)",
            "[0-9a-f]{16}",
            "[0-9a-f]{16}",
        )
    else:
        (other / "z").mkdir()
        (other / "z" / "1.jpg").write_bytes(b"x")
        key, theirs, mine = 'class "z" of the dataset', facts.format(1), "missing"
    said = start(binary, folder, tmp_path, 2, {}, {1: {"folder": str(other)}}, [0, 1])
    for rank in (0, 1):
        check(
            said[rank],
            "MismatchError",
            rf"^{key} is {theirs} on node 1 \({IP}\), but {mine} on node 0",
        )


@pytest.mark.parametrize(
    "nodes, of_node, kind, words",
    [
        (
            2,
            {1: {"environment": {"RANK": "0"}}},
            "ConfigError",
            "nodes 0 and 1 both claim rank 0: give every rank to one node",
        ),
        (
            3,
            {2: {"environment": {"GROUP_RANK": "1"}}},
            "ConfigError",
            rf"both {IP}:\d+ and {IP}:\d+ claim to be node 1: give every node its own number",
        ),
        (
            2,
            {
                1: {
                    "environment": {
                        "GROUP_WORLD_SIZE": "3",
                        "GROUP_RANK": "2",
                        "WORLD_SIZE": "3",
                        "RANK": "2",
                    }
                }
            },
            "MismatchError",
            rf"nodes is 3 on node 2 \({IP}\), but 2 on node 0: start all ranks",
        ),
    ],
    ids=["one rank twice", "one number twice", "more nodes than stated"],
)
def test_contradictory_layouts_are_refused(binary, folder, tmp_path, nodes, of_node, kind, words):
    said = start(binary, folder, tmp_path, nodes, {"start_timeout": "60s"}, of_node, range(nodes))
    for rank in range(nodes):
        check(said[rank], kind, words)


def test_missing_nodes_are_named(binary, folder, tmp_path):
    """At the deadline."""
    said = start(binary, folder, tmp_path, 3, {}, {1: {"absent": True}}, [0, 2])
    for rank in (0, 2):
        check(
            said[rank],
            "ConfigError",
            rf"node 1 of 3 did not join within 4s; present: node 0 \({IP}:29510\), node 2 "
            rf"\({IP}\)\. See the logs of the missing nodes",
        )


def test_missing_ranks_are_named(binary, folder, tmp_path):
    said = start(
        binary, folder, tmp_path, 2, {}, {1: {"environment": {"LOCAL_WORLD_SIZE": "2"}}}, [0, 1]
    )
    check(
        said[1],
        "ConfigError",
        r"of the 2 ranks of node 1 only \[1\] opened the loader within 4s: start the others "
        r"there too, or .* LOCAL_WORLD_SIZE",
    )
    check(said[0], "ConfigError", r"node 1 of 2 did not join within 4s")


def test_a_wrong_secret_is_refused(binary, folder, tmp_path):
    """The node is refused immediately, node 0 at the deadline: a client without the secret must not
    be able to stop the job."""
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {1: {"secret": "0123456789abcdef0123456789abcdef", "start_timeout": "60s"}},
        [0, 1],
    )
    check(
        said[1],
        "ConfigError",
        rf"node 1 and node 0 \({IP}:29510\) do not have the same secret: set the same HDMLP_SECRET",
    )
    check(
        said[0],
        "ConfigError",
        rf"node 1 of 2 did not join within 4s; .*refused: {IP}:\d+, which claims to be node 1, "
        rf"does not have this job's secret",
    )


def test_a_wrong_secret_is_logged_while_node_0_waits(binary, folder, tmp_path):
    """The job continues to wait for the right node."""
    done = tmp_path / "done"
    options = {
        **BASE,
        "start_timeout": "60s",
        "until": str(done),
        "of_node": {"1": {"secret": "0123456789abcdef0123456789abcdef"}},
    }
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    run.wait(
        lambda: any(
            line.startswith("[0.0] WARNING")
            and "which claims to be node 1, does not have this job's secret" in line
            for line in run.other
        ),
        "node 0 says so",
    )
    run.wait(lambda: 1 in run.said, "node 1 gives up")
    run.process.terminate()
    said, _ = run.end()
    assert 0 not in said, said
    assert said[1]["kind"] == "ConfigError", said
