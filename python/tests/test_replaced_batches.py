"""Loaders whose class puts another batch sampler in place when they are made, one that never ends,
so that workers stay: Ultralytics' InfiniteDataLoader and timm's MultiEpochsDataLoader."""

import itertools

import hdmlp.torch as ht
import pytest
import torch
from dropin import same
from hdmlp import errors
from reference import jpegs
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

pytestmark = pytest.mark.usefixtures("real")

TRANSFORM = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("replaced")
    jpegs(root, {"ant": 12, "bee": 13})
    return str(root)


class Endless:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        while True:
            yield from self.batches


def put_in_place(loader):
    """As Ultralytics does."""
    object.__setattr__(loader, "batch_sampler", Endless(loader.batch_sampler))


def put_in_place_unlocked(loader):
    """As timm does."""
    loader._DataLoader__initialized = False
    loader.batch_sampler = Endless(loader.batch_sampler)
    loader._DataLoader__initialized = True


def endless(base, put):
    class Loader(base):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            put(self)
            self.iterator = super().__iter__()

        def __len__(self):
            return len(self.batch_sampler.batches)

        def __iter__(self):
            return itertools.islice(self.iterator, len(self))

    return Loader


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("order", ["by id", "shuffled", "distributed"])
@pytest.mark.parametrize("put", [put_in_place, put_in_place_unlocked])
def test_an_endless_batch_sampler_decides(folder, put, order, workers):
    def epochs(base, images):
        torch.manual_seed(3)
        more = {
            "by id": {},
            "shuffled": dict(shuffle=True),
            "distributed": dict(sampler=DistributedSampler(range(25), 2, 1, seed=4)),
        }[order]
        loader = endless(base, put)(images(folder, TRANSFORM), 4, num_workers=workers, **more)
        for epoch in range(3):
            if order == "distributed":
                more["sampler"].set_epoch(epoch)
            yield list(loader)

    assert same(list(epochs(ht.DataLoader, ht.ImageFolder)), list(epochs(DataLoader, ImageFolder)))


def test_an_endless_batch_sampler_with_a_seed_goes_on_to_the_next_epoch(folder):
    loader = endless(ht.DataLoader, put_in_place)(
        ht.ImageFolder(folder, TRANSFORM), 4, shuffle=True, seed=5
    )
    with ht.DataLoader(ht.ImageFolder(folder, TRANSFORM), 4, shuffle=True, seed=5) as plain:
        for _ in range(3):
            assert same(list(loader), list(plain))
    loader.close()


@pytest.mark.parametrize("more", [dict(shard=True), dict(epochs=2)])
def test_an_order_of_arguments_cannot_be_replaced(folder, more):
    data = ht.ImageFolder(folder, TRANSFORM)
    with ht.DataLoader(data, 4, shuffle=True, seed=1, **more) as loader:
        put_in_place(loader)
        with pytest.raises(errors.ConfigError, match=r"replaced by Endless .* shard=.* epochs="):
            iter(loader)


@pytest.mark.parametrize("begun", [next, None])
def test_a_batch_sampler_replaced_too_late_is_refused(folder, begun):
    with ht.DataLoader(ht.ImageFolder(folder, TRANSFORM), 4) as loader:
        if begun is None:
            loader.load_state_dict(dict(loader.state_dict(), step=2))
        else:
            begun(iter(loader))
        put_in_place(loader)
        with pytest.raises(errors.ConfigError, match=r"replaced .* make a new loader"):
            iter(loader)
