"""Threads of worker processes that make items: worker_threads."""

import logging
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp.errors import ConfigError
from torch.utils.data import Dataset, IterableDataset, Subset

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

ITEMS, SIZE, THREADS = 200, 8, 4


class Meeting(Dataset):
    """From the batch after those that are looked at on, items wait for others of their batch."""

    def __init__(self):
        self.meet = None

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if i < 40:
            return i, 0
        if self.meet is None:  # made in the worker: a barrier cannot be copied there
            with _LOCK:
                self.meet = self.meet or threading.Barrier(THREADS)
        return i, self.meet.wait(timeout=30) >= 0


_LOCK = threading.Lock()


class Drawing(Dataset):
    """Items that draw from torch's generator from an index on."""

    def __init__(self, first=0, fails=None):
        self.first, self.fails = first, fails

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if self.fails is not None and i >= self.fails:
            raise ValueError(f"item {i}")
        return i, torch.rand(()).item() if i >= self.first else 0.0


def values(dataset, threads, **keys):
    keys = {"batch_size": SIZE, "shuffle": False, "seed": 5, "num_workers": 1, **keys}
    loader = ht.DataLoader(dataset, worker_threads=threads, **keys)
    with loader:
        return [[column.tolist() for column in batch] for batch in loader]


def test_items_of_a_batch_are_made_at_the_same_time_and_in_order():
    """Each item waits until as many are being made as there are threads."""
    made = values(Meeting(), THREADS)
    assert [i for ids, _ in made for i in ids] == list(range(ITEMS))
    assert all(met for _, mets in made[5:] for met in mets)


@pytest.mark.parametrize("first", [0, 10, 100, ITEMS])
def test_results_are_those_without_threads(first, caplog):
    """Items that draw late make the batch again, one after the other; a warning says so."""
    caplog.set_level(logging.WARNING, "hdmlp")
    one = values(Drawing(first), 1)
    caplog.clear()
    assert values(Drawing(first), THREADS) == one
    lines = [m for m in caplog.messages if "worker_threads has no effect" in m]
    assert len(lines) == (first < ITEMS)
    assert all("torch" in line for line in lines)


def test_a_subset_has_threads_too():
    subset = Subset(Meeting(), range(ITEMS))
    assert [i for ids, _ in values(subset, THREADS) for i in ids] == list(range(ITEMS))


def test_the_first_item_that_fails_is_raised():
    with pytest.raises(ValueError, match="item 100") as raised:
        values(Drawing(ITEMS, fails=100), THREADS)
    assert raised.value.sample == 100


class Whole(Drawing):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def test_where_there_are_no_threads_it_is_refused(folder):
    files = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
    for dataset, keys, why in (
        (Drawing(), {"worker_threads": 0}, "worker_threads"),
        (Drawing(), {"num_workers": 0}, "give num_workers=1 or more"),
        (Drawing(), {"num_workers": None}, "give num_workers=1 or more"),
        (Drawing(), {"reseed": "all"}, "one item after the other; leave it out"),
        (Drawing(), {"batch_size": None}, "one item at a time; leave it out"),
        (Whole(), {}, "Whole has __getitems__"),
        (Subset(Whole(), [0]), {}, "Subset has __getitems__"),
        (Stream(), {}, "iterable dataset"),
        (Drawing(), {"files": lambda i: files[i % len(files)]}, "that the daemon reads ahead"),
        (ht.ImageFolder(folder), {}, "transform_threads"),
    ):
        with pytest.raises(ConfigError, match="worker_threads=") as raised:
            ht.DataLoader(dataset, **{"num_workers": 1, "worker_threads": 2, **keys})
        assert why in str(raised.value)
