"""``set_epoch`` of the samplers that a loader makes, as frameworks call it: the epoch that it names
is delivered, as with torch's ``DistributedSampler``."""

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import Items, length, same
from hdmlp.errors import ConfigError
from test_dropin import Random
from torch.utils.data import DataLoader, DistributedSampler

pytestmark = pytest.mark.usefixtures("real")

MAKES = {
    "seed": {"shuffle": True, "seed": 42},
    "shard": {"shuffle": True, "seed": 42, "rank": 0, "world_size": 1, "epochs": 300},
    "feistel": {"shuffle": "feistel", "seed": 42, "rank": 0, "world_size": 1},
}


def made(data, name, workers=0):
    return ht.DataLoader(data, 4, drop_last=True, num_workers=workers, **MAKES[name])


def reference(data, name, epochs=5):
    """The epochs by the loader's own ``set_epoch``, which torch's order confirms."""
    found = []
    with made(data, name) as loader:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            found.append(list(loader))
    if name != "feistel":
        sampler = DistributedSampler(data, 1, 0, seed=42)
        theirs = DataLoader(Items(data), 4, sampler=sampler, drop_last=True)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            assert same(list(theirs), found[epoch])
    return found


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MAKES)
def test_the_epoch_set_on_the_loaders_sampler_is_delivered(folder, name, workers):
    """Again if it is set again; otherwise the next one follows."""
    data = ht.ImageFolder(folder, loader=length)
    want = reference(data, name)
    with made(data, name, workers) as loader:
        for epoch in (3, 3, None, 0, 1):
            if epoch is not None:
                loader.sampler.set_epoch(epoch)
            assert same(list(loader), want[4 if epoch is None else epoch]), epoch


@pytest.mark.parametrize("name", MAKES)
def test_a_framework_that_sets_every_epoch_has_nothing_read_twice(folder, name):
    """Lightning names the running epoch before it begins, also after it has loaded a state."""
    data = ht.ImageFolder(folder, loader=length)
    want = reference(data, name)
    with made(data, name) as loader:
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            batches = iter(loader)
            got = [next(batches) for _ in range(3)]
            state = loader.state_dict()
            assert same(got + list(batches), want[epoch])
        assert loader.report()["source"]["samples"] <= 25
        assert loader.stats.batches == 2 * len(loader)
    with made(data, name) as loader:
        loader.sampler.set_epoch(0)  # before the state is loaded
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        loader.sampler.set_epoch(1)
        assert same(list(loader), want[1][3:])
        loader.sampler.set_epoch(2)
        assert same(list(loader), want[2])


def test_an_epoch_set_before_a_state_is_loaded_does_not_apply(folder):
    data = ht.ImageFolder(folder, loader=length)
    want = reference(data, "seed")
    with made(data, "seed") as loader:
        loader.set_epoch(2)
        state = loader.state_dict()
        loader.sampler.set_epoch(1)
        loader.load_state_dict(state)
        assert same(list(loader), want[2])


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["seed", "shard"])
def test_items_random_numbers_are_those_of_the_epoch_set_on_the_sampler(name, workers):
    """For datasets that HDMLP does not read itself; resuming continues with them."""

    def loader():
        return made(Random(), name, workers)

    with loader() as run:
        want = [list(run) for _ in range(4)]
    with loader() as run:
        run.sampler.set_epoch(2)
        assert run.state_dict()["step"] == 0
        batches = iter(run)
        got = [next(batches) for _ in range(2)]
        state = run.state_dict()
        assert state["epoch"] == 2
        assert same(got + list(batches), want[2])
        assert same(list(run), want[3])
        run.sampler.set_epoch(1)
        assert same(list(run), want[1])
    with loader() as run:
        run.load_state_dict(state)
        run.sampler.set_epoch(2)
        assert same(list(run), want[2][2:])
        assert same(list(run), want[3])


@pytest.mark.limit(60)
@pytest.mark.parametrize("epoch", [2**32 - 1, 2**32, 2**70])
@pytest.mark.parametrize("sets", ["loader", "DistributedSampler"])
def test_an_epoch_that_cannot_be_counted_is_refused(folder, epoch, sets):
    data = ht.ImageFolder(folder)
    if sets == "loader":
        loader = ht.DataLoader(data, 4, shuffle=True, seed=1)
        sampler = loader
    else:
        sampler = DistributedSampler(data, 1, 0, seed=1)
        loader = ht.DataLoader(data, 4, sampler=sampler)
    with loader:
        list(loader)
        with pytest.raises(ConfigError, match=f"epoch={epoch}: must be 4294967294 or less"):
            sampler.set_epoch(epoch)
            next(iter(loader))


def test_the_last_epoch_has_no_next_one(folder):
    with ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True, seed=1) as loader:
        loader.set_epoch(2**32 - 2)
        want = len(loader)
        assert len(list(loader)) == want
        with pytest.raises(ConfigError, match="epoch=4294967295: must be 4294967294 or less"):
            next(iter(loader))


DRAWN = {
    "seed": lambda: made(Random(), "seed"),
    "shard": lambda: made(Random(), "shard"),
    "generator": lambda: ht.DataLoader(
        Random(), 4, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
}


@pytest.mark.parametrize("taken", [0, 2, 5])
@pytest.mark.parametrize("name", DRAWN)
def test_a_state_has_the_epoch_that_was_set(name, taken):
    """Before an epoch, after one that was broken off, and after a whole one."""
    with DRAWN[name]() as run:
        batches = iter(run) if taken else None
        for _ in range(taken):
            next(batches)
        run.set_epoch(7)
        state = run.state_dict()
        assert (state["epoch"], state["step"], run.epoch) == (7, 0, 7)
        torch.manual_seed(1)
        want = list(run)
    with DRAWN[name]() as run:
        run.load_state_dict(state)
        assert run.state_dict() == state
        torch.manual_seed(1)
        assert same(list(run), want)


@pytest.mark.parametrize("name", DRAWN)
def test_an_epoch_set_while_another_runs_leaves_its_state(name):
    with DRAWN[name]() as run:
        batches = iter(run)
        next(batches)
        run.set_epoch(7)
        next(batches)
        state = run.state_dict()
        assert (state["epoch"], state["step"]) == (0, 2)
        rest = list(batches)
        assert (run.state_dict()["epoch"], run.state_dict()["step"]) == (7, 0)
    with DRAWN[name]() as run:
        run.load_state_dict(state)
        assert same(list(run), rest)


class Batches(torch.utils.data.BatchSampler):
    """Has an epoch itself, and notifies no other sampler."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return ([(i + self.epoch) % 25 for i in batch] for batch in super().__iter__())


@pytest.mark.parametrize("kind", [torch.utils.data.BatchSampler, Batches])
def test_the_loaders_set_epoch_reaches_a_batch_samplers_order(folder, kind):
    data = ht.ImageFolder(folder, loader=length)

    def batches():
        return kind(DistributedSampler(data, 2, 1, seed=4), 3, False)

    mine, its = batches(), batches()
    with ht.DataLoader(data, batch_sampler=mine) as loader:
        theirs = DataLoader(Items(data), batch_sampler=its)
        for epoch in (0, 3, 3, 1):
            loader.set_epoch(epoch)
            for sampler in (its, its.sampler):
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
            assert same(list(loader), list(theirs)), epoch
