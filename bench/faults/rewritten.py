"""A dataset's files are rewritten, linked elsewhere, mounted over, renamed: each process is given
the bytes that are there."""

import os
import shutil
import time

from identity import LEAN, T0, two
from machine import bind, mount, umount
from oracle import Listing
from verdicts import fault


def rewrite(h, path, restore):
    before = os.stat(path)
    data = bytes(b ^ 0x5A for b in path.read_bytes())
    with open(path, "r+b") as f:
        f.write(data)
    if restore:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@fault("a file is rewritten in place, of equal size, before a new process with a cache_dir", item=4)
def rewritten_cache_dir(h):
    a = h.dataset("a")
    h.age(a)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    rewrite(h, a / "class1/004.jpg", restore=False)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after the rewrite")


@fault("the same, with the file's mtime restored", item=4)
def rewritten_mtime_restored(h):
    a = h.dataset("a")
    h.age(a)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    rewrite(h, a / "class1/004.jpg", restore=True)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after the rewrite")


@fault(
    "all files are rewritten in place, with mtimes restored, before a new process with a cache_dir",
    item=4,
)
def rewritten_all(h):
    a = h.dataset("a")
    h.age(a)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    for path in Listing(a).paths:
        rewrite(h, type(a)(path), restore=True)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after the rewrite")


@fault("a file is rewritten in place while the daemon lingers with the old bytes in memory", item=4)
def rewritten_while_lingering(h):
    a = h.dataset("a")
    h.age(a)
    client = h.open(a)
    client.right(Listing(a), [0, 1])
    client.end()
    rewrite(h, a / "class1/004.jpg", restore=False)
    h.open(a).right(Listing(a), [0, 1], what="after the rewrite")


@fault(
    "a file is rewritten in place between two epochs of a job that does not cache",
    clear=["004.jpg"],
)
def rewritten_in_a_job(h):
    a = h.dataset("a", size=20_000)
    old = Listing(a)
    client = h.open(a, **LEAN, epochs=3)
    client.right(old)
    rewrite(h, a / "class1/004.jpg", restore=False)
    client.right(old, [1, 2], also=[Listing(a)])


@fault(
    "hdmlp dataset --rescan with HDMLP_INDEX_DIR after a rewrite in place; then a new process "
    "with a cache_dir",
    item=4,
)
def rescan_with_index_dir(h):
    a = h.dataset("a")
    h.age(a)
    env = {"HDMLP_INDEX_DIR": str(h.folder("index"))}
    client = h.client(env=env).open(a, cache_dir=str(h.tmp / "c"))
    client.right(Listing(a), [0, 1])
    h.stop_daemon()
    rewrite(h, a / "class1/004.jpg", restore=False)
    h.command_clear(h.hdmlp("dataset", str(a), "--rescan", env=env))
    h.client(env=env).open(a, cache_dir=str(h.tmp / "c")).right(
        Listing(a), [0, 1], what="after the rescan"
    )


@fault("the path is a symlink that is switched to another dataset between two jobs of one daemon")
def symlink_retargeted_between_jobs(h):
    a, b = two(h)
    link = h.tmp / "current"
    link.symlink_to(a)
    first = h.open(link, name="one")
    first.right(Listing(a))
    os.symlink(b, h.tmp / "new")
    os.rename(h.tmp / "new", link)
    h.open(link, name="two").right(Listing(b), [0, 1], what="the second job")


@fault(
    "the path is a symlink that is switched to another dataset between two epochs",
    clear=["dataset|sample|changed"],
)
def symlink_retargeted_between_epochs(h):
    a, b = two(h, size=20_000)
    link = h.tmp / "current"
    link.symlink_to(a)
    client = h.open(link, **LEAN)
    client.right(Listing(a))
    link.unlink()
    link.symlink_to(b)
    client.right(Listing(a), [1, 2], also=[Listing(b)])


@fault("a class is a symlink that is switched to another directory between two jobs of one daemon")
def class_symlink_retargeted(h):
    a, b = two(h)
    top = h.folder("top")
    (top / "class0").symlink_to(a / "class0")
    (top / "class1").symlink_to(a / "class1")
    first = h.open(top, name="one")
    first.right(Listing(top))
    (top / "class1").unlink()
    (top / "class1").symlink_to(b / "class1")
    h.open(top, name="two").right(Listing(top), [0, 1], what="the second job")


@fault(
    "a sample is a symlink whose target is replaced by one of equal size before a new process "
    "with a cache_dir"
)
def sample_symlink_retargeted(h):
    a, _b = two(h)
    (a / "class0/000.jpg").unlink()
    (a / "class0/000.jpg").symlink_to("../../x")
    (h.tmp / "x").write_bytes(b"1" * 300)
    h.age(a)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    (h.tmp / "y").write_bytes(b"2" * 300)
    os.utime(h.tmp / "y", ns=(0, (h.tmp / "x").stat().st_mtime_ns))
    os.rename(h.tmp / "y", h.tmp / "x")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after that")


@fault(
    "another file system is mounted over a class directory between two jobs of one daemon, with "
    "all times equal"
)
def mounted_over_a_class(h):
    a, b = two(h)
    first = h.client(mounts=[]).open(a, name="one")
    first.right(Listing(a))
    first.end()
    bind(b / "class2", a / "class2")
    h.open(a, name="two").right(Listing(a), [0, 1], what="the second job")
    h.stop_daemon()
    umount(a / "class2")
    h.open(a, name="three").right(Listing(a), [0, 1], what="the third job")


@fault("classes are bind mounts of directories elsewhere")
def bind_mounts_inside(h):
    a, b = h.dataset("a", salt="a"), h.dataset("b", salt="b")
    bind(b / "class1", a / "class1")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


def overlay(h, at, lower, upper, work):
    for path in (at, upper, work):
        path.mkdir(exist_ok=True)
    mount("overlay", at, "overlay", data=f"lowerdir={lower},upperdir={upper},workdir={work}")


@fault(
    "the dataset is an overlay; one file is rewritten through it, which copies it up, between "
    "two jobs"
)
def overlay_copy_up(h):
    a = h.dataset("a", mtime=T0)
    h.folder("o")
    mount("tmpfs", h.tmp / "o", "tmpfs")
    at = h.tmp / "o/merged"
    overlay(h, at, a, h.tmp / "o/upper", h.tmp / "o/work")
    h.open(at, cache_dir=str(h.tmp / "c")).right(Listing(at), [0, 1])
    h.stop_daemon()
    rewrite(h, at / "class1/004.jpg", restore=True)
    h.open(at, cache_dir=str(h.tmp / "c")).right(Listing(at), [0, 1], what="after the rewrite")


@fault(
    "another overlay with another lower directory is mounted at the same path before a new "
    "process with a cache_dir"
)
def overlay_of_another(h):
    a, b = two(h)
    h.folder("o")
    mount("tmpfs", h.tmp / "o", "tmpfs")
    at = h.tmp / "o/merged"
    for i, lower in enumerate((a, b)):
        overlay(h, at, lower, h.tmp / f"o/upper{i}", h.tmp / f"o/work{i}")
        h.open(at, cache_dir=str(h.tmp / "c")).right(Listing(at), [0, 1], what=f"overlay {i}")
        h.stop_daemon()
        umount(at, lazy=True)


@fault(
    "a tmpfs with another dataset is mounted at the same path, with equal inode numbers, sizes "
    "and times"
)
def tmpfs_of_equal_inodes(h):
    at = h.folder("train")
    for salt in ("a", "b"):
        mount("tmpfs", at, "tmpfs")
        for c in range(3):
            (at / f"class{c}").mkdir()
            for i in range(12):
                h.sample(at / f"class{c}/{i:03}.jpg", salt=salt)
        h.date(at, T0)
        h.open(at, cache_dir=str(h.tmp / "c")).right(Listing(at), [0, 1], what=f"tmpfs {salt}")
        h.stop_daemon()
        umount(at, lazy=True)


@fault(
    "a path is first a dataset, then another one after rm -r and mkdir: inode numbers are used "
    "again"
)
def recreated_in_place(h):
    for salt in ("a", "b"):
        a = h.dataset("a", salt=salt, mtime=T0)
        h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what=f"dataset {salt}")
        h.stop_daemon()
        shutil.rmtree(a)


@fault(
    "files have mtimes in the future, as after a clock was set back, and one is rewritten before "
    "the next job"
)
def clock_set_back(h):
    a = h.dataset("a", mtime=int(time.time()) + 86400)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    rewrite(h, a / "class1/004.jpg", restore=True)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after the rewrite")


@fault(
    "all mtimes are 0, as on some read-only images, and files are swapped by rename before the "
    "next job"
)
def times_of_1970(h):
    a = h.dataset("a", mtime=0, sizes="same")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    x, y = a / "class0/001.jpg", a / "class3/002.jpg"
    x.rename(h.tmp / "x")
    y.rename(x)
    (h.tmp / "x").rename(y)
    h.date(a, 0)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1], what="after the swap")


@fault("two files of equal size and mtime swap their names while the daemon lingers")
def names_swapped(h):
    a = h.dataset("a", mtime=T0, sizes="same")
    h.age(a)
    client = h.open(a)
    client.right(Listing(a), [0, 1])
    client.end()
    x, y = a / "class0/001.jpg", a / "class0/002.jpg"
    x.rename(h.tmp / "x")
    y.rename(x)
    (h.tmp / "x").rename(y)
    h.date(a, T0)
    h.open(a).right(Listing(a), [0, 1], what="after the swap")


@fault(
    "touch, chmod and chown change all times and no bytes between two processes with a cache_dir"
)
def touched(h):
    a = h.dataset("a")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    for path in Listing(a).paths:
        os.utime(path)
        os.chmod(path, 0o640)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


@fault(
    "a dataset's samples are hard links into another dataset, and one is rewritten through the "
    "other name"
)
def hard_links(h):
    a = h.dataset("a")
    b = h.tmp / "b"
    shutil.copytree(a, b, copy_function=os.link)
    h.age(b)
    h.open(b, cache_dir=str(h.tmp / "c")).right(Listing(b), [0, 1])
    h.stop_daemon()
    rewrite(h, a / "class1/004.jpg", restore=True)
    h.open(b, cache_dir=str(h.tmp / "c")).right(Listing(b), [0, 1], what="after the rewrite")
