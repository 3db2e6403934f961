"""What a training loop does while it iterates: it changes samplers, draws random numbers, sets
attributes, forks, and iterates again."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import preloaded
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import Items, Stream, generator, jittered, length, same
from hdmlp import errors
from items import PATH
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

pytestmark = pytest.mark.usefixtures("real")


class Fed(torch.utils.data.Sampler):
    """A sampler that the loop changes in the middle of an epoch, as for hard mining."""

    def __init__(self):
        self.offset = 0

    def __len__(self):
        return 12

    def __iter__(self):
        for i in range(12):
            yield (i + self.offset) % 25


class Lazy(torch.utils.data.Sampler):
    """A sampler that draws each index when it is asked for it."""

    def __init__(self):
        pass

    def __len__(self):
        return 12

    def __iter__(self):
        for _ in range(12):
            yield int(torch.randint(25, ()))


def fed(loader):
    for i, batch in enumerate(loader):
        loader.sampler.offset += i
        yield batch


def drawing(loader):
    for batch in loader:
        yield batch, torch.rand(1)


def both_of(make, data, workers):
    """Two loaders that draw from one generator."""
    shared = torch.Generator().manual_seed(4)
    yield from zip(
        make(data, 3, shuffle=True, generator=shared, num_workers=workers),
        make(data, 3, shuffle=True, generator=shared, num_workers=workers),
    )
    yield torch.rand(1, generator=shared)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "loop",
    [
        lambda make, data, n: fed(make(data, 2, sampler=Fed(), num_workers=n)),
        lambda make, data, n: drawing(make(data, 2, sampler=Lazy(), num_workers=n)),
        lambda make, data, n: drawing(make(data, 2, shuffle=True, num_workers=n)),
        lambda make, data, n: zip(
            make(data, 2, shuffle=True, num_workers=n), make(data, 2, shuffle=True, num_workers=n)
        ),
        both_of,
    ],
)
def test_samplers_are_asked_when_torch_asks_them(folder, loop, workers):
    """What they yield at that time is served."""
    want = []
    for make, data in (
        (DataLoader, Items(ht.ImageFolder(folder, loader=length))),
        (ht.DataLoader, ht.ImageFolder(folder, loader=length)),
    ):
        torch.manual_seed(3)
        got = [batch for _ in range(2) for batch in loop(make, data, workers)]
        state = torch.get_rng_state()
        want.append((got, state))
    assert same(*(got for got, _ in want))
    assert torch.equal(want[0][1], want[1][1])


def test_attributes_set_on_the_loader_apply(folder):
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 25) as loader:
        first, labels = next(iter(loader))
        loader.collate_fn = lambda items: len(items)
        assert list(loader) == [25]
        loader.collate_fn = torch.utils.data.default_collate
        assert same(list(loader), [[first, labels]])
        for name, value in (("shard", True), ("memory", "1MB"), ("epochs", 3)):
            with pytest.raises(
                ValueError, match=f"{name} attribute should not be set.*make a new loader"
            ):
                setattr(loader, name, value)


def test_a_loader_whose_attributes_change_stays_where_it_is(folder):
    with ht.DataLoader(ht.ImageFolder(folder, loader=length), 4, seed=3, shuffle=True) as loader:
        for epoch in (5, 2):
            loader.set_epoch(epoch)
            loader.collate_fn = lambda items: len(items)  # another one each time
            batches = iter(loader)
            state = loader.state_dict()
            assert (state["epoch"], state["step"]) == (epoch, 0)
            next(batches)
            state = loader.state_dict()
            assert (state["epoch"], state["step"]) == (epoch, 1)


def test_default_convert_as_collate_fn_is_used_for_batches(folder):
    convert = torch.utils.data._utils.collate.default_convert
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 3, collate_fn=convert) as loader:
        assert same(list(loader), list(DataLoader(Items(data), 3, collate_fn=convert)))


def test_a_batch_larger_than_the_dataset_draws_as_in_torch(folder):
    states = []
    for make, data in (
        (DataLoader, Items(ht.ImageFolder(folder))),
        (ht.DataLoader, ht.ImageFolder(folder)),
    ):
        torch.manual_seed(3)
        loader = make(data, 50, drop_last=True)
        assert list(loader) == []
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.slow
def test_without_a_seed_random_numbers_follow_torchs_generator(folder):
    """Loaders used in parallel or made anew draw different numbers; manual_seed or a seed
    determines them."""
    data = ht.ImageFolder(folder, jittered, loader=length)

    def numbers(loaders):
        return [torch.cat([x for x, _ in loader]).flatten() for loader in loaders]

    torch.manual_seed(1)
    a, b, c = numbers([ht.DataLoader(data, 5) for _ in range(3)])
    assert not set(a.tolist()) & set(b.tolist())
    assert not set(b.tolist()) & set(c.tolist())
    torch.manual_seed(1)
    assert same(numbers([ht.DataLoader(data, 5) for _ in range(3)]), [a, b, c])
    assert same(*numbers([ht.DataLoader(data, 5, shuffle=False, seed=7) for _ in range(2)]))
    with ht.DataLoader(data, 5) as loader:
        batches = iter(loader)
        next(batches)
        state, rest = loader.state_dict(), [x for x, _ in batches]
    with ht.DataLoader(data, 5) as loader:
        loader.load_state_dict(state)
        assert same([x for x, _ in loader], rest)


def test_repeating_an_epoch_warns(folder, caplog):
    data = ht.ImageFolder(folder, jittered, loader=length)
    sampler = DistributedSampler(data, 1, 0)
    with ht.DataLoader(data, 5, sampler=sampler) as loader:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            list(loader)
        assert "comes again" not in caplog.text
        list(loader)
        list(loader)
        assert caplog.text.count("epoch 2 of the DistributedSampler comes again") == 1


FACTOR = 1


def multiplied(items):
    return FACTOR * torch.stack([x for x, _ in items])


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("sampler", [None, "weighted"])
def test_workers_of_a_new_epoch_see_the_program_as_it_is(folder, monkeypatch, persistent, sampler):
    """As in torch, unless they are persistent."""
    images = ht.ImageFolder(folder, loader=length)
    got = []
    for make, data in ((DataLoader, Items(images)), (ht.DataLoader, images)):
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", 1)
        drawn = sampler and WeightedRandomSampler(torch.ones(25), 25, generator=generator())
        loader = make(
            data,
            5,
            sampler=drawn,
            num_workers=2,
            collate_fn=multiplied,
            persistent_workers=persistent,
            multiprocessing_context="fork",
        )
        epochs = []
        for _ in range(3):
            epochs.append(list(loader))
            monkeypatch.setattr(sys.modules[__name__], "FACTOR", FACTOR * 2)
        got.append(epochs)
    assert same(*got)


def test_each_thread_iterates_an_epoch_of_its_own(folder):
    data = ht.ImageFolder(folder)
    for arguments in (
        {"shuffle": True},
        {},
        {"sampler": WeightedRandomSampler(torch.ones(25), 25)},
    ):
        with ht.DataLoader(data, 4, num_workers=0, **arguments) as loader:
            with ThreadPoolExecutor(4) as threads:
                counts = list(
                    threads.map(lambda _: sum(len(labels) for _, labels in loader), range(12))
                )
        assert counts == [25] * 12


@pytest.mark.slow
def test_uncollected_loaders_do_not_block_another(folder):
    """Loaders in reference cycles live until Python's collector runs."""
    data = ht.ImageFolder(folder)
    for _ in range(40):
        loader = ht.DataLoader(data, 5, shuffle=True, memory="1MB", staging_buffer="1MB")
        loader.itself = loader, iter(loader)
        next(loader.itself[1])


def test_an_iterable_dataset_continues_over_epochs(folder):
    for workers in (0, 2):
        with ht.DataLoader(Stream(), 3, num_workers=workers) as loader:
            want = list(loader)
            batches = iter(loader)
            for _ in range(2):
                next(batches)
            state = loader.state_dict()
            assert (state["epoch"], state["step"]) == (1, 2)
            list(batches)
            assert loader.state_dict()["epoch"] == 2
        with ht.DataLoader(Stream(), 3, num_workers=workers) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert same(list(loader), want[2:])
            assert same(list(loader), want)
            with pytest.raises(
                errors.ConfigError, match="not a state of a loader of an iterable dataset"
            ):
                loader.load_state_dict({"epoch": 1})


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_after_iter_applies_until_the_sampler_is_asked(folder, workers):
    images = ht.ImageFolder(folder, loader=length)
    got = []
    for make, data in ((DataLoader, Items(images)), (ht.DataLoader, images)):
        sampler = DistributedSampler(data, 1, 0)
        loader = make(data, 4, sampler=sampler, num_workers=workers)
        list(loader)
        batches = iter(loader)
        sampler.set_epoch(1)
        got.append(list(batches))
    assert same(*got)


def test_the_start_method_can_be_set_after_an_epoch_without_workers(folder):
    """As with torch's loader, which asks for the default only to start workers."""
    script = f"""
import multiprocessing, torch
import hdmlp.torch as ht
list(ht.DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), 4, shuffle=True))
list(ht.DataLoader(ht.ImageFolder({folder!r}), 4, shuffle=True))
multiprocessing.set_start_method("spawn")
print(multiprocessing.get_start_method())
"""
    environ = {**os.environ, "PYTHONPATH": PATH}
    done = subprocess.run([preloaded.PYTHON, "-c", script], env=environ, capture_output=True)
    assert done.stdout == b"spawn\n", done.stderr.decode()
