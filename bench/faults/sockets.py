"""The daemon's socket, and where it starts: what takes its name, what connects to it, and what a
sandbox takes away."""

import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

from handles import together
from hostile_files import nobody
from machine import NOBODY, libc
from oracle import Listing
from verdicts import RAW, Told, Verdict, fault, wrong

SQUAT = """
import socket, sys, time, os
os.setgid(65534); os.setuid(65534)
kind, name = sys.argv[1:]
s = socket.socket(socket.AF_UNIX)
s.bind(("\\0" if kind == "abstract" else "") + name)
s.listen(8)
print("ready", flush=True)
held = []
while True:
    held.append(s.accept())
"""


def squat(h, name):
    process = subprocess.Popen(
        [sys.executable, "-c", SQUAT, "abstract", name], stdout=subprocess.PIPE, cwd="/"
    )
    process.stdout.readline()
    return process


@fault(
    "another user has taken the name of the daemon's socket",
    clear=["user|uid|own", "socket|daemon"],
    item=14,
)
def socket_squatted(h):
    a = h.dataset("a")
    squat(h, "hdmlp-0")
    h.client(env={"HDMLP_SOCKET": None}).open(a).right(Listing(a))


@fault(
    "another user has taken the name that HDMLP_SOCKET gives",
    clear=["user|uid|own", "socket|daemon|fault"],
    item=14,
)
def named_socket_squatted(h):
    a = h.dataset("a")
    squat(h, h.env["HDMLP_SOCKET"])
    h.open(a).right(Listing(a))


@fault("another user connects to the daemon's socket", clear=["user|uid|own|permission"], item=14)
def another_user(h):
    a = h.dataset("a")
    first = h.open(a)
    try:
        h.client(user=NOBODY, env=nobody(h)).open(a)
        raise wrong("served")
    finally:
        first.right(Listing(a))


def connect(h, name=None):
    s = socket.socket(socket.AF_UNIX)
    for path in (("\0" + (name or h.env["HDMLP_SOCKET"])), *map(str, (h.tmp / "run").rglob("*"))):
        try:
            s.connect(path)
            return s
        except OSError:
            continue
    raise Verdict(
        "not tried", "the daemon's socket is neither the abstract name nor below XDG_RUNTIME_DIR"
    )


def frame(kind, payload, length=None):
    return struct.pack("<IB3x", len(payload) if length is None else length, kind) + payload


def hello(h):
    found = re.search(
        r'__version__ = "(.*)"', (h.product.package / "hdmlp/_lib/version.py").read_text()
    )
    return json.dumps(
        {"protocol": 1, "version": found[1] if found else "", "pid": os.getpid()}
    ).encode()


@fault(
    "a package of another version talks to the daemon: what it is told, and its exit status",
    clear=["version", "9.9.9"],
    item=14,
)
def another_version(h):
    a = h.dataset("a")
    h.open(a)
    package = h.tmp / "package"
    shutil.copytree(
        h.product.package / "hdmlp",
        package / "hdmlp",
        ignore=shutil.ignore_patterns("bin", "__pycache__"),
    )
    file = package / "hdmlp/_lib/version.py"
    file.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.9.9"', file.read_text()))
    client = h.client(package=package)
    try:
        client.open(a, name="two")
    except Told as e:
        status, _ = client.raise_uncaught()
        if status != 1:
            raise Verdict(RAW, f"exit status {status} for {e}") from None
        raise
    raise Verdict(RAW, "a client of version 9.9.9 was served silently")


@fault(
    "300 connections to the daemon's socket say nothing, half a frame, frames of 4 GiB, noise; "
    "then a job opens",
    item=5,
)
def socket_flooded(h):
    a = h.dataset("a")
    group = h.memory(500 << 20)
    first = h.client(cgroup=group).open(a, memory="20MB")
    held = []
    for i in range(300):
        s = connect(h)
        s.settimeout(0.2)
        with_what = (
            b"",
            b"\0\0\1",
            frame(1, b"{", length=0xFFFFFFFF),
            h.random.randbytes(64),
            frame(1, b"{" * 9, length=16 << 20),
            frame(200, b""),
            frame(1, hello(h)) + frame(3, b""),
        )[i % 7]
        with contextlib.suppress(OSError):
            s.sendall(with_what)
        held.append(s)
    first.right(Listing(a), [0])
    h.client(cgroup=group).open(a, memory="20MB", name="two").right(Listing(a), [0, 1])


@fault(
    "60 connections of the same user each send 15 MiB of a frame of 16 MiB and stop; 500 MiB of "
    "memory"
)
def socket_flooded_with_bytes(h):
    a = h.dataset("a")
    group = h.memory(500 << 20)
    first = h.client(cgroup=group).open(a, memory="20MB")
    held = []
    for i in range(60):
        try:
            s = connect(h)
        except Verdict:
            if i == 0:
                raise
            break
        s.settimeout(1)
        with contextlib.suppress(OSError):
            s.sendall(frame(1, bytes(15 << 20), length=16 << 20))
        held.append(s)
    first.right(Listing(a), [0])
    h.client(cgroup=group).open(a, memory="20MB", name="two").right(Listing(a), [0, 1])


@fault(
    "OPEN and CALL with JSON that is nested 100,000 deep, has duplicate keys, huge numbers, and "
    "a path with NUL"
)
def hostile_requests(h):
    a = h.dataset("a")
    first = h.open(a)
    greeting = frame(1, hello(h))
    for payload in (
        b"[" * 100_000,
        b'{"job":' * 50_000,
        b'{"job": "x", "job": "y", "rank": 1e400}',
        b'{"job":"x","rank":0,"world_size":1,"dataset":{"kind":"folder","path":"/\\u0000"}}',
        b'{"job":"x","rank":-1,"world_size":0,"dataset":{"kind":"folder","path":""}}',
        b"\xff\xfe",
        b"",
    ):
        for kind in (2, 6):
            s = connect(h)
            s.settimeout(2)
            try:
                s.sendall(greeting + frame(kind, payload))
                s.recv(1 << 16)
                s.recv(1 << 16)
            except OSError:
                pass
            s.close()
    first.right(Listing(a), [0])


def seccomp(number):
    """Has a system call fail with EPERM from here on."""

    def rule(code, jt, jf, k):
        return struct.pack("<HBBI", code, jt, jf, k)

    program = b"".join(
        [
            rule(0x20, 0, 0, 0),
            rule(0x15, 0, 1, number),
            rule(0x06, 0, 0, 0x00050000 | 1),
            rule(0x06, 0, 0, 0x7FFF0000),
        ]
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<H6xQ", 4, ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(
        22, 2, ctypes.create_string_buffer(header, len(header)), 0, 0
    ):
        os._exit(92)


@fault("memfd_create is blocked by seccomp", clear=["memfd|shared memory"], item=14)
def no_memfd(h):
    if os.uname().machine != "x86_64":
        raise Verdict("not tried", "numbers of system calls are those of x86-64")
    a = h.dataset("a")
    h.client(before=lambda: seccomp(319)).open(a).right(Listing(a))


@fault("statx, io_uring and openat2 are blocked by seccomp, as in old sandboxes")
def old_sandbox(h):
    if os.uname().machine != "x86_64":
        raise Verdict("not tried", "numbers of system calls are those of x86-64")
    a = h.dataset("a")

    def before():
        for number in (425, 437, 332, 440):
            seccomp(number)

    h.client(before=before).open(a, cache_dir=str(h.tmp / "c"), memory=0).right(Listing(a), [0, 1])


@fault("there is no /proc", clear=["/proc"], item=14)
def no_proc(h):
    a = h.dataset("a")
    h.client(mounts=[("tmpfs", "/proc")]).open(a).right(Listing(a), [0, 1])


@fault("there is no /dev/shm, no /sys, and /tmp is read-only")
def no_dev_shm(h):
    a = h.dataset("a")
    h.client(mounts=[("tmpfs", "/dev/shm"), ("tmpfs", "/sys")], env={"TMPDIR": "/sys/none"}).open(
        a
    ).right(Listing(a), [0, 1])


@fault(
    "the binary is not there; is not a program; is a program that does something else",
    clear=["false|daemon|binary|hdmlp"],
    dies=True,
)
def no_binary(h):
    a = h.dataset("a")
    (h.tmp / "text").write_text("no program")
    for binary in ("/nowhere/hdmlp", str(h.tmp / "text"), "/bin/true"):
        try:
            h.client(env={"HDMLP_BINARY": binary, "PATH": "/nowhere"}).open(a, within=25)
        except Told as e:
            if not e.ours:
                raise
            continue
        raise Verdict(RAW, f"no error with HDMLP_BINARY={binary}, and a daemon from elsewhere")
    h.client(env={"HDMLP_BINARY": "/bin/false", "PATH": "/nowhere"}).open(a)
    raise wrong("no error")


@fault("ten processes start at the same moment and find no daemon")
def ten_at_once(h):
    a = h.dataset("a")
    clients = [h.client() for _ in range(8)]
    listing = Listing(a)
    for i, c in enumerate(clients):
        c.send_open(a, name=f"job {i}")
    for c in clients:
        c.answer(30)
    together(clients, listing, within=30)
    if len(h.daemons()) != 1:
        raise wrong(f"{len(h.daemons())} daemons")


@fault("the daemon lingers and ends (linger=0s) just when the next process comes, five times")
def linger_races(h):
    a = h.dataset("a", classes=2, per_class=5)
    listing = Listing(a)
    for i in range(5):
        client = h.client(env={"HDMLP_LINGER": "10ms"})
        client.open(a).right(listing, [i])
        client.ask("close")
        if i % 2:
            time.sleep(h.random.random() / 40)
        client.open(a).right(listing, [i])
        client.send("exit")


@fault("`hdmlp stop --force` while a job runs", clear=["daemon|stop"], dies=True)
def stopped_by_force(h):
    a = h.dataset("a", size=200_000)
    client = h.open(a, memory=0, staging_buffer="3MB", prefetch_batches=2)
    client.ask("iter")
    client.ask("next", n=2)
    h.hdmlp("stop", "--force")
    client.ask("next")
    raise wrong("no error")
