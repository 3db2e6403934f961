"""Where the daemon listens, and to whom it answers: real processes, on paths and on abstract names."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading

import pytest

import hdmlp
from hdmlp import _address, _daemon, errors
from hdmlp import _protocol as protocol
from waiting import until

# Prints what a loader gives, or the error, as one line of JSON, and keeps the loader until its input ends.
RANK = """
import json, sys
import hdmlp.data as data
from hdmlp import _daemon
try:
    client = _daemon.connect()
    print(json.dumps({"pid": client.pid}), flush=True)
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def binary():
    try:
        return _daemon.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def runtime(tmp_path):
    """A directory such as XDG_RUNTIME_DIR names."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return str(directory)


def variables(**changes):
    """The environment with changes; None: not set. No test may depend on where the user's own daemon is."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("HDMLP_") and key != "XDG_RUNTIME_DIR"
    }
    environment.update(
        PYTHONPATH=os.path.dirname(os.path.dirname(_daemon.__file__)), HDMLP_LINGER="0s"
    )
    environment.update({key: value for key, value in changes.items() if value is not None})
    return environment


class Ranks:
    """Processes that connect at once and stay; what each says is in ``said``."""

    def __init__(self, count, environment, prefix=()):
        self.processes = [
            subprocess.Popen(
                [*prefix, sys.executable, "-c", RANK],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        self.said = [json.loads(process.stdout.readline()) for process in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.communicate(timeout=30)


def command(binary, environment, *words):
    ended = subprocess.run(
        [binary, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "socket_value, directory, where",
    [
        (None, "own", "own/hdmlp/daemon.sock"),
        ("", "own", "own/hdmlp/daemon.sock"),
        (None, "own//", "own/hdmlp/daemon.sock"),
        (None, None, "@hdmlp-UID"),
        (None, "", "@hdmlp-UID"),
        (None, "missing", "@hdmlp-UID"),
        (None, "open", "@hdmlp-UID"),
        (None, "foreign", "@hdmlp-UID"),
        (None, "file", "@hdmlp-UID"),
        ("some-name", "own", "@some-name"),
        ("ROOT/a.sock", "own", "ROOT/a.sock"),
        ("x" * 107, "own", "@" + "x" * 107),
        ("x" * 200, "own", "200 bytes, sockets have at most 107"),
        ("/" + "x" * 107, "own", "108 bytes, sockets have at most 107"),
        ("a/b", "own", "relative path"),
        ("/run/a/", "own", "a directory, not a socket"),
        (None, "l" * 120, "sockets have at most 107"),
    ],
)
def test_both_sides_look_in_the_same_place(
    binary, tmp_path, monkeypatch, socket_value, directory, where
):
    for name, mode, owner in (
        ("own", 0o700, 0),
        ("open", 0o750, 0),
        ("foreign", 0o700, 65534),
        ("l" * 120, 0o700, 0),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        if owner:
            if os.geteuid() != 0:
                pytest.skip("another user's directory takes root")
            os.chown(tmp_path / name, owner, owner)
    (tmp_path / "file").write_text("")
    if directory:
        directory = str(tmp_path / directory) + ("/" * directory.count("/"))
    if socket_value:
        socket_value = socket_value.replace("ROOT", str(tmp_path))
    where = (
        where.replace("own/", f"{tmp_path}/own/")
        .replace("ROOT", str(tmp_path))
        .replace("UID", str(os.geteuid()))
    )
    for key, value in (("HDMLP_SOCKET", socket_value), ("XDG_RUNTIME_DIR", directory)):
        monkeypatch.delenv(key, raising=False)
        if value is not None:
            monkeypatch.setenv(key, value)
    # In a network namespace of its own: a daemon of this user may listen at the abstract name.
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else []
    ended = subprocess.run(
        [*prefix, binary, "stats"],
        env=variables(HDMLP_SOCKET=socket_value, XDG_RUNTIME_DIR=directory),
        capture_output=True,
        text=True,
    )
    try:
        mine = _daemon.address().replace("\0", "@")
        assert (
            mine == where
            and f"no daemon is running for this user at {where}: " in ended.stderr
            and ended.returncode == 1
        )
    except errors.ConfigError as error:
        assert where in str(error) and ended.stderr == f"hdmlp: {error}\n" and ended.returncode == 2


def test_a_path_below_the_runtime_directory(binary, runtime):
    environment = variables(XDG_RUNTIME_DIR=runtime)
    path = f"{runtime}/hdmlp/daemon.sock"
    with Ranks(1, environment) as ranks:
        pid = ranks.said[0]["pid"]
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        status, said = command(binary, environment, "stats", "--json")
        assert status == 0 and json.loads(said)["pid"] == pid
        status, said = command(binary, environment, "top", "--once", "--interval", "100ms")
        assert status == 0, said
        assert command(binary, environment, "stop") == (0, "")
    until(lambda: os.listdir(os.path.dirname(path)) == [])
    status, said = command(binary, environment, "stats")
    assert status == 1 and f"no daemon is running for this user at {path}" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["abstract", "path"])
@pytest.mark.parametrize("killed", [False, True], ids=["fresh", "after kill -9"])
def test_ranks_that_start_at_once_have_one_daemon(binary, runtime, kind, killed):
    environment = variables(
        XDG_RUNTIME_DIR=runtime,
        HDMLP_SOCKET=f"hdmlp-test-{os.getpid()}-{killed}" if kind == "abstract" else None,
    )
    before = None
    if killed:
        with Ranks(1, environment) as ranks:
            before = ranks.said[0]["pid"]
            os.kill(before, signal.SIGKILL)
    with Ranks(8, environment) as ranks:
        pids = {said.get("pid") for said in ranks.said}
        assert len(pids) == 1 and pids != {before} and None not in pids, ranks.said


@pytest.mark.slow
def test_one_rank_after_the_other_while_daemons_end(binary, runtime):
    """A daemon that ends makes room for the next, however the two meet."""
    environment = variables(XDG_RUNTIME_DIR=runtime)
    for _ in range(5):
        with Ranks(3, environment) as ranks:
            assert len({said.get("pid") for said in ranks.said}) == 1, ranks.said


def squatter(name, listens=True):
    """A process of another user that holds an abstract name."""
    return textwrap.dedent(f"""
        import os, socket, sys
        os.setuid(65534)
        s = socket.socket(socket.AF_UNIX)
        s.bind({name!r})
        {"s.listen()" if listens else ""}
        print("there", flush=True)
        sys.stdin.read()
    """)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process takes root")
@pytest.mark.parametrize("listens", [True, False])
def test_another_user_holds_the_name(binary, runtime, tmp_path, listens):
    """In a network namespace of its own, where the default name is free."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        textwrap.dedent(f"""
        import os, subprocess, sys
        name = "\\0hdmlp-" + str(os.geteuid())
        other = subprocess.Popen([sys.executable, "-c", {squatter("NAME", listens)!r}.replace("'NAME'", repr(name))],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "there\\n"
        for variables in ({{}}, {{"XDG_RUNTIME_DIR": {runtime!r}}}):
            ended = subprocess.run([sys.executable, "-c", {RANK!r}], env={{**os.environ, **variables}}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
            print(ended.stdout, end="")
        ended = subprocess.run([{binary!r}, "serve"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        print(__import__("json").dumps([ended.returncode, ended.stderr]))
        other.communicate()
    """)
    )
    ended = subprocess.run(
        ["unshare", "--net", sys.executable, str(inner)],
        env=variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    refused, served, serve = map(json.loads, ended.stdout.splitlines())
    if listens:
        assert (
            refused["error"] == "AccessDeniedError"
            and "belongs to user nobody (65534), not to root (0)" in refused["text"]
        )
        assert serve[0] == 2 and "belongs to user nobody (65534), not to root (0)" in serve[1]
    else:
        assert (
            "another process holds that socket" in refused["text"]
            and "another user's" in refused["text"]
        )
    assert "HDMLP_SOCKET" in refused["text"]
    assert "pid" in served, served


@pytest.mark.parametrize(
    "what, words",
    [
        ("file", "daemon.sock is not a socket, and is left as it is"),
        ("directory", "is not a socket, and is left as it is"),
        ("program", "another program listens at"),
        ("mode", "has owner root (0) and mode 0755, not root (0) and 0700"),
        ("link", "not a directory"),
        ("lock", "it is not a regular file of user"),
    ],
)
def test_what_is_not_ours_is_left(binary, runtime, what, words, tmp_path):
    own = os.path.join(runtime, "hdmlp")
    path = os.path.join(own, "daemon.sock")
    if what == "link":
        os.symlink(tmp_path, own)
    else:
        os.mkdir(own, 0o755 if what == "mode" else 0o700)
    if what == "file":
        open(path, "w").close()
    elif what == "directory":
        os.mkdir(path)
    elif what == "lock":
        os.mkfifo(path + ".lock")
    elif what == "program":
        other = socket.socket(socket.AF_UNIX)
        other.bind(path)
        other.listen()
    before = os.lstat(path) if os.path.lexists(path) else None
    status, said = command(binary, variables(XDG_RUNTIME_DIR=runtime), "serve")
    assert status == 2 and words.replace("root (0)", _address.user_name(os.geteuid())) in said, said
    if what != "program":  # that does not answer: no answer within 10 s
        with Ranks(1, variables(XDG_RUNTIME_DIR=runtime)) as ranks:
            assert (
                ranks.said[0]["error"] == "ConfigError"
                and words.split("(0)")[-1][:12] in ranks.said[0]["text"]
            ), ranks.said
    assert before is None or os.path.samestat(os.lstat(path), before)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_read_only(binary, runtime):
    """Where nothing can be made below XDG_RUNTIME_DIR, the abstract name serves; at a path that was asked for, it is an error."""
    for variable, words in (
        ({"XDG_RUNTIME_DIR": runtime}, '"pid"'),
        ({"HDMLP_SOCKET": f"{runtime}/x.sock"}, "read-only file system; set HDMLP_SOCKET"),
    ):
        ended = subprocess.run(
            [
                "unshare",
                "--net",
                "--mount",
                "sh",
                "-c",
                'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"',
                runtime,
                sys.executable,
                "-c",
                RANK,
            ],
            env=variables(**variable),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert words in ended.stdout, ended
        assert os.listdir(runtime) == []


@pytest.fixture
def newer(binary, tmp_path):
    """The same program as another version: the binary, and its version."""
    old = hdmlp.__version__.encode()
    new = b"9" * (len(old) - 4) + b".9.9"
    with open(binary, "rb") as file:
        program = file.read()
    other = tmp_path / "newer"
    other.write_bytes(program.replace(old, new))
    other.chmod(0o755)
    return str(other), new.decode()


def test_a_daemon_of_another_version(binary, newer, runtime):
    """Refused with both versions, but it can be named and ended."""
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
            assert (
                status == 2
                and f"pid {daemon.pid}) is hdmlp {version}" in out
                and hdmlp.__version__ in out
            ), out
        assert command(binary, environment, "stop") == (0, "")
        assert daemon.wait(20) == 0
    finally:
        daemon.kill()
        daemon.communicate()


OTHER_PROTOCOL = """
import os, socket, sys
from hdmlp import _protocol as protocol
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("there", flush=True)
while True:
    connection = protocol.Connection(listener.accept()[0])
    while connection.frame() is None:
        connection.fill() or connection.wait(10)
    connection.send(protocol.encode_json(134, {"kind": "version", "message": "the daemon speaks protocol 99"}))
    connection.close()
"""


def test_a_daemon_of_another_protocol(binary, tmp_path):
    """It cannot be asked whether jobs run: only by force is it ended."""
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
        assert (
            status == 2
            and "protocol 99" in said
            and "hdmlp stop --force" in said
            and daemon.poll() is None
        )
        assert command(binary, environment, "stop", "--force") == (0, "")
        assert daemon.wait(10) == -signal.SIGTERM
    finally:
        daemon.kill()
        daemon.communicate()


def test_a_process_of_another_version(binary, folder, monkeypatch, real):
    """The daemon refuses it as well, where the process does not look itself."""
    monkeypatch.setattr(_daemon, "__version__", "0.0.7")
    with pytest.raises(
        errors.VersionError,
        match=rf"is hdmlp {hdmlp.__version__}, and this process \(pid {os.getpid()}\) is hdmlp 0.0.7",
    ) as caught:
        _daemon.connect()
    assert (caught.value.daemon, caught.value.process) == (hdmlp.__version__, "0.0.7")
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(_daemon.address())
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
    assert kinds == [protocol.WELCOME, protocol.REPLY] and answer["error"]["kind"] == "version", (
        answer
    )
    assert "this process (pid 7) is hdmlp 0.0.7" in answer["error"]["message"]
    connection.close()


def test_a_process_of_another_protocol(binary, real):
    """The daemon names both versions and protocols, and what to do, and closes the connection."""
    _daemon.connect().close()
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(_daemon.address())
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


def test_an_old_daemon_at_the_abstract_name_can_be_ended(binary, newer, runtime):
    """After an upgrade commands find the daemon of before, which knows no paths."""
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


def test_another_program_listens(binary, tmp_path, monkeypatch):
    """What answers in other words is named, by commands and by processes."""
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
                _daemon.connect()
        finally:
            thread.join()
    for text in (said, str(failed.value)):
        assert (
            where in text and re.search("(no|not an) HDMLP daemon", text) and "HDMLP_SOCKET" in text
        )
    assert code == 1
