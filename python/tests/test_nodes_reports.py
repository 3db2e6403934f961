"""Reports of a job over several nodes: hdmlp stats, hdmlp top, metrics, and the audits of
verify=True."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from nodes import SAMPLES, Nodes, binary, folder  # noqa: F401

pytestmark = pytest.mark.slow

STEPS = 5  # of 240 samples, 48 at a time


@pytest.fixture
def gates(tmp_path):
    (tmp_path / "gates").mkdir()
    return str(tmp_path / "gates")


def options(tmp_path, gates, **more):
    return {
        "batch_size": 8,
        "memory": "3MB",
        "epochs": 3,
        "gates": gates,
        "until": str(tmp_path / "done"),
        **more,
    }


def stats(run, node):
    """A node's report of the whole job."""
    return json.loads(run.ask(node, "stats", "--job", run.name, "--json"))["jobs"][0]


def metrics(text):
    """The values of Prometheus's text format, by metric and node."""
    out = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, node, value = re.fullmatch(r'(\w+)\{.*node="(\d+)".*\} (\S+)', line).groups()
            out[name, int(node)] = out.get((name, int(node)), 0) + float(value)
    return out


def test_every_node_reports_the_whole_job(binary, folder, tmp_path, gates):
    """All nodes report the same, and the sum."""
    run = Nodes(
        binary,
        folder,
        3,
        options(tmp_path, gates),
        2,
        tmp_path,
        "--env",
        "HDMLP_METRICS=127.0.0.1:9400",
    )
    run.wait_epoch(0, range(6))
    run.go_on(0)
    run.wait_epoch(1, range(6))
    for node in range(3):
        job = stats(run, node)
        assert job["node"] == node
        assert job["steps"] == STEPS
        assert job["planned_epochs"] == 3
        assert [part["node"] for part in job["nodes"]] == [0, 1, 2]
        assert all(part["responding"] for part in job["nodes"])
        assert job["total"]["batches"] == 2 * 6 * STEPS
        assert job["total"]["samples"] == 2 * SAMPLES
        assert job["total"]["source"]["samples"] == SAMPLES
        assert sum(part["source"]["samples"] for part in job["nodes"]) == SAMPLES
        assert sum(amount["samples"] for amount in job["total"]["reads"].values()) == 2 * SAMPLES
        assert job["total"]["reads"]["peer"]["samples"] > 0
        assert job["bound_share"] == pytest.approx(1, abs=0.01)
        assert job["unreadable"] == 0
        for part in job["nodes"]:
            assert part["batches"] == 2 * 2 * STEPS
            assert part["address"]
            assert part["staging"]["size"] > 0
            assert sum(part["stall"].values()) > 0
            assert [kind["name"] for kind in part["classes"]] == ["memory"]
            assert part["classes"][0]["used"] > 0
            assert [(rank["rank"], rank["epoch"], rank["step"]) for rank in part["ranks"]] == [
                (2 * part["node"], 2, 0),
                (2 * part["node"] + 1, 2, 0),
            ]
    text = run.ask(1, "stats", "--job", run.name)
    assert "6 ranks on 3 nodes took 60 batches" in text, text
    assert re.search(r"^ *all +60 +480 ", text, re.MULTILINE), text
    told = metrics(run.ask(2, "stats", "--job", run.name, "--prometheus"))
    scrape = [
        sys.executable,
        "-c",
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end='')",
    ]
    for node in range(3):
        served = [
            metrics(
                subprocess.run(
                    run.on_node(node, *scrape, "http://127.0.0.1:9400/metrics" + path),
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for path in ("", "/cluster")
        ]
        assert {of for _, of in served[0]} == {node}
        assert {of for _, of in served[1]} == {0, 1, 2}
        assert (
            served[1]["hdmlp_batches_total", 2] == told["hdmlp_batches_total", 2] == 2 * 2 * STEPS
        )
        assert served[0]["hdmlp_node_up", node] == 1
    wrong = subprocess.run(
        run.on_node(0, run.binary, "stats", "--job", "another"), capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert run.name in wrong.stderr
    run.together(6, 3)
    said, status = run.end()
    assert status == 0
    assert all(
        value["cluster"]["nodes"] == [0, 1, 2]
        and "6 ranks on 3 nodes" in value["cluster"]["sentence"]
        for value in said.values()
    )


def test_a_silent_node_is_shown_with_its_last_report(binary, folder, tmp_path, gates):
    """Its daemon hangs, or is gone; the reports of the others are current."""
    run = Nodes(binary, folder, 3, options(tmp_path, gates), 1, tmp_path)
    run.wait_epoch(0, range(3))
    before = stats(run, 0)
    os.kill(run.ready[2], signal.SIGSTOP)

    def without():
        """The report of node 0, or None if node 2 has answered, as the signal has not reached it
        yet."""
        job = stats(run, 0)
        return None if job["nodes"][2]["responding"] else job

    try:
        job = run.wait(without, "node 2 is silent")
        silent = job["nodes"][2]
        assert silent["why"]
        assert silent["age_seconds"] >= 0
        assert job["nodes"][1]["responding"]
        assert job["total"]["batches"] == before["total"]["batches"]
        assert "Node 2 does not answer" in job["sentence"]
        assert "ago" in run.ask(0, "stats", "--job", run.name)
        job = stats(run, 1)  # which has no report of it yet
        assert job["nodes"][2]["age_seconds"] < 0
        assert job["total"]["batches"] < before["total"]["batches"]
        assert "no answer" in run.ask(1, "top", "--once", "--interval", "100ms")
    finally:
        os.kill(run.ready[2], signal.SIGCONT)
    run.wait(lambda: stats(run, 1)["nodes"][2]["responding"], "node 2 answers again")
    os.kill(run.ready[2], signal.SIGKILL)
    run.wait(
        lambda: stats(run, 1)["nodes"][2].get("why") == "it is gone",
        "node 1 says that node 2 is gone",
    )
    job = stats(run, 1)
    assert job["total"]["batches"] == before["total"]["batches"]
    assert len(job["nodes"][2]["ranks"]) == 1
    run.go_on(0)
    run.go_on(1)
    open(tmp_path / "done", "w").close()
    run.end()


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, args, columns, lines):
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(args[0], args)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def shows(self, text, timeout=30):
        limit = time.monotonic() + timeout
        while text.encode() not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(0, limit - time.monotonic()))
            assert ready, f"{text!r} is not in {self.text!r}"
            self.text += os.read(self.fd, 1 << 16)

    def leave(self, key):
        """Presses a key, and returns the exit status."""
        os.write(self.fd, key)
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except OSError:  # it has closed its terminal
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_shows_all_nodes(binary, folder, tmp_path, gates, key):
    run = Nodes(binary, folder, 2, options(tmp_path, gates), 2, tmp_path)
    run.wait_epoch(0, range(4))
    screen = Terminal(run.on_node(1, run.binary, "top", "--interval", "200ms"), 100, 30)
    for text in (
        "epoch 1 of 0-2",
        "MiB/s from",
        "in use, %",
        "rank 0",
        "rank 3",
        "of the bound",
        "stalled 0.0 % of the time",
    ):
        screen.shows(text)
    assert screen.leave(key) == 0
    once = run.ask(0, "top", "--once", "--interval", "100ms")
    assert "rank 3" in once
    assert "\x1b" not in once
    assert once.count("hdmlp top") == 1
    run.together(4, 3)
    assert run.end()[1] == 0


def test_verified_ranks_leave_without_hindering_others(binary, folder, tmp_path):
    """Every rank leaves when its last epoch is verified, and others can still verify it."""
    run = Nodes(
        binary,
        folder,
        3,
        {"batch_size": 8, "memory": "3MB", "epochs": 4, "verify": True},
        2,
        tmp_path,
    )
    said, status = run.end()
    assert status == 0
    assert len(said) == 6
    assert all(len(value["epochs"]) == 4 for value in said.values())
    assert "verified" not in "".join(run.other)


def test_verify_raises_on_all_ranks(binary, folder, tmp_path):
    """One rank received a sample that it should not have."""
    done = tmp_path / "done"
    run = Nodes(
        binary,
        folder,
        3,
        {"batch_size": 8, "verify": True, "until": str(done), "of_node": {"2": {"tamper": 1}}},
        1,
        tmp_path,
    )
    run.wait(lambda: len(run.said) == 3, "all ranks have ended")
    done.touch()
    said, _ = run.end()
    assert all(
        value["kind"] == "AuditError" and "epoch 1" in value["error"] and len(value["epochs"]) == 1
        for value in said.values()
    ), said


@pytest.mark.parametrize("dies", ["rank", "daemon"])
def test_verify_names_ranks_and_nodes_that_died(binary, folder, tmp_path, gates, dies):
    """A rank dies, or its whole node, and the others continue."""
    run = Nodes(
        binary,
        folder,
        3,
        options(tmp_path, gates, verify=True, of_node={"2": {"mortal": True}}),
        1,
        tmp_path,
    )
    run.wait_epoch(0, range(3))
    os.kill((run.process_of if dies == "rank" else run.ready)[2], signal.SIGKILL)
    run.go_on(0)
    run.go_on(1)
    run.wait_epoch(2, [0, 1])
    open(tmp_path / "done", "w").close()
    run.end()
    for epoch in (1, 2):
        assert (
            sum(f"epoch {epoch}: ranks [2] left before its end" in line for line in run.other) == 2
        ), run.other
    assert not any("epoch 0:" in line for line in run.other)
