"""Samples for tests of torch's loaders with the fake daemon: transforms of the number in a sample's
bytes, and the batches to expect."""

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from fakedata import rank_ids


def decode(data):
    """The sample's ID, which its bytes contain."""
    return int(bytes(data).split()[1])


def to_tensor(sample):
    x = torch.full((3, 8, 8), float(sample))
    x[0, 0, 0] = torch.rand(())
    x[0, 0, 1] = random.random()
    x[0, 0, 2] = numpy.random.rand()
    return x


def expected(loader, epoch=0, rank=0, world=1):
    return rank_ids(25, getattr(loader, "_engine", loader)._spec, epoch, rank, world)


def dataset(folder, transform=to_tensor):
    return ht.ImageFolder(folder, transform, loader=decode)


def ids_of(images):
    return images[:, 1, 0, 0].int().tolist()
