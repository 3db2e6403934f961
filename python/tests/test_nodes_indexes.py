"""Nodes without a common directory: one makes the index of shards at a URL, the others get it."""

import json
import os
import select
import signal
import subprocess
import uuid

import preloaded
import pytest
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401
from torchrun import free_port
from waiting import until

SHARDS = [f"shards/{s:03d}.tar" for s in range(4)]
URL = f"s3://{BUCKET}/shards/{{000..003}}.tar"

#: Says what it is told, makes the dataset, and then reads it with the other node.
SCRIPT = """
import json, logging, sys
import hdmlp.torch as ht
from hdmlp._daemon import connecting
from hdmlp._records import found

def say(**what):
    print(json.dumps(what), flush=True)

class Told:
    def __call__(self, progress):
        if progress is not None:
            say(told=progress["what"], warning=bool(progress.get("warning")))

found.Progress = Told
client = connecting.connect()  # so that the daemon stays
say(daemon=client.pid)
dataset = ht.WebDataset(sys.argv[1])
say(samples=len(dataset))
sys.stdin.readline()
with ht.DataLoader(dataset, 8, shard=True, collate_fn=list, num_workers=0) as loader:
    samples = sum(len(batch) for batch in loader)
    say(read=samples, indexing=loader.report()["requests"]["indexing"])
    sys.stdin.readline()
"""


class Node:
    """A process on a node of two, with a daemon of its own, and what it says."""

    def __init__(self, node, port, directory, **variables):
        environment = {
            **os.environ,
            "HDMLP_SOCKET": f"hdmlp-{uuid.uuid4().hex}",
            "HDMLP_INDEX_DIR": str(directory / f"index-{node}"),
            "HDMLP_LINGER": "0s",
            "HDMLP_NODES": "127.0.0.1,127.0.0.2",
            "HDMLP_NODE": str(node),
            "HDMLP_PORT": port,
            "HDMLP_SECRET": "a secret of the test's nodes",
            "RANK": str(node),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            **variables,
        }
        self.process = subprocess.Popen(
            [preloaded.PYTHON, "-c", SCRIPT, URL],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said, self.told = {}, []

    def wait(self, key):
        """Returns what it says under a key; None if it ends before."""
        while key not in self.said:
            ready, _, _ = select.select([self.process.stdout], [], [], 60)
            assert ready, (key, self.said, self.told)
            line = self.process.stdout.readline()
            if not line:
                return None
            value = json.loads(line)
            if "told" in value:
                self.told.append((value["told"], value["warning"]))
                if key == "told":
                    return self.told[-1][0]
            self.said.update(value)
        return self.said[key]

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def server(real, stored, monkeypatch):
    with ObjectServer(stored) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def start(tmp_path):
    """Starts a node, which ends with the test."""
    running, port = [], free_port()

    def one(node, **variables):
        running.append(Node(node, port, tmp_path, **variables))
        return running[-1]

    yield one
    for node in running:
        node.end()


def alone(tmp_path):
    """Returns how many requests for bytes an index takes, without those made twice."""
    command = [connecting.find_binary(), "dataset", URL, "--json"]
    shown = subprocess.run(
        [*command, "--index-dir", str(tmp_path / "alone")],
        check=True,
        capture_output=True,
        text=True,
    )
    took = json.loads(shown.stdout)["requests"]
    return took["gets"] - took["hedges"]


@pytest.mark.parametrize("tls", ["off", "on"])
@pytest.mark.parametrize("late", [0, 1])
def test_the_requests_of_an_index_leave_the_server_once(server, start, tmp_path, late, tls):
    once = alone(tmp_path)
    before = server.counts()
    server.hold(SHARDS[3])
    nodes = {1 - late: start(1 - late, HDMLP_TLS=tls)}
    if late == 1:
        until(lambda: server.counts()["gets"] - before["gets"] >= once, "node 0 waits for a shard")
    else:
        assert nodes[1].wait("told") == "waiting for node 0's index"
    nodes[late] = start(late, HDMLP_TLS=tls)
    until(lambda: nodes[1].wait("told").endswith(": 3 of 4 shards"), "three shards are done")
    server.release(SHARDS[3])
    assert [nodes[n].wait("samples") for n in (0, 1)] == [120, 120]
    assert not any(warning for node in nodes.values() for _, warning in node.told)
    after = server.counts()
    for node in nodes.values():
        node.go_on()
    assert [nodes[n].wait("read") for n in (0, 1)] == [60, 60]
    made, got = (nodes[n].said["indexing"] for n in (0, 1))
    assert (made["from"], got["from"]) == ("objects", "node")
    assert got["requests"]["gets"] == 0
    assert got["requests"]["heads"] == made["requests"]["heads"] == len(SHARDS)
    assert made["requests"]["gets"] - made["requests"]["hedges"] == once
    # A shard that the server holds is asked for twice, and maybe in vain.
    assert once <= after["gets"] - before["gets"] <= made["requests"]["gets"]
    assert after["heads"] - before["heads"] == 2 * len(SHARDS)


def test_a_node_makes_the_index_if_node_0_dies_with_it(server, start):
    server.hold(SHARDS[3])
    zero, one = start(0), start(1)
    until(lambda: one.wait("told").endswith(": 3 of 4 shards"), "three shards are done")
    os.kill(zero.wait("daemon"), signal.SIGKILL)
    until(lambda: "this node makes the index itself" in one.wait("told"), "node 1 goes on alone")
    assert one.told[-1][1], "it is no warning"
    server.release(SHARDS[3])
    assert one.wait("samples") == 120
    assert sum(warning for _, warning in one.told) == 1


@pytest.mark.parametrize("zero", ["absent", "of another secret"])
def test_a_node_does_not_wait_for_ever(server, start, zero):
    if zero == "of another secret":
        start(0, HDMLP_SECRET="another secret of the test")
    one = start(1, HDMLP_START_TIMEOUT="2s")
    assert one.wait("samples") == 120
    told = [text for text, warning in one.told if warning]
    assert len(told) == 1
    assert "this node makes the index itself" in told[0]
    assert ("refused" if zero == "absent" else "secret") in told[0]
