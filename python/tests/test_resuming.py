"""What resuming survives: iterators that are made and not asked; and what it does not restore."""

import json

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import NUMBERS, Numbers, Stream, generator, same
from hdmlp import errors
from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler

pytestmark = pytest.mark.usefixtures("real")

LOADERS = {
    "served": lambda d, n: ht.DataLoader(d, 4, shuffle=True, seed=1, num_workers=n),
    "given": lambda d, n: ht.DataLoader(d, 4, shuffle=True, num_workers=n),
    "given, generator": lambda d, n: ht.DataLoader(
        d, 4, shuffle=True, generator=generator(), num_workers=n
    ),
    "drawn": lambda d, n: ht.DataLoader(NUMBERS, 5, shuffle=True, num_workers=n),
    "seeded": lambda d, n: ht.DataLoader(NUMBERS, 5, shuffle=True, seed=2, num_workers=n),
    "workers that stay": lambda d, n: ht.DataLoader(
        NUMBERS, 5, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def plain(batches):
    return [y.tolist() for _, y in batches]


def plain_items(items):
    return [torch.as_tensor(y).tolist() for _, y in items]


@pytest.mark.parametrize("set_epoch", [False, True])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LOADERS)
def test_an_iterator_that_is_not_asked_leaves_the_state(folder, name, workers, set_epoch):
    """Frameworks make some; the next one resumes."""
    data = ht.ImageFolder(folder)
    with LOADERS[name](data, workers) as loader:
        list(loader)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        want = plain(batches)
    torch.manual_seed(99)
    with LOADERS[name](data, workers) as loader:
        loader.load_state_dict(state)
        iter(loader)
        kept = iter(loader)
        assert loader.state_dict()["step"] == 2
        if set_epoch:
            loader.set_epoch(1)
        batches = iter(loader)
        assert plain(batches) == want
        assert loader.epoch == 2
        loader.set_epoch(5)
        iter(loader)
        assert (loader.epoch, loader.state_dict()["step"]) == (5, 0)
        del kept


def test_another_epoch_replaces_what_an_unasked_iterator_would_resume():
    with ht.DataLoader(NUMBERS, 5, shuffle=True, seed=2) as loader:
        want = list(loader), list(loader)
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)
        iter(loader)
        loader.set_epoch(1)
        assert same(list(loader), want[1])


@pytest.mark.parametrize("set_on", ["loader", "sampler"])
@pytest.mark.parametrize("name", ["served", "seeded"])
def test_another_epoch_replaces_a_loaded_state(folder, name, set_on):
    data = ht.ImageFolder(folder)
    with LOADERS[name](data, 0) as loader:
        want = [plain(loader) for _ in range(4)]
    with LOADERS[name](data, 0) as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        (loader if set_on == "loader" else loader.sampler).set_epoch(3)
        assert plain(loader) == want[3]
        assert loader.epoch == 4


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["served", "seeded"])
def test_an_iterator_that_is_not_asked_takes_no_epoch(folder, name, workers):
    """Those that exist at the same time have one each, in the order in which they begin."""
    data = ht.ImageFolder(folder)
    with LOADERS[name](data, workers) as loader:
        want = [plain(loader) for _ in range(5)]
    with LOADERS[name](data, workers) as loader:
        iter(loader)
        assert loader.epoch == 0
        first = [plain(loader), plain(loader)]
        iter(loader)
        pairs = list(zip(loader, loader))
        got = first + [[y.tolist() for _, y in (pair[i] for pair in pairs)] for i in range(2)]
        assert got == want[:4]
        iter(loader)
        loader.set_epoch(1)
        assert plain(loader) == want[1]


SHARED = {
    "shard": lambda rank, ranks, size: ht.DataLoader(
        NUMBERS, size, shuffle=True, seed=2, rank=rank, world_size=ranks
    ),
    "sampler": lambda rank, ranks, size: ht.DataLoader(
        NUMBERS, size, sampler=DistributedSampler(NUMBERS, ranks, rank, seed=2)
    ),
}


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("name", SHARED)
def test_one_ranks_state_is_every_ranks_in_any_number(name, over):
    """For items that are made in Python, if the global batch stays the same."""

    def begun():
        loader = SHARED[name](0, 2, 4)
        batches = iter(loader)
        taken = len(list(batches)) if over else len([next(batches), next(batches)])
        assert taken == (5 if over else 2)
        return loader

    state = begun().state_dict()
    with SHARED[name](0, 1, 8) as loader:
        loader.set_epoch(int(over))
        want = plain(loader)[0 if over else 2 :]
    for ranks in (1, 2, 4):
        found = []
        for rank in range(ranks):
            with SHARED[name](rank, ranks, 8 // ranks) as loader:
                loader.load_state_dict(state)
                if over:
                    loader.sampler.set_epoch(1)
                found.append(plain(loader))
        for step, batch in enumerate(want):
            got = [x for place in zip(*(rank[step] for rank in found)) for x in place]
            assert got[: len(batch)] == batch
    with (
        SHARED[name](0, 1, 4) as loader,
        pytest.raises(errors.MismatchError, match=r"global_batch is 4 here.* with batch_size=8"),
    ):
        loader.load_state_dict(state)


def test_a_state_of_an_earlier_version_resumes():
    """It does not say how many ranks there were, nor the global batch."""
    with SHARED["shard"](0, 2, 4) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        del state["world_size"], state["global_batch"]
        want = plain(batches)
    with SHARED["shard"](0, 2, 4) as loader:
        loader.load_state_dict(state)
        assert plain(loader) == want


class Remembering(torch.utils.data.Sampler):
    """A sampler which has a state, and no generator."""

    def __init__(self, first):
        self.first = first

    def __len__(self):
        return 10

    def __iter__(self):
        self.first += 1
        return iter(range(self.first, self.first + 10))

    def state_dict(self):
        return {"first": self.first}

    def load_state_dict(self, state):
        self.first = state["first"]


OWN = {
    "generator": lambda d, g: ht.DataLoader(d, 4, shuffle=True, generator=g),
    "random": lambda d, g: ht.DataLoader(d, 4, sampler=RandomSampler(d, generator=g)),
    "weighted": lambda d, g: ht.DataLoader(
        d, 4, sampler=WeightedRandomSampler([1 + i % 5 for i in range(25)], 12, generator=g)
    ),
    "single items": lambda d, g: ht.DataLoader(d, None, shuffle=True, generator=g),
    "state": lambda d, g: ht.DataLoader(d, 4, sampler=Remembering(g.initial_seed())),
}


@pytest.mark.parametrize("dataset", ["folder", "in Python"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", OWN)
def test_a_state_from_before_the_first_batch_has_the_loaders_own_generators(
    folder, name, begun, dataset
):
    """And what the sampler itself has as its state."""
    data = ht.ImageFolder(folder, loader=len) if dataset == "folder" else NUMBERS

    def made(seed):
        return OWN[name](data, torch.Generator().manual_seed(seed))

    with made(3) as loader:
        before = iter(loader) if begun else None
        state = json.loads(json.dumps(loader.state_dict()))
        want = [plain_items(before or loader), plain_items(loader)]
    with made(4) as loader:
        assert plain_items(loader) != want[0]
        loader.load_state_dict(state)
        again = loader.state_dict()
        assert [plain_items(loader), plain_items(loader)] == want
        loader.load_state_dict(again)
        assert plain_items(loader) == want[0]


@pytest.mark.parametrize("seed", [3, 4])
def test_another_ranks_state_from_before_the_first_batch_warns(monkeypatch, caplog, seed):
    """If this rank's generators differ from that rank's."""
    with OWN["generator"](NUMBERS, torch.Generator().manual_seed(3)) as loader:
        state = loader.state_dict()
        want = plain(loader)
    with OWN["generator"](NUMBERS, torch.Generator().manual_seed(seed)) as loader:
        monkeypatch.setattr("hdmlp.torch._order.position.process_rank", lambda: 1)
        loader.load_state_dict(state)
        assert plain(loader) == want
    assert ("the state is that of rank 0" in caplog.text) == (seed != 3)


class Forgetful(Remembering):
    """One which cannot be set to a state."""

    load_state_dict = None


def test_a_state_from_before_the_first_batch_is_of_the_same_kind_of_sampler():
    with ht.DataLoader(NUMBERS, 4, sampler=Remembering(3)) as loader:
        state = loader.state_dict()
    with (
        ht.DataLoader(NUMBERS, 4, sampler=Forgetful(4)) as loader,
        pytest.raises(errors.MismatchError, match="of a loader with another sampler"),
    ):
        loader.load_state_dict(state)


def test_the_global_generator_as_the_loaders_is_the_programs():
    """A state from before the first batch does not set it, as without it."""
    torch.manual_seed(1)
    with ht.DataLoader(NUMBERS, 4, shuffle=True, generator=torch.default_generator) as loader:
        state = loader.state_dict()
    torch.manual_seed(2)
    with ht.DataLoader(NUMBERS, 4, shuffle=True, generator=torch.default_generator) as loader:
        want = plain(loader)
    torch.manual_seed(2)
    with ht.DataLoader(NUMBERS, 4, shuffle=True, generator=torch.default_generator) as loader:
        loader.load_state_dict(state)
        assert plain(loader) == want


@pytest.mark.parametrize("before", [True, False])
def test_the_global_generator_is_the_programs(folder, before):
    """A state from before an epoch leaves it; the rest of one that is begun is exact."""
    data = ht.ImageFolder(folder)
    torch.manual_seed(1)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        batches = None
        if not before:
            batches = iter(loader)
            next(batches)
        state = loader.state_dict()
        rest = plain(batches or loader)
    torch.manual_seed(2)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        other = [plain(loader) for _ in range(2)]
    torch.manual_seed(2)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert plain(loader) == (other[0] if before else rest)


class Stateful(Numbers):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("workers", [0, 1])
def test_a_datasets_own_state_is_not_saved_and_a_warning_says_so(caplog, workers):
    class Streaming(Stateful, Stream):
        pass

    for data in (Stateful(), Streaming()):
        caplog.clear()
        with ht.DataLoader(data, 4, num_workers=workers) as loader:
            next(iter(loader))
            assert "state_dict" not in caplog.text
            loader.state_dict(), loader.state_dict()
        said = f"the {type(data).__name__} has a state_dict, which, unlike"
        assert caplog.text.count(said) == 1
    caplog.clear()
    with ht.DataLoader(NUMBERS, 4) as loader:
        loader.state_dict()
    assert "state_dict" not in caplog.text
