"""What scripts do to the interface: states, epochs, forks, threads, directories."""
import json

from harness import Listing, RAW, SEED, Told, Verdict, all_of, expecting, fault, same, together, wrong


@fault("a state of one dataset is loaded into a loader of another", clear=["dataset|fingerprint"])
def state_of_another_dataset(h):
    a, b = h.dataset("a"), h.dataset("b", per_class=16)
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    client.open(b)
    client.ask("load", state=state)
    client.ask("iter")
    same(client.ask("next"), client.expected(Listing(b))[4:])


@fault("a state of a dataset is loaded for its like: equal names, sizes and times, other bytes", clear=["dataset|fingerprint|content"], item=2)
def state_of_its_like(h):
    a, b = h.dataset("a", salt="a", mtime=10**9), h.dataset("b", salt="b", mtime=10**9)
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    h.open(b, name="two").ask("load", state=state)
    raise wrong("the state of another dataset was accepted")


@fault("a state is loaded after files were added", clear=["dataset|fingerprint"])
def state_after_files_were_added(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    client.end()
    h.stop_daemon()
    h.sample(a / "class1/999.jpg")
    h.open(a).ask("load", state=state)
    raise wrong("the state of another dataset was accepted")


@fault("a state is loaded after one file was rewritten with other bytes of equal size", clear=["dataset|fingerprint|content"])
def state_after_a_rewrite(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    got = client.ask("next", n=4)
    state = client.ask("state")
    client.end()
    h.stop_daemon()
    h.sample(a / "class1/004.jpg", (a / "class1/004.jpg").stat().st_size, salt="new")
    again = h.open(a)
    again.ask("load", state=state)
    again.ask("iter")
    same(again.ask("next"), again.expected(Listing(a))[4:])


@fault("a state of two ranks is loaded by one and by four, and back, in the middle of epochs")
def state_of_another_world(h):
    a = h.dataset("a", per_class=20)  # 80 samples
    listing, state = Listing(a), None
    step = 0
    for world, batch in ((2, 10), (1, 20), (4, 5), (2, 10)):
        ranks = [h.client() for _ in range(world)]
        for i, r in enumerate(ranks):
            r.send_open(a, rank=i, world_size=world, batch=batch, name=f"of {world} at {step}")
        for r in ranks:
            r.answer()
        if state:
            all_of(ranks, lambda c: c.send("load", state=state))  # noqa: B023
        all_of(ranks, lambda c: c.send("iter"))
        got = all_of(ranks, lambda c: c.send("next", n=1))
        for r, one in zip(ranks, got):
            same(one, r.expected(listing)[step:step + 1], what=f"rank {r.rank} of {world} at step {step}")
        step += 1
        state = json.loads(json.dumps(ranks[0].ask("state")))
        for r in ranks:
            r.end()


@fault("a state of another seed is loaded", clear=["seed"])
def state_of_another_seed(h):
    a = h.dataset("a")
    state = h.open(a, seed=1).ask("state")
    h.open(a, seed=2, name="two").ask("load", state=state)
    raise wrong("the state of another seed was accepted")


@fault("states that somebody edited are loaded: negative, huge, of wrong types, empty, no dictionary", clear=None)
def state_edited(h):
    client = h.open(h.dataset("a"))
    good = client.ask("state")
    bad = [{**good, "epoch": -1}, {**good, "step": 10**9}, {**good, "step": "3"}, {**good, "epoch": 2**70}, {**good, "step": 1.5}, {}, [], None, 7,
           {**good, "epoch": None}]
    for state in bad:
        try:
            client.ask("load", state=state)
            client.ask("iter")
            client.ask("next", n=1)
        except Told as e:
            if not e.ours:
                raise Verdict(RAW, f"{str(state)[-60:]} gave {e}") from None
            continue
        raise wrong(f"the state ...{str(state)[-80:]} was accepted")
    client.ask("load", state=good)
    client.ask("iter")
    same(client.ask("next"), client.expected(Listing(h.tmp / "a")))


@fault("set_epoch forwards, backwards, twice, and again after a break")
def set_epoch_variants(h):
    a = h.dataset("a")
    client, listing = h.open(a), Listing(a)
    client.right(listing, [5, 2, 2, 0, 1000])
    client.ask("iter", epoch=3)
    same(client.ask("next", n=2), client.expected(listing, 3)[:2])
    client.run("loader.set_epoch(9); loader.set_epoch(4)")
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 4))
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 5), what="the epoch after")


@fault("set_epoch while an epoch is under way leaves that one as it is")
def set_epoch_under_way(h):
    a = h.dataset("a")
    client, listing = h.open(a), Listing(a)
    client.ask("iter", epoch=0)
    got = client.ask("next", n=2)
    client.run("loader.set_epoch(6)")
    same(got + client.ask("next"), client.expected(listing, 0))
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 6))


@fault("set_epoch with -1, 2**40, 1.5, a text and None")
def set_epoch_of_nonsense(h):
    a = h.dataset("a")
    client = h.open(a, epochs=3)
    for value in ("-1", "2**40", "1.5", "'x'", "None", "3"):
        try:
            client.run(f"loader.set_epoch({value}); next(iter(loader))")
        except Told as e:
            if not e.ours and e.name not in ("ValueError", "TypeError"):
                raise
            continue
        raise wrong(f"set_epoch({value}) was accepted, of 3 epochs")
    client.right(Listing(a), [1])


@fault("all batches of an epoch are kept until its end, with a staging buffer of two batches")
def batches_kept(h):
    a = h.dataset("a", size=60_000, per_class=30)
    client = h.open(a, staging_buffer="700KB")
    client.ask("iter")
    client.ask("keep")
    same(client.ask("kept"), client.expected(Listing(a)))
    client.right(Listing(a), [1])


@fault("batches are looked at after the loader was closed and the daemon killed")
def batches_outlive_the_daemon(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    client.ask("keep")
    client.ask("close")
    h.stop_daemon(hard=True)
    same(client.ask("kept"), client.expected(Listing(a)))


@fault("a script writes into a sample and into the labels")
def written_into(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    client.run("""
batch = next(iterator)
try:
    batch[0][0][0] = 1
    result = "written"
except TypeError:
    result = "refused"
import numpy as np
try:
    np.frombuffer(batch[0][0], "u1").flags.writeable = True
    result = "made writable"
except ValueError:
    pass
batch[1][:] = -1
names["result"] = result
""")
    if client.run("result = names['result']") != "refused":
        raise wrong("a sample could be written to")
    client.right(Listing(a), [0, 1])


@fault("two iterators of one loader, the older one asked again")
def two_iterators(h):
    a = h.dataset("a")
    client = h.open(a)
    client.run("first = iter(loader); next(first); loader.set_epoch(0); iterator = iter(loader)")
    same(client.ask("next"), client.expected(Listing(a)))
    client.run("iterator = first")
    same(client.ask("next"), client.expected(Listing(a))[1:], what="the older iterator")


@fault("a break in the middle of each of five epochs, at another place")
def breaks(h):
    a = h.dataset("a")
    client, listing = h.open(a), Listing(a)
    for e in range(5):
        client.ask("iter")
        same(client.ask("next", n=e + 1), client.expected(listing, e)[:e + 1], what=f"epoch {e}")


@fault("a global batch larger than the dataset")
def batch_larger_than_the_dataset(h):
    a = h.dataset("a", classes=2, per_class=3)
    h.open(a, batch=50).right(Listing(a))


@fault("worlds of 3 and batches of 7 that nothing divides, padded and with drop_last")
def nothing_divides(h):
    a = h.dataset("a", classes=5, per_class=13)
    for drop in (False, True):
        ranks = [h.client() for _ in range(3)]
        for i, r in enumerate(ranks):
            r.send_open(a, rank=i, world_size=3, batch=7, drop_last=drop, name=f"drop {drop}")
        for r in ranks:
            r.answer()
        together(ranks, Listing(a), [0, 1])


@fault("a dataset of one sample, for two ranks")
def one_sample(h):
    a = h.dataset("a", classes=1, per_class=1)
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, batch=1)
    for r in ranks:
        r.answer()
    together(ranks, Listing(a), [0, 1])


@fault("seeds 0, 2**63 and 2**64 - 2; then -1, 2**64 and 1.5, which are none", clear=["seed"])
def seeds(h):
    a = h.dataset("a", classes=2)
    client = h.client()
    for seed in (0, 2**63, 2**64 - 2):
        client.open(a, seed=seed).right(Listing(a), what=f"seed {seed}")
    for seed in (-1, 2**64):
        with expecting(h, "seed"):
            client.open(a, seed=seed)
    client.open(a, seed=1.5)
    raise wrong("the seed 1.5 was accepted")


@fault("ranks of one job say different seeds", clear=["seed"])
def seeds_differ(h):
    a = h.dataset("a")
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, seed=i)
    for r in ranks:
        r.answer()
    raise wrong("different seeds were accepted")


@fault("ranks of one job say different transforms", clear=["transform"])
def transforms_differ(h):
    a = h.dataset("a", size=768)
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, transform=f"[T.Reshape({i + 1}, 4, 4, 'uint8')]")
    for r in ranks:
        r.answer()
    raise wrong("different transforms were accepted")


@fault("ranks of one job say different on_error, memory and batch sizes", clear=["batch|on_error|memory"])
def keys_differ(h):
    a = h.dataset("a")
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, batch=5 + i, on_error=("raise", "skip")[i])
    for r in ranks:
        r.answer()
    raise wrong("different batch sizes were accepted")


@fault("torch's own loader is replaced word for word: ImageFolder, a DistributedSampler, worlds of one")
def torch_script(h):
    a = h.dataset("a")
    h.open(a, api="torch").right(Listing(a), [0, 1, 5])


@fault("a transform of the script's own raises in a worker", clear=["fails on purpose"])
def transform_raises(h):
    a = h.dataset("a")
    client = h.client()
    try:
        client.run(f"""
import hdmlp.torch as ht
def bad(x):
    raise RuntimeError("fails on purpose")
loader = ht.DataLoader(ht.ImageFolder({str(a)!r}, bad, loader=bytes), 5, seed=1, num_workers=2, shuffle=True)
next(iter(loader))
""")
    except Told as e:
        if "on purpose" not in e.message:
            raise
        e.ours = True  # as with torch, it is the script's own error that comes out
        raise
    raise wrong("no error")


@fault("the worker processes are killed with kill -9", clear=["worker"])
def workers_killed(h):
    a = h.dataset("a")
    client = h.client()
    client.run(f"""
import hdmlp.torch as ht, os, signal, subprocess
def same(x):
    return x
loader = ht.DataLoader(ht.ImageFolder({str(a)!r}, same, loader=bytes), 5, seed=1, num_workers=2, collate_fn=lambda b: ([x for x, _ in b], [y for _, y in b]), prefetch_factor=1, shuffle=True)
iterator = iter(loader)
next(iterator)
for pid in subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout.split():
    if b"serve" not in open(f"/proc/{{pid}}/cmdline", "rb").read():
        try:
            os.kill(int(pid), 9)
        except ProcessLookupError:
            pass
""")
    got = client.ask("next")
    raise wrong(f"{len(got)} batches after all workers had been killed")


@fault("a relative path, and os.chdir between the dataset and the loader, and before the iteration")
def chdir_before_iteration(h):
    a = h.dataset("a")
    client = h.client()
    client.run("""
import hdmlp.data as hd, os
folder = hd.Folder("a")
os.chdir("/")
loader = hd.DataLoader(folder, 5, seed=7, memory=0)
os.chdir("/proc")
""")
    client.job = {"seed": SEED, "batch": 5}
    client.right(Listing(a), [0, 1])


@fault("two processes with the same relative path in different directories share a daemon")
def relative_paths(h):
    a, b = h.dataset("one/a", salt="a", mtime=10**9), h.dataset("two/a", salt="b", mtime=10**9)
    for folder in (a, b):
        h.client(cwd=folder.parent).open("a", name=str(folder)).right(Listing(folder), [0, 1], what=str(folder.parent.name))


@fault("paths with .., //, a trailing slash and a dot, of a symlink's parent")
def odd_paths(h):
    a = h.dataset("x/y/a")
    (h.tmp / "link").symlink_to(h.tmp / "x/y")
    client = h.client()
    for path in (f"{h.tmp}//x/./y/a/", f"{h.tmp}/link/../y/a", f"{h.tmp}/x/y/a/."):
        client.open(path).right(Listing(path), what=path)


@fault("a class directory is called '..jpg', another '-', one ' ', one with a newline")
def odd_class_names(h):
    a = h.folder("a")
    for name in ("..jpg", "-", " ", "new\nline", "per%cent", "\u00e9", "e\u0301", "\\", "a'b\"c", "~"):
        (a / name).mkdir()
        for i in range(3):
            h.sample(a / name / f"{i}.jpg")
    client = h.open(a)
    client.right(Listing(a), [0, 1])
    if client.run("result = list(loader.classes)") != Listing(a).classes:
        raise wrong("the classes' names are not ImageFolder's")


@fault("the environment has no HOME, no XDG_*, no PATH, and a TMPDIR that is not there")
def bare_environment(h):
    a = h.dataset("a")
    env = {k: None for k in h.env if k.startswith("XDG_")}
    h.client(env={**env, "HOME": None, "PATH": None, "TMPDIR": "/nowhere", "LANG": None}).open(a).right(Listing(a), [0, 1])


@fault("a configuration key that is none, sizes that are none, a value out of range", clear=["source_threads"])
def wrong_keys(h):
    a = h.dataset("a")
    client = h.client()
    for key, value in (("memori", "1GB"), ("memory", "lots"), ("memory", "-1"), ("on_error", "shrug"), ("staging_buffer", "0"), ("cache_size", "1XB")):
        with expecting(h, key):
            client.open(a, **{key: value})
    client.open(a, source_threads=-3)
    raise wrong("source_threads=-3 was accepted")


@fault("two processes are the same rank of the same job: what the second is told, and its exit status", clear=["rank"], item=14)
def same_rank_twice(h):
    a = h.dataset("a")
    first = h.open(a, rank=0, world_size=2)
    second = h.client()
    try:
        second.open(a, rank=0, world_size=2)
    except Told as e:
        status, last = second.raise_uncaught()
        if status != 1:
            raise Verdict(RAW, f"exit status {status} for {e}") from None
        first.right(Listing(a))
        raise
    raise wrong("both were accepted")
