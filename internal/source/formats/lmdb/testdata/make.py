"""Writes databases by py-lmdb, and prints what py-lmdb reads of them, for the tests in Go.

Usage: make.py golden              writes all kinds into this directory, gzipped, and golden.txt
       make.py KIND DIR ITEMS SEED writes one kind into DIR

Each database that is to be read is a line: the file's kind, the database's name ("-": the main one),
its records, and the SHA-256 of, for each record in the cursor's order, the line "KEY OFFSET LENGTH",
in which the key is in hex and the offset is that of the value in the file, and the value.
"""

import ctypes
import gzip
import hashlib
import os
import pathlib
import random
import signal
import struct
import sys
import tempfile

import lmdb


class Buffer(ctypes.Structure):
    """Py_buffer, as far as it is needed."""

    _fields_ = [("buf", ctypes.c_void_p), ("rest", ctypes.c_byte * 256)]


def address(view):
    """Returns where a buffer lies in memory."""
    b = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(b), 0)
    try:
        return b.buf
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(b))


def mapped(path):
    """Returns where a data file is mapped."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        part = line.split(None, 5)
        if len(part) == 6 and part[5] == os.path.realpath(path):
            return int(part[0].split("-")[0], 16) - int(part[2], 16)
    raise RuntimeError(f"{path} is not mapped")


def value(i, size):
    """Returns a value that no other record has, and that compresses well."""
    return (b"%011d " % i * (size // 12 + 1))[:size]


def fill(env, db, draw, keys, sizes, removed=0.0):
    """Puts the keys in this order, in several transactions, and removes a share of them."""
    step = max(len(keys) // 7, 1)
    for first in range(0, len(keys), step):
        with env.begin(write=True, db=db) as txn:
            for i, key in enumerate(keys[first : first + step], first):
                txn.put(key, value(i, draw.choice(sizes)))
        with env.begin(write=True, db=db) as txn:
            for key in keys[first : first + step]:
                if draw.random() < removed:
                    txn.delete(key)


SMALL = [0, 1, 20, 40, 60]
MIXED = [*SMALL, 500, 2000, 2030, 2038, 2050, 4080, 4081, 9000, 30000]


def write(kind, path, items, seed):
    """Writes a kind of database, and returns the names of the databases to be read."""
    draw = random.Random(seed)
    env = lmdb.open(path, map_size=1 << 34, max_dbs=8, subdir=kind != "file", sync=False)
    main = env.open_db()
    keys = [b"%08d" % i for i in range(items)]
    mixed = draw.sample(keys, len(keys))
    names = ["-"]
    if kind == "empty":
        pass
    elif kind in ("one", "file"):
        fill(env, main, draw, [b"a/1"], [5000])
    elif kind == "sequential":
        fill(env, main, draw, keys, [3000])
    elif kind == "random":
        fill(env, main, draw, mixed, MIXED, 0.3)
    elif kind == "tiny":
        fill(env, main, draw, mixed, SMALL, 0.1)
    elif kind == "big":
        fill(env, main, draw, mixed, [80_000, 110_000, 150_000], 0.1)
    elif kind == "deep":
        fill(env, main, draw, [k * 60 + k[:6] for k in mixed], SMALL, 0.2)
    elif kind == "named":
        names = ["images", "label/ü"]
        for name in names:
            fill(env, env.open_db(name.encode()), draw, mixed, MIXED, 0.2)
    elif kind == "reverse":
        names = ["r"]
        fill(env, env.open_db(b"r", reverse_key=True), draw, mixed, SMALL)
    elif kind == "integer":
        names = ["i"]
        packed = [struct.pack("=Q", int(k) * 2654435761) for k in mixed]
        fill(env, env.open_db(b"i", integerkey=True), draw, packed, SMALL)
    elif kind == "binary":
        fill(env, main, draw, [struct.pack(">I", int(k)) for k in mixed], SMALL)
    elif kind == "dups":
        names = []
        fill(env, env.open_db(b"d", dupsort=True), draw, mixed, [20])
    elif kind == "killed":
        fill(env, main, draw, mixed, MIXED)
        env.close()
        kill(path, mixed)
        env = lmdb.open(path, map_size=1 << 34, readonly=True, lock=False)
    else:
        raise SystemExit(f"no kind {kind}")
    env.close()
    return names


def kill(path, keys):
    """Has a process killed that has replaced pages, and written some of them, without a commit."""
    child = os.fork()
    if child == 0:
        size = 3 * os.path.getsize(os.path.join(path, "data.mdb")) + (1 << 20)
        env = lmdb.open(path, map_size=size, writemap=True, sync=False)
        with env.begin(write=True) as txn:
            for key in keys[::2]:
                txn.put(key, b"never committed " * 100)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def describe(kind, path, name):
    """Returns the line of a database."""
    subdir = os.path.isdir(path)
    env = lmdb.open(path, readonly=True, lock=False, max_dbs=8, subdir=subdir, map_size=1 << 34)
    db = None if name == "-" else env.open_db(name.encode(), create=False)
    base = mapped(os.path.join(path, "data.mdb") if subdir else path)
    digest, count = hashlib.sha256(), 0
    with env.begin(db=db, buffers=True) as txn:
        for key, data in txn.cursor():
            offset = address(data) - base if len(data) else 0
            digest.update(f"{bytes(key).hex()} {offset} {len(data)}\n".encode())
            digest.update(data)
            count += 1
    env.close()
    return f"{kind} {name} {count} {digest.hexdigest()}"


GOLDEN = {
    "empty": 0,
    "one": 1,
    "file": 1,
    "random": 120,
    "tiny": 600,
    "deep": 500,
    "named": 40,
    "reverse": 300,
    "integer": 300,
    "binary": 300,
    "dups": 20,
    "killed": 100,
}


def main(arguments):
    """Runs the command."""
    if arguments != ["golden"]:
        kind, path, items, seed = arguments
        for name in write(kind, path, int(items), int(seed)):
            print(describe(kind, path, name))
        return
    here = pathlib.Path(__file__).parent
    lines = []
    for kind, items in GOLDEN.items():
        with tempfile.TemporaryDirectory() as path:
            at = os.path.join(path, "x.mdb") if kind == "file" else path
            lines += [describe(kind, at, name) for name in write(kind, at, items, 1)]
            source = at if kind == "file" else os.path.join(at, "data.mdb")
            data = pathlib.Path(source).read_bytes()
            (here / f"{kind}.mdb.gz").write_bytes(gzip.compress(data, mtime=0))
    (here / "golden.txt").write_text("\n".join(lines) + "\n")


main(sys.argv[1:])
