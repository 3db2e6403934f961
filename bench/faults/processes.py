"""Processes that die, stop, fork, and are not what they claim; sockets that others have."""

import json
import os
import signal
import time

from handles import all_of
from hostile_files import nobody
from machine import NOBODY, until
from oracle import SEED, Listing, same
from verdicts import RAW, Told, Verdict, fault, wrong


@fault("the daemon is killed with kill -9 in the middle of an epoch", clear=["daemon"], dies=True)
def daemon_killed(h):
    a = h.dataset("a", size=200_000)
    client = h.open(a, memory=0, staging_buffer="3MB", prefetch_batches=2)
    client.ask("iter")
    client.ask("next", n=2)
    h.daemon().signal(signal.SIGKILL)
    client.ask("next")
    raise wrong("no error")


@fault(
    "the daemon was killed with kill -9; the process makes a new loader and goes on from its state"
)
def daemon_killed_and_on(h):
    a = h.dataset("a")
    listing = Listing(a)
    client = h.open(a)
    client.ask("iter")
    got = client.ask("next", n=4)
    state = client.ask("state")
    h.stop_daemon(hard=True)
    client.open(a)
    client.ask("load", state=state)
    client.ask("iter")
    same(got + client.ask("next"), client.expected(listing))


@fault("the daemon gets SIGTERM while a job runs", clear=["daemon"], dies=True)
def daemon_terminated(h):
    a = h.dataset("a", size=200_000)
    client = h.open(a, memory=0, staging_buffer="3MB", prefetch_batches=2)
    client.ask("iter")
    got = client.ask("next", n=2)
    h.daemon().signal(signal.SIGTERM)
    same(got + client.ask("next"), client.expected(Listing(a)))


@fault("the daemon is stopped for 3 s (SIGSTOP, SIGCONT)")
def daemon_stopped(h):
    a = h.dataset("a", size=100_000)
    client = h.open(a, memory=0, staging_buffer="1MB", prefetch_batches=2)
    client.ask("iter")
    got = client.ask("next", n=2)
    daemon = h.daemon()
    daemon.signal(signal.SIGSTOP)
    client.send("next")
    time.sleep(3)
    daemon.signal(signal.SIGCONT)
    same(got + client.answer(), client.expected(Listing(a)))


@fault(
    "the daemon is stopped (SIGSTOP) for good, and a new process opens a dataset",
    clear=["daemon|answer"],
    dies=True,
)
def daemon_stopped_for_good(h):
    a = h.dataset("a")
    h.open(a)
    daemon = h.daemon()
    daemon.signal(signal.SIGSTOP)
    try:
        h.client().open(a, within=38, name="two")
        raise wrong("no error")
    finally:
        daemon.signal(signal.SIGCONT)


@fault("a training process is killed with kill -9, and restarted as the same rank")
def rank_killed(h):
    a = h.dataset("a")
    for _ in range(3):
        client = h.open(a, rank=0, world_size=1, name="same")
        client.ask("iter")
        client.ask("next", n=3)
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    h.open(a, rank=0, world_size=1, name="same").right(Listing(a), [0, 1])


@fault("one rank of two is killed with kill -9; the other goes on")
def other_rank_killed(h):
    a = h.dataset("a")
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2)
    for r in ranks:
        r.answer()
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    got = all_of(ranks, lambda c: c.send("next", n=2))
    os.kill(ranks[1].pid, signal.SIGKILL)
    ranks[1].wait()
    same(got[0] + ranks[0].ask("next"), ranks[0].expected(Listing(a)))
    ranks[0].right(Listing(a), [1, 2])


@fault("one rank of two is stopped for 3 s; the other goes on")
def rank_stopped(h):
    a = h.dataset("a", size=50_000)
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, staging_buffer="1MB")
    for r in ranks:
        r.answer()
    all_of(ranks, lambda c: c.send("iter", epoch=0))
    os.kill(ranks[1].pid, signal.SIGSTOP)
    try:
        same(ranks[0].ask("next", 10), ranks[0].expected(Listing(a)))
        time.sleep(2)
    finally:
        os.kill(ranks[1].pid, signal.SIGCONT)
    same(ranks[1].ask("next"), ranks[1].expected(Listing(a)))


@fault("ranks die and come back at random moments, six times, while another one iterates")
def ranks_die_at_random(h):
    a = h.dataset("a", size=5000)
    listing = Listing(a)
    steady = h.open(a, rank=0, world_size=2)
    for e in range(3):
        other = h.client().open(a, rank=1, world_size=2)
        other.ask("iter", epoch=e)
        n = h.random.randrange(1, 6)
        same(other.ask("next", n=n), other.expected(listing, e)[:n], what="the other rank")
        other.send("next")
        time.sleep(h.random.random() / 50)
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        steady.right(listing, [e])


@fault("Ctrl-C: after `linger` nothing of the job is left")
def nothing_left(h):
    a = h.dataset("a")
    client = h.client(env={"HDMLP_LINGER": "1s"}).open(a)
    client.ask("iter")
    client.ask("next", n=2)
    os.kill(client.pid, signal.SIGINT)
    client.send("exit")
    client.wait()
    until(lambda: not h.daemons(), 6, "the end of the daemon")
    left = [p for p in list((h.tmp / "t").iterdir()) + list((h.tmp / "run").iterdir())]
    if left:
        raise wrong(f"left behind: {left}")


@fault(
    "a script forks during the iteration, and the child ends by sys.exit, by os._exit, and by an "
    "exception"
)
def forks(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    got = client.ask("next", n=2)
    for how in ("os._exit(0)", "sys.exit(0)", "raise RuntimeError"):
        client.run(
            f"""
import os, sys, subprocess
pid = os.fork()
if pid == 0:
    stream = None
    {how}
result = os.waitpid(pid, 0)[1]
""".replace("stream = None", "control_lost = True")
        ) if how == "os._exit(0)" else client.run(f"""
import os, gc
pid = os.fork()
if pid == 0:
    import atexit
    code = 0
    try:
        {"raise SystemExit" if "exit" in how else how}
    except BaseException:
        del iterator
        loader.close() if {how.startswith("raise")!r} else None
        gc.collect()
        atexit._run_exitfuncs()
    os._exit(0)
result = os.waitpid(pid, 0)[1]
""")
        got += client.ask("next", n=2)
    same(got + client.ask("next"), client.expected(Listing(a)))
    client.right(Listing(a), [1])


@fault(
    "a forked child continues with its parent's iterator, as both may with torch's loader",
    clear=["fork|process"],
)
def fork_iterates(h):
    a = h.dataset("a", size=20_000)
    client = h.open(a, memory=0, staging_buffer="400KB")
    client.ask("iter")
    client.ask("next", n=2)
    told = json.loads(
        client.run(
            """
import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    import signal
    signal.alarm(6)
    try:
        found = do_next()
    except BaseException as e:
        found = told(e)
    with os.fdopen(w, "w") as f:
        json.dump(found, f)
    os._exit(0)
os.close(w)
with os.fdopen(r) as f:
    result = f.read()
result = result or '{"error": "none", "ours": false, "message": "the child did not come back"}'
os.waitpid(pid, 0)
""",
            within=12,
        )
    )
    rest = client.expected(Listing(a))[2:]
    same(client.ask("next"), rest, what="the parent")
    if isinstance(told, dict):
        raise Told(told["error"], told["ours"], told["message"], told.get("trace", ""), 0)
    same(told, rest, what="the child")


@fault("the loader is made in one thread, iterated in another, and closed in a third")
def threads(h):
    a = h.dataset("a")
    client = h.client()
    client.job = {"seed": SEED, "batch": 5}
    got = client.run(f"""
import threading, hdmlp.data as hd
found = []
def make():
    global loader
    loader = hd.DataLoader({str(a)!r}, 5, seed={SEED})
def use():
    for batch in loader:
        found.append(shown(batch))
for step in (make, use, use, lambda: loader.close()):
    t = threading.Thread(target=step); t.start(); t.join()
result = found
""")
    same(got, client.expected(Listing(a)) + client.expected(Listing(a), 1))


@fault("eight threads take batches from one iterator")
def threads_at_once(h):
    a = h.dataset("a", per_class=50)
    client = h.open(a)
    client.ask("iter")
    h.clear = ["thread|generator|iterat"]
    got = client.run("""
import threading
found, errors = [], []
def use():
    try:
        for batch in iterator:
            found.append(shown(batch))
    except BaseException as e:
        errors.append(type(e).__name__ + ": " + str(e))
ts = [threading.Thread(target=use) for _ in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
result = [sorted(found), errors]
""")
    if got[1] and "already executing" not in got[1][0]:
        raise Verdict(RAW, str(got[1][:2]))
    if got[1]:
        raise Told("HDMLPError" if "Error:" in got[1][0] else "", True, got[1][0], "", 0)
    same(got[0], sorted(client.expected(Listing(a))))


@fault("a script ignores SIGCHLD, has umask 777, and closed its standard streams")
def odd_process(h):
    a = h.dataset("a")

    def before():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.umask(0o777)
        for fd in (0, 1, 2):
            os.close(fd)

    client = h.client(before=before, env=nobody(h), user=None)
    h.clear = ["home|permission|cache|run"]
    client.open(a, cache_dir=str(h.tmp / "c"), memory=0).right(Listing(a), [0, 1])


@fault("an unprivileged user's script has umask 777", clear=["permission|home|cache|run"])
def umask_of_a_user(h):
    a = h.dataset("a")
    h.folder("w").chmod(0o777)
    client = h.client(before=lambda: os.umask(0o777), env=nobody(h), user=NOBODY)
    client.open(a, cache_dir=str(h.tmp / "w/c"), memory=0).right(Listing(a), [0, 1])
