"""Shared by the tests of ``ht.DataLoader`` in place of torch's: datasets, loaders of either kind,
and what they yield."""

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from items import Items, length  # noqa: F401
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)


class Numbers(Dataset):
    """37 tensors, and their numbers."""

    def __len__(self):
        return 37

    def __getitem__(self, i):
        if not 0 <= i < 37:
            raise IndexError(i)
        return torch.full((3,), float(i)), i


class Stream(IterableDataset):
    """Ten numbers."""

    def __iter__(self):
        return iter(range(10))


class ByNumpy(Sampler):
    """Draws from numpy's generator."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(numpy.random.permutation(self.n).tolist())


def seconds(batch):
    return [x for _, x in batch]


def generator():
    return torch.Generator().manual_seed(3)


NUMBERS = Numbers()

LOADERS = {
    "by ID": lambda L: L(NUMBERS, 5),
    "positional": lambda L: L(NUMBERS, 5, True, None, None, 0, None, False, True),
    "defaults": lambda L: L(
        NUMBERS,
        batch_size=5,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        pin_memory=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
    ),
    "shuffle": lambda L: L(NUMBERS, 5, shuffle=True),
    "shuffle, workers": lambda L: L(NUMBERS, 5, shuffle=True, num_workers=2),
    "shuffle, workers that stay": lambda L: L(
        NUMBERS, 5, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "generator": lambda L: L(NUMBERS, 5, shuffle=True, generator=generator()),
    "generator, workers that stay": lambda L: L(
        NUMBERS, 5, shuffle=True, num_workers=2, persistent_workers=True, generator=generator()
    ),
    "weighted": lambda L: L(
        NUMBERS, 5, sampler=WeightedRandomSampler(torch.arange(1, 38).float(), 50)
    ),
    "with replacement": lambda L: L(
        NUMBERS, 5, sampler=RandomSampler(NUMBERS, replacement=True, num_samples=100)
    ),
    "a part": lambda L: L(NUMBERS, 5, sampler=SubsetRandomSampler(range(3, 20)), drop_last=True),
    "sequential": lambda L: L(NUMBERS, 5, sampler=SequentialSampler(NUMBERS)),
    "numpy": lambda L: L(NUMBERS, 5, sampler=ByNumpy(37)),
    "batches": lambda L: L(NUMBERS, batch_sampler=[[1, 2], [3], [4, 5, 6], [1, 1]]),
    "one by one": lambda L: L(NUMBERS, batch_size=None),
    "one by one, workers": lambda L: L(NUMBERS, batch_size=None, shuffle=True, num_workers=2),
    "a batch larger than the dataset": lambda L: L(NUMBERS, 100),
    "the same, dropped": lambda L: L(NUMBERS, 100, drop_last=True),
    "iterable": lambda L: L(Stream(), 3),
    "subset": lambda L: L(Subset(NUMBERS, [1, 5, 7, 2]), 3, shuffle=True),
    "concatenated": lambda L: L(
        ConcatDataset([NUMBERS, Subset(NUMBERS, [1, 5])]), 4, shuffle=True, num_workers=1
    ),
    "collate": lambda L: L(NUMBERS, 4, collate_fn=seconds),
    "distributed": lambda L: L(NUMBERS, 4, sampler=DistributedSampler(NUMBERS, 2, 1, seed=4)),
    "tensors": lambda L: L(TensorDataset(torch.arange(20).view(10, 2)), 3, shuffle=True),
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def seeded(make, loader):
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(7)
    return make(loader)


def epochs(loader, stops=(None, 2, None)):
    """The batches of three epochs, of which the second is broken off, and the next number of
    torch's generator."""
    found = []
    for stop in stops:
        found.append([])
        for step, batch in enumerate(loader):
            found[-1].append(batch)
            if step == stop:
                break
    return found, torch.rand(1).item()


def read(paths):
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(file.read())
    return found


def content(loader):
    return [bytes(x) for samples, _ in loader for x in samples]


DRAWN = {
    "shuffle": lambda L, d: L(d, 4, shuffle=True),
    "generator": lambda L, d: L(d, 4, shuffle=True, generator=generator()),
    "generator, workers": lambda L, d: L(d, 4, shuffle=True, generator=generator(), num_workers=2),
    "weighted": lambda L, d: L(
        d, 4, sampler=WeightedRandomSampler(torch.arange(1, 26).float(), 40)
    ),
    "batches": lambda L, d: L(d, batch_sampler=[[0, 24], [3], [4, 5, 6]]),
    "numpy": lambda L, d: L(d, 4, sampler=ByNumpy(25)),
}


class Raw(Items):
    """A folder's bytes as numbers, for torch's loader."""

    def __getitem__(self, i):
        with open(self.data.samples[i][0], "rb") as file:
            return torch.tensor(list(file.read()[:20])), self.data.targets[i]


def first_bytes(loader, stops=(None, 2, None, None)):
    """As :func:`epochs`, of encoded samples."""
    found = []
    for stop in stops:
        found.append([])
        for step, (samples, labels) in enumerate(loader):
            found[-1].append(
                [torch.stack([torch.tensor(list(bytes(x)[:20])) for x in samples]), labels]
            )
            if step == stop:
                break
    return found, torch.rand(1).item()


def parts(data):
    first, second = torch.utils.data.random_split(
        data, [17, 8], generator=torch.Generator().manual_seed(1)
    )
    return {
        "split": first,
        "the rest": second,
        "nested": Subset(first, [5, 3, -1, 0]),
        "repeated": Subset(data, [4, 4, 7]),
    }


REPEATS = {
    "subset": lambda d, n: ht.DataLoader(
        Subset(d, [3, 3, 3, 7, 7, 1]), 4, num_workers=n, shuffle=True, seed=1
    ),
    "subset by ID": lambda d, n: ht.DataLoader(Subset(d, [3, 3, 3, 7, 7, 1]), 4, num_workers=n),
    "batches": lambda d, n: ht.DataLoader(d, batch_sampler=[[3, 3], [7], [3, 7, 7]], num_workers=n),
    "concatenated": lambda d, n: ht.DataLoader(
        ConcatDataset([Subset(d, [3, 7, 1]), Subset(d, [3, 7, 3])]), 4, num_workers=n
    ),
    "weighted": lambda d, n: ht.DataLoader(
        d,
        4,
        sampler=WeightedRandomSampler(torch.ones(25), 30, generator=generator()),
        num_workers=n,
    ),
}


def jittered(x):
    return x + torch.rand(1).double() / 2
