"""Runs of `hdmlp dev cluster`, for tests of jobs over several nodes: real daemons in network
namespaces of their own.

The fixtures are for modules to import.
"""

import atexit
import collections
import json
import os
import random
import subprocess
import sys
import threading
import uuid

import preloaded
import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from throttled import Throttled, Unavailable
from waiting import until

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_of_nodes.py")
SAMPLES, SIZE = 240, 20_000


@pytest.fixture(scope="module")
def binary():
    try:
        path = connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    probe = subprocess.run(
        [path, "dev", "cluster", "-n", "2", "--", "true"], capture_output=True, text=True
    )
    if os.getuid() != 0 or probe.returncode != 0:
        pytest.skip(f"no network namespaces here: {probe.stderr}")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("nodes") / "data", random.Random(1)
    for number in range(SAMPLES):
        directory = root / "abcd"[number % 4]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:04d}.jpg").write_bytes(
            rng.randbytes(SIZE // 2 + rng.randrange(SIZE))
        )
    return str(root)


def slow_source(directory):
    """The path of a configuration file by which the source is slower for daemons than any other
    tier. So they read a sample from the source only if no node has it, and tests can count reads:
    a source on the local disk may otherwise be faster than another node."""
    path = os.path.join(directory, "slow-source.toml")
    with open(path, "w") as file:
        file.write("[environment]\nsource = {1 = 0.001}\n")
    return path


def on_node(binary, run, node, *command):
    """The command line that runs a command on a node of a run of `hdmlp dev cluster`."""
    return [binary, "dev", "exec", str(node), "--run", run, "--", *command]


def run_script(binary, tmp_path, script, *arguments, nodes=2, **variables):
    """Runs a Python script, preloaded, on nodes with two ranks each: ranks 0 and 1 on node 0, 2 and
    3 on node 1. Its last argument is an empty directory, for waiting.barrier.

    Returns:
        What its ranks printed as lines of JSON, by rank, and the finished process.
    """
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "wait").mkdir()
    environment = {
        **os.environ,
        "HDMLP_LINGER": "0s",
        "HDMLP_INDEX_DIR": str(tmp_path / "index"),
        "HDMLP_CONFIG": slow_source(tmp_path),
        "HDMLP_SECRET": uuid.uuid4().hex,
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    environment.pop("HDMLP_SOCKET", None)
    try:
        done = subprocess.run(
            [
                binary,
                "dev",
                "cluster",
                "-n",
                str(nodes),
                "--ranks-per-node",
                "2",
                "--run",
                f"script-{os.getpid()}",
                "--",
                preloaded.PYTHON,
                str(tmp_path / "script.py"),
                *arguments,
                str(tmp_path / "wait"),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
    except subprocess.TimeoutExpired as late:
        waited = sorted(os.listdir(tmp_path / "wait"))
        ends = [(text or b"")[-4000:].decode() for text in (late.stdout, late.stderr)]
        raise AssertionError("\n".join([str(late), f"waits: {waited}", *ends])) from None
    said = [
        json.loads(line[line.index("{") :])
        for line in done.stdout.splitlines()
        if '{"rank"' in line
    ]
    return sorted(said, key=lambda value: value["rank"]), done


class Nodes:
    """A run of `hdmlp dev cluster` in which each rank runs rank_of_nodes.py.

    Attributes:
        ready: by rank, the process ID of its daemon.
        process_of: by rank, its own process ID.
        caught: by rank, its report of a sample that could not be read, if options has again.
        at: by rank, its reports at the ends of epochs so far, if options has gates.
        said: by rank, its last report.
        other: all other lines.
    """

    def __init__(self, binary, folder, nodes, options, ranks=1, tmp_path=None, *flags):
        self.binary, self.name = binary, f"test-{os.getpid()}-{random.randrange(1 << 30)}"
        environment = {
            **os.environ,
            "HDMLP_LINGER": "0s",
            "HDMLP_INDEX_DIR": str(tmp_path / "index"),
            "HDMLP_CONFIG": slow_source(tmp_path),
        }
        environment.pop("HDMLP_SOCKET", None)
        self.process = subprocess.Popen(
            [
                binary,
                "dev",
                "cluster",
                "-n",
                str(nodes),
                "--ranks-per-node",
                str(ranks),
                "--run",
                self.name,
                *flags,
                "--",
                sys.executable,
                RANK,
                folder,
                json.dumps(options),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.process.terminate)  # where a test fails before its run has ended
        self.gates, self.until = options.get("gates"), options.get("until")
        self.ready, self.process_of, self.caught, self.at, self.said, self.other = (
            {},
            {},
            {},
            collections.defaultdict(list),
            {},
            [],
        )
        self._threads = [
            threading.Thread(target=self._listen, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
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
                self.process_of[value["ready"]] = value["process"]
                self.ready[value["ready"]] = value["pid"]
            elif "caught" in value:
                self.caught[value["caught"]] = value
            elif "at" in value:
                self.at[value["at"]].append(value)
            elif "rank" in value:
                self.said[value["rank"]] = value

    def wait(self, condition, what, timeout=60):
        """Waits until condition() is true, and returns its value."""

        def value():
            found = condition()
            assert found or self.process.poll() is None, f"{what}: the run has ended before"
            return found

        try:
            return until(value, what, timeout, 0.02)
        except AssertionError as error:
            logs = self.logs()
            self.process.kill()
            raise AssertionError(
                f"{error}; ranks said {dict(self.at)}, {self.said}; {''.join(self.other)}{logs}"
            ) from None

    def log(self, rank):
        """The log of a rank's daemon; empty if it is gone."""
        try:
            with open(f"/proc/{self.ready[rank]}/fd/2") as file:
                return file.read()
        except OSError:
            return ""

    def logs(self):
        """All daemons' logs."""
        return "".join(
            f"\nthe log of rank {rank}'s daemon:\n{self.log(rank)}" for rank in sorted(self.ready)
        )

    def wait_ready(self, ranks):
        self.wait(lambda: len(self.ready) >= ranks, f"{ranks} ranks are ready", 30)

    def wait_epoch(self, epoch, ranks):
        """Waits until these ranks have finished the epoch."""
        self.wait(
            lambda: all(len(self.at[rank]) > epoch for rank in ranks),
            f"ranks {ranks} have finished epoch {epoch}",
        )

    def go_on(self, epoch):
        """Lets the ranks that wait at the end of the epoch go on."""
        with open(os.path.join(self.gates, str(epoch)), "w"):
            pass

    def together(self, ranks, epochs):
        """Has ranks, whose options have gates and until, begin each epoch together, as in training,
        and end together."""
        for epoch in range(epochs):
            self.wait_epoch(epoch, range(ranks))
            self.go_on(epoch)
        with open(self.until, "w"):
            pass

    def link(self, node, *flags):
        subprocess.run(
            [self.binary, "dev", "link", str(node), "--run", self.name, *flags],
            check=True,
            capture_output=True,
        )

    def on_node(self, node, *command):
        """The command line that runs a command on a node."""
        return on_node(self.binary, self.name, node, *command)

    def ask(self, node, *arguments):
        """What `hdmlp ...` prints on a node."""
        asked = subprocess.run(
            self.on_node(node, self.binary, *arguments), capture_output=True, text=True
        )
        assert asked.returncode == 0, asked.stderr
        return asked.stdout

    def report(self, node):
        """The report of the job by the node's daemon."""
        return json.loads(self.ask(node, "stats", "--json"))["jobs"][0]

    def wait_gone(self, node, other):
        """Waits until the node has noticed that another one is gone."""
        self.wait(
            lambda: not self.peer(node, other)["alive"],
            f"node {node} notices that node {other} is gone",
        )

    def wait_asked(self, node, other):
        """Waits until the node asks another one for samples."""
        self.wait(lambda: not self.peer(node, other)["bypassed"], f"node {node} asks node {other}")

    def peer(self, node, other):
        """A node's report of another one."""
        return next(peer for peer in self.report(node)["peers"] if peer["node"] == other)

    def end(self, timeout=60):
        """The ranks' last reports, by rank, and the exit status."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"the run has not ended; ranks said {self.said}; {''.join(self.other)}"
            ) from None
        for thread in self._threads:
            thread.join(5)
        return self.said, status


def streams(said):
    """By rank, a digest per epoch."""
    return {rank: value["epochs"] for rank, value in said.items()}


def streams_of_one_node(binary, folder, directory, ranks=3, **options):
    """What ranks of a job on one node receive: by rank, a digest per epoch."""
    said, status = Nodes(binary, folder, 1, options, ranks, directory).end()
    assert status == 0
    return streams(said)


@pytest.fixture(scope="module")
def alone(binary, folder, tmp_path_factory):
    """What three ranks receive on one node: by rank, a digest per epoch."""
    return streams_of_one_node(binary, folder, tmp_path_factory.mktemp("alone"), batch_size=8)


@pytest.fixture
def shaky(folder):
    """The folder through a mount that can be made to fail."""
    try:
        with Throttled(folder, 0) as mount:
            yield mount
    except Unavailable as error:
        pytest.skip(str(error))
