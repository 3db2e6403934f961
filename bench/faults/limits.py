"""Too little of everything: memory, files, processes, sizes."""

import os
import resource
import subprocess
import sys

from handles import together
from hostile_files import nobody
from machine import NOBODY, Cgroup, until
from oracle import Listing
from verdicts import RAW, Told, Verdict, fault, wrong


def heavy(h, megabytes=170, size=1 << 20):
    """A dataset of that size, mostly holes."""
    a = h.folder("a")
    for c in range(2):
        (a / f"class{c}").mkdir()
    for i in range(megabytes):
        with open(a / f"class{i % 2}/{i:03}.jpg", "wb") as f:
            f.write(b"%d" % i)
            f.truncate(size)
    return a


@fault(
    'memory="150MB" in a control group of 200 MB; the dataset has 170 MB',
    clear=["memory", r"\d.*B"],
    item=10,
    limit=60,
)
def memory_near_the_limit(h):
    a = heavy(h)
    h.client(cgroup=h.memory(200 << 20)).open(a, memory="150MB").right(
        Listing(a), [0, 1], within=30
    )


@fault('memory="300MB" in a control group of 200 MB', clear=["memory", r"\d.*B"], item=10)
def memory_above_the_limit(h):
    a = heavy(h)
    h.client(cgroup=h.memory(200 << 20)).open(a, memory="300MB").right(Listing(a), [0, 1])


@fault(
    "memory left to HDMLP in a control group of 200 MB; the dataset has 170 MB", item=10, limit=60
)
def memory_chosen_by_hdmlp(h):
    a = heavy(h)
    h.client(cgroup=h.memory(200 << 20)).open(a).right(Listing(a), [0, 1], within=30)


@fault(
    "two jobs, each with memory left to HDMLP, in a control group of 250 MB",
    clear=["memory", r"\d.*B"],
    item=10,
    limit=60,
)
def memory_of_two_jobs(h):
    a = heavy(h)
    group = h.memory(250 << 20)
    one = h.client(cgroup=group).open(a, name="one")
    one.right(Listing(a), [0], within=30)
    two = h.client(cgroup=group).open(a, name="two")
    two.right(Listing(a), [0], within=30)
    one.right(Listing(a), [1], within=30)


@fault(
    "a staging buffer of 150 MB in a control group of 200 MB, with 60 MB of cache",
    clear=["staging_buffer|memory", r"\d.*B"],
    item=10,
    limit=60,
)
def staging_near_the_limit(h):
    a = heavy(h, 100)
    h.client(cgroup=h.memory(200 << 20)).open(
        a, memory="60MB", staging_buffer="150MB", prefetch_batches=200
    ).right(Listing(a), [0, 1], within=30)


@fault(
    "four ranks' staging buffers in a control group of 160 MB",
    clear=["staging|memory", r"\d.*B"],
    item=10,
    limit=60,
)
def staging_of_four_ranks(h):
    a = heavy(h, 100)
    group = h.memory(160 << 20)
    ranks = [h.client(cgroup=group) for _ in range(4)]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=4, memory="10MB")
    for r in ranks:
        r.answer()

    together(ranks, Listing(a), [0, 1])


HOG = """
import sys, time
held = []
while True:
    held.append(bytearray(b'x') * (4 << 20))
    time.sleep(0.005)
"""


@fault(
    "the OOM killer takes the daemon, because another process of the control group allocates "
    "all memory",
    clear=["OOM|out of memory"],
    item=10,
    dies=True,
)
def oom_killer_named(h):
    a = h.dataset("a", size=200_000)
    group = h.memory(200 << 20)
    client = h.client(cgroup=group).open(a, memory=0, staging_buffer="3MB", prefetch_batches=2)
    client.ask("iter")
    client.ask("next", n=1)
    with open(f"/proc/{h.daemon().pid}/oom_score_adj", "w") as f:
        f.write("1000")
    hog = subprocess.Popen([sys.executable, "-c", HOG], preexec_fn=group.join)
    until(lambda: not h.daemons(), 10, "the OOM killer")
    hog.kill()
    client.ask("next")
    raise wrong("no error")


@fault(
    "memory=0, staging_buffer=1: sizes that leave room for nothing",
    clear=["staging_buffer|batch"],
    item=14,
)
def room_for_nothing(h):
    a = h.dataset("a")
    client = h.client()
    try:
        client.open(a, memory=0, staging_buffer="1").right(Listing(a))
        client.open(a, memory="1", staging_buffer="100").right(Listing(a))
    except Told as e:
        if "0 bytes" in e.message:
            raise Verdict(RAW, str(e)) from None
        raise


@fault("almost no memory is left to the control group: 40 MB", clear=["memory", r"\d.*B"], item=14)
def no_memory_left(h):
    a = h.dataset("a")
    group = h.memory(40 << 20)
    hog = subprocess.Popen(
        [sys.executable, "-c", "import time; x = bytearray(b'x') * (12 << 20); time.sleep(99)"],
        preexec_fn=group.join,
    )
    client = h.client(cgroup=group)
    try:
        client.open(a).right(Listing(a))
    except Told as e:
        if " 0 bytes" in e.message:
            raise Verdict(RAW, str(e)) from None
        raise
    finally:
        hog.kill()


def limited(**limits):
    def before():
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return before


@fault(
    "ulimit -f: files of at most 1 MB, and shared memory counts as such",
    clear=["file size|ulimit|FSIZE"],
    item=14,
)
def file_size(h):
    a = h.dataset("a", size=100_000)
    h.client(before=limited(FSIZE=1 << 20)).open(a).right(Listing(a), [0, 1])


@fault(
    "ulimit -f: files of at most 50 KB, and a cache_dir", clear=["file size|ulimit|FSIZE"], item=14
)
def file_size_and_cache_dir(h):
    a = h.dataset("a", size=3000)
    h.client(before=limited(FSIZE=50_000)).open(a, cache_dir=str(h.tmp / "c"), memory=0).right(
        Listing(a), [0, 1]
    )


@fault("ulimit -n: 24 open files", clear=["file|descriptor|NOFILE|ulimit"], dies=True)
def open_files(h):
    a = h.dataset("a")
    h.client(before=limited(NOFILE=24)).open(a, cache_dir=str(h.tmp / "c")).right(
        Listing(a), [0, 1]
    )


@fault("ulimit -n: 12 open files", clear=["file|descriptor|NOFILE|ulimit"], dies=True)
def hardly_any_open_files(h):
    a = h.dataset("a")
    h.client(before=limited(NOFILE=12)).open(a).right(Listing(a), [0, 1])


@fault(
    "30 jobs at a daemon that may have 64 open files",
    clear=["file|descriptor|NOFILE|ulimit"],
    dies=True,
    limit=60,
)
def open_files_of_many_jobs(h):
    a = h.dataset("a", classes=2)
    first = h.client(before=limited(NOFILE=64)).open(a)
    h.client().run(
        f"""
import hdmlp.data as hd
kept = []
for i in range(40):
    loader = hd.DataLoader({str(a)!r}, 5, seed=7, name=f"job {{i}}", memory=0)
    it = iter(loader)
    kept.append((loader, it, next(it)))
""",
        within=30,
    )
    first.right(Listing(a), [0, 1])


@fault("ulimit -v: 1 GB of address space", clear=["memory|address|ulimit"], dies=True)
def address_space(h):
    a = h.dataset("a")
    h.client(before=limited(AS=1 << 30)).open(a).right(Listing(a), [0, 1])


@fault(
    "ulimit -u: an unprivileged user may start nothing more",
    clear=["process|thread|fork|ulimit|resource"],
    dies=True,
)
def no_processes(h):
    a = h.dataset("a")
    client = h.client(user=NOBODY, env=nobody(h))
    client.run("import resource; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))")
    client.open(a).right(Listing(a), [0, 1])


@fault(
    "a control group of at most 12 tasks",
    clear=["process|thread|fork|task|pids|resource"],
    dies=True,
)
def few_tasks(h):
    a = h.dataset("a", per_class=40)
    group = Cgroup(h.token, "pids", max=12)
    h.client(cgroup=group).open(a).right(Listing(a), [0, 1], within=15)


@fault("a control group with a twentieth of a processor")
def little_cpu(h):
    a = h.dataset("a", classes=2)
    group = Cgroup(h.token, "cpu", cfs_period_us=100_000, cfs_quota_us=5_000)
    client = h.client()
    (group.folder / "cgroup.procs").write_text(str(client.pid))
    client.open(a, within=35).right(Listing(a), [0], within=35)


@fault("one processor, at the lowest priority")
def one_processor(h):
    a = h.dataset("a")

    def before():
        os.sched_setaffinity(0, {0})
        os.nice(19)

    h.client(before=before).open(a, within=30).right(Listing(a), [0, 1], within=30)


@fault("ulimit -l 0, -s 64 KB and -c 0")
def small_limits(h):
    a = h.dataset("a")
    h.client(before=limited(MEMLOCK=0, CORE=0)).open(a).right(Listing(a), [0, 1])


@fault("/dev/null and stderr of the starting process are a full pipe that no process reads")
def full_pipe(h):
    a = h.dataset("a")
    _r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, bytes(4096))
    except BlockingIOError:
        pass
    os.set_blocking(w, True)
    h.client(before=lambda: os.dup2(w, 2)).open(a).right(Listing(a), [0, 1])
