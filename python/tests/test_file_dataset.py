"""Datasets that say which files their items read, and make items of their bytes.

The oracle is torch's own loader over the same object, which reads the files itself.
"""

import copy
import gc
import logging
import os
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import hdmlp.data as hd
import hdmlp.torch as ht
from filewatch import Opens
from hdmlp import errors
from owndata import COUNT, Contents, Made, Ragged, write
from recordfiles import equal
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    Subset,
    WeightedRandomSampler,
    random_split,
)

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def directory(tmp_path):
    return write(tmp_path / "data")


def as_lists(batch):
    """A batch of torch's loader, whose collation has tuples of bytes where ours has lists."""
    return [list(part) if isinstance(part, tuple) else part for part in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_those_of_torchs_loader(directory, workers):
    """In DistributedSampler's order over two epochs, with different numbers of files per item; no
    file is opened in the second epoch."""
    mine = Made(directory)
    samplers = [DistributedSampler(mine, 1, 0, seed=5) for _ in range(2)]
    reference = DataLoader(mine, 4, sampler=samplers[0])
    expected = []
    for epoch in range(2):
        samplers[0].set_epoch(epoch)
        expected.append(list(reference))
    with (
        Opens(directory) as watch,
        ht.DataLoader(mine, 4, sampler=samplers[1], num_workers=workers, memory="32MiB") as loader,
    ):
        assert loader._folder is not None
        for epoch in range(2):
            samplers[1].set_epoch(epoch)
            assert equal(list(loader), expected[epoch])
            assert (watch.take() > 0) == (epoch == 0)
        assert loader.report()["source"]["samples"] == COUNT
        assert loader.classes == mine.classes == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.usefixtures("spawns_preloaded")
def test_workers_that_are_spawned(directory):
    mine = Made(directory)
    with ht.DataLoader(mine, 8, num_workers=2, multiprocessing_context="spawn") as loader:
        assert equal(list(loader), list(DataLoader(mine, 8)))


def parts(mine):
    half = Subset(mine, range(0, COUNT, 2))
    return {
        "whole": mine,
        "part": half,
        "part of a part": Subset(half, [3, 1, -1]),
        "joined": ConcatDataset([half, Subset(mine, [1, 1])]),
        "split": random_split(mine, [10, COUNT - 10], torch.Generator().manual_seed(0))[1],
    }


@pytest.mark.parametrize("part", parts(range(COUNT)))
def test_parts_are_served(directory, part):
    dataset = parts(Made(directory))[part]
    with ht.DataLoader(dataset, 3) as loader:
        assert loader._folder is not None
        assert equal(list(loader), list(DataLoader(dataset, 3)))


def test_samplers(directory):
    mine = Made(directory)
    for make in (
        lambda: WeightedRandomSampler(
            [1 + label for label in mine.targets], 30, generator=torch.Generator().manual_seed(1)
        ),
        lambda: DistributedSampler(mine, 2, 1, seed=3),
        lambda: [5, 0, 4],
    ):
        with ht.DataLoader(mine, 4, sampler=make()) as loader:
            assert equal(list(loader), list(DataLoader(mine, 4, sampler=make())))
    torch.manual_seed(0)
    with ht.DataLoader(mine, 4, shuffle=True) as loader:
        ours = [list(loader) for _ in range(2)]
    torch.manual_seed(0)
    reference = DataLoader(mine, 4, shuffle=True)
    assert equal(ours, [list(reference) for _ in range(2)])


@pytest.mark.parametrize("memory", ["32MiB", "0"])
@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_stay_valid_while_they_are_kept(directory, memory, workers):
    mine = Contents(directory)
    kept = []
    with ht.DataLoader(
        mine, 4, num_workers=workers, memory=memory, staging_buffer="2MiB"
    ) as loader:
        for _ in range(3):
            for data, numbers in loader:
                assert all(view.readonly for view in data)
                kept += zip(numbers.tolist(), data)
    gc.collect()
    for number, view in kept:
        assert bytes(view) == (directory / f"{number:02d}.txt").read_bytes()
    assert len(kept) == 3 * COUNT


class Keeping(Contents):
    """Compares what it was given for earlier items."""

    def make(self, i, data):
        kept = self.__dict__.setdefault("kept", {})
        for number, view in kept.items():
            assert bytes(view) == (self.directory / f"{number:02d}.txt").read_bytes()
        kept[i] = data
        return i


@pytest.mark.parametrize("workers", [0, 1])
def test_bytes_that_the_dataset_keeps_stay_valid(directory, workers):
    with ht.DataLoader(
        Keeping(directory), 2, num_workers=workers, memory="0", persistent_workers=bool(workers)
    ) as loader:
        for _ in range(2):
            assert torch.cat(list(loader)).tolist() == list(range(COUNT))


def test_what_torch_cannot_collate_is_a_list(directory):
    mine = Ragged(directory)
    with pytest.raises(RuntimeError):
        list(DataLoader(mine, 4))
    for workers in (0, 2):
        with ht.DataLoader(mine, 4, num_workers=workers) as loader:
            batch = next(iter(loader))
        assert batch["id"].tolist() == [0, 1, 2, 3]
        assert equal(batch["data"], [mine[i]["data"] for i in range(4)])

    class Uneven(Contents):
        def make(self, i, data):
            return (i,) * (1 + i)

    with ht.DataLoader(Uneven(directory), 4) as loader, pytest.raises(RuntimeError):
        next(iter(loader))  # as with torch
    with ht.DataLoader(Uneven(directory), 4, collate_fn=list) as loader:
        assert next(iter(loader)) == [(0,), (1, 1), (2,) * 3, (3,) * 4]


class Drawing(Contents):
    def make(self, i, data):
        return torch.rand(3), i


def test_random_numbers_do_not_depend_on_workers(directory):
    found = []
    for workers in (0, 2):
        torch.manual_seed(0)
        with ht.DataLoader(Drawing(directory), 4, shuffle=True, num_workers=workers) as loader:
            found.append([list(loader) for _ in range(2)])
    assert equal(*found)
    first, second = (torch.cat([x for x, _ in epoch]) for epoch in found[0])
    assert len(torch.cat([first, second]).unique()) == 6 * COUNT


def test_no_workers_are_started_unasked(directory, caplog):
    with ht.DataLoader(Made(directory), 4, shuffle=True, seed=0) as loader:
        assert loader.num_workers == 0
        list(loader)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("seeded", [True, False])
def test_resuming_in_the_middle_of_an_epoch(directory, seeded):
    options = {"shuffle": True, **({"seed": 4} if seeded else {})}
    torch.manual_seed(1)
    with ht.DataLoader(Drawing(directory), 4, **options) as loader:
        whole = list(loader)
    torch.manual_seed(1)
    with ht.DataLoader(Drawing(directory), 4, **options) as loader:
        batches = iter(loader)
        assert equal([next(batches), next(batches)], whole[:2])
        state = loader.state_dict()
    with ht.DataLoader(Drawing(directory), 4, **options) as loader:
        loader.load_state_dict(state)
        assert equal(list(loader), whole[2:])


def test_it_works_with_torchs_loader_and_alone(directory):
    mine = Made(directory)
    assert torch.equal(mine[3][0], next(iter(DataLoader(mine, 4)))[0][3])
    assert [number for _, number in Subset(mine, [2, 3])] == [2, -1]
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert equal(other[5], mine[5])
    with pytest.raises(errors.SampleError, match=r"item 99 \(.*99.png\): No such file"):
        mine[99]


def test_without_torchs_collation(directory):
    mine = Made(directory)
    with ht.DataLoader(mine, None) as loader:
        assert equal(list(loader), list(DataLoader(mine, None)))


# What is refused.


def failing(base, **methods):
    return type("Mine", (base,), methods)


def test_what_is_refused(directory):
    named = f"{directory}/03.txt"
    for methods, text in [
        ({"files_of": lambda self, i: 1 // (i - 7)}, r"Mine.files_of\(0\) returned -1: it must"),
        ({"files_of": lambda self, i: [named][i]}, r"Mine.files_of\(1\) raised IndexError"),
        (
            {"files_of": lambda self, i: []},
            r"Mine.files_of\(0\) returned \[\], which names no file",
        ),
        ({"files_of": lambda self, i: None}, r"Mine.files_of\(0\) returned None, which names no"),
        ({"files_of": lambda self, i: [named] * 65}, r"item 0 has 65 files: at most 64"),
        ({"files_of": [named]}, "the attribute files_of would hide the method of that name"),
        ({"__len__": None}, "Mine has no __len__"),
        ({"make": ht.FileDataset.make}, "Mine has no method make"),
        ({"files_of": ht.FileDataset.files_of}, "Mine has no method files_of"),
    ]:
        with pytest.raises(errors.ConfigError, match=text):
            ht.DataLoader(failing(Contents, **methods)(directory))
    for options in ({"raw": True}, {"offload": False}, {"labels": "name"}, {"files": str}):
        with pytest.raises(errors.ConfigError):
            ht.DataLoader(Contents(directory), **options)


def test_a_missing_file_is_named(directory):
    (directory / "07.txt").unlink()
    with pytest.raises(errors.DatasetError, match=r"record 7.*07\.txt"):
        list(ht.DataLoader(Contents(directory)))


def test_files_that_change_their_mind(directory):
    calls = []

    def files_of(self, i):
        calls.append(i)
        return directory / f"{len(calls) % COUNT:02d}.txt"

    with pytest.raises(errors.ConfigError, match=r"Mine\.files_of.* first, and then"):
        ht.DataLoader(failing(Contents, files_of=files_of)(directory))


@pytest.mark.parametrize("name", ["files_of", "make"])
def test_attributes_that_hide_a_method(directory, name):
    mine = Contents(directory)
    with pytest.raises(errors.ConfigError, match=f"the attribute {name} would hide the method"):
        setattr(mine, name, ["x"])
    vars(mine)[name] = ["x"]
    with pytest.raises(errors.ConfigError, match=f"the attribute {name} would hide the method"):
        ht.DataLoader(mine)


def test_a_getitem_of_its_own_is_called(directory, caplog):
    mine = failing(Contents, __getitem__=lambda self, i: i * 2)(directory)
    with ht.DataLoader(mine, 4) as loader:
        assert next(iter(loader)).tolist() == [0, 2, 4, 6]
    assert "methods of its own (__getitem__)" in caplog.text


def test_exceptions_of_make_name_the_item(directory):
    def make(self, i, data):
        raise KeyError(i)

    mine = failing(Contents, make=make)(directory)
    for workers in (0, 1):
        with ht.DataLoader(mine, 4, num_workers=workers) as loader:
            with pytest.raises(KeyError) as raised:
                next(iter(loader))
            assert raised.value.sample == 0
            assert raised.value.path == str(directory / "00.txt")


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_file_that_is_written(directory, policy):
    mine = Contents(directory)
    with ht.DataLoader(mine, 4, memory="0", on_error=policy) as loader:
        list(loader)
        (directory / "05.txt").write_text("other")
        numbers = range(COUNT)
        if policy == "raise":
            with pytest.raises(errors.SampleError, match=r"05\.txt"):
                while True:  # batches that were staged come first
                    list(loader)
        else:
            while len(numbers) == COUNT:
                numbers = torch.cat([numbers for _, numbers in loader]).tolist()
            assert numbers == [i for i in range(COUNT) if i != 5]


def test_a_length_that_changes(directory):
    mine = Contents(directory)
    with ht.DataLoader(mine, 4) as loader:
        list(loader)
        mine.count = 5
        with pytest.raises(errors.ConfigError, match=f"it had {COUNT}, and has 5"):
            list(loader)


# Without torch.

PLAIN = """
import random, sys
import hdmlp.data as hd

class Mine(hd.FileDataset):
    def __len__(self):
        return 23
    def files_of(self, i):
        return f"{sys.argv[1]}/{i:02d}.txt"
    def make(self, i, data):
        return i, bytes(data), random.random()

mine, drawn = Mine(), []
assert mine[3][1] == open(f"{sys.argv[1]}/03.txt", "rb").read()
with hd.DataLoader(mine, 4, shuffle=False, seed=1, epochs=2) as loader:
    for epoch in range(2):
        items = [item for batch in loader for item in batch]
        assert [item[:2] for item in items] == [mine[i][:2] for i in range(23)]
        drawn += [item[2] for item in items]
assert len(set(drawn)) == 46
with hd.DataLoader(mine, 4, shuffle=False, seed=1, collate_fn=len) as loader:
    assert list(loader) == [4] * 5 + [3] if loader.epochs else next(iter(loader)) == 4
assert "torch" not in sys.modules
"""


def test_without_torch(directory):
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(hd.__file__))}
    subprocess.run([sys.executable, "-c", PLAIN, directory], env=environment, check=True)
    with pytest.raises(errors.ConfigError, match="transforms: a FileDataset makes its items"):
        hd.DataLoader(Contents(directory), transforms=[object()])
