"""Names that are not UTF-8: they are what os.fsdecode makes of them, as in torchvision."""

import os

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("torchvision.datasets")

import hdmlp.torch as ht
import hdmlp.transforms as T
from hdmlp import errors
from items import length

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def named(tmp_path):
    """Three classes and four files, which differ only in bytes that are not UTF-8."""
    root = os.fsencode(tmp_path / "named")
    for path in (b"a\xfe/1.jpg", b"a\xff/1\xfe.jpg", b"a\xff/1\xff.jpg", "a\ufffd/1.jpg".encode()):
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(path)
    return os.fsdecode(root)


def test_names_are_those_of_the_files(named):
    data, theirs = ht.ImageFolder(named, loader=length), datasets.ImageFolder(named)
    assert data.classes == theirs.classes
    assert data.class_to_idx == theirs.class_to_idx
    assert data.samples == theirs.samples
    assert [data[i] for i in range(4)] == [(len(os.fsencode(p)), y) for p, y in theirs.samples]
    with ht.DataLoader(data, 4, labels="name") as loader:
        assert next(iter(loader))[1] == tuple(theirs.classes[y] for y in theirs.targets)
        assert loader.classes == theirs.classes


def test_errors_name_the_file(named):
    data = ht.ImageFolder(named, [T.CenterCrop(8), T.ToTensor()])
    with ht.DataLoader(data, 4) as loader:
        with pytest.raises(errors.SampleError) as caught:
            next(iter(loader))
    assert caught.value.path == data.samples[0][0]
