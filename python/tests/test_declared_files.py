"""``files=``: any map-style dataset, whose items open files that the daemon has copies of.

The oracle is torch's own loader over the same dataset.
"""

import builtins
import copy
import io
import logging
import mmap
import os
import pickle
import threading

import numpy
import preloaded
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from declaredfiles import change, counts, only_served
from filewatch import Opens
from hdmlp import errors
from owndata import COUNT, Annotated, Batched, Bytes, Drawing, Masks, Own, Table, write
from recordfiles import equal
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)
from torchrun import free_port, run, torchrun

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def directory(tmp_path):
    return write(tmp_path / "data")


@pytest.fixture(autouse=True)
def restored():
    """``open`` is Python's own again when a test's loaders are gone."""
    before = builtins.open
    yield
    assert builtins.open is before
    assert io.open is before


#: How many calls of open there are for an item; None: libraries decide.
CALLS = {Table: 1, Masks: 2, Annotated: None, Bytes: 1, Batched: 1}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_those_of_torchs_loader(directory, kind, workers):
    """In DistributedSampler's order over two epochs; every call gets a copy, and nothing is opened
    in the second epoch by anybody."""
    mine = kind(directory)
    samplers = [DistributedSampler(mine, 1, 0, seed=5) for _ in range(2)]
    reference = DataLoader(mine, 4, sampler=samplers[0])
    expected = []
    for epoch in range(2):
        samplers[0].set_epoch(epoch)
        expected.append(list(reference))
    options = {"num_workers": workers, "files": mine.files, "memory": "32MiB"}
    with (
        Opens(directory) as watch,
        ht.DataLoader(mine, 4, sampler=samplers[1], **options) as loader,
    ):
        for epoch in range(2):
            samplers[1].set_epoch(epoch)
            assert equal(list(loader), expected[epoch])
            assert (watch.take() > 0) == (epoch == 0)
        only_served(loader, CALLS[kind] and 2 * COUNT * CALLS[kind])
        assert loader.report()["source"]["samples"] == COUNT


@pytest.mark.slow
@pytest.mark.usefixtures("spawns_preloaded")
def test_workers_that_are_spawned(directory):
    mine = Masks(directory)
    with ht.DataLoader(
        mine, 8, num_workers=2, multiprocessing_context="spawn", files=mine.files
    ) as loader:
        assert equal(list(loader), list(DataLoader(mine, 8)))
        only_served(loader, 2 * COUNT)


@pytest.mark.parametrize(
    "files",
    [
        lambda d: [str(d.path(i, "txt")) for i in range(COUNT)],
        lambda d: [[d.path(i, "txt"), d.path(i, "png")] for i in range(COUNT)],
        lambda d: numpy.array([os.fsencode(d.path(i, "txt")) for i in range(COUNT)], object),
        lambda d: {i: (d.path(i, "txt"),) for i in range(COUNT)},
        lambda d: lambda i: d.path(i, "txt"),
    ],
)
def test_ways_to_declare(directory, files):
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, shuffle=True, seed=1, files=files(mine)) as loader:
        sampler = DistributedSampler(mine, 1, 0, seed=1)
        assert equal(list(loader), list(DataLoader(mine, 4, sampler=sampler)))
        assert counts(loader)["served"] == COUNT


def test_relative_paths_and_links(directory, monkeypatch):
    (directory / "sub").mkdir()
    (directory / "link").symlink_to(directory / "sub")
    monkeypatch.chdir(directory)

    class Relative(Own):
        def __getitem__(self, i):
            # After a symbolic link, ".." is not what it seems to be.
            with open(f"link/../{i:02d}.txt", "rb") as file:
                return torch.tensor(list(file.read()[:6]))

    mine = Relative(directory)
    for declared in ("{:02d}.txt", "./link/../{:02d}.txt", f"{directory}//{{:02d}}.txt"):
        with ht.DataLoader(mine, 4, files=declared.format) as loader:
            assert equal(list(loader), list(DataLoader(mine, 4)))
            only_served(loader, COUNT)
    with ht.DataLoader(mine, 4, files=lambda i: f"sub/{i:02d}.txt") as loader:  # does not exist
        assert equal(list(loader), list(DataLoader(mine, 4)))


TEXT = "rt"


class Look(Own):
    """What the file object of an item is like."""

    suffixes = ("txt",)

    def __getitem__(self, i):
        path = self.path(i, "txt")
        with open(path, "rb") as file:
            data = file.read()
            size = os.fstat(file.fileno()).st_size
            file.seek(0)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:]
            try:
                mmap.mmap(file.fileno(), 0)
                writable = True
            except PermissionError:
                writable = False
            described = [file.name, file.mode, file.tell(), type(file).__name__, size, writable]
        with open(path) as file:
            described += [file.name, file.mode, file.encoding, type(file).__name__, file.read()]
        with open(str(path), TEXT, -1, "latin-1", "strict", "\n") as file:
            described += [file.name, file.encoding, file.readlines(), file.newlines]
        with open(file=os.fsencode(path), mode="rb", buffering=0) as file:
            described += [file.name, type(file).__name__, file.readall()]
        assert mapped == data
        return described


def test_file_objects_are_those_of_the_file(directory):
    mine = Look(directory)
    collate = list
    with ht.DataLoader(mine, 4, collate_fn=collate, files=mine.files) as loader:
        assert list(loader) == list(DataLoader(mine, 4, collate_fn=collate))
        only_served(loader, 4 * COUNT)


class Wrong(Own):
    """Opens what is declared in ways that need the file itself, and other files."""

    suffixes = ("txt", "png")

    def __getitem__(self, i):
        path, data = self.path(i, "txt"), []
        for arguments in ({"mode": "r+b"}, {"opener": os.open}, {"mode": "bogus"}):
            try:
                with open(path, **{"mode": "rb", **arguments}) as file:
                    data.append(file.read(3))
            except ValueError as error:
                data.append(str(error))
        for missing in (self.path(i, "none"), self.directory):
            with pytest.raises((FileNotFoundError, IsADirectoryError)):
                open(missing).close()
        fd = os.open(path, os.O_RDONLY)
        with open(fd, "rb") as file:
            data.append(file.read(3))
        with open(self.path(i, "json"), "rb") as file:
            data.append(file.read(3))

        def read():
            with open(path, "rb") as file:
                data.append(file.read(3))

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        return data


def test_other_calls_go_to_the_file_system_and_are_named(directory, caplog):
    mine = Wrong(directory)
    with ht.DataLoader(mine, 4, collate_fn=list, files=mine.files) as loader:
        for _ in range(2):
            assert list(loader) == list(DataLoader(mine, 4, collate_fn=list))
        assert counts(loader) == {
            "served": 0,
            "undeclared": 6 * COUNT,
            "written": 0,
            "absent": 0,
            "refused": 6 * COUNT,
            "unopened": 2 * COUNT,
        }
    lines = [r.getMessage() for r in caplog.records if "files=" in r.getMessage()]
    assert len(lines) == 1
    assert f"0 of {6 * COUNT} calls of open()" in lines[0]
    assert f"{3 * COUNT} of files that files= does not name (such as {directory}/00." in lines[0]
    assert f"such as {directory}/00.txt: it was not opened for reading only" in lines[0]
    assert f"{COUNT} declared files were not opened" in lines[0]


def test_nothing_is_said_if_all_is_served(directory, caplog):
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        list(loader)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


# Orders, states, seeds.


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_in_the_middle_of_an_epoch(directory, seeded, workers):
    mine = Drawing(directory)
    options = {"shuffle": True, "files": mine.files, "num_workers": workers}
    if seeded:
        options["seed"] = 4
    torch.manual_seed(1)
    with ht.DataLoader(mine, 4, **options) as loader:
        whole = list(loader)
    torch.manual_seed(1)
    with ht.DataLoader(mine, 4, **options) as loader:
        batches = iter(loader)
        assert equal([next(batches), next(batches)], whole[:2])
        state = loader.state_dict()
    change(mine.path(7, "npy"), "replaced")
    change(mine.path(7, "npy"), "replaced")  # the same bytes, in another file
    torch.manual_seed(2)
    with ht.DataLoader(mine, 4, **options) as loader:
        loader.load_state_dict(state)
        assert equal(list(loader), whole[2:])
    other = Drawing(directory, COUNT - 1)
    with ht.DataLoader(other, 4, **{**options, "files": other.files}) as loader:
        with pytest.raises(errors.MismatchError):
            loader.load_state_dict(state)
            list(loader)


def test_random_numbers_follow_from_positions(directory):
    """Not from the workers, and they differ between occurrences of an item and between ranks."""
    mine = Drawing(directory)
    sampler = WeightedRandomSampler([1.0, 50.0] + [0.0] * (COUNT - 2), 40)
    found = []
    for workers in (0, 2):
        torch.manual_seed(0)
        with ht.DataLoader(
            mine, 8, sampler=sampler, num_workers=workers, files=mine.files
        ) as loader:
            found.append(list(loader))
    assert equal(*found)
    values = torch.cat([numbers[:, 0, 0] % 1 for numbers, _ in found[0]])
    assert len(values.unique()) == 40
    mine.__dict__["same"] = True
    ranks = []
    for rank in range(2):
        with ht.DataLoader(
            Drawing(directory),
            8,
            sampler=DistributedSampler(mine, 2, rank, seed=0),
            files=mine.files,
        ) as loader:
            ranks.append(torch.cat([numbers[:, 0, 0] % 1 for numbers, _ in loader]))
    assert len(torch.cat(ranks).unique()) == len(torch.cat(ranks))


def test_the_programs_generators_stay(directory):
    mine = Bytes(directory)

    def files(i):
        torch.rand(())
        return mine.files(i)

    torch.manual_seed(3)
    with ht.DataLoader(mine, 4, files=files) as loader:
        for _ in loader:
            pass
    ours = torch.rand(())
    torch.manual_seed(3)
    for _ in DataLoader(mine, 4):
        pass
    assert torch.rand(()) == ours


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_of_a_sampler(directory, rank):
    mine = Masks(directory)
    samplers = [DistributedSampler(mine, 2, rank, seed=2) for _ in range(2)]
    with ht.DataLoader(mine, 3, sampler=samplers[0], files=mine.files) as loader:
        assert equal(list(loader), list(DataLoader(mine, 3, sampler=samplers[1])))


def test_a_batch_size_of_none(directory):
    mine = Bytes(directory)
    with ht.DataLoader(mine, None, files=mine.files) as loader:
        assert equal(list(loader), list(DataLoader(mine, None)))


# What is refused.


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


class Endless(Own):
    __len__ = None


def test_what_is_refused(directory):
    mine = Bytes(directory)
    for dataset, options, text in [
        (Stream(), {"files": str}, "the Stream is iterable, so it has no items by index"),
        (ht.Files([str(mine.path(0, "txt"))]), {"files": str}, "served already; leave it out"),
        (mine, {"files": 3}, "must be a function from an index"),
        (mine, {"files": "x"}, "must be a function from an index"),
        (mine, {"files": ["x"]}, f"there are 1 entries, and the Bytes has {COUNT} items"),
        (mine, {"files": lambda i: 3}, r"files\(0\) returned 3: it must return a path"),
        (mine, {"files": lambda i: [None]}, r"files\(0\) returned \[None\]"),
        (mine, {"files": lambda i: "a\0b"}, r"files\(0\) returned 'a\\x00b'"),
        (mine, {"files": lambda i: "x" if i < 7 else 1 // 0}, r"files\(7\) raised ZeroDivision"),
        (mine, {"files": mine.files, "check": "x"}, "check='x': must be 'open'"),
        (mine, {"check": "open"}, "check without files"),
        (mine, {"files": mine.files, "on_error": "skip"}, "on_error='skip': no meaning"),
        (mine, {"files": mine.files, "raw": True}, "raw=True: no meaning"),
        (Endless(directory), {"files": str, "batch_sampler": [[0]]}, "has no __len__"),
    ]:
        with pytest.raises(errors.ConfigError, match=text):
            ht.DataLoader(dataset, **options)


def test_a_function_that_changes_its_mind(directory):
    mine, calls = Bytes(directory), []

    def files(i):
        calls.append(i)
        return mine.path(len(calls) % COUNT, "txt")

    with pytest.raises(errors.ConfigError, match=r"files\(\d+\) returned '.*' first, and then"):
        ht.DataLoader(mine, 4, files=files)


def test_a_length_that_changes(directory):
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        list(loader)
        mine.count = 5
        with pytest.raises(errors.ConfigError, match=f"it had {COUNT}, and has 5"):
            list(loader)


def test_copies_of_loaders(directory):
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        expected = list(loader)
        for other in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            with other:
                assert equal(list(other), expected)
                only_served(other, COUNT)


def test_subsets(directory):
    """The dataset's own indices count, whatever it is made of."""
    mine = Bytes(directory)
    part = Subset(mine, [5, 3, 8])
    with ht.DataLoader(part, 2, files=lambda i: mine.files(part.indices[i])) as loader:
        assert equal(list(loader), list(DataLoader(part, 2)))
        only_served(loader, 3)
    data = TensorDataset(torch.arange(COUNT))
    with ht.DataLoader(data, 2, files=mine.files) as loader:  # opens nothing
        assert equal(list(loader), list(DataLoader(data, 2)))


#: Two ranks share an epoch, of files that one of them writes in the middle. Each prints what it got
#: and what torch's loader gives.
RANKS = """
import hashlib, json, sys
import torch, torch.distributed as dist
from pathlib import Path
from torch.utils.data import DataLoader, DistributedSampler
import hdmlp.torch as ht
from owndata import Bytes, Made

dist.init_process_group("gloo")
me, world = dist.get_rank(), dist.get_world_size()
mine, made = Bytes(Path(sys.argv[1])), Made(Path(sys.argv[1]))
got, want = [], []

def digest(batches):
    return hashlib.md5("".join(map(repr, batches)).encode()).hexdigest()

def both(dataset, **options):
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    with ht.DataLoader(dataset, 2, **options) as loader:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            if "sampler" in options:
                options["sampler"].set_epoch(epoch)
            want.append(digest(DataLoader(dataset, 2, sampler=sampler)))
            got.append(digest(loader))
            dist.barrier()
            if epoch == 1 and me == 1:
                path = mine.path(4, "txt")
                path.write_bytes(path.read_bytes()[::-1])
            dist.barrier()
        report = loader.report()
    return report["source"]["samples"]

more = {"files": mine.files, "check": "open"}
read = both(mine, shard=True, shuffle=True, seed=3, **more)
both(mine, sampler=DistributedSampler(mine, shuffle=True, seed=3), **more)
both(made, shard=True, shuffle=True, seed=3)
print(json.dumps({"rank": me, "got": got, "want": want, "read": read}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_share_epochs(directory, tmp_path):
    (tmp_path / "script.py").write_text(RANKS)
    ranks, _ = run(*torchrun(2, free_port()), str(tmp_path / "script.py"), str(directory))
    assert {r["rank"] for r in ranks} == {0, 1}
    for r in ranks:
        assert r["got"] == r["want"]
        assert r["read"] in (COUNT, COUNT + 1)  # once for both, and once more if it was not known


#: A framework makes the loader anew, from its dataset and sampler.
PREPARED = """
import sys
from pathlib import Path
import accelerate, torch
import hdmlp.torch as ht
from owndata import Bytes
from recordfiles import equal
from torch.utils.data import DataLoader

ht.use_in(accelerate)
mine = Bytes(Path(sys.argv[1]))
prepared = accelerate.Accelerator(cpu=True).prepare(
    ht.DataLoader(mine, 4, shuffle=False, files=mine.files, check="open")
)
assert equal(list(prepared), list(DataLoader(mine, 4)))
inner = prepared.base_dataloader
assert type(inner) is ht.DataLoader and inner.check == "open"
assert inner._content._copying.tally.counts()["served"] == len(mine)
"""


@pytest.mark.slow
def test_accelerate(directory):
    pytest.importorskip("accelerate")
    run(preloaded.PYTHON, "-c", PREPARED, str(directory))
