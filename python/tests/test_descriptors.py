"""Batches that are kept take no open files, whatever makes them."""

import os
import resource

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import transforms as T
from reference import jpegs

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("descriptors") / "data", {"ant": 120, "bee": 120})


def plain(image):
    return torch.full((3,), float(image.width))


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        return torch.full((3,), index)


WORKERS = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}


def loader(folder, kind):
    native = [T.CenterCrop(64), T.ToTensor()]
    dataset, options = {
        "the daemon": (ht.ImageFolder(folder, native), {"staging_buffer": "1MiB"}),
        "this process": (ht.ImageFolder(folder, plain), {"num_workers": 0}),
        "workers": (ht.ImageFolder(folder, plain), WORKERS),
        "workers, of items": (Items(), WORKERS),
    }[kind]
    return ht.DataLoader(dataset, 1, **options)


@pytest.mark.parametrize("kind", ["the daemon", "this process", "workers", "workers, of items"])
def test_kept_batches_take_no_open_files(folder, kind):
    """There may be fewer open files, here and in workers, than batches that are kept."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with loader(folder, kind) as batches:
        iterator = iter(batches)
        kept = [next(iterator)]
        opened = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 40, limits[1]))
        try:
            kept += iterator
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert len(os.listdir("/proc/self/fd")) <= opened + 20
        children = _children()
        assert all(len(os.listdir(f"/proc/{child}/fd")) <= opened + 40 for child in children)
        assert len(children) >= (2 if kind.startswith("workers") else 0)
    assert len(kept) == 240


def _children():
    """This process's children, without the daemon."""
    with open("/proc/thread-self/children") as children:
        found = children.read().split()
    return [child for child in found if _command(child) != "hdmlp"]


def _command(child):
    with open(f"/proc/{child}/comm") as name:
        return name.read().strip()
