"""A job whose ports are flooded by clients without its secret: real daemons in network namespaces
of their own.

Whatever they say, the daemon's memory stays within a budget, nodes with the secret come in, and the
stream is the right one.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from nodes import Nodes, alone, binary, folder, streams  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.ci]

FLOOD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flood.py")
PORTS = {"control": 7000, "samples": 7001, "gossip": 7002, "metrics": 7009}
BUDGET = 32 << 20  # the memory that a flood of all ports may take
# Seconds of flood during which memory is watched: more than a connection has to authenticate in.
FLOODED = 8


def anonymous(pid):
    """A process's memory without shared memory, which caches are in."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"RssAnon:\s+(\d+) kB", file.read()).group(1)) << 10
    except (OSError, AttributeError):
        return 0


def daemon_of(run, node):
    """The process ID of a node's daemon, which may have no job yet, or None."""
    asked = subprocess.run(
        run.on_node(node, "readlink", "/proc/self/ns/net"),
        capture_output=True,
        text=True,
    )
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if b"serve" in words and os.readlink(f"/proc/{pid}/ns/net") == asked.stdout.strip():
                return int(pid)
        except OSError:
            pass
    return None


def listens(run, node, port):
    asked = subprocess.run(
        run.on_node(node, "cat", "/proc/net/tcp", "/proc/net/tcp6"),
        capture_output=True,
        text=True,
    )
    return re.search(rf":{port:04X} \S+ 0A ", asked.stdout)


class Watch(threading.Thread):
    """Records the largest memory of a process until it is stopped."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.first, self.most, self.over = pid, anonymous(pid), 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            self.most = max(self.most, anonymous(self.pid))

    def stop(self):
        """Returns by how much the memory has grown at most."""
        self.over.set()
        self.join()
        return self.most - self.first


@pytest.mark.parametrize("tls", ["off", "on"])
def test_a_flood_costs_bounded_memory_and_the_job_goes_on(binary, folder, alone, tmp_path, tls):
    """All ports of node 0, TCP and UDP, are flooded from four addresses of node 1; node 2 joins,
    and the stream is delivered."""
    gates, late, over = tmp_path / "gates", tmp_path / "late", tmp_path / "over"
    gates.mkdir()
    late.mkdir()
    options = {
        "batch_size": 8,
        "memory": "4MB",
        "port": PORTS["control"],
        "start_timeout": "60s",
        "tls": tls,
        "gates": str(gates),
        "of_node": {"2": {"together": [str(late), 2]}},
    }  # node 2 waits until there are two files
    run = Nodes(
        binary,
        folder,
        3,
        options,
        1,
        tmp_path,
        "--env",
        f"HDMLP_METRICS=0.0.0.0:{PORTS['metrics']}",
    )
    host = run.wait(
        lambda: next(
            (
                found.group(1)
                for line in run.other
                if (found := re.search(r"nodes, (\S+) to", line))
            ),
            None,
        ),
        "its addresses",
    )
    for port in PORTS.values():
        run.wait(lambda port=port: listens(run, 0, port), f"node 0 listens at {port}")
    run.wait(
        lambda: listens(run, 1, PORTS["samples"]) and listens(run, 1, PORTS["gossip"]),
        "node 1 has come",
    )
    pid = run.wait(lambda: daemon_of(run, 0), "node 0's daemon")
    network, _, number = host.rpartition(".")
    addresses = [f"{network}.{int(number) + 1}", *(f"{network}.{last}" for last in (201, 202, 203))]
    for address in addresses[1:]:
        subprocess.run(
            run.on_node(1, "ip", "address", "add", f"{address}/24", "dev", "eth0"), check=True
        )
    forming = Watch(pid)
    flood = subprocess.Popen(
        run.on_node(1, sys.executable, FLOOD, host, json.dumps(PORTS), str(over), *addresses),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(FLOODED)
        grown = forming.stop()
        assert grown < BUDGET, f"while the job forms the daemon grew by {grown >> 20} MiB"
        assert not run.ready, "no node can have begun"
        (late / "daemon-now").touch()
        run.wait_ready(3)  # a node with the secret gets in
        running = Watch(pid)
        for epoch in range(3):
            run.wait_epoch(epoch, [0, 1, 2])
            if epoch == 0:
                time.sleep(FLOODED)
            if epoch == 1:
                assert all(run.peer(0, other)["alive"] for other in (1, 2)), (
                    "the flood made nodes lose each other"
                )
            run.go_on(epoch)
        grown = running.stop()
        assert grown < BUDGET, f"while the job runs the daemon grew by {grown >> 20} MiB"
    finally:
        over.touch()
        flooded, _ = flood.communicate(timeout=30)
    said, status = run.end()
    assert all(count > 240 for count in json.loads(flooded)["made"].values()), (
        flooded
    )  # it was a flood
    assert status == 0, "".join(run.other)
    assert streams(said) == alone, "".join(run.other)
