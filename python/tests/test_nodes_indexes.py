"""Nodes without a common directory: one makes the index of shards at a URL, the others get it."""

import json
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import uuid

import preloaded
import pytest
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401
from waiting import LIMIT, until

pytestmark = pytest.mark.ci

SHARDS = [f"shards/{s:03d}.tar" for s in range(4)]
URL = f"s3://{BUCKET}/shards/{{000..003}}.tar"

#: Prints what is reported to it, makes the dataset, and then reads it with the other node.
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
    """A process on a node of two, with a daemon of its own, and what it prints."""

    def __init__(self, node, port, directory, **variables):
        environment = {
            **os.environ,
            "HDMLP_SOCKET": f"hdmlp-{uuid.uuid4().hex}",
            "HDMLP_INDEX_DIR": str(directory / f"index-{node}"),
            "HDMLP_LINGER": "0s",
            "HDMLP_NODES": "127.0.0.1,127.0.0.2",
            "HDMLP_NODE": str(node),
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
        self.said, self.told, self._lines = {}, [], queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def wait(self, key):
        """Returns what it prints under a key; None if it ends before."""
        while key not in self.said:
            try:
                value = self._lines.get(timeout=LIMIT)
            except queue.Empty:
                raise AssertionError(f"{key} is not said: {self.said}, {self.told}") from None
            if value is None:
                return None
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
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def server(real, stored, monkeypatch):
    with ObjectServer(stored) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


def free_port():
    """Returns a MASTER_PORT whose ports for control and for indexes are free, and are none that the
    system gives to connections."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as control, socket.socket() as indexes:
            try:
                control.bind(("127.0.0.1", port + 10))
                indexes.bind(("127.0.0.1", port + 13))
                return str(port)
            except OSError:
                pass


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
        until(lambda: server.counts()["gets"] > before["gets"], "node 0 has begun")
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
    # Each node has opened it twice, to find out what it has and to list it.
    assert after["heads"] - before["heads"] == 2 * 2 * len(SHARDS)


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
        assert start(0, HDMLP_SECRET="another secret of the test").wait("samples") == 120
    one = start(1, HDMLP_START_TIMEOUT="2s")
    assert one.wait("samples") == 120
    told = [text for text, warning in one.told if warning]
    assert len(told) == 1
    assert "this node makes the index itself" in told[0]
    assert ("refused" if zero == "absent" else "secret") in told[0]
