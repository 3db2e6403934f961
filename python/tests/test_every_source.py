"""What is promised of every dataset, tried on each kind of source, by its directory and by its
URL: the sampler's order, resumption, a daemon that dies, verification, and damage."""

import gzip
import os
import pathlib
import shutil
import subprocess

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401
from torch.utils.data import DistributedSampler
from waiting import until

LMDB = pathlib.Path(__file__).parents[2] / "internal/source/formats/lmdb/testdata/deep.mdb.gz"
NAMES = [f"train/{name}/{i}.jpg" for name in ("ant", "bee") for i in range(40)]


class Contents(ht.FileDataset):
    def __init__(self, root):
        self.root = root

    def __len__(self):
        return len(NAMES)

    def files_of(self, i):
        return f"{self.root}/{NAMES[i]}"

    def make(self, i, content):
        return bytes(content), i


SOURCES = {
    "ImageFolder": lambda root: ht.ImageFolder(f"{root}/train", loader=bytes),
    "Files": lambda root: ht.Files([f"{root}/{name}" for name in NAMES], range(len(NAMES))),
    "pairs": lambda root: ht.Files([(n, m) for n, m in zip(NAMES, NAMES[1:])], root=root),
    "Records": lambda root: ht.Records(
        [f"{root}/{name}" for name in NAMES], {"a": (range(70), [1] * 70, [7] * 70)}
    ),
    "WebDataset": lambda root: ht.WebDataset(f"{root}/shards/{{000..003}}.tar", ("jpg", "cls")),
    "LMDB": lambda root: ht.LMDB(f"{root}/values.mdb"),
    "FileDataset": Contents,
}
EACH = [(name, at) for name in SOURCES for at in ("files", "objects")]


@pytest.fixture
def root(real, stored, request, monkeypatch):
    """Where the data are: a directory, or a bucket."""
    with gzip.open(LMDB) as packed, open(os.path.join(stored, "values.mdb"), "wb") as file:
        shutil.copyfileobj(packed, file)
    if request.param == "files":
        yield stored
        return
    with ObjectServer(stored) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}"


def each(test):
    """Runs a test for each source, in files and in objects."""
    return pytest.mark.parametrize("name, root", EACH, indirect=["root"])(test)


def loader(dataset, **options):
    return ht.DataLoader(dataset, 8, collate_fn=list, num_workers=0, **options)


def plain(value):
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value


def items(batches):
    return [plain(item) for batch in batches for item in batch]


@each
def test_the_order_is_the_samplers_and_bytes_are_the_datasets(name, root, stored):
    dataset, files = SOURCES[name](root), SOURCES[name](stored)
    order = list(DistributedSampler(range(len(dataset)), 1, 0, seed=3))
    with loader(dataset, shuffle=True, seed=3, verify=name != "FileDataset") as first:
        got = items(first)
    assert got == [plain(files[i]) for i in order]
    assert got[::9] == [plain(dataset[i]) for i in order[::9]]  # each asks the daemon


@each
def test_it_goes_on_in_mid_epoch(name, root):
    dataset = SOURCES[name](root)
    with loader(dataset, shuffle=True, seed=3) as first:
        whole = items(first) + items(first)
    with loader(dataset, shuffle=True, seed=3) as second:
        batches = iter(second)
        seen = items([next(batches), next(batches), next(batches)])
        state = second.state_dict()
    with loader(SOURCES[name](root), shuffle=True, seed=3) as third:
        third.load_state_dict(state)
        assert seen + items(third) + items(third) == whole


@each
def test_it_goes_on_when_the_daemon_died(name, root):
    dataset = SOURCES[name](root)
    with loader(dataset, shuffle=True, seed=3) as first:
        whole = items(first)
    with loader(dataset, shuffle=True, seed=3, prefetch_batches=2) as second:
        batches = iter(second)
        got = items([next(batches)])
        binary = connecting.find_binary()
        subprocess.run([binary, "stop", "--force"], check=True)
        # The command does not wait for its end, until which it may deliver some more batches.
        until(lambda: subprocess.run([binary, "stats"], capture_output=True).returncode == 1)
        died = 0
        while True:
            try:
                got += items([next(batches)])
            except errors.DaemonDiedError:
                died += 1
            except StopIteration:
                break
    assert (got, died) == (whole, 1)


@pytest.mark.parametrize("root", ["files", "objects"], indirect=True)
@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("name", ["ImageFolder", "Files", "pairs", "WebDataset", "FileDataset"])
def test_what_is_cut_off_is_named_or_left_out(name, root, stored, policy):
    dataset = SOURCES[name](root)
    options = {"prefetch_batches": 1, "memory": "0", "source_threads": 1}
    with loader(dataset, on_error=policy, **options) as lacking:
        batches = iter(lacking)
        got = items([next(batches)])
        gone = "shards/003.tar" if name == "WebDataset" else "train/bee/39.jpg"
        os.truncate(os.path.join(stored, gone), 100)
        if policy == "raise":
            with pytest.raises(errors.SampleError, match=gone):
                items(batches)
            return
        got += items(batches)
    lost = {"WebDataset": 30, "pairs": 1}.get(name, 1)
    assert len(got) == len(dataset) - lost
