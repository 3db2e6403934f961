"""Where the daemon listens, and which processes it answers: real processes, with paths and abstract
names."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap

import pytest
from hdmlp import errors
from hdmlp._daemon import address, connecting
from sockets import RANK, Ranks, binary, command, runtime, variables  # noqa: F401
from waiting import until


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
        ("@some-name", "own", "@some-name"),
        ("@@some-name", "own", "@@some-name"),
        ("@", "own", "@@"),
        ("ROOT/a.sock", "own", "ROOT/a.sock"),
        ("x" * 107, "own", "@" + "x" * 107),
        ("x" * 200, "own", "200 bytes, sockets have at most 107"),
        ("/" + "x" * 107, "own", "108 bytes, sockets have at most 107"),
        ("a/b", "own", "relative path"),
        ("/run/a/", "own", "a directory, not a socket"),
        (None, "l" * 120, "sockets have at most 107"),
    ],
)
def test_both_sides_derive_the_same_address(
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
        mine = connecting.address().replace("\0", "@")
    except errors.ConfigError as error:
        refused = str(error)
    else:
        assert mine == where
        assert f"no daemon is running for this user at {where}: " in ended.stderr
        assert ended.returncode == 1
        return
    assert where in refused
    assert ended.stderr == f"hdmlp: {refused}\n"
    assert ended.returncode == 2


def test_the_default_is_a_path_below_the_runtime_directory(binary, runtime):
    environment = variables(XDG_RUNTIME_DIR=runtime)
    path = f"{runtime}/hdmlp/daemon.sock"
    with Ranks(1, environment) as ranks:
        pid = ranks.said[0]["pid"]
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        status, said = command(binary, environment, "stats", "--json")
        assert status == 0
        assert json.loads(said)["pid"] == pid
        status, said = command(binary, environment, "top", "--once", "--interval", "100ms")
        assert status == 0, said
        assert command(binary, environment, "stop") == (0, "")
    # The rank may have started another daemon when the one that was stopped was gone.
    until(lambda: command(binary, environment, "stats")[0] == 1, "the daemon's end")
    until(lambda: os.listdir(os.path.dirname(path)) == [])
    status, said = command(binary, environment, "stats")
    assert status == 1
    assert f"no daemon is running for this user at {path}" in said


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
        assert len(pids) == 1, ranks.said
        assert pids != {before}, ranks.said
        assert None not in pids, ranks.said


@pytest.mark.slow
def test_a_rank_that_meets_an_ending_daemon_gets_another(binary, runtime):
    """At whatever moment the two meet."""
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
def test_a_name_held_by_another_user_is_not_used(binary, runtime, tmp_path, listens):
    """In a network namespace of its own, where the default name is free."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        textwrap.dedent(f"""
        import os, subprocess, sys
        name = "\\0hdmlp-" + str(os.geteuid())
        squatter = {squatter("NAME", listens)!r}.replace("'NAME'", repr(name))
        other = subprocess.Popen([sys.executable, "-c", squatter],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "there\\n"
        for variables in ({{}}, {{"XDG_RUNTIME_DIR": {runtime!r}}}):
            ended = subprocess.run([sys.executable, "-c", {RANK!r}],
                                   env={{**os.environ, **variables}}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
            print(ended.stdout, end="")
        ended = subprocess.run([{binary!r}, "serve"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True)
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
        assert refused["error"] == "AccessDeniedError"
        assert "belongs to user nobody (65534), not to root (0)" in refused["text"]
        assert serve[0] == 2
        assert "belongs to user nobody (65534), not to root (0)" in serve[1]
    else:
        assert "another process holds that socket" in refused["text"]
        assert "another user's" in refused["text"]
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
def test_foreign_files_at_the_path_are_left_alone(binary, runtime, what, words, tmp_path):
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
    assert status == 2, said
    assert words.replace("root (0)", address.user_name(os.geteuid())) in said, said
    if what != "program":  # that does not answer: no answer within 10 s
        with Ranks(1, variables(XDG_RUNTIME_DIR=runtime)) as ranks:
            assert ranks.said[0]["error"] == "ConfigError", ranks.said
            assert words.split("(0)")[-1][:12] in ranks.said[0]["text"], ranks.said
    assert before is None or os.path.samestat(os.lstat(path), before)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_the_abstract_name_serves_if_nothing_can_be_written(binary, runtime):
    """Below XDG_RUNTIME_DIR; a path that was configured is an error."""
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
