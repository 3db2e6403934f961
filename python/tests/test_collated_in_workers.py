"""Batches that torch's default function cannot make in a worker: the error for tensors of several
sizes names two of them, and conjugated tensors are stacked."""

import hdmlp.torch as ht
import pytest
import torch
from reference import jpegs
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

pytestmark = pytest.mark.usefixtures("real")


class Growing(torch.utils.data.Dataset):
    """Items with 1, 2, 3, ... numbers, or fewer in each."""

    def __init__(self, make, sign):
        self.make, self.sign = make, sign

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.make(torch.zeros(9000 + self.sign * index))


def pair(value):
    return value, 1


def named(value):
    return {"x": value}


def alone(value):
    return value


def message(loader):
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as caught:
        next(iter(loader))
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("workers", [0, 1, None])
def test_images_of_several_sizes_are_named(tmp_path, workers):
    root = jpegs(tmp_path / "data", {"ant": 8})
    want = message(DataLoader(ImageFolder(root, transforms.ToTensor()), 8))
    with ht.DataLoader(
        ht.ImageFolder(root, transforms.ToTensor()), 8, num_workers=workers
    ) as loader:
        assert message(loader) == want


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("make", [pair, named, alone])
@pytest.mark.parametrize("workers", [0, 1])
def test_items_of_several_sizes_are_named(make, sign, workers):
    data = Growing(make, sign)
    want = message(DataLoader(data, 8))
    with ht.DataLoader(data, 8, num_workers=workers) as loader:
        assert message(loader) == want


class Conjugated(torch.utils.data.Dataset):
    """Tensors that torch conjugates, or negates, when they are read."""

    def __init__(self, part):
        self.part = part

    def __len__(self):
        return 4

    def __getitem__(self, index):
        value = torch.tensor([1 + 2j, index - 1j]).conj()
        return getattr(value, self.part) if self.part else value


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("size", [2, None])
@pytest.mark.parametrize("part", ["", "imag"])
def test_conjugated_tensors_keep_their_values(workers, size, part):
    """torch's loader raises in a worker, and without batches loses the sign."""
    want = list(DataLoader(Conjugated(part), size))
    with ht.DataLoader(Conjugated(part), size, num_workers=workers) as loader:
        assert all(torch.equal(a, b) for a, b in zip(want, loader))
