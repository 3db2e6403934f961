"""Where the daemons of a job listen, and what is reported if a port or an address cannot be used or
reached: real daemons in network namespaces of their own.
"""

import contextlib
import os

import pytest
from joining import BASE, IP, check, start
from nodes import Nodes, alone, binary, folder, streams  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.ci]


@pytest.mark.parametrize(
    "of_node, concerned, other",
    [
        (
            {0: {"occupy": 7000}},
            r"node 0 could not listen on :7000 \(control\): the port is in use.* set port "
            r"\(HDMLP_PORT\) to use other ports",
            rf"node 1 could not reach {IP}:7000 \(node 0\) within 4s: no answer",
        ),
        (
            {0: {"occupy": 7001}},
            r"node 0 could not listen on :7001 \(samples\): the port is in use",
            None,
        ),
        (
            {1: {"occupy": 7001}},
            r"node 1 could not listen on :7001 \(samples\): the port is in use",
            None,
        ),
        (
            {1: {"occupy": 7002}},
            r"node 1 could not listen on :7002 \(failure detection, TCP and UDP\): the port is "
            r"in use",
            None,
        ),
    ],
    ids=["control", "samples of node 0", "samples", "failure detection"],
)
def test_a_port_in_use_is_named(binary, folder, tmp_path, of_node, concerned, other):
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {"port": 7000, "start_timeout": "4s" if other else "60s"},
        of_node,
        [0, 1],
    )
    node = next(iter(of_node))
    check(said[node], "ConfigError", concerned)
    check(said[1 - node], "ConfigError", other or concerned)


@pytest.mark.parametrize(
    "nodes, words",
    [
        (
            "192.0.2.1",
            r"node 1 could not reach 192\.0\.2\.1:29510 \(node 0\) within 4s: .*unreachable",
        ),
        (
            "no-such-host.invalid",
            r"node 1 could not reach no-such-host\.invalid:29510 \(node 0\) within 4s: lookup "
            r"no-such-host\.invalid",
        ),
    ],
)
def test_an_unreachable_node_0_is_named(binary, folder, tmp_path, nodes, words):
    said = start(
        binary, folder, tmp_path, 2, {}, {1: {"environment": {"HDMLP_NODES": nodes}}}, [0, 1]
    )
    check(said[1], "ConfigError", words)
    check(said[0], "ConfigError", "node 1 of 2 did not join within 4s")


@pytest.mark.parametrize(
    "interface, why",
    [
        ("eth7", "it is no interface or address of this host, and not known as a host name"),
        ("192.0.2.7", "this host has no such address"),
        ("172.31.255.0/24", "this host has no such address"),
    ],
)
def test_an_interface_of_another_host_is_refused(binary, folder, tmp_path, interface, why):
    said = start(
        binary, folder, tmp_path, 2, {"start_timeout": "60s"}, {1: {"interface": interface}}, [0, 1]
    )
    for rank in (0, 1):
        check(
            said[rank],
            "ConfigError",
            rf"node 1 could not use {interface} \(interface\): {why}.*lo 127\.0\.0\.1.*eth0 {IP}",
        )


def test_an_unreachable_address_for_samples_is_refused(binary, folder, tmp_path):
    """A node serves samples at its loopback address."""
    said = start(
        binary, folder, tmp_path, 3, {"start_timeout": "60s"}, {1: {"interface": "lo"}}, [0, 1, 2]
    )
    for rank in range(3):
        check(
            said[rank],
            "ConfigError",
            r"node 0 could not reach 127\.0\.0\.1:\d+ \(samples of node 1\): connect: connection "
            r"refused",
        )


def sockets(pid):
    """The addresses at which a process listens, in its network namespace: (protocol, host in hex,
    port)."""
    own = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    found = set()
    for protocol in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        with open(f"/proc/{pid}/net/{protocol}") as table:
            for line in list(table)[1:]:
                word = line.split()
                host, port = word[1].split(":")
                if f"socket:[{word[9]}]" in own and (
                    word[3] == "0A" or not protocol.startswith("tcp")
                ):
                    found.add((protocol, host, int(port, 16)))
    return found


def test_a_job_on_one_node_does_not_listen(binary, folder, tmp_path):
    done = tmp_path / "done"
    run = Nodes(binary, folder, 1, {**BASE, "until": str(done)}, 2, tmp_path)
    run.wait_ready(2)
    found = {pid: sockets(pid) for pid in run.ready.values()}
    done.touch()
    _said, status = run.end()
    assert status == 0, found
    assert len(found) == 1, found
    assert not any(found.values()), found


@pytest.mark.parametrize("tls", ["off", True])
def test_a_job_listens_at_the_chosen_ports_and_address_only(binary, folder, alone, tmp_path, tls):
    """After its end it listens nowhere."""
    done, over = tmp_path / "done", tmp_path / "over"
    options = {
        **BASE,
        "epochs": 3,
        "start_timeout": "60s",
        "port": 7000,
        "interface": "eth0",
        "tls": tls,
        "until": str(done),
        "stay": str(over),
    }
    run = Nodes(binary, folder, 3, options, 1, tmp_path)
    run.wait_ready(3)
    found = {rank: sockets(pid) for rank, pid in run.ready.items()}
    done.touch()
    run.wait(
        lambda: len(run.said) == 3 and not any(sockets(pid) for pid in run.ready.values()),
        "the daemons listen nowhere",
    )
    over.touch()
    said, status = run.end()
    assert status == 0, "".join(run.other)
    assert streams(said) == alone, "".join(run.other)
    for rank, at in found.items():
        assert len({host for _, host, _ in at}) == 1, at
        assert "00000000" not in {host for _, host, _ in at}, at
        assert sorted((protocol, port) for protocol, _, port in at) == [("tcp", 7000)] * (
            rank == 0
        ) + [("tcp", 7001), ("tcp", 7002), ("udp", 7002)]
