"""Restricted environments: real processes, which work or report what is missing and what to do."""

import errno
import glob
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys

import pytest
from hdmlp import errors
from hdmlp._daemon import connecting

pytestmark = pytest.mark.slow

# Prints, to the file named, what a loader on a folder gives, or the error.
RANK = """
import hashlib, json, os, sys
if len(sys.argv) > 4:
    exec(sys.argv[4])
folder, options = sys.argv[2], json.loads(sys.argv[3])
import logging
logging.basicConfig(filename=sys.argv[1] + ".log")
import hdmlp.data as data
from hdmlp._daemon import connecting
try:
    digests, log = [], None
    options.update(batch_size=5, seed=5, shuffle=False, epochs=2)
    with data.DataLoader(data.Folder(folder), **options) as loader:
        for _ in range(2):
            for samples, _ in loader:
                digests += [hashlib.sha256(bytes(sample)).hexdigest() for sample in samples]
        log = connecting.last_words(loader._feeds[0].stream.daemon.log)
    said = {"digests": digests, "log": log}
except Exception as error:
    details = getattr(error, "details", None)
    said = {"error": type(error).__name__, "text": str(error), "details": details}
with open(sys.argv[1], "w") as out:
    json.dump(said, out)
"""

# Makes the system call fail from now on, in this process and those that it starts: a filter of four
# instructions.
SECCOMP = """
import ctypes, struct
def load(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
program = ctypes.create_string_buffer(
    load(0x20, 0, 0, 0)
    + load(0x15, 0, 1, {number})
    + load(0x06, 0, 0, 0x00050000 | {error})
    + load(0x06, 0, 0, 0x7fff0000)
)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filter = Filter(4, ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0, ctypes.get_errno()
assert libc.prctl(22, 2, ctypes.byref(filter)) == 0, ctypes.get_errno()
"""
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}.get(platform.machine())
SCHED_SETATTR, PIDFD_OPEN = {"x86_64": (314, 434), "aarch64": (274, 434)}.get(
    platform.machine(), (0, 0)
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


@pytest.fixture
def rank(tmp_path, folder):
    """Runs a rank with a daemon of its own, and returns what it printed."""
    try:
        binary = connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("HDMLP_") and key != "XDG_RUNTIME_DIR"
    }
    environment.update(
        PYTHONPATH=os.path.dirname(os.path.dirname(errors.__file__)),
        HDMLP_LINGER="0s",
        HDMLP_SOCKET=str(tmp_path / "d.sock"),
        HDMLP_INDEX_DIR=str(tmp_path / "index"),
        HDMLP_MEMORY="16MiB",
    )

    def run(options=None, before="", prefix=(), limits=None, data=folder, **changes):
        def limit():
            for number, value in (limits or {}).items():
                resource.setrlimit(number, value)

        said = tmp_path / "said"
        env = {key: value for key, value in {**environment, **changes}.items() if value is not None}
        ended = subprocess.run(
            [
                *prefix,
                sys.executable,
                "-c",
                RANK,
                str(said),
                data,
                json.dumps(options or {}),
                before,
            ],
            env=env,
            preexec_fn=limit,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert said.exists(), ended
        assert said.read_text(), ended
        value = json.loads(said.read_text())
        value["warnings"] = (tmp_path / "said.log").read_text()
        return value

    run.environment, run.binary = environment, binary
    return run


def digests(folder):
    """What a rank must deliver: two epochs in order."""
    out = []
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.jpg"))):
        with open(path, "rb") as file:
            out.append(hashlib.sha256(file.read()).hexdigest())
    return out * 2


@pytest.fixture
def large(tmp_path):
    """4 MiB in 40 samples."""
    (tmp_path / "large" / "a").mkdir(parents=True)
    for i in range(40):
        (tmp_path / "large" / "a" / f"{i:03d}.jpg").write_bytes(bytes([i]) * (100 << 10))
    return str(tmp_path / "large")


needs_filter = pytest.mark.skipif(
    MEMFD_CREATE is None, reason="the numbers of system calls are not known here"
)


@needs_filter
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
def test_a_blocked_memfd_create_is_reported(rank, error):
    said = rank(before=SECCOMP.format(number=MEMFD_CREATE, error=error))
    assert said["error"] == "LimitError", said
    assert "memfd_create" in said["text"], said
    assert "seccomp" in said["text"], said
    assert os.strerror(error).lower() in said["text"], said


@needs_filter
def test_a_process_without_memfd_create_works_with_a_daemon_that_has_it(rank, folder):
    """The process has a substitute for memfds."""
    serve = subprocess.Popen(
        [rank.binary, "serve", "--set", "linger=60s"],
        env=rank.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "daemon starts" in serve.stderr.readline()
        assert rank(before=SECCOMP.format(number=MEMFD_CREATE, error=errno.EPERM)).get(
            "digests"
        ) == digests(folder)
    finally:
        serve.terminate()
        serve.communicate()


@pytest.mark.parametrize(
    "before",
    ["import os; del os.memfd_create"]
    + ([SECCOMP.format(number=MEMFD_CREATE, error=errno.EPERM)] if MEMFD_CREATE else []),
    ids=["missing"] + ["blocked"] * (MEMFD_CREATE is not None),
)
def test_unnamed_files_replace_memfds(before, rank):
    """In a Python without memfd_create, for workers' results and the daemon's log."""
    script = (
        before
        + """
import os
from hdmlp._lib import memory
from hdmlp._workers import results
fd = memory.create("x", 8192)
assert os.fstat(fd).st_size == 8192 and os.fstat(fd).st_nlink == 0
told = []
slot = results.Slots(lambda *what: told.append(what), print).take(100)
slot.map[:4] = b"abcd"
view, _ = results.Arena().reserve(10000)
view[:4] = b"abcd"
"""
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=rank.environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended


def test_the_daemons_log_works_without_memfds(rank, folder):
    said = rank(before="import os; del os.memfd_create")
    assert said.get("digests") == digests(folder), said
    assert "daemon starts" in said["log"], said


@needs_filter
@pytest.mark.parametrize("number", [SCHED_SETATTR, PIDFD_OPEN], ids=["sched_setattr", "pidfd_open"])
def test_other_blocked_system_calls_do_no_harm(rank, folder, number):
    assert rank(before=SECCOMP.format(number=number, error=errno.EPERM)).get("digests") == digests(
        folder
    )


UNLIMITED = resource.RLIM_INFINITY


def test_the_soft_limit_of_file_sizes_is_raised(rank, folder):
    """Only the hard limit counts."""
    assert rank(
        limits={resource.RLIMIT_FSIZE: (0, UNLIMITED)},
        before="import resource; resource.setrlimit(1, (1 << 20, -1))",
    ).get("digests") == digests(folder)


@pytest.mark.parametrize(
    "limit, options, need, words",
    [
        (
            4096,
            {},
            1 << 20,
            "the daemon needs files and shared memory of 1048576 bytes, and RLIMIT_FSIZE allows "
            "4096",
        ),
        (
            3 << 20,
            {},
            33558528,
            "to 3145728 bytes; raise it (ulimit -f) before the daemon starts, or reduce "
            "staging_buffer",
        ),
    ],
    ids=["daemon", "staging buffer"],
)
def test_a_limit_of_file_sizes_is_reported(rank, large, limit, options, need, words):
    said = rank(
        options,
        limits={resource.RLIMIT_FSIZE: (limit, limit)},
        data=large,
        HDMLP_MEMORY=None if "memory" in options else "1MiB",
    )
    assert said.get("error") == "LimitError", said
    assert words in said["text"], said
    assert abs(said["details"]["need"] - need) <= 8192, said
    assert said["details"]["limit"] == limit, said


def test_a_memory_class_may_be_longer_than_files(rank, large):
    """It consists of segments."""
    said = rank(
        {"staging_buffer": "1MiB", "memory": "4MiB"},
        limits={resource.RLIMIT_FSIZE: (3 << 20, 3 << 20)},
        data=large,
    )
    assert said.get("digests") == digests(large), said


def test_a_cache_at_the_limit_of_file_sizes_falls_back_to_the_source(rank, large, tmp_path):
    """Samples beyond the limit come from the source, and a message says why."""
    said = rank(
        {
            "staging_buffer": "1MiB",
            "memory": "1MiB",
            "cache_dir": str(tmp_path / "cache"),
            "cache_size": "16MiB",
        },
        limits={resource.RLIMIT_FSIZE: (2 << 20, 2 << 20)},
        data=large,
    )
    assert said.get("digests") == digests(large), said
    assert "RLIMIT_FSIZE allows files of 2097152 bytes" in said["warnings"] + said["log"], said


def test_an_index_beyond_the_limit_of_file_sizes_is_not_kept(rank, folder):
    """A message says so, and the job continues."""
    for limit in (0, 1 << 20):
        ended = subprocess.run(
            [rank.binary, "dataset", folder, "--rescan"],
            env={**rank.environment, "HDMLP_INDEX_DIR": ""},
            capture_output=True,
            text=True,
            preexec_fn=lambda limit=limit: resource.setrlimit(
                resource.RLIMIT_FSIZE, (limit, limit)
            ),
        )
        assert ended.returncode == 0, ended
        assert "25 samples" in ended.stdout, ended
        assert ("RLIMIT_FSIZE allows files of 0 bytes" in ended.stdout + ended.stderr) == (
            limit == 0
        ), ended


@pytest.mark.parametrize("least", [64, 40])
def test_few_descriptors_suffice_or_are_reported(rank, folder, least):
    said = rank(limits={resource.RLIMIT_NOFILE: (least, least)})
    if "error" in said:
        assert said["error"] in ("LimitError", "ConfigError"), said
        assert f"RLIMIT_NOFILE {'is' if least == 64 else 'allows'} {least}" in said["text"], said
    else:
        assert said["digests"] == digests(folder)


@needs_root
def test_proc_is_not_needed(rank, folder):
    said = rank(
        prefix=["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"],
        HDMLP_MEMORY=None,
    )
    assert said.get("digests") == digests(folder), said


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_do_no_harm(rank, folder, closed):
    """Output must not be written into the connection."""
    said = rank(
        prefix=["sh", "-c", f'exec "$@" {closed}', "sh"],
        before="""
import threading, os
def write():
    for fd in range(3):
        try: os.write(fd, b"words to nowhere")
        except OSError: pass
import hdmlp.data
before = hdmlp.data.DataLoader.__iter__
def iterate(self): write(); return before(self)
hdmlp.data.DataLoader.__iter__ = iterate
""",
    )
    assert said.get("digests") == digests(folder), said


@pytest.mark.parametrize(
    "changes", [{"HOME": None}, {"HOME": "/nonexistent"}, {"HOME": ""}, {"TMPDIR": "/nonexistent"}]
)
def test_no_home_directory_is_needed(rank, folder, changes):
    said = rank(HDMLP_INDEX_DIR=None, XDG_CACHE_HOME=None, XDG_CONFIG_HOME=None, **changes)
    assert said.get("digests") == digests(folder), said


@needs_root
def test_read_only_file_systems_suffice(rank, folder, tmp_path):
    """Root, dataset and temporary directories are read-only: the abstract name is used, and no
    index is kept."""
    said = rank(
        prefix=[
            "unshare",
            "--mount",
            "--net",
            "sh",
            "-c",
            f"mount -o bind {tmp_path} {tmp_path}; mount -o remount,ro,bind / ; mount -o "
            f"remount,ro,bind /tmp 2>/dev/null; "
            f"mount -t tmpfs -o ro none /dev/shm; mount --bind {folder} {folder}; mount -o "
            f'remount,ro,bind {folder}; exec "$@"',
            "sh",
        ],
        HDMLP_SOCKET=None,
        HDMLP_INDEX_DIR=None,
        HOME="/root",
        before="""
import os, sys
del os.memfd_create
for place in (sys.argv[2], "/root", "/dev/shm"):
    try: open(place + "/probe", "w")
    except OSError: continue
    raise SystemExit(place + " can be written to")
""",
    )
    assert not os.path.exists(os.path.join(folder, ".hdmlp-index"))
    assert said.get("digests") == digests(folder), said
