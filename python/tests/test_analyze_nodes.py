"""`hdmlp analyze` on jobs of two nodes, which are two commands on this machine."""

import json
import os
import signal
import subprocess
import sys
import uuid

import preloaded
import pytest
from nodes import binary as spaces  # noqa: F401
from test_analyze import SCRIPTS, binary, environment, script  # noqa: F401
from torchrun import free_port, torchrun
from waiting import until

pytestmark = pytest.mark.ci

pytest.importorskip("torch")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(300):
        (tmp_path / "data" / f"{number}.bin").write_bytes(os.urandom(5000))
    return str(tmp_path / "data")


class Job:
    """A job of two nodes, each started by `hdmlp analyze`.

    What a node prints goes to files, not to pipes: a process that outlives the node's command would
    hold these open, and torchrun may end before its ranks if it gets a signal twice.
    """

    def __init__(
        self,
        binary,
        environment,
        *arguments,
        options=((), ()),
        name="ranks.py",
        python=preloaded.PYTHON,
    ):
        port = free_port()
        self.nodes, self._said = [], []
        for number in range(2):
            launcher = torchrun(1, port, python)
            of = ["--nnodes=2", f"--node_rank={number}", "--master_addr=127.0.0.1"]
            out, said = os.memfd_create("output"), os.memfd_create("messages")
            self._said.append((out, said))
            self.nodes.append(
                subprocess.Popen(
                    [
                        *(binary, "analyze", "--json", "--time", "4s", *options[number], "--"),
                        *(*launcher[:3], *of, *launcher[3:], script(name), *arguments),
                    ],
                    env={**environment, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": python},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=said,
                )
            )

    def until_says(self, number, text):
        """Waits until a node's command has said something."""

        def says():
            assert self.nodes[number].poll() is None
            return text in contents(self._said[number][1])

        until(says, text, seconds=100)

    def ended(self):
        """The exit status, output and messages of each node."""
        found = []
        for node, (out, said) in zip(self.nodes, self._said):
            node.wait(timeout=100)
            found.append((node.returncode, contents(out), contents(said)))
            os.close(out)
            os.close(said)
        return found


def contents(file):
    """What a file has, whose end other processes write at."""
    return os.pread(file, os.fstat(file).st_size, 0).decode()


def test_nodes_are_measured_together(binary, environment, files):
    """Their ranks average gradients: if phases did not change at one step, they would hang."""
    (status, out, said), (other, nothing, words) = Job(binary, environment, files).ended()
    assert (status, other) == (0, 0), said + words
    found = json.loads(out)["measured"]
    assert (found["ranks"], found["nodes"]) == (2, 2)
    assert found["dataset"]["samples"] == 300
    assert found["loader"]["workers"] == 1  # of a node
    assert [point["n"] for point in found["source_by_nodes"]] == [1, 2]
    fastest = max(found["source"], key=lambda point: point["samples_per_s"])
    assert [point["streams"] for point in found["source_by_nodes"]] == 2 * [fastest["n"]]
    assert found["source"]
    assert found["peers"]
    assert found["training"]["samples_per_s"] < 400 * 1.1  # of a node: 8 samples in 20 ms
    assert not nothing
    assert "node 1 of 2" in words
    assert "node 0 prints the conclusion" in words


def test_nodes_with_other_arguments_are_refused(binary, environment, files):
    job = Job(binary, environment, files, options=((), ("--time", "5s")))
    for status, _, said in job.ended():
        assert status == 2, said
        assert "--time is 5s on node 1" in said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_node_that_ends_ends_the_others(binary, environment, files, how):
    job = Job(binary, environment, files)
    job.until_says(1, "training with")
    job.nodes[1].send_signal(how)
    (status, out, said), (other, _, _) = job.ended()
    assert status == 1, said
    assert "before everything was measured" in said
    assert json.loads(out)["measured"]["as_is"]  # what was measured until then
    assert other == (-signal.SIGKILL if how == signal.SIGKILL else 130)


@pytest.mark.parametrize("how", ["fail", signal.SIGKILL])
def test_a_node_that_ends_before_its_loader_ends_the_others(binary, environment, how):
    """The other script waits for ever: without being notified, its command would as well."""
    job = Job(binary, environment, str(how), name="before.py", python=sys.executable)
    if how != "fail":
        job.until_says(1, "found the commands")
        job.nodes[1].send_signal(how)
    (status, _, said), (other, _, words) = job.ended()
    assert status == 1, said
    assert "hdmlp analyze on node 1 ended before everything was measured" in said
    assert other == (1 if how == "fail" else -how), words


@pytest.fixture
def images(tmp_path):
    pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    for number in range(160):
        directory = tmp_path / "images" / "ab"[number % 2]
        directory.mkdir(parents=True, exist_ok=True)
        image.effect_noise((200, 150), 50).convert("RGB").save(directory / f"{number}.jpg")
    return str(tmp_path / "images")


@pytest.mark.parametrize("kind", ["hdmlp", "torch"])
def test_nodes_in_namespaces_are_measured_and_validated(
    spaces,
    environment,
    images,
    kind,
):
    done = subprocess.run(
        [
            *(spaces, "dev", "cluster", "-n", "2", "--rate", "1gbit", "--"),
            *(spaces, "analyze", "--json", "--time", "8s", "--validate", "--"),
            *(preloaded.PYTHON, script("served.py"), images, kind),
        ],
        env={**environment, "OMP_NUM_THREADS": "1", "HDMLP_SECRET": uuid.uuid4().hex},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    found = json.loads("\n".join(x.removeprefix("[0.0] ") for x in lines if x.startswith("[0.0]")))[
        "measured"
    ]
    assert (found["nodes"], found["dataset"]["samples"]) == (2, 160)
    assert found["loader"]["name"] == kind
    assert found["preparation"]
    assert [point["n"] for point in found["source_by_nodes"]] == [1, 2]
    assert found["peers"]
    steps = 160 / 8 / 2  # of 20 ms, on each node
    assert steps * 0.02 * 0.9 < found["validation"]["measured_epoch_s"] < steps * 0.02 * 3
