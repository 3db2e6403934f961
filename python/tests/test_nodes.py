"""Jobs over several nodes: real daemons in network namespaces of their own, started by `hdmlp dev cluster`.

What a rank is given must be what it is given where all ranks are on one node, whatever happens to nodes and links.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from hdmlp import _daemon, errors

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_of_nodes.py")
SAMPLES, SIZE = 240, 20_000


@pytest.fixture(scope="module")
def binary():
    try:
        path = _daemon.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    probe = subprocess.run([path, "dev", "cluster", "-n", "2", "--", "true"], capture_output=True, text=True)
    if os.getuid() != 0 or probe.returncode != 0:
        pytest.skip(f"no network namespaces here: {probe.stderr}")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("nodes") / "data", random.Random(1)
    for number in range(SAMPLES):
        directory = root / "abcd"[number % 4]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:04d}.jpg").write_bytes(rng.randbytes(SIZE // 2 + rng.randrange(SIZE)))
    return str(root)


class Nodes:
    """A run of `hdmlp dev cluster`."""

    def __init__(self, binary, folder, nodes, options, ranks=1, tmp_path=None, *flags):
        self.binary, self.name = binary, f"test-{os.getpid()}-{random.randrange(1 << 30)}"
        environment = {**os.environ, "HDMLP_LINGER": "0s", "HDMLP_INDEX_DIR": str(tmp_path / "index")}
        environment.pop("HDMLP_SOCKET", None)
        self.process = subprocess.Popen(
            [binary, "dev", "cluster", "-n", str(nodes), "--ranks-per-node", str(ranks), "--run", self.name, *flags, "--",
             sys.executable, RANK, folder, json.dumps(options)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready, self.said, self.other = {}, {}, []
        self._threads = [threading.Thread(target=self._listen, args=(stream,), daemon=True)
                         for stream in (self.process.stdout, self.process.stderr)]
        for thread in self._threads:
            thread.start()

    def _listen(self, stream):
        for line in stream:
            text = line.split("] ", 1)[-1]
            try:
                value = json.loads(text)
            except ValueError:
                self.other.append(line)
                continue
            if "ready" in value:
                self.ready[value["ready"]] = value["pid"]
            elif "rank" in value:
                self.said[value["rank"]] = value

    def wait_ready(self, ranks):
        limit = time.monotonic() + 30
        while len(self.ready) < ranks:
            assert time.monotonic() < limit and self.process.poll() is None, "".join(self.other)
            time.sleep(0.02)

    def link(self, node, *flags):
        subprocess.run([self.binary, "dev", "link", str(node), "--run", self.name, *flags], check=True, capture_output=True)

    def end(self, timeout=60):
        """What the ranks said, by rank, and the exit status."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it hangs; ranks said {self.said}; {''.join(self.other)}") from None
        for thread in self._threads:
            thread.join(5)
        return self.said, status


@pytest.fixture(scope="module")
def alone(binary, folder, tmp_path_factory):
    """What three ranks are given on one node: per rank, a digest per epoch."""
    said, status = Nodes(binary, folder, 1, {"batch_size": 8}, 3, tmp_path_factory.mktemp("alone")).end()
    assert status == 0
    return {rank: value["epochs"] for rank, value in said.items()}


def streams(said):
    return {rank: value["epochs"] for rank, value in said.items()}


@pytest.mark.parametrize("policy", ["cooperative", "frequency"])
def test_same_stream(binary, folder, alone, tmp_path, policy):
    run = Nodes(binary, folder, 3, {"batch_size": 8, "memory": "2MB", "policy": policy}, 1, tmp_path)
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == alone
    assert all(value["places"]["peer"] > 0 for value in said.values())
    if policy == "cooperative":  # their caches together hold everything
        assert sum(value["places"]["source"] for value in said.values()) == SAMPLES


def test_several_ranks_a_node(binary, folder, tmp_path):
    one, status = Nodes(binary, folder, 1, {"batch_size": 8, "epochs": 2}, 4, tmp_path).end()
    two, status2 = Nodes(binary, folder, 2, {"batch_size": 8, "epochs": 2, "memory": "3MB"}, 2, tmp_path).end()
    assert status == status2 == 0 and streams(one) == streams(two)


def test_daemon_killed(binary, folder, alone, tmp_path):
    """The ranks of the dead daemon hear of it at once; the others go on, and get what they should."""
    done = tmp_path / "done"
    options = {"batch_size": 8, "memory": "2MB", "pause": 0.05, "until": str(done)}
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_ready(3)
    time.sleep(0.3)
    os.kill(run.ready[2], signal.SIGKILL)
    limit = time.monotonic() + 40
    while 2 not in run.said and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(3.5)  # the others are through
    done.touch()
    said, _ = run.end()
    assert said[2]["kind"] == "DaemonDied"
    assert said[0]["epochs"] == alone[0] and said[1]["epochs"] == alone[1]


def test_link_cut(binary, folder, alone, tmp_path):
    done = tmp_path / "done"
    options = {"batch_size": 8, "memory": "2MB", "pause": 0.1, "until": str(done)}
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_ready(3)
    time.sleep(0.4)
    run.link(1, "--down")
    time.sleep(5)
    run.link(1, "--up")
    time.sleep(8)
    done.touch()
    said, status = run.end()
    assert status == 0 and streams(said) == alone, "".join(run.other)


def test_slow_link(binary, folder, alone, tmp_path):
    run = Nodes(binary, folder, 3, {"batch_size": 8, "memory": "2MB"}, 1, tmp_path, "--rate-of", "2=2mbit")
    said, status = run.end(120)
    assert status == 0 and streams(said) == alone


@pytest.mark.parametrize("differs, kind, words", [
    ({"batch_size": 9}, "MismatchError", "global batch size is 27 on node 1"),
    ({"policy": "naive"}, "MismatchError", "policy is naive on node 1"),
    ({"drop_last": True}, "MismatchError", "drop_last is true on node 1"),
])
def test_disagreement(binary, folder, tmp_path, differs, kind, words):
    done = tmp_path / "done"
    run = Nodes(binary, folder, 3, {"batch_size": 8, "of_node": {"1": differs}, "until": str(done)}, 1, tmp_path)
    limit = time.monotonic() + 30
    while not {0, 1} <= run.said.keys() and time.monotonic() < limit:
        time.sleep(0.05)
    done.touch()
    said, _ = run.end()
    for rank in (0, 1):
        assert said[rank]["kind"] == kind and words in said[rank]["error"], said


def test_wrong_secret(binary, folder, tmp_path):
    """The node hears of it at once; the job goes on waiting for the right one, as a stranger must not be able to stop it."""
    options = {"batch_size": 8, "of_node": {"1": {"secret": "0123456789abcdef0123456789abcdef"}}}
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    said, status = run.end()
    assert status == 2 and said[1]["kind"] == "ConfigError" and "secret" in said[1]["error"] and 0 not in said
