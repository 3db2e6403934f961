"""Samplers whose order depends on the program's generators: what a state restores, and what it
cannot."""

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from hdmlp import errors
from torch.utils.data import Sampler

pytestmark = pytest.mark.usefixtures("real")


class Endless(Sampler):
    """Draws each index when it is asked for it, and has no length."""

    def __init__(self, draw):
        self.draw = draw

    def __iter__(self):
        for _ in range(24):
            yield int(self.draw(25))


class Lazy(Endless):
    def __len__(self):
        return 24


DRAWS = {
    "python": random.randrange,
    "torch": lambda n: torch.randint(n, ()),
    "numpy": lambda n: numpy.random.randint(n),
}


def reseed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    numpy.random.seed(seed)


@pytest.mark.parametrize("served", [True, False])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_during_an_epoch_are_repeated_after_resuming(folder, name, served):
    """In a new process, whose generators differ."""
    data = ht.ImageFolder(folder) if served else list(range(25))

    def loader():
        return ht.DataLoader(
            data, 4, sampler=Lazy(DRAWS[name]), collate_fn=None if served else list
        )

    def plain(batch):
        return [bytes(x) for x in batch[0]] if served else batch

    for at in (1, 3, 5):
        reseed(5)
        with loader() as whole:
            batches, states = [], []
            for batch in whole:
                batches.append(plain(batch))
                states.append(whole.state_dict())
        reseed(99)
        with loader() as again:
            again.load_state_dict(states[at - 1])
            assert [plain(batch) for batch in again] == batches[at:]


def test_an_endless_lazy_sampler_cannot_be_resumed():
    with ht.DataLoader(
        list(range(25)), 4, sampler=Endless(random.randrange), collate_fn=list
    ) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(
            errors.ConfigError,
            match="draws from the program's generators while its epoch is under way, and has no "
            "__len__",
        ):
            iter(loader)


@pytest.mark.parametrize("own", [True, False])
def test_resuming_with_another_ranks_generators_warns(folder, caplog, own):
    """Rank 0's state is right for all ranks only if their generators are equal, which cannot be
    known."""
    with ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True) as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state if own else {**state, "rank": 5})
        next(iter(loader))
    assert (
        "the state is that of rank 5, and what RandomSampler yields follows from generators"
        in caplog.text
    ) == (not own)
