"""What scripts do to the interface: states, epochs, forks, threads, directories."""

from handles import together
from oracle import SEED, Listing, same
from verdicts import RAW, Told, Verdict, expecting, fault, wrong


@fault("all batches of an epoch are kept until its end, with a staging buffer of two batches")
def batches_kept(h):
    a = h.dataset("a", size=60_000, per_class=30)
    client = h.open(a, staging_buffer="700KB")
    client.ask("iter")
    client.ask("keep")
    same(client.ask("kept"), client.expected(Listing(a)))
    client.right(Listing(a), [1])


@fault("batches are read after the loader was closed and the daemon killed")
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
        same(client.ask("next", n=e + 1), client.expected(listing, e)[: e + 1], what=f"epoch {e}")


@fault("a global batch larger than the dataset")
def batch_larger_than_the_dataset(h):
    a = h.dataset("a", classes=2, per_class=3)
    h.open(a, batch=50).right(Listing(a))


@fault("world size 3 and batches of 7 that do not divide the dataset, padded and with drop_last")
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


@fault("seeds 0, 2**63 and 2**64 - 2; then -1, 2**64 and 1.5, which are invalid", clear=["seed"])
def seeds(h):
    a = h.dataset("a", classes=2)
    client = h.client()
    for seed in (0, 2**63, 2**64 - 2):
        client.open(a, seed=seed).right(Listing(a), what=f"seed {seed}")
    for seed in (-1, 2**64):
        with expecting("seed"):
            client.open(a, seed=seed)
    client.open(a, seed=1.5)
    raise wrong("the seed 1.5 was accepted")


@fault("ranks of one job set different seeds", clear=["seed"])
def seeds_differ(h):
    a = h.dataset("a")
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, seed=i)
    for r in ranks:
        r.answer()
    raise wrong("different seeds were accepted")


@fault("ranks of one job set different transforms", clear=["transform"])
def transforms_differ(h):
    a = h.dataset("a", size=768)
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, transform=f"[T.Reshape({i + 1}, 4, 4, 'uint8')]")
    for r in ranks:
        r.answer()
    raise wrong("different transforms were accepted")


@fault(
    "ranks of one job set different on_error, memory and batch sizes",
    clear=["batch|on_error|memory"],
)
def keys_differ(h):
    a = h.dataset("a")
    ranks = [h.client(), h.client()]
    for i, r in enumerate(ranks):
        r.send_open(a, rank=i, world_size=2, batch=5 + i, on_error=("raise", "skip")[i])
    for r in ranks:
        r.answer()
    raise wrong("different batch sizes were accepted")


@fault(
    "torch's own loader is replaced, its arguments unchanged: ImageFolder, a DistributedSampler, "
    "world size 1"
)
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
folder = ht.ImageFolder({str(a)!r}, bad, loader=bytes)
loader = ht.DataLoader(folder, 5, seed=1, num_workers=2, shuffle=True)
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
def collate(batch):
    return [x for x, _ in batch], [y for _, y in batch]
folder = ht.ImageFolder({str(a)!r}, same, loader=bytes)
loader = ht.DataLoader(folder, 5, seed=1, num_workers=2, collate_fn=collate, prefetch_factor=1,
                       shuffle=True)
iterator = iter(loader)
next(iterator)
children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True)
for pid in children.stdout.split():
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
        h.client(cwd=folder.parent).open("a", name=str(folder)).right(
            Listing(folder), [0, 1], what=str(folder.parent.name)
        )


@fault("paths with .., //, a trailing slash and a dot, of a symlink's parent")
def odd_paths(h):
    h.dataset("x/y/a")
    (h.tmp / "link").symlink_to(h.tmp / "x/y")
    client = h.client()
    for path in (f"{h.tmp}//x/./y/a/", f"{h.tmp}/link/../y/a", f"{h.tmp}/x/y/a/."):
        client.open(path).right(Listing(path), what=path)


@fault("a class directory is called '..jpg', another '-', one ' ', one with a newline")
def odd_class_names(h):
    a = h.folder("a")
    for name in (
        "..jpg",
        "-",
        " ",
        "new\nline",
        "per%cent",
        "\u00e9",
        "e\u0301",
        "\\",
        "a'b\"c",
        "~",
    ):
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
    h.client(env={**env, "HOME": None, "PATH": None, "TMPDIR": "/nowhere", "LANG": None}).open(
        a
    ).right(Listing(a), [0, 1])


@fault(
    "an unknown configuration key, invalid sizes, a value out of range",
    clear=["source_threads"],
)
def wrong_keys(h):
    a = h.dataset("a")
    client = h.client()
    for key, value in (
        ("memori", "1GB"),
        ("memory", "lots"),
        ("memory", "-1"),
        ("on_error", "shrug"),
        ("staging_buffer", "0"),
        ("cache_size", "1XB"),
    ):
        with expecting(key):
            client.open(a, **{key: value})
    client.open(a, source_threads=-3)
    raise wrong("source_threads=-3 was accepted")


@fault(
    "two processes are the same rank of the same job: what the second is told, and its exit status",
    clear=["rank"],
    item=14,
)
def same_rank_twice(h):
    a = h.dataset("a")
    first = h.open(a, rank=0, world_size=2)
    second = h.client()
    try:
        second.open(a, rank=0, world_size=2)
    except Told as e:
        status, _last = second.raise_uncaught()
        if status != 1:
            raise Verdict(RAW, f"exit status {status} for {e}") from None
        first.right(Listing(a))
        raise
    raise wrong("both were accepted")
