"""HDMLP's own datasets in ``ht.DataLoader``: every change of a dataset applies, or raises."""

import os
import pickle

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import Items, content, epochs, generator, length, read, same, seeded
from hdmlp import errors
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

pytestmark = pytest.mark.usefixtures("real")


def test_the_default_order_is_by_id(folder):
    data = ht.ImageFolder(folder)
    files = read(path for path, _ in data.samples)
    with ht.DataLoader(data, 4) as loader:
        assert content(loader) == files == content(loader)
        assert [y for _, labels in loader for y in labels.tolist()] == data.targets
    with ht.DataLoader(data, 100) as loader:
        assert len(loader) == 1
        assert content(loader) == files
    for more in ({}, {"shard": True, "shuffle": True, "seed": 1}, {"rank": 1, "world_size": 2}):
        with ht.DataLoader(data, 100, drop_last=True, **more) as loader:
            assert len(loader) == 0
            assert content(loader) == []


@pytest.mark.parametrize(
    "name",
    [
        "shuffle",
        "generator",
        "weighted",
        "a part",
        "batches",
        "distributed",
        "own",
        "own, distributed",
    ],
)
def test_samplers_over_a_folder_give_torchs_batches(folder, name):
    """For each of three epochs, one of them broken off, and with the same state of the generators
    afterwards."""

    class Own(Sampler):
        def __init__(self):
            pass

        def __iter__(self):
            return iter([3, 1, 4, 1, 5, 9, 2, 6])

        def __len__(self):
            return 8

    class Backwards(DistributedSampler):
        def __iter__(self):
            return iter(list(super().__iter__())[::-1])

    made = {
        "shuffle": lambda L, d: L(d, 4, shuffle=True),
        "generator": lambda L, d: L(d, 4, shuffle=True, generator=generator()),
        "weighted": lambda L, d: L(
            d, 4, sampler=WeightedRandomSampler(torch.arange(1, 26).float(), 40)
        ),
        "a part": lambda L, d: L(d, 4, sampler=SubsetRandomSampler([1, 5, 7, 20]), drop_last=True),
        "batches": lambda L, d: L(d, batch_sampler=[[0, 24], [3], [4, 5, 6]]),
        "distributed": lambda L, d: L(d, 4, sampler=DistributedSampler(d, 2, 1, seed=4)),
        "own": lambda L, d: L(d, 3, sampler=Own()),
        "own, distributed": lambda L, d: L(d, 3, sampler=Backwards(d, 2, 0)),
    }[name]
    data = ht.ImageFolder(folder, loader=length)
    want = epochs(seeded(lambda L: made(L, Items(data)), DataLoader))
    loader = seeded(lambda L: made(L, data), ht.DataLoader)
    got = epochs(loader)
    loader.close()
    assert same(got, want)


def test_a_distributed_samplers_current_seed_and_epoch_apply(folder):
    """Those at the moment at which an iteration begins, as in torch."""
    data = ht.ImageFolder(folder, loader=length)
    sampler = DistributedSampler(data, 2, 1, seed=7)
    with ht.DataLoader(data, 4, sampler=sampler) as loader:
        other = DataLoader(Items(data), 4, sampler=sampler)
        for change in (
            lambda: None,
            lambda: None,
            lambda: sampler.set_epoch(3),
            lambda: setattr(sampler, "seed", 8),
            lambda: setattr(sampler, "shuffle", False),
        ):
            change()
            iter(loader)
            assert same(list(loader), list(other))


def test_changed_transforms_apply_from_the_next_iteration(folder):
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 25) as loader:
        lengths, labels = next(iter(loader))
        data.transform = lambda x: x + 1
        assert torch.equal(next(iter(loader))[0], lengths + 1)
        data.target_transform = lambda y: y + 10
        assert torch.equal(next(iter(loader))[1], labels + 10)
        data.loader = lambda x: torch.tensor(0)
        assert torch.equal(next(iter(loader))[0], torch.ones(25))


class Counting:
    """A transform whose state counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize("sampler", [None, "weighted"])
def test_a_transform_with_changing_state_stays_in_one_job(folder, sampler):
    """A change of such state does not make it another transform."""
    data = ht.ImageFolder(folder, Counting(), loader=length)
    sampler = sampler and WeightedRandomSampler(torch.ones(25), 25, generator=generator())
    with ht.DataLoader(data, 5, sampler=sampler, num_workers=0, labels="name") as loader:
        for _ in range(3):
            list(loader)
        assert data.transform.calls == 75
        assert [epoch["batches"] for epoch in loader.report()["epochs"]] == [
            5,
            5,
            5,
        ]
        assert loader.stats.batches == 15


def test_changing_what_is_fixed_raises(folder):
    data = ht.ImageFolder(folder)
    for change in (
        lambda: data.samples.append(1),
        lambda: data.targets.__setitem__(0, 5),
        lambda: data.samples.__delitem__(slice(10, None)),
        lambda: data.classes.sort(),
    ):
        with pytest.raises(TypeError, match=r"torch.utils.data.Subset"):
            change()
    for name in ("root", "extensions"):
        with pytest.raises(errors.ConfigError, match=f"{name} cannot be set"):
            setattr(data, name, [])
    assert pickle.loads(pickle.dumps(data.targets)) == list(data.targets) == data.targets[:]


def test_overridden_methods_apply_or_raise(folder):
    class Three(ht.ImageFolder):
        def __getitem__(self, i):
            return (*super().__getitem__(i), i)

    class Ten(ht.ImageFolder):
        def __len__(self):
            return 10

    with ht.DataLoader(Three(folder, loader=length), 5) as loader:
        assert [len(batch) for batch in loader] == [3] * 5
    with ht.DataLoader(Ten(folder, loader=length), 5, shuffle=True) as loader:
        assert len(list(loader)) == 2


def test_missing_paths_raise(folder, tmp_path, monkeypatch):
    with pytest.raises(errors.DatasetNotFoundError, match="empty path"):
        ht.ImageFolder("")
    assert len(ht.ImageFolder(folder.encode())) == 25
    assert ht.ImageFolder(folder).sample(torch.tensor(3))[1] == 0
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(ht.ImageFolder(folder)) == 25
    with pytest.raises(errors.DatasetNotFoundError, match="current directory was deleted"):
        ht.ImageFolder("data")


def test_an_item_that_is_not_a_regular_file_raises(folder):
    import os

    data = ht.ImageFolder(folder, loader=length)
    path = data.samples[0][0]
    os.remove(path)
    os.mkfifo(path)
    with pytest.raises(errors.SampleError, match="not a regular file"):
        data[0]


@pytest.mark.parametrize(
    "variables, says",
    [
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set without RANK"),
        ({"RANK": "1"}, "RANK=1 is set without WORLD_SIZE"),
        ({"HDMLP_NODES": "a,b"}, "names 2 nodes, and nothing says which rank"),
    ],
)
def test_rank_without_world_size_is_refused_if_ranks_share_epochs(
    folder, monkeypatch, variables, says
):
    """If they do not, the variable has no meaning, as in torch."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    data = ht.ImageFolder(folder)
    with pytest.raises(errors.ConfigError, match=says):
        len(ht.DataLoader(data, 4, shuffle=True, shard=True))
    with ht.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        assert len(content(loader)) == 25


def test_lists_of_samples_are_made_once(folder):
    """Scripts ask for them at each step."""
    data = ht.ImageFolder(folder)
    assert data.samples is data.samples is data.imgs
    assert data.targets is data.targets
    assert data.targets == [label for _, label in data.samples]
    assert len(pickle.dumps(data)) < 1000
    assert pickle.loads(pickle.dumps(data)).samples == data.samples


def noted(batch):
    """The samples' bytes, their labels, the process, and a random number."""
    samples, labels = zip(*batch)
    return list(samples), torch.tensor(labels), os.getpid(), torch.rand(1).item()


@pytest.mark.parametrize("order", [{}, {"shuffle": True}, {"shuffle": True, "seed": 3}])
def test_encoded_samples_are_collated_in_workers(folder, order):
    """Random numbers are the same without them, and the program's generators keep theirs."""
    found = []
    for workers in (0, 2):
        torch.manual_seed(5)
        with ht.DataLoader(
            ht.ImageFolder(folder),
            4,
            collate_fn=noted,
            num_workers=workers,
            **order,
        ) as loader:
            batches = list(loader)
            first = torch.rand(1).item()
            samples = [x for xs, *_ in batches for x in xs]
            assert all(type(x) is memoryview and x.readonly for x in samples)
            assert (os.getpid() in {pid for *_, pid, _ in batches}) == (workers == 0)
            found.append(
                (
                    [bytes(x) for x in samples],
                    [y.tolist() for _, y, *_ in batches],
                    [number for *_, number in batches],
                    first,
                )
            )
    assert found[0] == found[1]
    assert len(set(found[0][2])) == len(found[0][2])
    assert sorted(found[0][0]) == sorted(read(p for p, _ in ht.ImageFolder(folder).samples))


def test_random_numbers_of_a_collate_function_follow_torchs_generator(folder):
    """If there is no seed."""

    def numbers(seed):
        torch.manual_seed(seed)
        with ht.DataLoader(ht.ImageFolder(folder), 4, collate_fn=noted) as loader:
            return [number for *_, number in loader]

    assert numbers(1) == numbers(1) != numbers(2)
