"""Several nodes, each a network namespace (`hdmlp dev cluster`): nodes that die, differ, lie, and
ports that are flooded."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from handles import all_of, open_all, together
from oracle import Listing, same
from verdicts import RAW, Told, Verdict, expecting, fault, wrong

T0 = 1_577_836_800
SPARSE = {"memory": 0, "staging_buffer": "400KB"}


def net(pid):
    return os.readlink(f"/proc/{pid}/ns/net")


def daemon_of(h, client):
    return next(d for d in h.daemons() if net(d.pid) == net(client.pid))


def copies(h, nodes=2, **keys):
    """The dataset, a copy for each node, and the path at which all nodes see theirs."""
    a = h.dataset("n0", mtime=T0, **keys)
    for i in range(1, nodes):
        shutil.copytree(a, h.tmp / f"n{i}")
        h.date(h.tmp / f"n{i}", T0)
    return a, h.folder("train"), ("--mount", f"{h.tmp}/n{{node}}:{h.tmp}/train")


@fault("three nodes of two ranks, no fault, two epochs")
def three_nodes(h):
    a = h.dataset("a")
    ranks = h.cluster(3, ranks=2)
    open_all(ranks, a)
    together(ranks, Listing(a), [0, 1])


@fault(
    "a node's daemon is killed with kill -9 in the middle of an epoch; the other node's rank "
    "goes on",
    dies=True,
)
def daemon_killed(h):
    a = h.dataset("a", size=20_000)
    ranks = h.cluster(2)
    open_all(ranks, a, **SPARSE)
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    got = all_of(ranks, lambda c: c.send("next", n=2))
    daemon_of(h, ranks[1]).signal(signal.SIGKILL)
    same(got[0] + ranks[0].ask("next"), ranks[0].expected(Listing(a)), what="rank 0")
    ranks[0].right(Listing(a), [1])
    with expecting("daemon"):
        ranks[1].ask("next")
        ranks[1].right(Listing(a), [1])


@fault("node 0's daemon is killed with kill -9; the other node's rank goes on", dies=True)
def first_daemon_killed(h):
    a = h.dataset("a", size=20_000)
    ranks = h.cluster(2)
    open_all(ranks, a, **SPARSE)
    together(ranks, Listing(a), [0])
    daemon_of(h, ranks[0]).signal(signal.SIGKILL)
    ranks[1].right(Listing(a), [1, 2])


@fault("a node's daemon is stopped for 4 s in the middle of an epoch")
def daemon_stopped(h):
    a = h.dataset("a", size=20_000)
    ranks = h.cluster(2)
    open_all(ranks, a, staging_buffer="400KB")
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    got = all_of(ranks, lambda c: c.send("next", n=2))
    daemon = daemon_of(h, ranks[1])
    daemon.signal(signal.SIGSTOP)
    ranks[0].send("next")
    ranks[1].send("next")
    time.sleep(4)
    daemon.signal(signal.SIGCONT)
    for i in range(2):
        same(got[i] + ranks[i].answer(), ranks[i].expected(Listing(a)), what=f"rank {i}")


@fault("a node's link is cut in the middle of an epoch, and restored 4 s later")
def link_cut(h):
    a = h.dataset("a", size=20_000)
    ranks = h.cluster(2)
    open_all(ranks, a, staging_buffer="400KB")
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    got = all_of(ranks, lambda c: c.send("next", n=2))
    h.command_clear(h.hdmlp("dev", "link", "1", "--down", "--run", h.token))
    for r in ranks:
        r.send("next")
    time.sleep(4)
    h.command_clear(h.hdmlp("dev", "link", "1", "--up", "--run", h.token))
    for i in range(2):
        same(got[i] + ranks[i].answer(25), ranks[i].expected(Listing(a)), what=f"rank {i}")
    together(ranks, Listing(a), [1])


@fault("links of 5 Mbit/s")
def slow_links(h):
    a = h.dataset("a", size=3000)
    ranks = h.cluster(2, "--rate", "5mbit")
    open_all(ranks, a)
    together(ranks, Listing(a), [0, 1])


@fault("nodes have different secrets", clear=["secret"])
def secrets_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2, "--env", "HDMLP_SECRET=the-secret-of-node-{node}-and-of-no-other")
    open_all(ranks, a, start_timeout="5s")
    raise wrong("no error")


@fault("one node has tls=on, the other not", clear=["tls"])
def tls_on_one(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="5s", tls=("on", "off")[i])
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("one node starts 3 s late")
def late(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    ranks[0].send_open(a)
    time.sleep(3)
    ranks[1].send_open(a)
    for r in ranks:
        r.answer()
    together(ranks, Listing(a))


@fault("one node never starts", clear=["node", "1|one"])
def never_comes(h):
    a = h.dataset("a")
    h.cluster(2)[0].open(a, start_timeout="4s")
    raise wrong("no error")


@fault("one node has one file more", clear=["node", "dataset|samples|listing"])
def one_file_more(h):
    _a, at, flags = copies(h)
    h.sample(h.tmp / "n1/class2/extra.jpg")
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault(
    "one node has no dataset at the path: its rank must be told so, and the other which node is "
    "missing",
    clear=["node"],
)
def no_dataset(h):
    _a, at, flags = copies(h)
    shutil.rmtree(h.tmp / "n1")
    h.folder("n1")
    ranks = h.cluster(2, *flags)
    for r in ranks:
        r.send_open(at, start_timeout="6s")
    with expecting("train"):
        ranks[1].answer()
    ranks[0].answer()
    raise wrong("no error")


@fault(
    "one node's copy has one file of another size", clear=["node", "dataset|samples|listing|file"]
)
def one_size_differs(h):
    _a, at, flags = copies(h)
    h.sample(h.tmp / "n1/class2/003.jpg", 999)
    h.date(h.tmp / "n1", T0)
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault("one node's copy has classes of other names", clear=["node", "dataset|class|listing"])
def classes_differ(h):
    _a, at, flags = copies(h)
    (h.tmp / "n1/class2").rename(h.tmp / "n1/class02")
    h.date(h.tmp / "n1", T0)
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault("nodes set different seeds", clear=["seed"])
def seeds_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="6s", seed=i)
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes set different transforms", clear=["transform"])
def transforms_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="6s", transform=f"[T.Reshape({i + 1}, 4, 4, 'uint8')]")
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes set different policies and on_error", clear=["policy|on_error"])
def policies_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(
            a, start_timeout="6s", policy=("cooperative", "minio")[i], on_error=("raise", "skip")[i]
        )
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes have different memory, cache directories and thread counts, which may differ")
def rooms_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        keys = [
            {"memory": "5KB", "source_threads": 1},
            {"memory": 0, "cache_dir": str(h.tmp / "c")},
        ][i]
        r.send_open(a, start_timeout="6s", **keys)
    all_of(ranks, lambda c: None)
    together(ranks, Listing(a), [0, 1, 2])


@fault("one node's source gives EIO for one file, the other's does not", clear=["004.jpg"])
def bad_sector_on_one(h):
    a, at, flags = copies(h, size=20_000)
    shutil.rmtree(h.tmp / "n1")
    h.throttle(a, h.tmp / "n1", "--fail", "class1/004.jpg")
    ranks = h.cluster(2, *flags)
    open_all(ranks, at, start_timeout="10s", source_timeout="4s")
    together(ranks, Listing(a), [0, 1])


@fault(
    "a file is gone on both nodes when it is needed: ranks that have not ended are told of the "
    "same one",
    clear=["004.jpg"],
)
def file_gone(h):
    a = h.dataset("a", size=20_000)
    h.age(a)
    ranks = h.cluster(2)
    open_all(ranks, a, source_timeout="4s", **SPARSE)
    together(ranks, Listing(a), [0])
    (a / "class1/004.jpg").unlink()
    listing = Listing(h.dataset("again", size=20_000))
    told = []
    all_of(ranks, lambda c: c.send("iter", epoch=3))
    for r in ranks:
        r.send("next")
    for r in ranks:
        try:
            same(r.answer(), r.expected(listing, 3))
        except Told as e:
            told.append(e)
    # Nothing keeps these ranks in step: one may have had all of its epoch before the other comes to
    # the file.
    if not told or not all("004.jpg" in e.message for e in told):
        raise Verdict(RAW, f"{len(told)} of 2 ranks were told: {[str(e)[:80] for e in told]}")
    raise told[0]


def with_caches(h, ranks, path, epochs=(0, 1), **keys):
    for r in ranks:
        r.send_open(
            path, memory=0, cache_dir=str(h.tmp / f"cache{r.rank}"), start_timeout="10s", **keys
        )
    all_of(ranks, lambda c: None)
    together(ranks, Listing(path), epochs)


def end(h, ranks):
    for r in ranks:
        r.send("exit")
    try:
        h.launcher.wait(15)
    except subprocess.TimeoutExpired:
        raise Verdict("hang", "dev cluster did not end within 15 s") from None
    h.stop_daemon()


@fault("bits of one node's cached data flip between two runs, and under the second")
def cache_of_a_node_flips(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    with_caches(h, ranks, a)
    end(h, ranks)

    def flip():
        for path in (h.tmp / "cache1").rglob("*"):
            if path.is_file() and path.stat().st_size > 4096:
                data = bytearray(path.read_bytes())
                for at in range(100, len(data), 611):
                    data[at] ^= 8
                with open(path, "r+b") as f:
                    f.write(data)

    flip()
    h.token += "b"
    ranks = h.cluster(2)
    with_caches(h, ranks, a)
    flip()
    together(ranks, Listing(a), [2, 3])


@fault(
    "all files are rewritten in place, with mtimes restored, between two runs of two nodes with "
    "cache directories",
    item=4,
)
def rewritten_between_runs(h):
    a = h.dataset("a", mtime=T0)
    h.age(a)
    ranks = h.cluster(2)
    with_caches(h, ranks, a)
    end(h, ranks)
    for path in map(Path, Listing(a).paths):
        data = path.read_bytes()
        with open(path, "r+b") as f:
            f.write(data[::-1])
        os.utime(path, (T0, T0))
    h.token += "b"
    ranks = h.cluster(2)
    with_caches(h, ranks, a)


@fault(
    "one node's cache directory was copied from a node of another job, whose dataset has equal "
    "names, sizes and times",
    item=2,
)
def cache_of_another_job(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    h.open(b, memory=0, cache_dir=str(h.tmp / "cache1")).right(Listing(b), [0, 1])
    h.stop_daemon()
    ranks = h.cluster(2)
    with_caches(h, ranks, a)


@fault("a run of two nodes is resumed by one process, from a state in the middle of an epoch")
def resumed_on_one_node(h):
    a = h.dataset("a", per_class=20)
    ranks = h.cluster(2)
    open_all(ranks, a, batch=5)
    all_of(ranks, lambda c: c.send("iter", epoch=1))
    got = all_of(ranks, lambda c: c.send("next", n=3))
    for r, batches in zip(ranks, got):
        same(batches, r.expected(Listing(a), 1)[:3])
    state = ranks[1].ask("state")
    end(h, ranks)
    one = h.open(a, batch=10)
    one.ask("load", state=state)
    one.ask("iter")
    same(one.ask("next"), one.expected(Listing(a), 1)[3:], what="on one node")


@fault(
    "nodes see the dataset through symlinks that are switched to another dataset before the "
    "second loader"
)
def symlinks_retargeted(h):
    a, b = h.dataset("a", salt="a", mtime=T0), h.dataset("b", salt="b", mtime=T0)
    for i in range(2):
        h.folder(f"view{i}")
        (h.tmp / f"view{i}/current").symlink_to(a)
    at = h.folder("view")
    ranks = h.cluster(2, "--mount", f"{h.tmp}/view{{node}}:{at}")
    open_all(ranks, at / "current", name="one", start_timeout="6s")
    together(ranks, Listing(a), [0])
    for i in range(2):
        (h.tmp / f"view{i}/current").unlink()
        (h.tmp / f"view{i}/current").symlink_to(b)
    open_all(ranks, at / "current", name="two", start_timeout="6s")
    together(ranks, Listing(b), [0, 1])
