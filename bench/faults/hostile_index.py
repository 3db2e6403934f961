"""Hostile indexes of datasets: with false sizes, of another dataset, or not a regular file."""

import os
import signal
import struct
import time

from machine import NOBODY, until
from oracle import Listing, same
from verdicts import HANG, Verdict, fault

INDEX = ".hdmlp-index"


def index(h, a):
    """Has HDMLP write the dataset's index, of directories old enough for it to be trusted."""
    h.age(a)
    h.command_clear(h.hdmlp("dataset", str(a)))
    return a / INDEX


def swell(path, field, by):
    """Enlarges a part of an index (docs/FORMATS.md) by ``by`` bytes, which are a hole in the
    file."""
    with open(path, "r+b") as f:
        head = bytearray(f.read(96))
        (length,) = struct.unpack_from("<Q", head, 16)
        (claimed,) = struct.unpack_from("<Q", head, field)
        struct.pack_into("<Q", head, 16, length + by)
        struct.pack_into("<Q", head, field, claimed + by)
        f.seek(0)
        f.write(head)
        f.truncate(length + by)


@fault(
    "the dataset's index is sparse: 4 KiB on disk claim 4 GiB of names; another job runs; 600 "
    "MiB of memory",
    item=6,
)
def index_sparse(h):
    a, b = h.dataset("a"), h.dataset("b")
    path = index(h, a)
    swell(path, 80, 4 << 30)
    group = h.memory(600 << 20)
    other = h.client(cgroup=group).open(b, memory="50MB", name="other")
    other.ask("iter")
    got = other.ask("next", n=2)
    h.client(cgroup=group).open(a, memory="50MB").right(Listing(a))
    same(got + other.ask("next"), other.expected(Listing(b)), what="the other job")


@fault("the dataset's index is sparse and claims 3 GiB of class names", item=6)
def index_sparse_classes(h):
    a = h.dataset("a")
    swell(index(h, a), 56, 3 << 30)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault("the dataset's index is sparse and claims 2^30 samples", item=6)
def index_sparse_samples(h):
    a = h.dataset("a")
    path = index(h, a)
    with open(path, "r+b") as f:
        head = bytearray(f.read(96))
        length, samples = struct.unpack_from("<QQ", head, 16)
        each = {1: 8, 2: 16}[
            struct.unpack_from("<I", head, 8)[0]
        ]  # bytes of a sample but for its name
        total = (
            length
            + each * ((1 << 30) - samples)
            + (0 if each == 8 else 16 * (64 - min(samples, 64)))
        )
        struct.pack_into("<QQ", head, 16, total, 1 << 30)
        f.seek(0)
        f.write(head)
        f.truncate(total)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault("the dataset's index is a sparse file of 1 TiB")
def index_of_a_tebibyte(h):
    a = h.dataset("a")
    os.truncate(index(h, a), 1 << 40)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault(
    "a FIFO lies in the place of the dataset's index; then Ctrl-C, after which no daemon may stay",
    item=7,
)
def index_fifo(h):
    a = h.dataset("a")
    os.mkfifo(a / INDEX)
    client = h.client(env={"HDMLP_LINGER": "1s"})
    client.send_open(a)
    try:
        client.answer(8)
        opened = True
    except Verdict:
        opened = False
    if opened:
        client.right(Listing(a))
    os.kill(client.pid, signal.SIGINT)
    time.sleep(0.2)
    client.send("exit")
    if h.daemons():
        until(
            lambda: not h.daemons(),
            6,
            "the end of the daemon after Ctrl-C"
            + ("" if opened else " (OPEN did not return in 8 s either)"),
        )
    if not opened:
        raise Verdict(HANG, "OPEN did not return within 8 s")


@fault("a FIFO lies in the place of the index, in HDMLP_INDEX_DIR; `hdmlp dataset`", item=7)
def index_fifo_in_index_dir(h):
    a = h.dataset("a")
    h.age(a)
    folder = h.folder("index")
    h.command_clear(h.hdmlp("dataset", str(a), "--index-dir", str(folder)))
    for path in folder.iterdir():
        path.unlink()
        os.mkfifo(path)
    h.command_clear(h.hdmlp("dataset", str(a), "--index-dir", str(folder), within=8))
    h.client(env={"HDMLP_INDEX_DIR": str(folder)}).open(a, within=8).right(Listing(a))


@fault("the dataset's index is a symlink to /dev/zero", clear=None)
def index_dev_zero(h):
    a = h.dataset("a")
    (a / INDEX).symlink_to("/dev/zero")
    h.client(cgroup=h.memory(600 << 20)).open(a, within=10, memory="50MB").right(Listing(a))


@fault("the dataset's index is a symlink to a file of another user")
def index_symlink(h):
    a = h.dataset("a")
    h.folder("foreign")
    (h.tmp / "foreign/file").write_text("not yours")
    (a / INDEX).symlink_to(h.tmp / "foreign/file")
    h.guard(h.tmp / "foreign")
    h.open(a).right(Listing(a))


@fault(
    "the dataset's index is a directory, which makes it a class without samples for torchvision "
    "as well",
    clear=["hdmlp-index"],
)
def index_directory(h):
    a = h.dataset("a")
    (a / INDEX).mkdir()
    h.open(a).right(Listing(a))


@fault("the dataset's index is a Unix socket")
def index_socket(h):
    import socket

    a = h.dataset("a", classes=2)
    os.chdir(a)
    s = socket.socket(socket.AF_UNIX)
    s.bind(INDEX)
    h.open(a, within=10).right(Listing(a))


@fault("the dataset's index is cut off, empty, noise, and has a bit flipped, in turn")
def index_damaged(h):
    a = h.dataset("a")
    path = index(h, a)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 4
    for i, data in enumerate(
        (
            good[:100],
            b"",
            h.random.randbytes(len(good)),
            bytes(flipped),
            good[:96] + b"\0" * (len(good) - 96),
            good * 2,
        )
    ):
        path.write_bytes(data)
        h.open(a, name=str(i)).right(Listing(a), what=f"damage {i}")


@fault(
    "the dataset's index was copied, with its times, from another dataset of equal names and "
    "sizes but other order of classes"
)
def index_of_another(h):
    a, b = h.dataset("a", classes=4), h.dataset("b", classes=3, per_class=20)
    path = index(h, b)
    h.age(a)
    (a / INDEX).write_bytes(path.read_bytes())
    h.open(a).right(Listing(a))


@fault(
    "the dataset was copied with its index (cp -a), and a file was added to the copy before, "
    "within its directory's times"
)
def index_copied(h):
    a = h.dataset("a")
    index(h, a)
    import shutil

    shutil.copytree(a, h.tmp / "b")
    b = h.tmp / "b"
    h.sample(b / "class1/9999.jpg")
    os.utime(b / "class1", ns=(0, (a / "class1").stat().st_mtime_ns))
    h.open(b).right(Listing(b))


@fault("an index with huge counts by another user in a directory of samples that both may write")
def index_of_another_user(h):
    a = h.dataset("a")
    (a / INDEX).write_bytes(b"HDMLPIDX" + struct.pack("<II", 1, 0) + b"\xff" * 80)
    os.chown(a / INDEX, NOBODY, NOBODY)
    h.open(a).right(Listing(a))
