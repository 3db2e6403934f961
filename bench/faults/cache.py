"""The directory that caches samples: whose it is, what lies in it, what becomes of it while it is
used."""

import os
import shutil
import struct

from machine import NOBODY
from oracle import Listing
from verdicts import RAW, Told, Verdict, fault, wrong

T0 = 1_577_836_800


def crc32c(data):
    if not TABLE:
        for n in range(256):
            for _ in range(8):
                n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
            TABLE.append(n)
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


TABLE = []


def filled(h, a, name="c", **keys):
    """A cache directory that holds all of ``a``, and no daemon."""
    where = h.tmp / name
    client = h.open(a, cache_dir=str(where), memory=0, **keys)
    client.right(Listing(a), [0, 1])
    client.end()
    h.stop_daemon()
    return where


def store(where):
    """The only store in a cache directory."""
    found = [p for p in where.iterdir() if p.is_dir()]
    if len(found) != 1 or not (found[0] / "data").exists():
        raise Verdict(
            "not tried",
            f"the cache directory has another layout now: "
            f"{sorted(p.name for p in where.rglob('*'))[:8]}",
        )
    return found[0]


def forge(where):
    """Puts other bytes into a cache, with all checksums made anew (docs/FORMATS.md)."""
    s = store(where)
    data = bytearray((s / "data").read_bytes())
    journal = bytearray((s / "index").read_bytes())
    record = 40
    if struct.unpack_from("<I", journal, 8)[0] != 3:
        raise Verdict("not tried", "the cache directory's index has another layout now")
    for at in range(64, len(journal) - record + 1, record):
        _sample, _, offset, length = struct.unpack_from("<IIQQ", journal, at)
        if offset + length > len(data):
            continue
        data[offset : offset + length] = b"F" * length
        struct.pack_into("<I", journal, at + 4, crc32c(data[offset : offset + length]))
        sealed = bytes.fromhex(s.name) + journal[at : at + record - 4]
        struct.pack_into("<I", journal, at + record - 4, crc32c(sealed))
    (s / "data").write_bytes(data)
    (s / "index").write_bytes(journal)


def give_away(where):
    for folder, _, files in os.walk(where):
        for name in [*files, "."]:
            os.chown(os.path.join(folder, name), NOBODY, NOBODY)


def use(h, a, where, epochs=(0, 1), **keys):
    keys.setdefault("memory", 0)
    client = h.open(a, cache_dir=str(where), **keys)
    client.right(Listing(a), epochs)
    return client


OWNER = ["cache_dir|cache directory|/c\\b", "own|user|permission|mode"]


@fault("cache_dir is another user's directory, with forged samples in it", clear=OWNER, item=8)
def owned_by_another(h):
    a = h.dataset("a")
    where = filled(h, a)
    forge(where)
    give_away(where)
    use(h, a, where)


@fault(
    "cache_dir is ours, the store in it another user's, with forged samples",
    clear=["/c", "own|user|permission|mode"],
    item=8,
)
def store_owned_by_another(h):
    a = h.dataset("a")
    where = filled(h, a)
    forge(where)
    give_away(store(where))
    use(h, a, where)


@fault("cache_dir is ours and all users may write to it (mode 0777)", clear=OWNER, item=8)
def writable_by_all(h):
    a = h.dataset("a")
    where = filled(h, a)
    where.chmod(0o777)
    use(h, a, where)


@fault("cache_dir is an empty directory of another user's", clear=OWNER, item=8)
def empty_and_owned_by_another(h):
    a = h.dataset("a")
    where = h.folder("c")
    os.chown(where, NOBODY, NOBODY)
    use(h, a, where)


def linked(h, what):
    """A cache in which one of its files is a symlink to a foreign one, or a directory to a foreign
    directory."""
    a = h.dataset("a")
    where = filled(h, a)
    foreign = h.folder("foreign")
    (foreign / "file").write_bytes(b"not yours" * 10_000)
    (foreign / "data").write_bytes(b"neither" * 10_000)
    h.guard(foreign)
    h.clear = ["/c", "link|own|other|not a"]
    return a, where, foreign / "file", foreign


@fault(
    "in cache_dir, the store's data is a symlink to a foreign file, and its index is gone", item=8
)
def symlink_data(h):
    a, where, file, _ = linked(h, "data")
    s = store(where)
    (s / "data").unlink()
    (s / "index").unlink()
    (s / "data").symlink_to(file)
    use(h, a, where)


@fault(
    "in cache_dir, the store's data is a symlink to a foreign file, and its index intact", item=8
)
def symlink_data_indexed(h):
    a, where, file, _ = linked(h, "data")
    s = store(where)
    (s / "data").unlink()
    (s / "data").symlink_to(file)
    use(h, a, where)


@fault("in cache_dir, the store's index is a symlink to a foreign file", item=8)
def symlink_index(h):
    a, where, file, _ = linked(h, "index")
    (store(where) / "index").unlink()
    (store(where) / "index").symlink_to(file)
    use(h, a, where)


@fault(
    "in cache_dir, index.new is a symlink to a foreign file when the index is written anew", item=8
)
def symlink_index_new(h):
    a, where, file, _ = linked(h, "index.new")
    s = store(where)
    with open(s / "index", "r+b") as f:
        f.seek(64)
        f.write(b"\0" * 320)
    (s / "index.new").symlink_to(file)
    use(h, a, where)


@fault("in cache_dir, the marker is a symlink to a foreign file", item=8)
def symlink_marker(h):
    a, where, file, _ = linked(h, "marker")
    (where / "HDMLP-CACHE").unlink()
    (where / "HDMLP-CACHE").symlink_to(file)
    use(h, a, where)


@fault("in cache_dir, the marker is a dangling symlink into a foreign directory", item=8)
def symlink_marker_dangling(h):
    a, where, _, foreign = linked(h, "marker")
    (where / "HDMLP-CACHE").unlink()
    (where / "HDMLP-CACHE").symlink_to(foreign / "made")
    use(h, a, where)


@fault("in cache_dir, the store is a symlink to a foreign directory", item=8)
def symlink_store(h):
    a, where, _, foreign = linked(h, "store")
    s = store(where)
    shutil.rmtree(s)
    s.symlink_to(foreign)
    use(h, a, where)


@fault("in cache_dir, a store that is to be evicted holds a symlink to a foreign directory", item=8)
def symlink_in_an_old_store(h):
    a = h.dataset("a", size=4000)
    where = filled(h, a, cache_size="300KB")
    foreign = h.folder("foreign")
    (foreign / "file").write_text("not yours")
    h.guard(foreign)
    (store(where) / "more").symlink_to(foreign)
    (where / ("0" * 32)).symlink_to(foreign)
    b = h.dataset("b", size=4000, salt="b", per_class=16)
    h.clear = ["/c"]
    use(h, b, where, cache_size="300KB")


@fault("cache_dir is a symlink to a directory of ours")
def cache_dir_is_a_symlink(h):
    a = h.dataset("a")
    where = filled(h, a)
    (h.tmp / "link").symlink_to(where)
    h.clear = ["link"]
    use(h, a, h.tmp / "link")


@fault("cache_dir has other files in it", clear=["foreign"])
def cache_dir_of_other_things(h):
    foreign = h.folder("foreign")
    (foreign / "thesis.tex").write_text("five years")
    h.guard(foreign)
    use(h, h.dataset("a"), foreign)


@fault("cache_dir is a file; a file is in its path; it is a FIFO", clear=["fifo"])
def cache_dir_is_no_directory(h):
    a = h.dataset("a")
    (h.tmp / "file").write_text("x")
    os.mkfifo(h.tmp / "fifo")
    h.guard(h.tmp / "file")
    for name in ("file", "file/below"):
        try:
            use(h, a, h.tmp / name)
        except Told as e:
            if not e.ours or "file" not in e.message:
                raise Verdict(RAW, str(e)) from None
        else:
            raise wrong("no error")
    use(h, a, h.tmp / "fifo")


@fault("cache_dir is the dataset, or lies within it", clear=["cache|class"])
def cache_dir_in_the_dataset(h):
    a = h.dataset("a")
    listing = Listing(a)
    client = h.open(a, cache_dir=str(a / "cache"), memory=0)
    client.right(listing, [0, 1])
    h.guard(a / "class0")
    h.open(a, cache_dir=str(a / "cache"), memory=0, name="two").right(listing)
