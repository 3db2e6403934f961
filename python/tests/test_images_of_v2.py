"""v2's transforms that end in a ``tv_tensors.Image``: the daemon's tensors are that where Python
gets them one by one, and as in torch plain tensors in batches that are stacked."""

import hdmlp.torch as ht
import pytest
import torch
from reference import jpegs
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

v2 = pytest.importorskip("torchvision.transforms.v2")
pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.usefixtures("real")

LISTS = [
    [v2.ToImage()],
    [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    [v2.ToImage(), v2.ToPureTensor()],
    [v2.PILToTensor()],
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("v2"), {"ant": 5, "bee": 4})


def types(items):
    return [type(value) for value, *_ in items]


def close(got, want):
    """Equal but for how levels are scaled."""
    return all(
        torch.allclose(a.float(), b.float(), atol=1e-6) and torch.as_tensor(x == y).all()
        for (a, x), (b, y) in zip(got, want)
    )


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("size", [4, None])
@pytest.mark.parametrize("steps", LISTS, ids=repr)
def test_items_of_folders_have_torchs_type(root, steps, size, workers):
    transform = v2.Compose([v2.Resize((8, 8)), *steps])
    make = list if size else tuple
    want = list(DataLoader(ImageFolder(root, transform), size, collate_fn=make))
    with ht.DataLoader(
        ht.ImageFolder(root, transform), size, collate_fn=make, num_workers=workers
    ) as loader:
        got = list(loader)
    if size is None:
        want, got = [want], [got]
    assert [types(batch) for batch in got] == [types(batch) for batch in want]
    assert all(map(close, got, want))


@pytest.mark.parametrize("steps", LISTS, ids=repr)
def test_items_of_records_have_torchs_type(root, steps):
    transform = v2.Compose([v2.Resize((8, 8)), *steps])
    folder = ImageFolder(root, transform)
    want = [type(folder[i][0]) for i in range(len(folder))]
    paths = [path for path, _ in folder.samples]
    data = ht.Files(paths, folder.targets, transform=transform)
    with ht.DataLoader(data, 4, collate_fn=list) as loader:
        assert [kind for batch in loader for kind in types(batch)] == want


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("steps", LISTS, ids=repr)
def test_stacked_batches_are_plain(root, steps, workers):
    transform = v2.Compose([v2.Resize((8, 8)), *steps])
    folder = ImageFolder(root, transform)
    want = list(DataLoader(folder, 4))
    data = ht.Files([p for p, _ in folder.samples], folder.targets, transform=transform)
    for given in (ht.ImageFolder(root, transform), data):
        with ht.DataLoader(given, 4, num_workers=workers) as loader:
            got = list(loader)
        assert types(got) == types(want) == [torch.Tensor] * 3
        assert close(got, want)
