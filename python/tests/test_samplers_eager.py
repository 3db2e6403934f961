"""Samplers that draw, or count, when they are iterated and not when they are asked: torch's loader
iterates them twice as it makes its workers."""

import pickle
import random

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import Items, length, same
from torch.utils.data import DataLoader, Sampler

pytestmark = pytest.mark.usefixtures("real")


class Drawing(Sampler):
    """Draws an epoch as it begins."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 24 // self.size

    def __iter__(self):
        order = torch.randperm(24).tolist()
        random.shuffle(order)
        if self.size == 1:
            return iter(order)
        return iter([order[at : at + self.size] for at in range(0, 24, self.size)])


class Counting(Drawing):
    """Counts its epochs."""

    epoch = -1

    def __len__(self):
        return 20 if self.size == 1 else 2

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.epoch += 1
        first = self.epoch % 4
        return iter(range(first, first + 20) if self.size == 1 else [[first, 3], [4, first]])


KINDS = {
    "batches": lambda sampler: {"batch_sampler": sampler(4)},
    "items": lambda sampler: {"batch_size": None, "sampler": sampler(1)},
}
WORKERS = {
    "none": {},
    "one": {"num_workers": 1},
    "two that stay": {"num_workers": 2, "persistent_workers": True},
}


def three_epochs(loader):
    """Of which the second is broken off."""
    found = []
    for _ in range(3):
        found.append([])
        for step, (x, _) in enumerate(loader):
            found[-1].append(x.clone())
            if len(found) == 2 and step == 1:
                break
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", [Drawing, Counting])
def test_the_order_is_torchs(folder, sampler, kind, workers):
    data = ht.ImageFolder(folder, loader=length)
    found = []
    for make, items in ((DataLoader, Items(data)), (ht.DataLoader, data)):
        torch.manual_seed(3)
        random.seed(3)
        loader = make(items, **KINDS[kind](sampler), **WORKERS[workers])
        found.append((three_epochs(loader), torch.rand(1), random.random()))
    assert same(*found)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", [Drawing, Counting])
def test_resuming_draws_it_again(sampler, kind, workers):
    def loader():
        return ht.DataLoader(torch.arange(25), **KINDS[kind](sampler), **WORKERS[workers])

    with loader() as whole:
        batches, states = [], []
        for _ in range(2):
            for batch in whole:
                batches.append(batch.tolist())
                states.append(pickle.dumps(whole.state_dict()))
    steps = len(batches) // 2
    for at in (1, steps + 1):
        torch.manual_seed(99)
        with loader() as again:
            again.load_state_dict(pickle.loads(states[at - 1]))
            got = [x.tolist() for x in again]
            assert got == batches[at : steps if at < steps else 2 * steps]


@pytest.mark.parametrize("order", [{"seed": 7}, {"seed": 7, "rank": 0, "world_size": 1}])
def test_the_order_of_a_seed_does_not_depend_on_workers(order):
    """Single items, whose sampler is iterated as an eager one would be."""
    found = []
    for workers in (0, 1):
        with ht.DataLoader(
            torch.arange(9), None, shuffle=True, num_workers=workers, **order
        ) as loader:
            found.append([[x.item() for x in loader] for _ in range(3)])
    assert found[0] == found[1]
    assert len({tuple(epoch) for epoch in found[0]}) == 3
