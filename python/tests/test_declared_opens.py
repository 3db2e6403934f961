"""``files=``: files that change, and what takes the place of ``open``."""

import builtins
import errno
import gc
import io
import os
import pickle
import threading
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from declaredfiles import change, counts, only_served
from filewatch import Opens
from hdmlp._records import opens
from owndata import COUNT, Annotated, Bytes, Masks, Own, write
from recordfiles import equal
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
)

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


# Files that change.


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


def test_the_warning_says_why_no_file_is_copied(directory, caplog):
    """A table that many items read exists; one that does not is not said to be read by many."""
    mine = Bytes(directory)
    table = directory / "labels.csv"
    common = f"{table} is read by {COUNT} items, and a file of more than"
    none = "none of the files that it names exists"
    for many, files, said, not_said in (
        (5, lambda i: table, [common], [none]),
        (5, lambda i: "/nowhere/x", [none], ["is read by"]),
        (5, lambda i: [table, f"/nowhere/{i}"], [common, f"{COUNT} of those that it"], [none]),
        (5, lambda i: [directory], ["none of the paths that it names is that of a file"], [none]),
        (5, lambda i: [], ["it names none for any item"], [none]),
        (COUNT, lambda i: table, [], ["reads its files itself"]),
    ):
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hdmlp._records.declared.Checked.MOST_ITEMS", many)
            with ht.DataLoader(mine, 4, files=files):
                pass
        assert all(text in caplog.text for text in said), caplog.text
        assert not any(text in caplog.text for text in not_said), caplog.text


def test_a_file_of_all_items_is_not_copied_for_each(directory, caplog, monkeypatch):
    from hdmlp._records import declared

    monkeypatch.setattr(declared.Checked, "MOST_ITEMS", 5)
    mine = Bytes(directory)
    table = directory / "labels.csv"
    with ht.DataLoader(mine, 4, files=lambda i: [table, mine.path(i, "txt")]) as loader:
        assert equal(list(loader), list(DataLoader(mine, 4)))
        assert counts(loader)["served"] == COUNT
    assert f"{table} is read by {COUNT} items, and so not copied" in caplog.text


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
        gc.collect()  # of what other tests left, too
        before = len(os.listdir("/proc/self/fd"))
        list(loader)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before


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
