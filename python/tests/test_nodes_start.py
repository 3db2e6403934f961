"""How the nodes of a job come together, and what is said where they do not: real daemons in network
namespaces of their own.

Whatever is wrong is said on the node concerned and, as far as it can know, on node 0.
"""

import contextlib
import os
import re
import shutil
import subprocess

import pytest
from hdmlp._version import __version__
from nodes import SAMPLES, Nodes, alone, binary, folder, streams  # noqa: F401

pytestmark = pytest.mark.slow

IP = r"10\.\d+\.\d+\.\d+"
BASE = {"batch_size": 8, "memory": "2MB", "epochs": 1, "start_timeout": "4s"}


def start(binary, folder, tmp_path, nodes, options, of_node, expect):
    """What the ranks in expect said, when all of them have: all stay until then."""
    done, together = tmp_path / "done", tmp_path / "together"
    together.mkdir()
    options = {**BASE, "together": [str(together), nodes], **options}
    run = Nodes(
        binary,
        folder,
        nodes,
        {**options, "of_node": {str(n): o for n, o in of_node.items()}, "until": str(done)},
        1,
        tmp_path,
    )
    try:
        run.wait(lambda: set(expect) <= run.said.keys(), f"ranks {expect} give up")
    finally:
        done.touch()
        run.end()
    return run.said


def check(said, kind, words):
    assert said["kind"] == kind and re.search(words, said["error"]), said


def test_another_version(binary, folder, tmp_path):
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
def test_another_dataset(binary, folder, tmp_path, change):
    """What differs is named: the class, how many samples it has, or that it is the times alone."""
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
def test_claims(binary, folder, tmp_path, nodes, of_node, kind, words):
    said = start(binary, folder, tmp_path, nodes, {"start_timeout": "60s"}, of_node, range(nodes))
    for rank in range(nodes):
        check(said[rank], kind, words)


def test_fewer_nodes(binary, folder, tmp_path):
    """The deadline names the nodes that did not come."""
    said = start(binary, folder, tmp_path, 3, {}, {1: {"absent": True}}, [0, 2])
    for rank in (0, 2):
        check(
            said[rank],
            "ConfigError",
            rf"node 1 of 3 did not join within 4s; present: node 0 \({IP}:29510\), node 2 "
            rf"\({IP}\)\. See the logs of the missing nodes",
        )


def test_fewer_ranks(binary, folder, tmp_path):
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


def test_wrong_secret(binary, folder, tmp_path):
    """The node is told at once, and node 0 reports it at the deadline: a client without the secret
    must not stop the job."""
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


def test_wrong_secret_is_logged_at_once(binary, folder, tmp_path):
    """On node 0, where the job goes on waiting for the right one."""
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
    assert 0 not in said and said[1]["kind"] == "ConfigError", said


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
def test_port_in_use(binary, folder, tmp_path, of_node, concerned, other):
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
def test_unreachable(binary, folder, tmp_path, nodes, words):
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
def test_address_of_another_host(binary, folder, tmp_path, interface, why):
    said = start(
        binary, folder, tmp_path, 2, {"start_timeout": "60s"}, {1: {"interface": interface}}, [0, 1]
    )
    for rank in (0, 1):
        check(
            said[rank],
            "ConfigError",
            rf"node 1 could not use {interface} \(interface\): {why}.*lo 127\.0\.0\.1.*eth0 {IP}",
        )


def test_samples_that_can_not_be_reached(binary, folder, tmp_path):
    """A node serves samples where the others cannot fetch them: its loopback address."""
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
    """The addresses at which a process listens, TCP and UDP, as its own network namespace has them:
    (protocol, host in hex, port)."""
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


def test_one_node_listens_nowhere(binary, folder, tmp_path):
    done = tmp_path / "done"
    run = Nodes(binary, folder, 1, {**BASE, "until": str(done)}, 2, tmp_path)
    run.wait_ready(2)
    found = {pid: sockets(pid) for pid in run.ready.values()}
    done.touch()
    said, status = run.end()
    assert status == 0 and len(found) == 1 and not any(found.values()), found


@pytest.mark.parametrize("tls", ["off", True])
def test_chosen_ports_and_interface(binary, folder, alone, tmp_path, tls):
    """A job listens at the three ports that were asked for, on one address, and nowhere else; and
    nowhere when it has ended."""
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
    assert status == 0 and streams(said) == alone, "".join(run.other)
    for rank, at in found.items():
        assert len({host for _, host, _ in at}) == 1 and "00000000" not in {
            host for _, host, _ in at
        }, at
        assert sorted((protocol, port) for protocol, _, port in at) == [("tcp", 7000)] * (
            rank == 0
        ) + [("tcp", 7001), ("tcp", 7002), ("udp", 7002)]


@pytest.mark.parametrize(
    "zero, one, one_says, zero_says",
    [
        (
            "on",
            "off",
            "that node uses TLS, this one does not: set tls to the same value",
            "this node uses TLS, that one does not",
        ),
        (
            "off",
            "on",
            "this node uses TLS, that one does not: set tls to the same value",
            "that node uses TLS, this one does not",
        ),
    ],
)
def test_tls_on_one_side(binary, folder, tmp_path, zero, one, one_says, zero_says):
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {0: {"tls": zero}, 1: {"tls": one, "start_timeout": "60s"}},
        [0, 1],
    )
    check(
        said[1],
        "ConfigError",
        rf"TLS handshake of node 1 with node 0 \({IP}:29510\) failed: {one_says}",
    )
    check(
        said[0],
        "ConfigError",
        rf"node 1 of 2 did not join within 4s; .*refused: {IP}:\d+ was refused during the TLS "
        rf"handshake: {zero_says}",
    )


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    """By authority, the files of a node whose certificate it has signed."""
    root = tmp_path_factory.mktemp("certificates")

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=root)

    for name in ("ours", "theirs"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ed25519",
            "-nodes",
            "-keyout",
            f"{name}-ca.key",
            "-out",
            f"{name}-ca.pem",
            "-subj",
            f"/CN={name}",
            "-days",
            "1",
        )
        openssl(
            "req",
            "-newkey",
            "ed25519",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            "/CN=a node",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            f"{name}-ca.pem",
            "-CAkey",
            f"{name}-ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.pem",
            "-days",
            "1",
        )
    return {
        name: {
            "tls": "on",
            "tls_cert": str(root / f"{name}.pem"),
            "tls_key": str(root / f"{name}.key"),
            "tls_ca": str(root / f"{name}-ca.pem"),
        }
        for name in ("ours", "theirs")
    }


def test_certificates(binary, folder, alone, tmp_path, authorities):
    run = Nodes(
        binary,
        folder,
        3,
        {**BASE, "epochs": 3, "start_timeout": "60s", **authorities["ours"]},
        1,
        tmp_path,
    )
    said, status = run.end()
    assert status == 0 and streams(said) == alone, "".join(run.other)
    assert all(value["tiers"]["peer"] > 0 for value in said.values())


def test_wrong_certificate(binary, folder, tmp_path, authorities):
    said = start(
        binary,
        folder,
        tmp_path,
        2,
        {},
        {0: authorities["ours"], 1: {**authorities["theirs"], "start_timeout": "60s"}},
        [0, 1],
    )
    check(
        said[1],
        "ConfigError",
        r"failed: that node's certificate was rejected: x509: certificate signed by unknown "
        r"authority",
    )
    check(
        said[0],
        "ConfigError",
        rf"refused: {IP}:\d+ was refused during the TLS handshake: that node rejected this one's "
        rf"certificate \(tls: bad certificate\)",
    )


def test_certificate_that_can_not_be(binary, folder, tmp_path, authorities):
    """The error comes before any other node is talked to, and each script ends by it."""
    options = {**BASE, **authorities["ours"], "tls_ca": authorities["theirs"]["tls_ca"]}
    run = Nodes(binary, folder, 2, options, 1, tmp_path)
    said, status = run.end()
    assert status == 1
    for value in said.values():
        check(
            value,
            "ConfigError",
            r'tls_cert = ".*/ours\.pem" is not trusted by tls_ca = ".*/theirs-ca\.pem": x509',
        )
