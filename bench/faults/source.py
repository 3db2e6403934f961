"""Sources that fail, hang, stop and come back. They are FUSE mounts of a folder
(bench/throttle)."""

import os
import signal
import time

from machine import bind, umount, until
from oracle import Listing, same
from verdicts import RAW, Told, Verdict, fault, wrong

LEAN = {
    "memory": 0,
    "staging_buffer": "400KB",
}  # with samples of 20 KB: nothing is cached, and little is read ahead


def source(h, *flags, **keys):
    a = h.dataset("real", **{"size": 20_000, **keys})
    at = h.tmp / "train"
    process = h.throttle(a, at, *flags)
    listing = Listing(a)
    return at, listing, process


def end(process, at):
    """Kills the server of a source: its open files fail with ENOTCONN."""
    process.kill()
    process.wait()


def again(h, at, real="real"):
    umount(at, lazy=True)
    return h.throttle(h.tmp / real, at)


@fault(
    "one file always gives EIO, with on_error=skip: the epoch must not stall for source_timeout",
    clear=None,
    item=11,
)
def bad_sector_skipped(h):
    at, listing, _ = source(h, "--fail", "004.jpg")
    client = h.open(at, **LEAN, on_error="skip", source_timeout="30s")
    client.right(listing, [0, 1], within=15, skip=["004.jpg"])


@fault("one file always gives EIO, with on_error=substitute", item=11)
def bad_sector_substituted(h):
    at, listing, _ = source(h, "--fail", "class1/004.jpg")
    listing.paths[19] = "bad"
    client = h.open(at, **LEAN, on_error="substitute", source_timeout="30s")
    client.right(listing, [0, 1], within=15, substitute=["bad"])


@fault(
    "one file always gives EIO, with on_error=raise",
    clear=["004.jpg", "input/output|EIO|read"],
    item=11,
)
def bad_sector_raised(h):
    at, listing, _ = source(h, "--fail", "004.jpg")
    h.open(at, **LEAN, source_timeout="6s").right(listing, within=15)


@fault("5 files of 100 always give EIO, with on_error=skip and a cache", item=11)
def bad_sectors_skipped(h):
    at, listing, _ = source(h, "--fail", "00[0-4].jpg", classes=4, per_class=25)
    client = h.open(at, on_error="skip", source_timeout="30s")
    client.right(listing, [0, 1], within=15, skip=[f"00{i}.jpg" for i in range(5)])


@fault(
    "all files always give EIO, with on_error=skip: that is the source's fault, not the samples'",
    clear=["jpg|source|train"],
    item=11,
)
def all_bad(h):
    at, _, _ = source(h, "--fail", "*.jpg")
    client = h.open(at, **LEAN, on_error="skip", source_timeout="4s")
    client.epoch(0, 15)
    raise Verdict(RAW, "an empty epoch, and no error")


@fault("a tenth of all reads give EIO, at random")
def flaky(h):
    at, listing, _ = source(h, "--fail-rate", "0.1")
    h.open(at, **LEAN).right(listing, [0, 1, 2])


@fault("reads of one file never return", clear=["004.jpg"])
def one_file_hangs(h):
    at, listing, _ = source(h, "--hang", "class1/004.jpg")
    h.open(at, **LEAN, source_timeout="3s").right(listing, within=15)


@fault("reads of one file never return, with on_error=skip", clear=["004.jpg"])
def one_file_hangs_skipped(h):
    at, listing, _ = source(h, "--hang", "004.jpg")
    h.open(at, **LEAN, source_timeout="3s", on_error="skip").right(
        listing, within=15, skip=["004.jpg"]
    )


@fault("all reads hang, and processes of the job get Ctrl-C; the daemon may not stay")
def all_hang_interrupted(h):
    at, _listing, _ = source(h, "--hang", "*.jpg")
    client = h.client(env={"HDMLP_LINGER": "1s"})
    client.send_open(at, **LEAN, source_timeout="60s")  # reads some files already
    time.sleep(1)
    os.kill(client.pid, signal.SIGINT)
    try:
        client.answer(5)
    except Told as e:
        if e.name != "KeyboardInterrupt":
            raise
    client.send("exit")
    client.wait(5)
    until(lambda: not h.daemons(), 8, "the end of the daemon")


@fault(
    "the source stops (SIGSTOP) before the scan: stat and getdents hang", clear=["train"], item=7
)
def stops_before_the_scan(h):
    at, _listing, process = source(h, "--attr-timeout", "0s")
    client = h.client()
    client.run("import hdmlp.data")
    process.send_signal(signal.SIGSTOP)
    try:
        client.open(at, within=12, source_timeout="3s")
        raise wrong("no error")
    finally:
        process.send_signal(signal.SIGCONT)


@fault(
    "the source stops during the scan of a dataset whose index is known", clear=["train"], item=7
)
def stops_before_the_second_scan(h):
    at, listing, process = source(h, "--attr-timeout", "0s")
    h.open(at, name="one").right(listing)
    process.send_signal(signal.SIGSTOP)
    try:
        h.client().open(at, within=12, source_timeout="3s", name="two")
        raise wrong("no error")
    finally:
        process.send_signal(signal.SIGCONT)


@fault("the source stops for 3 s in the middle of an epoch")
def stops_for_a_while(h):
    at, listing, process = source(h)
    client = h.open(at, **LEAN)
    client.ask("iter")
    got = client.ask("next", n=2)
    process.send_signal(signal.SIGSTOP)
    client.send("next")
    time.sleep(3)
    process.send_signal(signal.SIGCONT)
    same(got + client.answer(15), client.expected(listing))


@fault("the source stops and stays so", clear=["jpg|train|source"])
def stops_for_good(h):
    at, _listing, process = source(h)
    client = h.open(at, **LEAN, source_timeout="3s")
    client.ask("iter")
    client.ask("next", n=2)
    process.send_signal(signal.SIGSTOP)
    try:
        client.ask("next", 14)
        raise wrong("no error")
    finally:
        process.send_signal(signal.SIGCONT)


@fault(
    "the source's server dies and is mounted again at once, between two epochs of a job that "
    "does not cache",
    item=12,
)
def mounted_again(h):
    at, listing, process = source(h)
    client = h.open(at, **LEAN, source_timeout="8s", epochs=4)
    client.right(listing)
    end(process, at)
    again(h, at)
    client.right(listing, [1, 2], within=15)


@fault("the source's server dies in the middle of an epoch and is mounted again 2 s later", item=12)
def mounted_again_later(h):
    at, listing, process = source(h)
    client = h.open(at, **LEAN, source_timeout="10s")
    client.ask("iter")
    got = client.ask("next", n=2)
    end(process, at)
    client.send("next")
    time.sleep(2)
    again(h, at)
    same(got + client.answer(15), client.expected(listing))


@fault(
    "the source is unmounted lazily and mounted again as another instance, between two jobs of "
    "one daemon",
    item=12,
)
def mounted_again_between_jobs(h):
    at, listing, process = source(h)
    client = h.open(at, **LEAN, name="one")
    client.right(listing)
    client.end()
    end(process, at)
    again(h, at)
    h.open(at, **LEAN, name="two").right(listing)


@fault(
    "the source comes back with another dataset, of equal names, sizes and times",
    clear=["train|dataset|changed|sample"],
    item=12,
)
def mounted_again_with_another(h):
    at, listing, process = source(h, mtime=10**9)
    h.dataset("other", size=20_000, salt="other", mtime=10**9)
    client = h.open(at, **LEAN, source_timeout="4s", epochs=4)
    client.right(listing)
    end(process, at)
    again(h, at, "other")
    client.right(listing, [1, 2], within=15)


@fault("the source comes back in a container's mount namespace only, not in the daemon's", item=12)
def mounted_again_in_a_container(h):
    a = h.dataset("real", size=20_000)
    at = h.folder("train")
    h.open(h.dataset("x")).end()  # starts the daemon outside
    client = h.client(mounts=[(a, at)]).open(at, **LEAN, source_timeout="4s", epochs=5)
    listing = Listing(a)
    client.right(listing)
    h.clear = ["train|jpg|mount"]
    client.run(f"""
import ctypes
libc = ctypes.CDLL(None)
libc.umount2({os.fsencode(at)!r}, 2)
libc.mount({os.fsencode(a)!r}, {os.fsencode(at)!r}, None, ctypes.c_ulong(4096), None)
""")
    client.right(listing, [1, 2], within=12)


@fault("the source's server dies and does not come back", clear=["train|jpg|source"])
def gone_for_good(h):
    at, _listing, process = source(h)
    client = h.open(at, **LEAN, source_timeout="4s")
    client.ask("iter")
    client.ask("next", n=2)
    end(process, at)
    client.ask("next", 15)
    raise wrong("no error")


@fault("the source is unmounted with umount -l under a running job, and nothing is mounted there")
def unmounted_lazily(h):
    a = h.dataset("real", size=20_000)
    at = h.folder("train")
    bind(a, at)
    h.clear = ["train|jpg"]
    listing = Listing(at)
    client = h.open(at, **LEAN, source_timeout="4s", epochs=3)
    client.right(listing)
    umount(at, lazy=True)
    client.right(listing, [1, 2], within=12)


@fault("every open takes 60 ms")
def slow(h):
    at, listing, _ = source(h, "--latency", "60ms")
    h.open(at, **LEAN).right(listing, [0])


@fault("the source is read-only, and HOME and all XDG directories too", clear=None)
def everything_read_only(h):
    a = h.dataset("a")
    for path in (
        a,
        h.tmp / "home",
        h.tmp / "cache",
        h.tmp / "config",
        h.tmp / "run",
        h.tmp / "state",
        h.tmp / "data",
        h.tmp / "t",
    ):
        bind(path, path, readonly=True)
    h.open(a).right(Listing(a), [0, 1])


@fault("files come and go while the dataset is being scanned; then a second job opens it")
def changed_during_the_scan(h):
    import threading

    a = h.dataset("a", classes=20, per_class=20)
    stop = threading.Event()

    def churn():
        i = 0
        while not stop.wait(0.001):
            h.sample(a / f"class{i % 20}/extra{i % 7}.jpg", 100 + i % 9)
            if i % 3 == 0:
                (a / f"class{i % 20}/extra{i % 7}.jpg").unlink()
            i += 1

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    time.sleep(0.1)
    client = h.client()
    try:
        client.open(a, name="during")
    except Told as e:
        if not e.ours or "/a" not in e.message:
            raise
    finally:
        stop.set()
        thread.join()
    client.open(a, name="after").right(Listing(a), [0, 1])
