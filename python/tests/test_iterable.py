"""Iterable datasets: what a loader counts of them, their epochs, and how they resume."""

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import Stream, same
from hdmlp import errors
from torch.utils.data import DataLoader, IterableDataset


class Epochs(IterableDataset):
    """Six numbers, others in each epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(range(self.epoch * 100, self.epoch * 100 + 6))


def values(loader):
    return [batch.tolist() for batch in loader]


def at(loader):
    state = loader.state_dict()
    return state["epoch"], state["step"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "arguments, samples",
    [
        ({"batch_size": 4}, 10),
        ({"batch_size": None}, 10),
        ({"batch_size": 4, "collate_fn": sum}, 12),
        ({"batch_size": 4, "collate_fn": lambda items: {"x": items}}, 12),
    ],
)
def test_batches_are_counted(workers, arguments, samples):
    """A short batch of the user's own collate_fn counts as a full one."""
    with ht.DataLoader(Stream(), num_workers=workers, **arguments) as loader:
        assert loader.report()["batches"] == 0
        batches = len(list(loader))
        assert batches == len(list(DataLoader(Stream(), **arguments)))
        assert loader.stats[:2] == (batches, samples)
        report = loader.report()
        assert (report["batches"], report["samples"]) == (batches, samples)
        assert f"{batches} batches of {samples} items" in str(report)
        assert 0 < report["stall_seconds"] <= report["seconds"]


def test_set_epoch_tells_the_dataset():
    """As a loop over torch's loader does."""
    ours, theirs = Epochs(), Epochs()
    want = DataLoader(theirs, 4)
    with ht.DataLoader(ours, 4) as loader:
        for epoch in (0, 3, 1):
            loader.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert (loader.epoch, at(loader)) == (epoch, (epoch, 0))
            assert values(loader) == values(want)
        assert loader.epoch == 2
        loader.set_epoch(5)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with ht.DataLoader(Epochs(), 4) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        loader.set_epoch(5)  # as Lightning does, in the middle of it
        assert values(loader) == [[504, 505]]
        assert at(loader) == (6, 0)
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert values(loader) == [[0, 1, 2, 3], [4, 5]]
        with pytest.raises(errors.ConfigError, match="epoch=-1"):
            loader.set_epoch(-1)
    with ht.DataLoader(Stream(), 3) as loader:  # which has no set_epoch
        loader.set_epoch(4)
        assert loader.epoch == 4
        assert same(list(loader), list(DataLoader(Stream(), 3)))


def test_a_running_iteration_counts_after_set_epoch():
    with ht.DataLoader(Stream(), 3) as loader:
        batches = iter(loader)
        next(batches)
        loader.set_epoch(7)
        assert at(loader) == (7, 0)
        next(batches)
        assert at(loader) == (0, 2)
        list(batches)
        assert at(loader) == (7, 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_that_is_not_asked_takes_no_epoch(workers):
    with ht.DataLoader(Stream(), 3, num_workers=workers) as loader:
        want = list(loader)
        loader.load_state_dict({"version": 1, "kind": "iterable", "epoch": 1, "step": 2})
        iter(loader)
        kept = iter(loader)
        assert at(loader) == (1, 2)
        assert same(list(loader), want[2:])
        assert same(list(kept), want)


def without_fours(items):
    if 4 in items:
        raise ValueError("4")
    return list(items)


def taken(batches):
    """All batches; an exception in the place of one that failed."""
    found = []
    while True:
        try:
            found.append(next(batches))
        except ValueError as error:
            found.append(type(error))
        except StopIteration:
            return found


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_fails_does_not_end_the_epoch(workers):
    """As with torch's loader, whose next batch follows."""
    options = {"collate_fn": without_fours, "num_workers": workers}
    want = taken(iter(DataLoader(Stream(), 3, **options)))
    assert want == [[0, 1, 2], ValueError, [6, 7, 8], [9]]
    with ht.DataLoader(Stream(), 3, **options) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(ValueError, match="4"):
            next(batches)
        assert at(loader) == (0, 2)
        assert taken(batches) == want[2:]
        assert at(loader) == (1, 0)
        assert loader.stats.batches == 3


def test_an_order_is_refused():
    with ht.DataLoader(Stream(), 3) as loader:
        for ask in (lambda: loader.seed, lambda: loader.explain(0, 0)):
            with pytest.raises(errors.ConfigError, match="iterable dataset"):
                ask()
        assert loader.output is None


def test_shards_that_webdataset_reads(caplog):
    """The line was tried with webdataset 1.0.2."""

    class WebDataset(Epochs):
        __module__ = "webdataset.compat"

    class Mine(WebDataset):
        __module__ = "train"

    for kind in (WebDataset, WebDataset, Mine):
        with ht.DataLoader(kind(), 3) as loader:
            assert values(loader) == [[0, 1, 2], [3, 4, 5]]
    lines = [r.getMessage() for r in caplog.records if "hdmlp.torch.WebDataset" in r.getMessage()]
    assert [line.partition(":")[0] for line in lines] == ["WebDataset", "Mine"]
