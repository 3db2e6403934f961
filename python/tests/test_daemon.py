"""Finding and starting a daemon."""

import os
import socket

import pytest
from hdmlp import data, errors
from hdmlp._daemon import connecting
from hdmlp._lib import protocol
from peer import descriptors, memory
from waiting import until


@pytest.fixture(params=["abstract", "path"])
def socket_name(request, socket_name, monkeypatch, tmp_path):
    """All of these tests hold for both kinds of sockets."""
    if request.param == "path":
        socket_name = str(tmp_path / "daemon.sock")
        monkeypatch.setenv("HDMLP_SOCKET", socket_name)
    return socket_name


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_a_failed_start_shows_the_daemons_log(socket_name, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "HDMLP_BINARY", script(tmp_path / "hdmlp", "echo $@ is out of luck >&2; exit 3\n")
    )
    with pytest.raises(
        errors.DaemonDiedError, match=r"(?s)status 3.*serve --from-process is out of luck"
    ):
        connecting.connect()


def test_wrong_configuration_raises_config_error(socket_name, monkeypatch):
    """A daemon that fails to start reports a variable as a running one does."""
    try:
        connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("HDMLP_PORT", "x")
    with pytest.raises(
        errors.ConfigError, match=r'^port = "x" \(HDMLP_PORT\): not a whole number; allowed: '
    ):
        connecting.connect()


def test_a_process_that_loses_the_race_to_start_connects_to_the_winner(
    socket_name, tmp_path, monkeypatch, daemon_when
):
    began = tmp_path / "began"
    monkeypatch.setenv("HDMLP_BINARY", script(tmp_path / "hdmlp", f"touch '{began}'; exit 0\n"))
    daemon_when(began.exists)
    connecting.connect().close()


@pytest.fixture
def daemon_when(socket_name):
    import threading

    from fakedaemon import FakeDaemon

    made, threads = [], []

    def serve(condition):
        until(condition, "the binary is started")
        made.append(FakeDaemon(socket_name))

    def start(condition):
        threads.append(threading.Thread(target=serve, args=(condition,)))
        threads[0].start()

    yield start
    for thread in threads:
        thread.join()
    for fake in made:
        fake.close()


def test_a_missing_binary_is_reported(socket_name, tmp_path, monkeypatch):
    monkeypatch.setenv("HDMLP_BINARY", str(tmp_path / "nothing"))
    with pytest.raises(errors.DaemonNotFoundError, match="HDMLP_BINARY"):
        connecting.connect()


def test_waiting_for_a_silent_daemon_ends(socket_name, monkeypatch):
    monkeypatch.setattr(connecting, "DEADLINE", 0.5)
    monkeypatch.setenv("HDMLP_BINARY", "/bin/true")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(connecting.address())
    listener.listen()
    with pytest.raises(errors.DaemonDiedError):
        connecting.connect()
    listener.close()


def test_a_daemon_that_ended_leaves_no_zombie(socket_name, tmp_path, monkeypatch):
    monkeypatch.setenv("HDMLP_BINARY", script(tmp_path / "hdmlp", "exit 3\n"))
    with pytest.raises(errors.DaemonDiedError):
        connecting.connect()

    def states():
        """The states of this process's children."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                if int(fields[1]) == os.getpid():
                    found.append(fields[0])
            except OSError:
                pass
        return found

    until(lambda: "Z" not in states())
    assert "Z" not in states()


def test_another_users_daemon_is_refused(daemon, monkeypatch):
    """It could give this process any samples."""
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(
        errors.AccessDeniedError, match=f"belongs to user .*{ours}.*, not to .*{ours + 1}"
    ):
        connecting.connect()
    assert daemon.requests == []


def test_the_end_of_a_long_log_is_shown():
    fd = os.memfd_create("log")
    for line in range(10_000):
        os.write(fd, f"line {line}\n\n".encode())
    assert connecting.last_words(fd).splitlines() == [f"line {n}" for n in range(9980, 10_000)]
    os.write(fd, b"x" * 10_000)
    assert connecting.last_words(fd) == "x" * 4096
    os.close(fd)
    assert connecting.last_words(fd) == connecting.last_words(None) == ""


def test_descriptors_of_unexpected_frames_are_closed():
    ours, theirs = socket.socketpair()
    client = connecting.Client(protocol.Connection(ours), {}, None)
    fd, name = memory()
    for _ in range(3):
        socket.send_fds(theirs, [protocol.encode(protocol.SEGMENT, bytes(16))], [fd])
    theirs.sendall(protocol.encode_json(protocol.REPLY, {"id": 1, "result": 7}))
    answer = connecting.request(
        client, protocol.encode_json(protocol.CALL, {"id": 1}), (protocol.REPLY,)
    )
    assert answer["result"] == 7
    assert descriptors(name) == 1
    client.close(), theirs.close(), os.close(fd)


def test_terminal_signals_do_not_reach_the_daemon(real):
    client = connecting.connect()
    assert os.getsid(client.pid) == client.pid
    client.close()


def test_the_daemon_yields_the_cpu_to_the_training_process(real):
    """All threads of a real daemon are scheduled as batch work, with the niceness of the process
    that started it."""
    client = connecting.connect()
    threads = os.listdir(f"/proc/{client.pid}/task")
    assert {os.sched_getscheduler(int(thread)) for thread in threads} == {os.SCHED_BATCH}
    assert {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads} == {
        os.getpriority(os.PRIO_PROCESS, 0)
    }
    client.close()


def test_the_daemons_keys_are_refused_as_arguments(real, folder):
    """They would have no effect: a daemon reads them only when it starts."""
    with pytest.raises(errors.ConfigError, match=r"linger = \"2s\".*HDMLP_LINGER"):
        list(data.DataLoader(folder, batch_size=4, linger="2s"))
