"""Resuming without a seed argument: the state contains it."""

import json

import pytest

torch = pytest.importorskip("torch")

import hdmlp.data
import hdmlp.torch as ht
from dropin import NUMBERS, generator, length, same
from hdmlp import errors
from test_dropin import Random
from test_groups import ranks  # noqa: F401
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.usefixtures("real")

MAKES = {
    "seeded": (
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, seed=7),
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True),
    ),
    "sharded": (
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, shard=True),
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, shard=True),
    ),
    "sharded, seeded": (
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, shard=True, seed=7),
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, shard=True),
    ),
    "feistel": (
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle="feistel"),
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle="feistel"),
    ),
    "epochs": (
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, seed=7, epochs=3),
        lambda d: ht.DataLoader(d, 4, num_workers=0, shuffle=True, epochs=3),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", MAKES)
def test_a_folders_seed_is_in_the_state(folder, name, begun):
    data = ht.ImageFolder(folder, loader=length)
    with MAKES[name][0](data) as loader:
        states, batches = [loader.state_dict()], []
        for _ in range(2):
            for batch in loader:
                batches.append(batch)
                states.append(json.loads(json.dumps(loader.state_dict())))
    for at in (0, 3, 7, 9):
        with MAKES[name][1](data) as copy:
            if begun:  # as by a framework that looks
                len(copy), next(iter(copy))
            copy.load_state_dict(states[at])
            assert copy.state_dict() == states[at]
            rest = list(copy)
            if at < 7:
                rest += copy
            assert same(rest, batches[at:])
            assert copy.seed == states[at]["seed"]


def test_an_iterator_from_before_the_state_does_not_continue(folder):
    """It raises rather than continue in another order."""
    data = ht.ImageFolder(folder, loader=length)
    with (
        ht.DataLoader(data, 4, shuffle="feistel") as first,
        ht.DataLoader(data, 4, shuffle="feistel") as second,
    ):
        batches = iter(second)
        next(batches)
        second.load_state_dict(first.state_dict())
        with pytest.raises(errors.ClosedError, match="a state with another seed"):
            list(batches)
        assert same(list(first), list(second))


def test_transforms_that_change_keep_the_seed(folder):
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 4, shuffle="feistel") as loader:
        seed = loader.seed
        next(iter(loader))
        data.target_transform = lambda y: y + 1
        next(iter(loader))
        assert loader.seed == seed


@pytest.mark.parametrize("data", [NUMBERS, Random()])
def test_any_datasets_seed_is_in_the_state(data):
    """It determines the order and the items' random numbers."""
    with ht.DataLoader(data, 4, shuffle=True, seed=7) as loader:
        batches, states = [], []
        for _ in range(2):
            for batch in loader:
                batches.append(batch)
                states.append(json.loads(json.dumps(loader.state_dict())))
    steps = len(batches) // 2
    for at in (0, steps - 2, steps + 1):
        with ht.DataLoader(data, 4, shuffle=True) as copy:
            copy.load_state_dict(states[at])
            assert same(list(copy), batches[at + 1 : steps * (1 + at // steps)])
    with (
        ht.DataLoader(data, 4, shuffle=True, seed=8) as copy,
        pytest.raises(errors.MismatchError, match="seed is 8 here, but 7 in the saved state"),
    ):
        copy.load_state_dict(states[0])


def test_the_seed_is_in_the_state_without_torch(folder):
    def contents(loader):
        return [[bytes(x) for x in samples] for samples, _ in loader]

    with hdmlp.data.DataLoader(folder, 4) as first, hdmlp.data.DataLoader(folder, 4) as second:
        state = first.state_dict()
        want = contents(first)
        second.load_state_dict(state)
        assert contents(second) == want
        assert first.seed == second.seed


def test_a_seed_that_cannot_be_adopted_says_what_to_pass(folder):
    data = ht.ImageFolder(folder, loader=length)
    with (
        ht.DataLoader(data, 4, shuffle=True, seed=7) as seeded,
        ht.DataLoader(data, 4, shuffle=True) as drawn,
    ):
        list(drawn)
        with pytest.raises(
            errors.ConfigError,
            match=r"whose order a sampler drew.* with shuffle=True and without seed",
        ):
            seeded.load_state_dict(drawn.state_dict())
        with (
            ht.DataLoader(data, 4, shuffle=True, generator=generator()) as own,
            pytest.raises(errors.ConfigError, match="leave generator out, and give seed=7"),
        ):
            own.load_state_dict(seeded.state_dict())
        with (
            ht.DataLoader(data, batch_sampler=[[1, 2]]) as own,
            pytest.raises(errors.ConfigError, match=r"\(shuffle='torch', seed=7\)"),
        ):
            own.load_state_dict(seeded.state_dict())
        with (
            ht.DataLoader(data, 4, shuffle=True, seed=8) as other,
            pytest.raises(errors.MismatchError, match="make the loader with seed=7"),
        ):
            other.load_state_dict(seeded.state_dict())


def test_a_distributed_sampler_refuses_another_order_and_says_why(folder):
    """Lightning puts one in where there are several ranks."""
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 4, shuffle=True) as drawn:
        next(iter(drawn))
        state = drawn.state_dict()
    with ht.DataLoader(data, 4, shuffle=True, seed=7) as seeded:
        batches = iter(seeded)
        next(batches)
        other = seeded.state_dict()
        rest = [x for x, _ in batches]

    def made(seed):
        sampler = DistributedSampler(data, 1, 0, seed=seed)
        return ht.DataLoader(data, 4, sampler=sampler)

    with made(8) as loader:
        with pytest.raises(errors.ConfigError, match=r"a DistributedSampler, given .* shard=True"):
            loader.load_state_dict(state)
        with pytest.raises(errors.MismatchError, match="make the DistributedSampler with seed=7"):
            loader.load_state_dict(other)
        assert len(list(loader)) == 7
    with made(7) as loader:
        loader.load_state_dict(other)
        assert same([x for x, _ in loader], rest)


@pytest.mark.parametrize("options", [{}, {"seed": 5}])
def test_shard_has_one_order_for_any_number_of_ranks(folder, options):
    """What the messages about other orders advise."""
    data = ht.ImageFolder(folder)
    own = {"shuffle": True, "shard": True, **options}
    with ht.DataLoader(data, 4, rank=0, world_size=1, **own) as loader:
        next(iter(loader))
        state = loader.state_dict()
        want = [sorted(loader.explain(e, s).ids) for e in range(2) for s in range(6)]
    two = [ht.DataLoader(data, 2, rank=r, world_size=2, name="two", **own) for r in range(2)]
    for loader in two:
        loader.load_state_dict(state)
    got = [
        sorted(two[0].explain(e, s, 0).ids + two[0].explain(e, s, 1).ids)
        for e in range(2)
        for s in range(6)
    ]
    assert len(list(zip(*two))) == 6
    assert got == want
    for loader in two:
        loader.close()


@pytest.mark.slow
def test_two_ranks_take_the_states_seed(ranks):
    """Even if each has asked for the loader's length before."""
    said, _ = ranks(
        """
        first = ht.DataLoader(data, 4, shuffle=True, shard=True)
        batches = iter(first)
        next(batches), next(batches)
        state = first.state_dict()
        dist.barrier()
        rest = [x.tolist() for x, _ in batches]
        second = ht.DataLoader(data, 4, shuffle=True, shard=True)
        assert second.seed != first.seed
        second.load_state_dict(state)
        say(got=[x.tolist() for x, _ in second], want=rest)
    """,
        2,
    )
    assert len(said) == 2
    assert all(r["got"] == r["want"] for r in said)


class Taken(Random):
    """Its items by lists of indices."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [2, None])
def test_ranks_draw_the_random_numbers_of_one_epoch(size, workers):
    """For datasets that HDMLP does not read itself: those of a single rank, each once."""

    def numbers(data, rank, world_size, size):
        with ht.DataLoader(
            data, size, shuffle=True, seed=3, rank=rank, world_size=world_size, num_workers=workers
        ) as loader:
            return torch.stack([x for batch in loader for x in batch.reshape(-1, 4)])

    whole = numbers(Random(), 0, 1, size and 2 * size)
    ranks = [numbers(Random(), rank, 2, size) for rank in (0, 1)]
    got = torch.stack(ranks, 1).reshape(-1, 4)
    assert same(got[:, 3], whole[:, 3])
    assert len(torch.unique(got[:, :3])) == 60
    if size:
        assert same(got, whole)
        ranks = [numbers(Taken(), rank, 2, size) for rank in (0, 1)]
    assert len(torch.unique(torch.cat(ranks)[:, :3])) == 60


def test_ranks_of_a_distributed_sampler_draw_different_numbers():
    found = []
    for rank in (0, 1):
        torch.manual_seed(1)  # as scripts do on every rank
        sampler = DistributedSampler(Random(), 2, rank)
        with ht.DataLoader(Random(), 4, sampler=sampler) as loader:
            found += list(loader)
    assert len(torch.unique(torch.cat(found)[:, :3])) == 60
