"""What lies in the cache's directory is damaged, swapped, copied or deleted, and its disk fills up
or goes."""

import os
import shutil
import signal

from cache import T0, filled, give_away, store, use
from machine import bind, mount, umount, until
from oracle import Listing, same
from verdicts import fault


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


@fault(
    "the cached data is truncated under a running job, which may have it mapped",
    clear=["/c", "cache|data"],
)
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


@fault(
    "batches that lie in the cache's mapped file are kept while another process truncates it",
    clear=["cache|data"],
)
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

    for step in (
        lambda: swap(sc / "data", sd / "data"),
        lambda: swap(sc / "index", sd / "index"),
        lambda: swap(sc, sd),
    ):
        step()
        for dataset, where in ((a, c), (b, d)):
            use(h, dataset, where).end()
        h.stop_daemon()


@fault(
    "the cache's index is empty, cut in a record, noise after its header, doubled, and of an "
    "endless length, in turn"
)
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


@fault(
    "cache and dataset were copied from another machine with cp -a, and the copy of the dataset "
    "is right"
)
def copied_with_its_dataset(h):
    a = h.dataset("a", mtime=T0)
    where = filled(h, a)
    shutil.copytree(a, h.tmp / "b")
    shutil.copytree(where, h.tmp / "d")
    use(h, h.tmp / "b", h.tmp / "d")


@fault(
    "the cache was copied from a machine whose dataset has equal names, sizes and times, and "
    "other bytes",
    item=2,
)
def copied_from_another_dataset(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    where = filled(h, a)
    shutil.copytree(where, h.tmp / "d")
    use(h, b, h.tmp / "d")


@fault(
    "the cache was copied as hard links (cp -al), and two daemons use both",
    clear=["/c|/d", "use|links"],
)
def copied_as_hard_links(h):
    a = h.dataset("a", size=3000)
    where = filled(h, a)
    shutil.copytree(where, h.tmp / "d", copy_function=os.link)
    h.dataset("b", size=3000, salt="b", per_class=14)
    first = use(h, a, where)
    second = h.client(env={"HDMLP_SOCKET": f"second-{h.token}"}).open(
        a, cache_dir=str(h.tmp / "d"), memory=0
    )
    with open(a / "class0/new.jpg", "wb") as f:
        f.write(b"x" * 100)
    for e in (2, 3):
        second.epoch(e)
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


@fault(
    "two jobs with datasets of equal names, sizes and times share a cache_dir at the same time, "
    "in one daemon",
    item=2,
)
def two_jobs_at_once(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    first, second = (h.open(d, cache_dir=str(h.tmp / "c"), memory=0, name=d.name) for d in (a, b))
    for e in range(3):
        first.right(Listing(a), [e], what="job a")
        second.right(Listing(b), [e], what="job b")


@fault(
    "cache_dir is deleted under a running job, and another directory made in its place",
    clear=["/c"],
)
def deleted_under_a_job(h):
    a = h.dataset("a")
    client = h.open(a, cache_dir=str(h.tmp / "c"), memory=0)
    client.right(Listing(a), [0])
    shutil.rmtree(h.tmp / "c")
    client.right(Listing(a), [1])
    h.folder("c")
    client.right(Listing(a), [2])
    use(h, a, h.tmp / "c", name="two")


@fault(
    "cache_dir's file system is unmounted (umount -l) under a running job, and another is "
    "mounted there",
    clear=["/c"],
)
def unmounted_under_a_job(h):
    a = h.dataset("a")
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs")
    client = h.open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1)
    client.right(Listing(a), [0])
    umount(h.tmp / "m", lazy=True)
    mount("tmpfs", h.tmp / "m", "tmpfs")
    client.right(Listing(a), [1, 2])


@fault(
    "cache_dir's disk is full: a tmpfs of 200 KB, of which cache_size claims 10 MB",
    clear=["/m", "B"],
)
def disk_full(h):
    a = h.dataset("a", size=6000)
    h.folder("m")
    mount("tmpfs", h.tmp / "m", "tmpfs", data="size=200k")
    client = h.client().open(
        a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1, cache_size="10MB"
    )
    client.right(Listing(a), [0, 1, 2])


@fault("another process fills cache_dir's disk under a running job")
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
    h.client().open(a, cache_dir=str(h.tmp / "m/c"), memory=0, disk_reserve=1).right(
        Listing(a), [0, 1]
    )


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

    subprocess.run(
        ["mount", "-o", "remount,ro", "-f", str(h.tmp / "m")],
        check=False,
        stderr=subprocess.DEVNULL,
    )
    for p in (h.tmp / "m/c").rglob("*"):
        p.chmod(0o000)
    same(got + client.ask("next"), client.expected(Listing(a)))
    client.right(Listing(a), [1, 2])


@fault(
    "the daemon is killed at five random moments while it fills cache_dir; each time a new "
    "process continues"
)
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
        h.client(cwd=folder.parent).open(
            folder.name, cache_dir="c", memory=0, name=folder.name
        ).right(Listing(folder), [0, 1], what=folder.name)


@fault(
    "a dataset of which a file was rewritten in place while its cache was moved away and back, "
    "with all times put back"
)
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
