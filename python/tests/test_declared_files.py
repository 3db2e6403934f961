"""``files=``: any map-style dataset, whose items open files that the daemon has copies of.

The oracle is torch's own loader over the same dataset.
"""

import builtins
import copy
import errno
import gc
import io
import logging
import mmap
import os
import pickle
import sys
import threading
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from filewatch import Opens
from hdmlp import errors
from hdmlp._records import opens
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


def counts(loader):
    return loader._content._copying.tally.counts()


def only_served(loader, calls=None):
    """Every call of ``open`` got a copy, of each declared file."""
    found = counts(loader)
    assert found["served"] > 0
    assert found == {
        "served": found["served"] if calls is None else calls,
        "undeclared": 0,
        "written": 0,
        "absent": 0,
        "refused": 0,
        "unopened": 0,
    }


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


# Files that change.


def change(path, how):
    if how == "written":
        path.write_bytes(b"other " + path.read_bytes())
    elif how == "same size":
        path.write_bytes(path.read_bytes()[::-1])
    elif how == "replaced":
        other = path.with_suffix(".new")
        other.write_bytes(path.read_bytes()[::-1])
        os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        other.rename(path)
    elif how == "times put back":
        before = path.stat()
        path.write_bytes(path.read_bytes()[::-1])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("how", ["written", "same size", "replaced", "times put back"])
@pytest.mark.parametrize("memory", ["32MiB", "0"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_changed_is_delivered_new(directory, how, memory, workers):
    """Whether the daemon has its copy or reads it again; in the same epoch, and in later ones."""
    mine = Bytes(directory)
    with ht.DataLoader(
        mine,
        1,
        num_workers=workers,
        prefetch_factor=1 if workers else None,
        files=mine.files,
        memory=memory,
        check="open",
    ) as loader:
        batches = iter(loader)
        next(batches)
        for i in (5, COUNT - 1):
            change(mine.path(i, "txt"), how)
        rest = list(batches)
        expected = list(DataLoader(mine, 1))
        assert equal(rest[-1], expected[-1])
        for _ in range(2):
            assert equal(list(loader), expected)
        assert counts(loader)["written"] + counts(loader)["absent"] >= 5


def test_a_file_is_looked_at_every_two_seconds(directory, monkeypatch):
    from hdmlp._records import copies

    mine, now = Bytes(directory), [1000.0]
    monkeypatch.setattr(copies.time, "monotonic", lambda: now[0])
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        before = list(loader)
        change(mine.path(3, "txt"), "same size")
        now[0] += 1.9
        assert equal(list(loader), before)
        now[0] += 0.2
        assert equal(list(loader), list(DataLoader(mine, 4)))
        assert not equal(before, list(DataLoader(mine, 4)))


@pytest.mark.parametrize("memory", ["32MiB", "0"])
def test_a_file_that_is_removed_is_missing(directory, memory):
    """As with torch, the item's own exception; the other items come."""
    mine = Bytes(directory)
    with ht.DataLoader(mine, 1, files=mine.files, memory=memory, check="open") as loader:
        list(loader)
        mine.path(4, "txt").unlink()
        batches, got = iter(loader), []
        for i in range(COUNT):
            if i == 4:
                with pytest.raises(FileNotFoundError) as raised:
                    next(batches)
                assert raised.value.filename == str(mine.path(4, "txt"))
            else:
                got.append(next(batches))
        assert len(got) == COUNT - 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_job_is_opened_again_after_files_changed(directory, shuffle):
    """By another iterator at the same time, which has a job of its own."""
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, shuffle=shuffle, seed=0, files=mine.files, check="open") as loader:
        first = iter(loader)
        next(first)
        change(mine.path(3, "txt"), "written")
        mine.path(22, "txt").unlink()
        mine.path(22, "txt").write_text("a new one")
        loader._content._copying.files._looked -= 2
        second = list(loader)
        sampler = DistributedSampler(mine, 1, 0, seed=0, shuffle=shuffle)
        sampler.set_epoch(1)
        assert equal(second, list(DataLoader(mine, 4, sampler=sampler)))


def test_wrong_declarations_cost_time_only(directory, caplog):
    """Files that do not exist, of other items, none, directories, too many."""
    mine = Bytes(directory)
    for wrong in (
        lambda i: mine.path((i + 1) % COUNT, "txt"),
        lambda i: [mine.path(i, "none"), mine.path(i, "txt")] if i % 2 else [],
        lambda i: None if i else mine.path(0, "txt"),
        lambda i: [directory, "/dev/null", mine.path(i, "txt")],
        lambda i: [mine.path(j, "txt") for j in range(COUNT)] * 5,
        lambda i: [mine.path(i, "txt"), mine.path(i, "txt")],
    ):
        with ht.DataLoader(mine, 4, shuffle=True, seed=2, files=wrong) as loader:
            sampler = DistributedSampler(mine, 1, 0, seed=2)
            assert equal(list(loader), list(DataLoader(mine, 4, sampler=sampler)))
    caplog.clear()
    with ht.DataLoader(mine, 4, files=lambda i: "/nowhere/x") as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))
    assert "none of the files that it names exists (such as /nowhere/x)" in caplog.text


def test_a_file_of_all_items_is_not_copied_for_each(directory, caplog, monkeypatch):
    from hdmlp._records import declared

    monkeypatch.setattr(declared.Checked, "MOST_ITEMS", 5)
    mine = Bytes(directory)
    table = directory / "labels.csv"
    with ht.DataLoader(mine, 4, files=lambda i: [table, mine.path(i, "txt")]) as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))
        assert counts(loader)["served"] == COUNT
    assert f"{table} is read by {COUNT} items, and so not copied" in caplog.text


# Patches.


def test_open_is_pythons_outside_of_items(directory):
    mine = Bytes(directory)
    real = builtins.open
    loader = ht.DataLoader(mine, 4, files=mine.files)
    assert builtins.open is real
    batches = iter(loader)
    next(batches)
    assert builtins.open is not real
    assert builtins.open is io.open
    assert pickle.loads(pickle.dumps(open)) is open
    with Opens(directory) as watch, open(mine.path(0, "txt")) as file:
        assert file.read()
        assert watch.take() == 1
    loader.close()
    assert builtins.open is real


def test_two_loaders_and_nested_ones(directory):
    """Items of which one iterates another loader, and another thread's loader."""
    inner = Bytes(directory)

    class Outer(Masks):
        def __getitem__(self, i):
            with open(self.path(i, "bmp"), "rb") as file:
                before = file.read(10)
            return before, next(iter(nested))[i % 2], super().__getitem__(i)[0]

    outer = Outer(directory)
    nested = DataLoader(inner, 2)
    expected = list(DataLoader(outer, 4))
    nested = ht.DataLoader(inner, 2, files=inner.files)
    got, failed = [], []

    def others():
        try:
            for _ in range(3):
                with ht.DataLoader(inner, 4, files=inner.files) as loader:
                    assert equal(list(loader), list(DataLoader(inner, 4)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=others)
    thread.start()
    with ht.DataLoader(outer, 4, files=outer.files) as loader:
        got = list(loader)
        assert counts(loader)["served"] == 3 * COUNT
    thread.join()
    assert not failed
    assert equal(got, expected)
    nested.close()


def test_an_exception_ends_the_item_only(directory):
    class Failing(Bytes):
        def __getitem__(self, i):
            if i == 2:
                raise KeyError(i)
            return super().__getitem__(i)

    mine = Failing(directory)
    with ht.DataLoader(mine, 1, files=mine.files) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        with pytest.raises(KeyError):
            next(batches)
        assert not opens._active.stack
        assert equal(next(batches), torch.stack([mine[3]]))


def test_what_the_program_patched_before_is_called(directory, monkeypatch, caplog):
    """Its function is asked for every file: what it makes of it is not known."""
    real, called = builtins.open, []

    def mine_open(*args, **keys):
        called.append(args[0])
        return real(*args, **keys)

    monkeypatch.setattr(builtins, "open", mine_open)
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        assert len(list(loader)) == 6
    assert [path for path in called if isinstance(path, Path)] == [
        mine.path(i, "txt") for i in range(COUNT)
    ]
    assert "open was replaced by a function of the program's" in caplog.text
    monkeypatch.undo()


def test_what_the_program_patches_later_goes_on(directory, monkeypatch):
    mine, called = Bytes(directory), []
    loader = ht.DataLoader(mine, 4, files=mine.files)
    batches = iter(loader)
    next(batches)
    ours = builtins.open

    def mine_open(*args, **keys):
        called.append(args[0])
        return ours(*args, **keys)

    builtins.open = mine_open
    try:
        list(batches)
        assert len(called) == COUNT - 4
        assert counts(loader)["served"] == COUNT
        loader.close()
        with open(mine.path(0, "txt")) as file:
            assert file.read()
        with ht.DataLoader(mine, 4, files=mine.files) as again:
            assert len(list(again)) == 6
            assert counts(again)["refused"] == COUNT
    finally:
        builtins.open = io.open


def test_without_descriptors_or_memory_files_are_opened(directory, monkeypatch):
    def fails(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(opens, "copied", fails)
    mine = Bytes(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))


def test_copies_are_closed_with_their_files(directory):
    mine = Annotated(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        list(loader)
        before = len(os.listdir("/proc/self/fd"))
        list(loader)
        assert len(os.listdir("/proc/self/fd")) == before


def library(name, **attributes):
    module = type(sys)(name)
    vars(module).update(attributes)
    return module


def test_libraries_below_python(directory):
    cv2 = pytest.importorskip("cv2")

    class Read(Own):
        suffixes = ("png",)

        def __getitem__(self, i):
            return cv2.imread(str(self.path(i, "png")))[:16, :16]

    mine, before = Read(directory), cv2.imread
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))
        only_served(loader, COUNT)
    assert cv2.imread is before


def test_sound_files(directory):
    soundfile = pytest.importorskip("soundfile")
    for i in range(COUNT):
        soundfile.write(directory / f"{i:02d}.wav", numpy.linspace(-1, 1, 100 + i), 8000)

    class Sounds(Own):
        suffixes = ("wav",)

        def __getitem__(self, i):
            path = str(self.path(i, "wav"))
            with soundfile.SoundFile(path) as file:
                assert file.name == path
            assert soundfile.info(path).name == path
            return torch.tensor(soundfile.read(path)[0][:100])

    mine = Sounds(directory)
    with ht.DataLoader(mine, 4, files=mine.files) as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))
        only_served(loader, 3 * COUNT)


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
    run(sys.executable, "-c", PREPARED, str(directory))


def test_files_on_a_slow_file_system_are_looked_at_together(directory, monkeypatch):
    """As if looking at one took long: from the second batch on, before the batch."""
    from hdmlp._records import copies, declared

    monkeypatch.setattr(copies, "LOCAL", -1)
    monkeypatch.setattr(declared, "LOCAL", -1)
    monkeypatch.setattr(declared, "_FIRST", 2)
    mine = Masks(directory)
    for workers in (0, 2):
        with ht.DataLoader(mine, 4, num_workers=workers, files=mine.files) as loader:
            assert equal(list(loader), list(DataLoader(mine, 4)))
            only_served(loader, 2 * COUNT)
            fresh = loader._content._copying.fresh
            assert (fresh._pool is not None) == (workers == 0)


def test_a_loader_that_is_gone_leaves_nothing(directory):
    mine, real = Bytes(directory), builtins.open
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        loader = ht.DataLoader(mine, 4, files=mine.files)
        assert next(iter(loader)) is not None
        assert builtins.open is not real
        del loader
        gc.collect()
        assert builtins.open is real
    assert len(os.listdir("/proc/self/fd")) <= before
