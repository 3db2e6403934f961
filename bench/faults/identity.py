"""The identity of datasets: containers, replaced directories, equal sizes and times."""

import os
import shutil

from handles import open_all, together
from harness import Harness
from oracle import Listing, same
from verdicts import Told, fault

LEAN = {
    "memory": 0,
    "staging_buffer": "400KB",
}  # with samples of 20 KB: nothing is cached, and little is read ahead
T0 = 1_577_836_800  # 2020: what archives and images of containers put everywhere


def two(h: Harness, mtime=T0, **more):
    """Two datasets that only their bytes tell apart."""
    return h.dataset("a", salt="a", mtime=mtime, **more), h.dataset(
        "b", salt="b", mtime=mtime, **more
    )


@fault("two containers with another dataset at the same path, in turn, share a daemon", item=1)
def containers_in_turn(h):
    a, b = h.dataset("a", salt="a"), h.dataset("b", salt="b", per_class=19)
    at = h.folder("train")
    h.client(mounts=[(a, at)]).open(at).right(Listing(a), what="first container")
    h.client(mounts=[(b, at)]).open(at).right(Listing(b), what="second container")


@fault(
    "two containers with another dataset of equal names, sizes and times at the same path share "
    "a daemon at the same time",
    item=1,
)
def containers_at_once(h):
    a, b = two(h, size=20_000)
    at = h.folder("train")
    first = h.client(mounts=[(a, at)]).open(at, name="one", **LEAN)
    first.ask("iter")
    got = first.ask("next", n=3)
    second = h.client(mounts=[(b, at)]).open(at, name="two", **LEAN)
    second.right(Listing(b), [0, 1], what="second container")
    same(got + first.ask("next"), first.expected(Listing(a)), what="first container")


@fault(
    "a container's dataset is at a path where the container that started the daemon has no file "
    "at all",
    item=1,
)
def container_path_only_there(h):
    a, b = h.dataset("a", salt="a"), h.dataset("b", salt="b")
    at = h.folder("train")
    h.open(a).right(Listing(a))
    h.client(mounts=[(b, at)]).open(at).right(Listing(b), [0, 1], what="second container")


@fault(
    "the container that started the daemon has ended, and its mounts with it, when a process "
    "outside opens the same path",
    item=1,
)
def container_gone(h):
    a, b = two(h, mtime=None)
    at = h.tmp / "train"
    shutil.copytree(b, at)
    inside = h.client(mounts=[(a, at)]).open(at)
    inside.right(Listing(a))
    inside.end()
    h.open(at).right(Listing(at), what="outside")


@fault("two containers' private /tmp hold different datasets at the same path below it", item=1)
def container_private_tmp(h):
    at = h.folder("private")
    a, b = two(h)
    code = f"import shutil, os; shutil.copytree({{!r}}, {str(at / 'd')!r})"
    for source in (a, b):
        client = h.client(mounts=[("tmpfs", at)])
        client.run(code.format(str(source)))
        client.open(at / "d").right(Listing(source), what=source.name)


@fault(
    "two containers whose ranks form one job see different datasets at the same path",
    clear=["dataset|listing|rank|differ"],
    item=1,
)
def container_ranks_of_one_job(h):
    a, b = two(h, size=20_000)
    at = h.folder("train")
    ranks = [h.client(mounts=[(a, at)]), h.client(mounts=[(b, at)])]
    for i, r in enumerate(ranks):
        r.send_open(at, rank=i, world_size=2, **LEAN)
    for r in ranks:
        r.answer()
    together(ranks, [Listing(a), Listing(b)])


@fault("two datasets that only bytes tell apart use one cache_dir after each other", item=2)
def collide_cache_dir(h):
    a, b = two(h)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])
    h.stop_daemon()
    h.open(b, cache_dir=str(h.tmp / "c")).right(Listing(b), [0, 1], what="the second dataset")


@fault("the same with verify=True", item=2)
def collide_cache_dir_verify(h):
    a, b = two(h)
    h.open(a, cache_dir=str(h.tmp / "c"), verify=True).right(Listing(a), [0, 1])
    h.stop_daemon()
    h.open(b, cache_dir=str(h.tmp / "c"), verify=True).right(
        Listing(b), [0, 1], what="the second dataset"
    )


@fault("two datasets that only bytes tell apart use one daemon's memory at the same time", item=2)
def collide_memory(h):
    a, b = two(h)
    first = h.open(a, name="one")
    first.right(Listing(a), [0])
    h.open(b, name="two").right(Listing(b), [0, 1], what="the second dataset")
    first.right(Listing(a), [1])


@fault(
    "two datasets that only bytes tell apart use one daemon's memory after each other, while it "
    "lingers",
    item=2,
)
def collide_memory_lingering(h):
    a, b = two(h)
    client = h.open(a)
    client.right(Listing(a), [0, 1])
    client.end()
    h.open(b).right(Listing(b), [0, 1], what="the second dataset")


@fault(
    "two nodes of one job see datasets that only bytes tell apart",
    clear=["node", "dataset|sample|content|digest"],
    item=2,
)
def collide_nodes(h):
    a, b = two(h)
    at = h.folder("train")
    shutil.copytree(a, h.tmp / "n0")
    shutil.copytree(b, h.tmp / "n1")
    for n in ("n0", "n1"):
        h.date(h.tmp / n, T0)
    ranks = h.cluster(2, "--mount", f"{h.tmp}/n{{node}}:{at}")
    open_all(ranks, at, start_timeout="10s")
    together(ranks, [Listing(a), Listing(b)], [0, 1])


@fault(
    "one node's copy has three stale files of 400, equal in size and time; two epochs with "
    "verify=True",
    clear=["node", "sample|file|digest|content|dataset"],
    item=2,
)
def stale_files_on_a_node(h):
    a = h.dataset("n0", classes=4, per_class=100, mtime=T0)
    b = h.tmp / "n1"
    shutil.copytree(a, b)
    for name in ("class0/017.jpg", "class2/050.jpg", "class3/099.jpg"):
        data = bytearray((b / name).read_bytes())
        data[7] ^= 1
        (b / name).write_bytes(data)
    h.date(b, T0)
    at = h.folder("train")
    ranks = h.cluster(2, "--mount", f"{h.tmp}/n{{node}}:{at}")
    open_all(ranks, at, start_timeout="10s", verify=True)
    together(ranks, [Listing(a), Listing(b)], [0, 1])


@fault(
    "two nodes' copies of one dataset differ in nothing but inodes and the times of their copying"
)
def nodes_with_copies(h):
    a = h.dataset("n0", mtime=T0)
    shutil.copytree(a, h.tmp / "n1")
    at = h.folder("train")
    ranks = h.cluster(2, "--mount", f"{h.tmp}/n{{node}}:{at}")
    open_all(ranks, at, start_timeout="10s")
    together(ranks, Listing(a), [0, 1])


@fault(
    "the directory is replaced by another while a job has it open; a second job opens it", item=3
)
def replaced_while_open(h):
    a, b = h.dataset("a", salt="a"), h.dataset("b", salt="b", per_class=12)
    first = h.open(a, name="one")
    first.ask("iter")
    first.ask("next", n=2)
    a.rename(h.tmp / "old")
    b.rename(a)
    h.open(a, name="two").right(Listing(a), [0, 1], what="the second job")


@fault(
    "the directory is replaced by another of equal names, sizes and times while a job has it "
    "open; a second job opens it",
    item=3,
)
def replaced_by_its_like(h):
    a, b = two(h)
    first = h.open(a, name="one")
    first.right(Listing(a))
    a.rename(h.tmp / "old")
    b.rename(a)
    h.open(a, name="two").right(Listing(a), [0, 1], what="the second job")


@fault(
    "the directory is replaced by an equal one while a job has it open: what that job gets",
    clear=["sample|dataset|changed|replaced"],
)
def replaced_under_a_job(h):
    a, b = two(h, size=20_000)
    old = Listing(a)
    first = h.open(a, **LEAN)
    first.right(old)
    a.rename(h.tmp / "old")
    b.rename(a)
    first.right(old, [1, 2], also=[Listing(a)])


@fault(
    "a dataset grows from 200 to 230 samples while a job has it open; a second job opens it", item=3
)
def grown_while_open(h):
    a = h.dataset("a", classes=4, per_class=50)
    first = h.open(a, name="one")
    first.ask("iter")
    first.ask("next", n=2)
    for i in range(30):
        h.sample(a / f"class{i % 4}" / f"9{i:02}.jpg")
    h.open(a, name="two").right(Listing(a), what="the second job")


@fault("a class is added while a job has the dataset open; a second job opens it", item=3)
def class_added_while_open(h):
    a = h.dataset("a")
    first = h.open(a, name="one")
    first.ask("iter")
    (a / "class00").mkdir()
    for i in range(5):
        h.sample(a / "class00" / f"{i}.jpg")
    h.open(a, name="two").right(Listing(a), what="the second job")
    same(first.ask("next"), first.expected(Listing(h.dataset("again"))), what="the first job")


@fault("files vanish while a job has the dataset open; a second job opens it", item=3)
def shrunk_while_open(h):
    a = h.dataset("a", size=20_000)
    first = h.open(a, name="one", **LEAN)
    first.ask("iter")
    for i in range(5):
        (a / "class1" / f"{i:03}.jpg").unlink()
    h.open(a, name="two").right(Listing(a), what="the second job")


@fault("the dataset grows between two loaders of one process", item=3)
def grown_between_loaders(h):
    a = h.dataset("a")
    client = h.open(a)
    client.right(Listing(a))
    for i in range(30):
        h.sample(a / f"class{i % 4}" / f"9{i:02}.jpg")
    client.open(a).right(Listing(a), what="the second loader")


@fault(
    "a file is replaced by rename with one of equal size while a job has the dataset open and "
    "cached; a second job opens it",
    item=3,
)
def renamed_over_while_open(h):
    a = h.dataset("a")
    first = h.open(a, name="one")
    first.right(Listing(a), [0, 1])
    new = h.sample(h.tmp / "new.jpg", (a / "class0/003.jpg").stat().st_size)
    os.rename(new, a / "class0/003.jpg")
    h.open(a, name="two").right(Listing(a), what="the second job")


@fault("two ranks of one job name the same dataset by different paths")
def one_dataset_two_paths(h):
    a = h.dataset("a")
    (h.tmp / "link").symlink_to(a)
    ranks = [h.client(), h.client()]
    for i, path in enumerate((a, h.tmp / "link")):
        ranks[i].send_open(path, rank=i, world_size=2)
    try:
        for r in ranks:
            r.answer()
    except Told:
        h.clear = ["path|dataset"]
        raise
    together(ranks, Listing(a), [0, 1])


@fault("two ranks of one job on one node name different datasets", clear=["dataset|path"])
def two_datasets_one_job(h):
    a, b = two(h)
    ranks = [h.client(), h.client()]
    for i, path in enumerate((a, b)):
        ranks[i].send_open(path, rank=i, world_size=2)
    for r in ranks:
        r.answer()
    together(ranks, [Listing(a), Listing(b)])
