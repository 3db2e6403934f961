"""Elastic restarts: the launcher ends all ranks and starts others, on more nodes or fewer; the
daemons stay.

The stream goes on exactly where it stopped, and what the nodes that are still there hold is not
read again.
"""

import json
import os
import random
import signal
import subprocess
import sys

import pytest
from nodes import SAMPLES, binary, folder, on_node, slow_source  # noqa: F401

pytestmark = pytest.mark.slow

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_of_restarts.py")
GLOBAL, EPOCHS = 24, 4
STEPS = SAMPLES // GLOBAL


class Machines:
    """Nodes on which ranks can be started repeatedly, as by torchrun."""

    SHARED = ("MASTER_ADDR", "MASTER_PORT", "HDMLP_SECRET", "TORCHELASTIC_RUN_ID")

    def __init__(self, binary, nodes, tmp_path, *flags):
        self.binary, self.name, self.attempt = (
            binary,
            f"test-{os.getpid()}-{random.randrange(1 << 30)}",
            0,
        )
        self.environment = {
            **os.environ,
            "HDMLP_LINGER": "60s",
            "HDMLP_INDEX_DIR": str(tmp_path / "index"),
            "HDMLP_CONFIG": slow_source(tmp_path),
        }
        self.environment.pop("HDMLP_SOCKET", None)
        self.cluster = subprocess.Popen(
            [
                binary,
                "dev",
                "cluster",
                "-n",
                str(nodes),
                "--run",
                self.name,
                *flags,
                "--",
                "sh",
                "-c",
                " ".join(["echo", *(f"{key}=${key}" for key in self.SHARED)]) + "; exec sleep 600",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            text=True,
        )
        for _ in range(nodes):
            self.shared = self.cluster.stdout.readline().split("] ", 1)[1].split()

    def start(self, folder, nodes, options, only=None):
        """Starts a rank on each of the first nodes, or on one of them again, for the same job."""
        self.attempt += only is None
        ranks = []
        for node in range(nodes) if only is None else [only]:
            variables = {
                "RANK": node,
                "WORLD_SIZE": nodes,
                "LOCAL_RANK": 0,
                "LOCAL_WORLD_SIZE": 1,
                "GROUP_RANK": node,
                "GROUP_WORLD_SIZE": nodes,
                "TORCHELASTIC_RESTART_COUNT": self.attempt,
            }
            ranks.append(
                subprocess.Popen(
                    on_node(
                        self.binary,
                        self.name,
                        node,
                        "env",
                        *self.shared,
                        *(f"{key}={value}" for key, value in variables.items()),
                        sys.executable,
                        RANK,
                        folder,
                        json.dumps(options),
                    ),
                    env=self.environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return ranks

    def daemon(self, node):
        """The process ID of a node's daemon."""
        asked = subprocess.run(
            on_node(self.binary, self.name, node, self.binary, "stats", "--json"),
            check=True,
            capture_output=True,
            text=True,
        )
        return json.loads(asked.stdout)["pid"]

    def close(self):
        self.cluster.send_signal(signal.SIGINT)
        self.cluster.communicate(timeout=30)


def said(ranks):
    """One line of each rank."""
    out = []
    for rank in ranks:
        line = rank.stdout.readline()
        assert line, rank.stderr.read()
        value = json.loads(line)
        assert "error" not in value, value
        out.append(value)
    return out


def end(ranks):
    """Kills ranks, as a launcher does."""
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.communicate()


def global_batches(values):
    """The ranks' batches, merged to global batches: rank r has every world-size-th sample from the
    r-th on."""
    return [
        [sample for turn in zip(*batches) for sample in turn]
        for batches in zip(*(value["given"] for value in values))
    ]


@pytest.fixture(scope="module")
def reference(binary, folder, tmp_path_factory):
    """The global batches of all epochs, of one rank on one node."""
    machines = Machines(binary, 1, tmp_path_factory.mktemp("alone"))
    try:
        ranks = machines.start(
            folder,
            1,
            {"batch_size": GLOBAL, "epochs": EPOCHS, "state": None, "steps": STEPS * EPOCHS},
        )
        batches = global_batches(said(ranks))
        end(ranks)
        return batches
    finally:
        machines.close()


@pytest.mark.parametrize("caches", ["memory", "files"])
def test_restarts_on_other_numbers_of_nodes_continue_the_stream(
    binary, folder, reference, tmp_path, caches
):
    """Three nodes, two, four: each time all ranks are killed, and others start from the last
    state."""
    options = {"epochs": EPOCHS, "memory": "6MB"}
    flags = []
    if caches == "files":
        options["memory"] = "64KiB"
        flags = ["--mount", f"{tmp_path}/cache-{{node}}:{tmp_path}/cache"]
        for name in ["cache", *(f"cache-{node}" for node in range(4))]:
            (tmp_path / name).mkdir()
        options["cache_dir"] = f"{tmp_path}/cache"
    machines = Machines(binary, 4, tmp_path, *flags)
    try:
        at, state, read = 0, None, []
        for nodes, until in (3, STEPS + 4), (2, 2 * STEPS + 7), (4, EPOCHS * STEPS):
            count = tmp_path / f"count-{nodes}"
            asked = {"state": state, "steps": until - at, "count": str(count)}
            ranks = machines.start(
                folder, nodes, {**options, **asked, "batch_size": GLOBAL // nodes}
            )
            values = said(ranks)
            assert global_batches(values) == reference[at:until]
            count.touch()
            read.append([value["read"] for value in said(ranks)])
            end(ranks)
            at, state = until, values[0]["state"]
        assert sum(read[0]) == SAMPLES
        assert sum(read[1]) <= read[0][2]  # what was on node 2 alone
        assert sum(read[2]) == 0
    finally:
        machines.close()


def test_a_node_whose_daemon_died_cannot_rejoin(binary, folder, tmp_path):
    """The error of its rank says so, at once also where the rank asks for a report, and so does
    that of the rank that is started again alone."""
    machines = Machines(binary, 3, tmp_path)
    options = {
        "epochs": 400,
        "batch_size": 8,
        "memory": "6MB",
        "state": None,
        "steps": 10,
        "go_on": str(tmp_path / "go-on"),
    }
    try:
        ranks = machines.start(folder, 3, options)
        said(ranks)
        os.kill(machines.daemon(2), signal.SIGKILL)
        (tmp_path / "go-on-2").touch()
        told = json.loads(ranks[2].communicate()[0])
        assert told["kind"] == "DaemonDiedError"
        assert "restart all ranks, on all nodes, from their last saved state" in told["error"]
        assert "next()" not in told["error"]
        again = machines.start(folder, 3, {**options, "start_timeout": "3s"}, only=2)
        told = json.loads(again[0].communicate()[0])
        assert told["kind"] == "ConfigError"
        assert "came after the job had begun" in told["error"]
        end(ranks)
    finally:
        machines.close()
