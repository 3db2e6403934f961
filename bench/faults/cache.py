"""The directory that caches samples: whose it is, what lies in it, what becomes of it while it is used."""
import os
import shutil
import signal
import struct

from harness import NOBODY, Listing, RAW, Told, Verdict, bind, fault, mount, same, umount, until, wrong

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
        raise Verdict("not tried", f"the cache directory has another layout now: {sorted(p.name for p in where.rglob('*'))[:8]}")
    return found[0]


def forge(where):
    """Puts other bytes into a cache, with all checksums made anew (docs/FORMATS.md)."""
    s = store(where)
    data = bytearray((s / "data").read_bytes())
    journal = bytearray((s / "index").read_bytes())
    record = {1: 32, 2: 40}[struct.unpack_from("<I", journal, 8)[0]]
    for at in range(64, len(journal) - record + 1, record):
        sample, _, offset, length = struct.unpack_from("<IIQQ", journal, at)
        if offset + length > len(data):
            continue
        data[offset:offset + length] = b"F" * length
        struct.pack_into("<I", journal, at + 4, crc32c(data[offset:offset + length]))
        struct.pack_into("<I", journal, at + record - 4, crc32c(journal[at:at + record - 4]))
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


@fault("cache_dir is ours, the store in it another user's, with forged samples", clear=["/c", "own|user|permission|mode"], item=8)
def store_owned_by_another(h):
    a = h.dataset("a")
    where = filled(h, a)
    forge(where)
    give_away(store(where))
    use(h, a, where)


@fault("cache_dir is ours and everybody may write to it (mode 0777)", clear=OWNER, item=8)
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
    """A cache in which one of its files is a symlink to a foreign one, or a directory to a foreign directory."""
    a = h.dataset("a")
    where = filled(h, a)
    foreign = h.folder("foreign")
    (foreign / "file").write_bytes(b"not yours" * 10_000)
    (foreign / "data").write_bytes(b"neither" * 10_000)
    h.guard(foreign)
    h.clear = ["/c", "link|own|other|not a"]
    return a, where, foreign / "file", foreign


@fault("in cache_dir, the store's data is a symlink to a foreign file, and its index is gone", item=8)
def symlink_data(h):
    a, where, file, _ = linked(h, "data")
    s = store(where)
    (s / "data").unlink()
    (s / "index").unlink()
    (s / "data").symlink_to(file)
    use(h, a, where)


@fault("in cache_dir, the store's data is a symlink to a foreign file, and its index intact", item=8)
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


@fault("in cache_dir, index.new is a symlink to a foreign file when the index is written anew", item=8)
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


@fault("in cache_dir, a store that is to be pushed out holds a symlink to a foreign directory", item=8)
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


@fault("a bit of the cached data flips, between two processes and under a running job")
def bit_flips(h):
    a = h.dataset("a")
    where = filled(h, a)
    path = store(where) / "data"

    def flip():
        with open(path, "r+b") as f:
            for at in range(50, path.stat().st_size, 997):
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 16]))
    flip()
    client = use(h, a, where)
    flip()
    client.right(Listing(a), [2, 3])


@fault("the cached data is truncated between two processes")
def data_truncated(h):
    a = h.dataset("a")
    where = filled(h, a)
    os.truncate(store(where) / "data", (store(where) / "data").stat().st_size // 2)
    use(h, a, where)


@fault("the cached data is truncated under a running job, which may have it mapped", clear=["/c", "cache|data"])
def data_truncated_under_a_job(h):
    a = h.dataset("a", size=9000)
    client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0)
    listing = Listing(a)
    client.right(listing, [0, 1])
    client.ask("iter", epoch=2)
    client.ask("next", n=1)
    os.truncate(store(h.tmp / "c") / "data", 0)
    same(client.ask("next"), client.expected(listing, 2)[1:], what="after the truncation")
    client.right(listing, [3, 4])


@fault("batches that lie in the cache's mapped file are kept while somebody truncates it", clear=["cache|data"])
def data_truncated_under_kept_batches(h):
    a = h.dataset("a", size=9000)
    client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0)
    listing = Listing(a)
    client.right(listing, [0, 1])
    client.ask("iter", epoch=2)
    client.ask("keep")
    os.truncate(store(h.tmp / "c") / "data", 0)
    same(client.ask("kept"), client.expected(listing, 2))


@fault("the cached data is overwritten with noise under a running job")
def data_noise_under_a_job(h):
    a = h.dataset("a", size=9000)
    client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0)
    listing = Listing(a)
    client.right(listing, [0, 1])
    path = store(h.tmp / "c") / "data"
    with open(path, "r+b") as f:
        f.write(h.random.randbytes(path.stat().st_size))
    client.right(listing, [2, 3])


@fault("two stores swap their data; then their indexes; then both, by the directories' names")
def stores_swapped(h):
    a, b = h.dataset("a", salt="a"), h.dataset("b", salt="b", mtime=T0)
    c, d = filled(h, a, "c"), filled(h, b, "d")
    sc, sd = store(c), store(d)

    def swap(x, y):
        x.rename(h.tmp / "x")
        y.rename(x)
        (h.tmp / "x").rename(y)
    for step in (lambda: swap(sc / "data", sd / "data"), lambda: swap(sc / "index", sd / "index"),
                 lambda: swap(sc, sd)):
        step()
        for dataset, where in ((a, c), (b, d)):
            use(h, dataset, where).end()
        h.stop_daemon()


@fault("the cache's index is empty, cut in a record, noise behind its header, doubled, and of an endless length, in turn")
def index_edited(h):
    a = h.dataset("a")
    where = filled(h, a)
    path = store(where) / "index"
    for i in range(5):
        good = path.read_bytes()
        bad = (b"", good[:77], good[:64] + h.random.randbytes(640), good + good[64:], good)[i]
        path.write_bytes(bad)
        if i == 4:
            os.truncate(path, 1 << 40)
        use(h, a, where).end()
        h.stop_daemon()


@fault("the cache's index is a FIFO; its data a directory", clear=["/c"])
def index_is_a_fifo(h):
    a = h.dataset("a")
    where = filled(h, a)
    (store(where) / "index").unlink()
    os.mkfifo(store(where) / "index")
    client = h.client()
    client.open(a, within=8, cache_dir=str(where), memory=0).right(Listing(a), [0, 1])


@fault("the cache's marker is a FIFO", clear=["/c"])
def marker_is_a_fifo(h):
    a = h.dataset("a")
    where = filled(h, a)
    (where / "HDMLP-CACHE").unlink()
    os.mkfifo(where / "HDMLP-CACHE")
    h.client().open(a, within=8, cache_dir=str(where), memory=0).right(Listing(a), [0, 1])


@fault("cache and dataset were copied from another machine with cp -a, and the copy of the dataset is right")
def copied_with_its_dataset(h):
    a = h.dataset("a", mtime=T0)
    where = filled(h, a)
    shutil.copytree(a, h.tmp / "b")
    shutil.copytree(where, h.tmp / "d")
    use(h, h.tmp / "b", h.tmp / "d")


@fault("the cache was copied from a machine whose dataset has equal names, sizes and times, and other bytes", item=2)
def copied_from_another_dataset(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    where = filled(h, a)
    shutil.copytree(where, h.tmp / "d")
    use(h, b, h.tmp / "d")


@fault("the cache was copied as hard links (cp -al), and two daemons use both", clear=["/c|/d", "use|links"])
def copied_as_hard_links(h):
    a = h.dataset("a", size=3000)
    where = filled(h, a)
    shutil.copytree(where, h.tmp / "d", copy_function=os.link)
    b = h.dataset("b", size=3000, salt="b", per_class=14)
    first = use(h, a, where)
    second = h.client(env={"HDMLP_SOCKET": f"second-{h.token}"}).open(a, cache_dir=str(h.tmp / "d"), memory=0)
    with open(a / "class0/new.jpg", "wb") as f:
        f.write(b"x" * 100)
    for e in (2, 3):
        got = second.epoch(e)
    first.right(Listing(h.dataset("again", size=3000)), [2])


@fault("a second daemon wants the same cache_dir", clear=["/c", "use|daemon|pid"])
def two_daemons(h):
    a = h.dataset("a")
    first = use(h, a, h.tmp / "c")
    client = h.client(env={"HDMLP_SOCKET": f"second-{h.token}"})
    try:
        client.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    finally:
        first.right(Listing(a), [2])


@fault("two jobs with datasets of equal names, sizes and times share a cache_dir at the same time, in one daemon", item=2)
def two_jobs_at_once(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    first, second = (h.open(d, cache_dir=str(h.tmp / "c"), memory=0, name=d.name) for d in (a, b))
    for e in range(3):
        first.right(Listing(a), [e], what="job a")
        second.right(Listing(b), [e], what="job b")


@fault("cache_dir is deleted under a running job, and another directory made in its place", clear=["/c"])
def deleted_under_a_job(h):
    a = h.dataset("a")
    client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0)
    client.right(Listing(a), [0])
    shutil.rmtree(h.tmp / "c")
    client.right(Listing(a), [1])
    h.folder("c")
    client.right(Listing(a), [2])
    use(h, a, h.tmp / "c", name="two")


@fault("cache_dir's file system is unmounted (umount -l) under a running job, and another is mounted there", clear=["/c"])
def unmounted_under_a_job(h):
    a = h.dataset("a")
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs")
    client = h.open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1)
    client.right(Listing(a), [0])
    umount(h.tmp / "m", lazy=True)
    mount("tmpfs", h.tmp / "m", "tmpfs")
    client.right(Listing(a), [1, 2])


@fault("cache_dir's disk is full: a tmpfs of 200 KB, of which cache_size claims 10 MB", clear=["/m", "B"])
def disk_full(h):
    a = h.dataset("a", size=6000)
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs", data="size=200k")
    client = h.client().open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1, cache_size="10MB")
    client.right(Listing(a), [0, 1, 2])


@fault("somebody else fills cache_dir's disk under a running job")
def disk_fills_up(h):
    a = h.dataset("a", size=6000)
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs", data="size=600k")
    client = h.client().open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1)
    client.ask("iter", epoch=0)
    got = client.ask("next", n=1)
    with open(h.tmp / "m/fill", "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass
    same(got + client.ask("next"), client.expected(Listing(a)))
    client.right(Listing(a), [1, 2])


@fault("cache_dir's disk has no inodes left", clear=["/m"])
def no_inodes(h):
    a = h.dataset("a")
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs", data="nr_inodes=3")
    h.client().open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1).right(Listing(a), [0, 1])


@fault("cache_dir is on a read-only file system", clear=["/m"])
def read_only(h):
    a = h.dataset("a")
    where = filled(h, a, "m")
    bind(where, where, readonly=True)
    use(h, a, where)


@fault("cache_dir is mounted read-only while a job writes to it", clear=["/m"])
def becomes_read_only(h):
    a = h.dataset("a")
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs")
    client = h.client().open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1)
    client.ask("iter", epoch=0)
    got = client.ask("next", n=1)
    import subprocess
    subprocess.run(["mount", "-o", "remount,ro", "-f", str(h.tmp / "m")], check=False, stderr=subprocess.DEVNULL)
    for p in (h.tmp / "m/c").rglob("*"):
        p.chmod(0o000)
    same(got + client.ask("next"), client.expected(Listing(a)))
    client.right(Listing(a), [1, 2])


@fault("the daemon is killed at five random moments while it fills cache_dir; each time a new process goes on")
def killed_while_filling(h):
    a = h.dataset("a", size=20_000, per_class=25)
    listing = Listing(a)
    for i in range(5):
        client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0, name=str(i))
        client.ask("iter", epoch=0)
        n = h.random.randrange(1, 15)
        same(client.ask("next", n=n), client.expected(listing)[:n], what=f"round {i}")
        h.daemon().signal(signal.SIGKILL)
        until(lambda: not h.daemons(), 5, "the end of the daemon")
        os.kill(client.pid, signal.SIGKILL)
    use(h, a, h.tmp / "c")


@fault("a cache filled by one user is given to another with chown -R, both honest")
def chowned_to_us(h):
    a = h.dataset("a")
    where = filled(h, a)
    give_away(where)
    for folder, _, files in os.walk(where):
        for name in [*files, "."]:
            os.chown(os.path.join(folder, name), 0, 0)
    use(h, a, where)


@fault("two processes give the same relative cache_dir in different directories")
def relative_cache_dir(h):
    a, b = h.dataset("one/a", salt="a", mtime=T0), h.dataset("two/b", salt="b", mtime=T0)
    h.clear = ["cache_dir", "absolute|relative"]
    for folder in (a, b):
        h.client(cwd=folder.parent).open(folder.name, cache_dir="c", memory=0, name=folder.name).right(Listing(folder), [0, 1], what=folder.name)


@fault("a dataset of which a file was rewritten in place while its cache was moved away and back, with all times put back")
def moved_away_and_back(h):
    a = h.dataset("a")
    h.age(a)
    where = filled(h, a)
    where.rename(h.tmp / "away")
    use(h, a, h.tmp / "other").end()
    h.stop_daemon()
    path = a / "class1/004.jpg"
    before = path.stat()
    data = path.read_bytes()
    with open(path, "r+b") as f:
        f.write(data[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (h.tmp / "away").rename(where)
    use(h, a, where)
