"""Several nodes, each a network namespace (`hdmlp dev cluster`): nodes that die, differ, lie, and ports that are flooded."""
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import Listing, RAW, Told, Verdict, all_of, expecting, fault, open_all, same, together, wrong

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


@fault("three nodes of two ranks, nothing wrong with them, two epochs")
def three_nodes(h):
    a = h.dataset("a")
    ranks = h.cluster(3, ranks=2)
    open_all(ranks, a)
    together(ranks, Listing(a), [0, 1])


@fault("a node's daemon is killed with kill -9 in the middle of an epoch; the other node's rank goes on", dies=True)
def daemon_killed(h):
    a = h.dataset("a", size=20_000)
    ranks = h.cluster(2)
    open_all(ranks, a, **SPARSE)
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    got = all_of(ranks, lambda c: c.send("next", n=2))
    daemon_of(h, ranks[1]).signal(signal.SIGKILL)
    same(got[0] + ranks[0].ask("next"), ranks[0].expected(Listing(a)), what="rank 0")
    ranks[0].right(Listing(a), [1])
    with expecting(h, "daemon"):
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


@fault("one node comes 3 s late")
def late(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    ranks[0].send_open(a)
    time.sleep(3)
    ranks[1].send_open(a)
    for r in ranks:
        r.answer()
    together(ranks, Listing(a))


@fault("one node never comes", clear=["node", "1|one"])
def never_comes(h):
    a = h.dataset("a")
    h.cluster(2)[0].open(a, start_timeout="4s")
    raise wrong("no error")


@fault("one node has one file more", clear=["node", "dataset|samples|listing"])
def one_file_more(h):
    a, at, flags = copies(h)
    h.sample(h.tmp / "n1/class2/extra.jpg")
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault("one node has no dataset at the path: its rank must be told so, and the other which node is missing", clear=["node"])
def no_dataset(h):
    a, at, flags = copies(h)
    shutil.rmtree(h.tmp / "n1")
    h.folder("n1")
    ranks = h.cluster(2, *flags)
    for r in ranks:
        r.send_open(at, start_timeout="6s")
    with expecting(h, "train"):
        ranks[1].answer()
    ranks[0].answer()
    raise wrong("no error")


@fault("one node's copy has one file of another size", clear=["node", "dataset|samples|listing|file"])
def one_size_differs(h):
    a, at, flags = copies(h)
    h.sample(h.tmp / "n1/class2/003.jpg", 999)
    h.date(h.tmp / "n1", T0)
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault("one node's copy has classes of other names", clear=["node", "dataset|class|listing"])
def classes_differ(h):
    a, at, flags = copies(h)
    (h.tmp / "n1/class2").rename(h.tmp / "n1/class02")
    h.date(h.tmp / "n1", T0)
    open_all(h.cluster(2, *flags), at, start_timeout="6s")
    raise wrong("no error")


@fault("nodes say different seeds", clear=["seed"])
def seeds_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="6s", seed=i)
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes say different transforms", clear=["transform"])
def transforms_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="6s", transform=f"[T.Reshape({i + 1}, 4, 4, 'uint8')]")
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes say different policies and on_error", clear=["policy|on_error"])
def policies_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        r.send_open(a, start_timeout="6s", policy=("cooperative", "minio")[i], on_error=("raise", "skip")[i])
    all_of(ranks, lambda c: None)
    raise wrong("no error")


@fault("nodes have different memory, cache directories and thread counts, which is their own affair")
def rooms_differ(h):
    a = h.dataset("a")
    ranks = h.cluster(2)
    for i, r in enumerate(ranks):
        keys = [{"memory": "5KB", "source_threads": 1}, {"memory": 0, "cache_dir": str(h.tmp / "c")}][i]
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


@fault("a file is gone on both nodes when it is needed: ranks that have not ended are told of the same one", clear=["004.jpg"])
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
    # Nothing keeps these ranks in step: one may have had all of its epoch before the other comes to the file.
    if not told or not all("004.jpg" in e.message for e in told):
        raise Verdict(RAW, f"{len(told)} of 2 ranks were told: {[str(e)[:80] for e in told]}")
    raise told[0]


def with_caches(h, ranks, path, epochs=(0, 1), **keys):
    for r in ranks:
        r.send_open(path, memory=0, cache_dir=str(h.tmp / f"cache{r.rank}"), start_timeout="10s", **keys)
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


@fault("all files are rewritten in place, with mtimes restored, between two runs of two nodes with cache directories", item=4)
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


@fault("one node's cache directory was copied from a node of another job, whose dataset has equal names, sizes and times", item=2)
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


@fault("nodes see the dataset through symlinks that are put to another dataset before the second loader")
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


FLOOD = r"""
import os, random, resource, select, socket, struct, sys, threading, time
how, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
held = []
noise = random.Random(1).randbytes(1 << 16)
START = {
    "idle": b"", "noise": noise[:3000], "one": b"\n",
    "gossip": b"\x0a" + struct.pack(">I", (20 << 20) - 1), "label": b"\xf4\xff" + b"x" * 255 + b"\x0a" + struct.pack(">I", (20 << 20) - 1),
    "hello": b"HDMX" + struct.pack("<HH", 1, 304) + b"\x01\0" + struct.pack("<H", 4096) + bytes(100),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0" + b"".join(b"\x00\x40\x00\x01\x00" + struct.pack(">I", i * 2 + 1) + b"\0" * 16384 for i in range(60)),
    "http1": b"POST /hdmlp.cluster.v1.Control/Attend HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n",
    "slow": b"GET /metrics HTTP/1.1\r\nX: ", "tls": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03",
}
BODY = {"gossip": (20 << 20) - 100, "label": (20 << 20) - 100, "http1": 8 << 20, "slow": 4 << 20}.get(how, 0)
if how == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(count):
        n = random.randrange(1, 1400)
        s.sendto(bytes([random.choice([0, 1, 6, 7, 8, 9, 10, 12, 244, 255])]) + noise[i % 60000:i % 60000 + n], (host, port))
    print("flooded", flush=True)
    time.sleep(30)
whole = memoryview(START[how] + bytes(BODY))
left = {}
sent = 0
for i in range(count):
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((host, port))
    except OSError:
        continue
    s.setblocking(False)
    held.append(s)
    if whole:
        left[s] = 0
until = time.monotonic() + 6
while left and time.monotonic() < until:
    ready = select.select([], list(left)[:900], [], 1)[1]
    if not ready:
        break
    for s in ready:
        try:
            n = s.send(whole[left[s]:left[s] + (1 << 18)])
            sent += n
            left[s] += n
        except BlockingIOError:
            continue
        except OSError:
            left.pop(s)
            continue
        if left[s] == len(whole):
            left.pop(s)
print("flooded:", len(held), "connections,", sent >> 20, "MiB", flush=True)
time.sleep(30)
"""


def flooded(h, how, offset, count, limit=450, **keys):
    a = h.dataset("a")
    group = h.memory(limit << 20)
    ranks = h.cluster(2, cgroup=group)
    open_all(ranks, a, memory="20MB", port=29510, start_timeout="10s", **keys)
    together(ranks, Listing(a), [0])
    host = ranks[0].run("import os; result = os.environ['MASTER_ADDR']")
    before = max(d.rss() for d in h.daemons())
    process = h.on_node(1, sys.executable, "-c", FLOOD, how, host, str(29510 + offset), str(count), wait=False)
    line = process.stdout.readline()
    if "flooded" not in line:
        raise Verdict("harness failed", line + process.stdout.read())
    after = max((d.rss() for d in h.daemons()), default=0)
    together(ranks, Listing(a), [1, 2])
    return f"{line.strip()}; the largest daemon went from {before >> 20} to {after >> 20} MiB"


@fault("60 connections without the secret to the failure-detection port each send 20 MiB of a message; 450 MiB of memory", item=5)
def flood_gossip(h):
    return flooded(h, "gossip", 2, 60)


@fault("60 connections to the failure-detection port send a label and 20 MiB", item=5)
def flood_gossip_label(h):
    return flooded(h, "label", 2, 60)


@fault("1,500 silent connections to the failure-detection port", item=5)
def flood_gossip_idle(h):
    return flooded(h, "idle", 2, 1500)


@fault("30,000 datagrams of noise to the failure-detection port", item=5)
def flood_gossip_udp(h):
    return flooded(h, "udp", 2, 30_000)


@fault("1,500 silent connections to the port of samples", item=5)
def flood_samples_idle(h):
    return flooded(h, "idle", 1, 1500)


@fault("1,000 connections that send half a HELLO to the port of samples", item=5)
def flood_samples_hello(h):
    return flooded(h, "hello", 1, 1000)


@fault("300 connections of noise to the port of samples", item=5)
def flood_samples_noise(h):
    return flooded(h, "noise", 1, 300)


@fault("1,500 silent connections to node 0's control port", item=5)
def flood_control_idle(h):
    return flooded(h, "idle", 0, 1500)


@fault("100 HTTP/2 connections to node 0's control port, each with 60 streams and 1 MB of headers that do not end", item=5)
def flood_control_http2(h):
    return flooded(h, "http2", 0, 100)


@fault("60 HTTP/1 requests to node 0's control port, each with 8 MiB of a body that does not end", item=5)
def flood_control_http1(h):
    return flooded(h, "http1", 0, 60)


@fault("300 TLS hellos that do not end to node 0's control port, with tls=on", item=5)
def flood_control_tls(h):
    return flooded(h, "tls", 0, 300, tls="on")


@fault("500 slow requests to the metrics port, each with a header of 4 MiB that does not end; 300 MiB of memory", item=5)
def flood_metrics(h):
    a = h.dataset("a")
    client = h.client(env={"HDMLP_METRICS": "127.0.0.1:9400"}, cgroup=h.memory(300 << 20)).open(a, memory="20MB")
    process = subprocess.Popen([sys.executable, "-c", FLOOD, "slow", "127.0.0.1", "9400", "500"], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    client.right(Listing(a), [0, 1])
    h.client().open(a, name="two").right(Listing(a))


@fault("floods of all ports at the same time while the nodes of a job start", item=5)
def flood_at_the_start(h):
    a = h.dataset("a")
    ranks = h.cluster(2, cgroup=h.memory(450 << 20))
    host = ranks[0].run("import os; result = os.environ['MASTER_ADDR']")
    ranks[0].send_open(a, memory="20MB", port=29510, start_timeout="15s")
    time.sleep(1)
    floods = [h.on_node(1, sys.executable, "-c", FLOOD, how, host, str(29510 + offset), "100", wait=False)
              for how, offset in (("idle", 0), ("http2", 0), ("hello", 1), ("gossip", 2))]
    time.sleep(1)
    ranks[1].send_open(a, memory="20MB", port=29510, start_timeout="15s")
    all_of(ranks, lambda c: None)
    together(ranks, Listing(a), [0, 1])
    for process in floods:
        process.kill()
