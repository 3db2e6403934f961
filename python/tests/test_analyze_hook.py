"""The parts of the analyzer's hook that need no script."""

import importlib.util
import os
from collections import UserDict, namedtuple

import pytest

torch = pytest.importorskip("torch")

HOOK = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../internal/study/instrument/hook/hdmlp_analyze"
)


def module(name):
    """A module of the hook, which is no installed package."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HOOK, f"{name}.py"))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


batches, files, rereading, queued = map(module, ("batches", "sample_files", "rereading", "queued"))
Pair = namedtuple("Pair", "images labels")
IMAGES, LABELS = torch.zeros(8, 3, 5, 5), torch.arange(8)


@pytest.mark.parametrize(
    "batch, usual, samples",
    [
        (IMAGES, 8, 8),
        ([IMAGES, LABELS], 8, 8),
        (Pair(IMAGES[:5], LABELS[:5]), 8, 5),
        ({"text": ["a"] * 8, "label": LABELS}, 8, 8),
        ({"image": IMAGES}, None, 8),
        (UserDict(ids=IMAGES), 8, 8),  # as a BatchEncoding is
        (([IMAGES[0]] * 8, [{"boxes": torch.zeros(2, 4)}] * 8), 8, 8),  # of several sizes
        (([memoryview(b"sample")] * 8, LABELS), 8, 8),
        (([memoryview(b"sample")] * 3, LABELS[:3]), 8, 3),
        (torch.tensor(1.0), 8, None),
        (7, None, None),
    ],
)
def test_samples_of_a_batch_are_counted(batch, usual, samples):
    assert batches.samples_in(batch, usual) == samples


def test_copies_keep_structure_and_share_nothing():
    batch = Pair([IMAGES, {"names": ["a"]}], (LABELS, memoryview(b"kept")))
    copy = batches.copied(batch)
    assert type(copy) is Pair
    copy.images[0].fill_(1)
    copy.images[1]["names"].append("b")
    assert batch.images[0].sum() == 0
    assert batch.images[1] == {"names": ["a"]}
    assert copy.labels[1] is batch.labels[1]
    assert batches.size(batch) == IMAGES.numel() * 4 + LABELS.numel() * 8 + 4
    assert batches.size(UserDict(ids=IMAGES)) == IMAGES.numel() * 4


def test_files_of_samples_are_found(tmp_path):
    paths = []
    for number in range(6):
        paths.append(str(tmp_path / f"{number}.bin"))
        (tmp_path / f"{number}.bin").write_bytes(b"x" * number)

    class Listed(list):
        samples = property(lambda self: [(path, 0) for path in self])

    whole = Listed(paths)
    part = torch.utils.data.Subset(whole, [4, 2])
    both = torch.utils.data.ConcatDataset([part, whole])
    assert files.path_of(whole, 3) == paths[3]
    assert files.path_of(part, 1) == paths[2]
    assert [files.path_of(both, i) for i in (0, 1, 2, 7)] == [paths[i] for i in (4, 2, 0, 5)]
    assert sorted(files.drawn(both)) == sorted([*paths, paths[4], paths[2]])
    assert files.sizes([*paths, "/gone"]) == [0, 1, 2, 3, 4, 5, 0]
    assert files.path_of([1, 2], 0) is None
    assert files.drawn([1, 2]) == []


def test_data_files_that_are_opened_are_noted(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")
    opened = files.Opened()
    with opened:
        for name, mode in (("a.bin", "rb"), ("new", "w"), (".", None)):
            path = os.path.join(tmp_path, name)
            if mode:
                open(path, mode).close()
        os.close(os.open(tmp_path / "a.bin", os.O_RDONLY))
    open(os.path.join(tmp_path, "new")).close()
    assert opened.data() == [str(tmp_path / "a.bin")]


@pytest.mark.parametrize(
    "count, seconds, uncached",
    [
        (4, 1e-4, False),
        (4, 3e-3, True),
        (3, 3e-3, False),  # samples are parts of files
        (8, 3e-3, True),
    ],
)
def test_files_that_are_not_in_memory_are_noticed(monkeypatch, count, seconds, uncached):
    monkeypatch.setattr(rereading, "read", lambda path: (seconds, 1000))
    monkeypatch.setattr(rereading, "SECONDS", 0.01)
    reading = rereading.Reading([f"{n}.bin" for n in range(count)], 4)
    assert reading.uncached == uncached
    for workers in (1, 3):
        assert reading.seconds(workers) == pytest.approx(seconds * count / 4 if uncached else 0)


def test_large_files_take_longer(monkeypatch):
    monkeypatch.setattr(rereading, "read", lambda path: (3e-3, 1000_000))
    assert not rereading.Reading(["a"], 1).uncached


def test_large_files_and_parts_of_files_are_not_judged(monkeypatch, tmp_path):
    read = []

    def slow_once(path):
        """The first time, it is not in memory, as only a part of it was read."""
        read.append(path)
        return (1e-4 if read.count(path) > 1 else 0.1), 1000

    monkeypatch.setattr(rereading, "read", slow_once)
    assert not rereading.Reading(["a.bin"], 1).uncached
    assert read == ["a.bin"] * 2
    with open(tmp_path / "large", "wb") as file:
        file.truncate(rereading.LARGEST + 1)
    monkeypatch.setattr(rereading, "read", lambda path: (1.0, 1000))
    assert not rereading.Reading([str(tmp_path / "large")], 1).uncached
    assert rereading.Reading([str(tmp_path / "gone")], 1).uncached


def test_files_are_read_again(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x" * 3_000_000)
    seconds, size = rereading.read(str(tmp_path / "a.bin"))
    assert size == 3_000_000
    assert seconds > 0
    assert rereading.read(str(tmp_path / "gone"))[1] == 0
    assert not rereading.Reading([], 4).uncached


def test_what_reading_takes_is_subtracted():
    deliveries = [(0.1, 8), (0.3, 8)]
    assert rereading.without(deliveries, 0.0) == deliveries
    assert rereading.without(deliveries, 0.02) == [
        (pytest.approx(0.02), 8),
        (pytest.approx(0.06), 8),
    ]
    assert rereading.without(deliveries, 1.0)[0][0] == pytest.approx(0.005)  # 5 % are left
    assert rereading.without([], 1.0) == []


def test_batches_that_were_queued_are_not_counted():
    """Steps of 10 ms find 3 batches ready, wait for a turn, and are counted after that."""
    draining, now, counted = queued.Draining(most=60.0), 5.0, []
    for waited in (0.0, 0.0, 0.0001, 0.03, 0.0, 0.03, 0.0):
        now += waited + 0.01
        counted.append(not draining.goes_on(now, waited, 0.01))
    assert counted == [False] * 4 + [True] * 3


def test_a_job_that_waits_for_nothing_is_counted_some_time_later():
    draining = queued.Draining(most=0.05)
    counted = [not draining.goes_on(5 + n * 0.01, 0.0, 0.01) for n in range(1, 11)]
    assert counted == [False] * 6 + [True] * 4


class Workers:
    """An iterator of batches that workers prepare in turns, in virtual time: each takes ``seconds``
    for one, has ``ahead`` in work or queued, and starts later than the one before by ``start``. The
    first batch is asked for at ``now``."""

    def __init__(self, monkeypatch, count, seconds, start=0.0, ahead=2, now=0.0):
        self._seconds, self._now, self._taken = seconds, now, 0
        begin = [number * start for number in range(count)]
        self._ready = [[at + seconds * (k + 1) for k in range(ahead)] for at in begin]
        monkeypatch.setattr(queued.time, "perf_counter", lambda: self._now)

    def __iter__(self):
        return self

    def __next__(self):
        ready = self._ready[self._taken % len(self._ready)]
        self._now = max(self._now, ready.pop(0))
        ready.append(max(ready[-1], self._now) + self._seconds)
        self._taken += 1


@pytest.mark.parametrize(
    "count, start, ahead, now",
    [
        (1, 0.0, 2, 0.0),
        (2, 0.4, 2, 0.0),
        (4, 0.3, 2, 0.0),
        (2, 0.0, 4, 10.0),  # all were ready before the first was asked for
        (3, 5.0, 6, 20.0),
    ],
)
def test_what_was_queued_is_not_measured(monkeypatch, count, start, ahead, now):
    """Each worker prepares 8 samples in 100 ms, so that all of them together prepare 80 times as
    many a second as there are workers."""
    workers = Workers(monkeypatch, count, 0.1, start, ahead, now)
    delivered = queued.Delivered(workers, [8], count)
    delivered.drain(ahead, 0.1 / 8)
    found = delivered.within(1.0)
    turns = found[: len(found) // count * count]
    rate = sum(samples for _, samples in turns) / sum(seconds for seconds, _ in turns)
    assert rate == pytest.approx(80 * count, rel=0.01)


def test_each_worker_delivers_two_batches(monkeypatch):
    delivered = queued.Delivered(Workers(monkeypatch, 3, 1.0), [8], 3)
    delivered.drain(2, 1.0 / 8)
    assert len(delivered.within(1.5)) == 6
    assert len(delivered.within(0.0)) == 3  # one each, if there is no time left


def test_parts_are_equal_and_each_worker_gets_each():
    """11 and 5 samples of each batch in turns were 51 samples/s by two workers that prepare 96."""
    drawn = [list(range(at, at + 16)) for at in (0, 16, 32)]
    made = queued.parts(drawn, 11)
    assert [len(part) for part in made] == [8] * 6
    assert [sample for part in made for sample in part] == list(range(48))
    assert [len(part) for part in queued.parts([[1, 2, 3, 4, 5], [6]], 2)] == [1, 2, 2, 1]
    assert queued.parts([[1, 2]], 7) == [[1, 2]]
    for count in range(1, 30):
        for workers in range(9):
            turns = queued.in_turn(list(range(count)), workers)
            assert turns == list(range(len(turns)))
            assert len(turns) > count - max(workers, 1)
            got = [[] for _ in range(max(workers, 1))]
            for number in range(len(turns) * len(got)):
                got[number % len(got)].append(turns[number % len(turns)])
            assert all(sorted(each) == turns for each in got)
