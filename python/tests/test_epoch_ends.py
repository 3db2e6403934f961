"""A state taken after an epoch's last batch: the next epoch follows, whether or not the iterator
was asked for one more batch."""

import pickle

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import NUMBERS, same
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, WeightedRandomSampler

pytestmark = pytest.mark.usefixtures("real")


def generator():
    return torch.Generator().manual_seed(3)


class Batches(BatchSampler):
    """A user's batch sampler that is exhausted before the first batch."""


LOADERS = {
    "by ID": lambda d: ht.DataLoader(d, 4, num_workers=0),
    "shuffle, generator": lambda d: ht.DataLoader(
        d, 4, num_workers=0, shuffle=True, generator=generator()
    ),
    "shuffle, generator, workers": lambda d: ht.DataLoader(
        d, 4, shuffle=True, generator=generator(), num_workers=2
    ),
    "shuffle, generator, workers that stay": lambda d: ht.DataLoader(
        d, 4, shuffle=True, generator=generator(), num_workers=1, persistent_workers=True
    ),
    "weighted": lambda d: ht.DataLoader(
        d,
        4,
        num_workers=0,
        sampler=WeightedRandomSampler(torch.ones(len(d)), 30, generator=generator()),
    ),
    "batches": lambda d: ht.DataLoader(
        d, num_workers=0, batch_sampler=Batches(RandomSampler(d, generator=generator()), 4, True)
    ),
    "seed": lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, seed=3),
    "distributed": lambda d: ht.DataLoader(
        d, 4, num_workers=0, sampler=DistributedSampler(d, 1, 0, seed=5)
    ),
}


def passed(loader, epochs, asks):
    """Iterates over so many epochs; over the last one to its StopIteration, or only to its last
    batch."""
    for epoch in range(epochs):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(len(loader)):
            next(batches)
        if asks or epoch + 1 < epochs:
            assert next(batches, None) is None
    return loader.state_dict()


def rest(loader, first):
    found = []
    for epoch in (first, first + 1):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        found.append(list(loader))
    return found


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("kind", ["folder", "numbers"])
@pytest.mark.parametrize("name", LOADERS)
def test_the_next_epoch_follows(folder, name, kind, asks):
    data = (
        NUMBERS
        if kind == "numbers"
        else ht.ImageFolder(folder, loader=lambda x: torch.tensor([float(len(x))]))
    )
    with LOADERS[name](data) as loader:
        state = pickle.loads(pickle.dumps(passed(loader, 2, asks)))
        expected = rest(loader, 2)
    assert (state["epoch"], state["step"]) == (2, 0)
    torch.manual_seed(1)
    drawn = torch.rand(1)
    with LOADERS[name](data) as again:
        torch.manual_seed(1)
        again.load_state_dict(state)
        assert torch.equal(torch.rand(1), drawn)  # it leaves the program's generator alone
        assert again.state_dict() == state
        assert same(rest(again, 2), expected)
