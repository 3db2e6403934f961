"""Memory that gives way: the cache gives segments back while training processes grow."""

import zlib

import pytest
from groups import MB, group, run  # noqa: F401
from hdmlp._daemon import oom

pytestmark = pytest.mark.usefixtures("real")

SAMPLES, EPOCHS = 300, 6


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Samples of 1 MB, most of it zero, which take no disk."""
    root = tmp_path_factory.mktemp("pressure") / "big"
    (root / "a").mkdir(parents=True)
    for i in range(SAMPLES):
        with open(root / "a" / f"{i:03d}.jpg", "wb") as file:
            file.write(b"sample %d " % i)
            file.seek(MB - 16)
            file.write(b"%016d" % i)
    return str(root)


#: A training process. Its arguments: the dataset, the loader's options, how many bytes it grows by
#: in a second, how many in all, and what else it does.
TRAIN = """
import json, os, sys, time, zlib
from hdmlp import data

files, options, rate, growth, extra = sys.argv[1], *map(eval, sys.argv[2:5]), sys.argv[5]
SAMPLES = 300


def whole(view, number):
    return (
        bytes(view[:16]).startswith(b"sample %d " % number)
        and bytes(view[-16:]) == b"%016d" % number
        and zlib.crc32(view) == sums.setdefault(number, zlib.crc32(view))
    )


def number(view):
    return int(bytes(view[-16:]))


sums, memory, total, began, digest, kept, child = {}, [], 0, None, 0, [], 0
loader = data.DataLoader(files, batch_size=5, epochs=12, seed=3, **options)
for epoch in range(6):
    for step, (samples, _) in enumerate(loader):
        for s in samples:
            n = number(s)
            assert whole(s, n), (epoch, step, n)
            digest = zlib.crc32(b"%d %d %d" % (epoch, step, n), digest)
        if epoch == 1 and step < 1 and extra == "keep":
            kept += [(number(s), s) for s in samples]
        if epoch == 1 and step == 1 and extra == "keep":
            child = os.fork()
            if not child:
                break
        if epoch and rate:
            began = began or time.monotonic()
            most = total + (16 << 20)
            while total < min(growth, most, rate * (time.monotonic() - began)):
                block = bytearray(4 << 20)
                block[::4096] = b"x" * len(block[::4096])
                memory.append(block)
                total += len(block)
        s = samples = None
        time.sleep(0.02)
    if extra == "keep" and epoch == 1 and not child:
        break
    if total >= growth and epoch >= 3 and extra == "keep":
        break
if extra == "keep" and not child:  # its parent goes on, and its views stay as they are
    time.sleep(4)
    os._exit(0 if all(whole(view, n) for n, view in kept) else 1)


def given_back():
    return loader.report()["classes"][0].get("given_back") or {}


def until(condition):
    batches = iter(loader)
    for _ in range(400):
        if condition():
            return True
        next(batches, None)
        time.sleep(0.05)
    return False


said = {"digest": digest, "grown": total}
if child:
    said["viewed"] = until(lambda: given_back().get("viewed_bytes"))
    said["kept"] = all(whole(view, n) for n, view in kept)
    said["child"] = os.waitpid(child, 0)[1]
    kept.clear()
    said["freed"] = until(lambda: not given_back().get("viewed_bytes"))
said.update(given_back=given_back(), sentence=loader.report()["sentence"])
print(json.dumps(said))
"""


def said(job, timeout=100):
    out, _ = job.communicate(timeout=timeout)
    assert job.returncode == 0, (job.returncode, out)
    return eval(out.strip().splitlines()[-1], {"true": True, "false": False, "null": None})


def train(group, files, rate=0, growth=0, extra="", **options):
    options = {"memory": "300MB", "staging_buffer": "16MiB", **options}
    return run(group, TRAIN, files, repr(options), str(rate), str(growth), extra)


def group_of(group):
    return oom._Group(group.path, group.v2)


def given():
    """The digest of what a process alone is given: all samples, in the order of torch's sampler."""
    data = pytest.importorskip("torch.utils.data")
    sampler, digest = data.DistributedSampler(range(SAMPLES), 1, 0, seed=3), 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for position, number in enumerate(sampler):
            digest = zlib.crc32(b"%d %d %d" % (epoch, position // 5, number), digest)
    return digest


def test_a_process_that_grows_by_100_mb_per_second_survives(group, files):
    """The cache fills the control group; the process grows into what it holds."""
    group.limit(560 * MB)
    got = said(train(group, files, rate=100e6, growth=200_000_000))
    assert got["grown"] >= 200_000_000, got
    assert got["digest"] == given(), got
    returned = got["given_back"]
    assert returned["bytes"] > 50_000_000, got
    assert returned["paused"], got
    assert f"control group {group.path} had " in returned["why"], got
    assert "Storage class memory gave back " in got["sentence"], got
    counts = oom._counts(group_of(group))
    assert counts is not None
    assert counts.kills == 0


def test_views_outlive_segments(group, files):
    """Here, and in a child that was forked with them."""
    group.limit(560 * MB)
    got = said(train(group, files, rate=100e6, growth=200_000_000, extra="keep"))
    assert got["viewed"], got
    assert got["kept"], got
    assert got["child"] == 0, got
    assert got["freed"], got


def test_ranks_and_jobs_share_what_is_left(group, files):
    """Two ranks of one job, and another job on their dataset."""
    group.limit(760 * MB)
    ranks = [
        train(group, files, rate=50e6, growth=100_000_000, name="both", rank=r, world_size=2)
        for r in range(2)
    ]
    other = train(group, files, rate=20e6, growth=60_000_000, name="other")
    got = [said(job) for job in (*ranks, other)]
    assert got[2]["digest"] == given(), got
    assert all(one["given_back"]["bytes"] > 20_000_000 for one in got), got


WORKERS = """
import sys, time, zlib
import hdmlp.torch as ht

files, rate, growth = sys.argv[1], *map(eval, sys.argv[2:4])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("RssAnon:")), flush=True)
sys.stdin.readline()  # the test sets the limit


def load(view):
    return int(bytes(view[-16:])), zlib.crc32(view)


memory, total, began, sums = [], 0, None, {}
dataset = ht.ImageFolder(files, loader=load)
with ht.DataLoader(
    dataset, 5, shuffle=True, seed=3, num_workers=2, memory="300MB", staging_buffer="16MiB"
) as loader:
    for epoch in range(10):
        loader.set_epoch(epoch)
        seen = []
        for (numbers, crcs), _ in loader:
            for n, crc in zip(numbers.tolist(), crcs.tolist()):
                assert sums.setdefault(n, crc) == crc
                seen.append(n)
            if epoch:
                began = began or time.monotonic()
                most = total + (16 << 20)
                while total < min(growth, most, rate * (time.monotonic() - began)):
                    block = bytearray(4 << 20)
                    block[::4096] = b"x" * len(block[::4096])
                    memory.append(block)
                    total += len(block)
            time.sleep(0.02)
        assert sorted(seen) == list(range(300)), epoch
    report = loader.report()
print({"grown": total, "classes": report["classes"]})
"""


def test_workers_let_go_of_segments(group, files):
    """The limit leaves the same room whatever torch takes, which differs between its releases."""
    pytest.importorskip("torch")
    group.limit(1000 * MB)
    job = run(group, WORKERS, files, "100e6", "500_000_000")
    imported = int(job.stdout.readline() or 0) * 1024
    assert imported > 0, job.wait()
    group.limit(880 * MB + imported)
    job.stdin.write("\n")
    job.stdin.flush()
    got = said(job)
    assert got["grown"] >= 500_000_000, got
    assert got["classes"][0]["given_back"]["bytes"] > 50_000_000, got
    counts = oom._counts(group_of(group))
    assert counts is not None
    assert counts.kills == 0
