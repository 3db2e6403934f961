"""Daemons and processes of other versions and protocols at the daemon's socket."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading

import hdmlp
import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from hdmlp._lib import protocol
from sockets import Ranks, binary, command, runtime, variables  # noqa: F401


@pytest.fixture
def newer(binary, tmp_path):
    """The same program with another version: the binary, and the version."""
    old = hdmlp.__version__.encode()
    new = b"9" * (len(old) - 4) + b".9.9"
    with open(binary, "rb") as file:
        program = file.read()
    other = tmp_path / "newer"
    other.write_bytes(program.replace(old, new))
    other.chmod(0o755)
    return str(other), new.decode()


def test_a_daemon_of_another_version_is_refused_and_can_be_ended(binary, newer, runtime):
    """The error names both versions."""
    other, version = newer
    environment = variables(XDG_RUNTIME_DIR=runtime, HDMLP_LINGER="60s")
    daemon = subprocess.Popen([other, "serve"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert "daemon starts" in daemon.stderr.readline()
        with Ranks(1, environment) as ranks:
            said = ranks.said[0]
            assert said["error"] == "VersionError", said
            for words in (
                f"pid {daemon.pid}) is hdmlp {version}",
                f"is hdmlp {hdmlp.__version__}",
                "hdmlp stop",
                "HDMLP_SOCKET",
            ):
                assert words in said["text"]
        for words in (["stats"], ["stats", "--job", "x"], ["top", "--once"]):
            status, out = command(binary, environment, *words)
            assert status == 2, out
            assert f"pid {daemon.pid}) is hdmlp {version}" in out, out
            assert hdmlp.__version__ in out, out
        assert command(binary, environment, "stop") == (0, "")
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.communicate()


OTHER_PROTOCOL = """
import os, socket, sys
from hdmlp._lib import protocol
refusal = {"kind": "version", "message": "the daemon speaks protocol 99"}
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("there", flush=True)
while True:
    connection = protocol.Connection(listener.accept()[0])
    while connection.frame() is None:
        connection.fill() or connection.wait(10)
    connection.send(protocol.encode_json(134, refusal))
    connection.close()
"""


def test_a_daemon_of_another_protocol_is_ended_only_by_force(binary, tmp_path):
    """It cannot be asked whether jobs run."""
    path = str(tmp_path / "d.sock")
    environment = variables(HDMLP_SOCKET=path)
    daemon = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROTOCOL, path],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stdout.readline() == "there\n"
        with Ranks(1, environment) as ranks:
            assert ranks.said == [
                {"error": "VersionError", "text": "the daemon speaks protocol 99"}
            ]
        status, said = command(binary, environment, "stop")
        assert status == 2
        assert "protocol 99" in said
        assert "hdmlp stop --force" in said
        assert daemon.poll() is None
        assert command(binary, environment, "stop", "--force") == (0, "")
        assert daemon.wait(10) == -signal.SIGTERM
    finally:
        daemon.kill()
        daemon.communicate()


def test_a_process_of_another_version_is_refused(binary, folder, monkeypatch, real):
    """By the daemon as well, if the process does not check."""
    monkeypatch.setattr(connecting, "__version__", "0.0.7")
    with pytest.raises(
        errors.VersionError,
        match=rf"is hdmlp {hdmlp.__version__}, and this process \(pid {os.getpid()}\) is hdmlp "
        rf"0.0.7",
    ) as caught:
        connecting.connect()
    assert (caught.value.daemon, caught.value.process) == (hdmlp.__version__, "0.0.7")
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(connecting.address())
    connection = protocol.Connection(sock)
    connection.send(
        protocol.encode_json(
            protocol.HELLO, {"protocol": protocol.PROTOCOL, "version": "0.0.7", "pid": 7}
        )
    )
    connection.send(
        protocol.encode_json(
            protocol.CALL,
            {"id": 1, "method": "dataset", "params": {"kind": "folder", "path": folder}},
        )
    )
    kinds, answer = [], None
    while answer is None:
        while (frame := connection.frame()) is None:
            connection.fill() or connection.wait(10)
        kinds.append(frame[0])
        if frame[0] == protocol.REPLY:
            answer = protocol.decode_json(frame[1])
        if frame[2] is not None:
            os.close(frame[2])
    assert kinds == [protocol.WELCOME, protocol.REPLY], answer
    assert answer["error"]["kind"] == "version", answer
    assert "this process (pid 7) is hdmlp 0.0.7" in answer["error"]["message"]
    connection.close()


def test_a_process_of_another_protocol_is_refused(binary, real):
    """The daemon names both versions and protocols and what to do, and closes the connection."""
    client = connecting.connect()  # which keeps the daemon
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(connecting.address())
    connection = protocol.Connection(sock)
    newer = protocol.PROTOCOL + 1
    connection.send(
        protocol.encode_json(protocol.HELLO, {"protocol": newer, "version": "99.0.0", "pid": 7})
    )
    while (frame := connection.frame()) is None:
        connection.fill() or connection.wait(10)
    kind, payload, _ = frame
    answer = protocol.decode_json(payload)
    assert (kind, answer["kind"]) == (protocol.ERROR, "version")
    for words in (
        f"this process (hdmlp 99.0.0, pid 7) uses protocol {newer}",
        f"the daemon (hdmlp {hdmlp.__version__}, pid ",
        f"uses protocol {protocol.PROTOCOL}: both must have the same version",
        "`hdmlp stop --force`",
        "HDMLP_SOCKET",
    ):
        assert words in answer["message"], answer
    with pytest.raises(protocol.Disconnected):
        while connection.frame() is None:
            connection.fill() or connection.wait(10)
    connection.close()
    client.close()


def test_an_old_daemon_at_the_abstract_name_can_be_ended(binary, newer, runtime):
    """After an upgrade, commands find the older daemon, which does not know paths."""
    if os.geteuid() != 0:
        pytest.skip("a network namespace takes root")
    other, version = newer
    script = f"""
        {other} serve --set linger=60s 2>/dev/null &
        export XDG_RUNTIME_DIR={runtime}
        until {binary} stats 2>&1 | grep -q 'is hdmlp {version}'; do sleep 0.05; done
        {binary} stop && wait $! && echo ended
    """
    ended = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        env=variables(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.stdout == "ended\n", ended


def test_another_program_at_the_address_is_named(binary, tmp_path, monkeypatch):
    """By commands and by processes."""
    where = str(tmp_path / "web.sock")

    def answer():
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(where)
        server.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            code, said = command(binary, variables(HDMLP_SOCKET=where), "stats")
            monkeypatch.setenv("HDMLP_SOCKET", where)
            with pytest.raises(errors.HDMLPError) as failed:
                connecting.connect()
        finally:
            thread.join()
    for text in (said, str(failed.value)):
        assert where in text
        assert re.search("(no|not an) HDMLP daemon", text)
        assert "HDMLP_SOCKET" in text
    assert code == 1
