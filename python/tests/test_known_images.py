"""CIFAR, MNIST and their kin in the files that torchvision stores. The oracle is torchvision."""

import pickle

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from arrayfiles import cifar, idx, mnist, newer_pickle, python2_pickle
from hdmlp import errors
from recordfiles import equal
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

pytestmark = pytest.mark.usefixtures("real")

#: What the daemon carries out: padding, and what gives floats.
STEPS = transforms.Compose(
    [transforms.Pad(2, padding_mode="reflect"), transforms.CenterCrop(30), transforms.ToTensor()]
)


@pytest.fixture
def unchecked(monkeypatch):
    """torchvision reads files of others than its digests."""
    module = datasets.cifar
    monkeypatch.setattr(module, "check_integrity", lambda path, md5=None: True)
    monkeypatch.setattr(datasets.CIFAR10, "_check_integrity", lambda self: True)


def same(ours, theirs):
    """Both datasets have the same items, classes and labels; so has a loader over epochs."""
    assert len(ours) == len(theirs)
    assert list(ours.classes) == list(theirs.classes)
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.targets == [int(t) for t in theirs.targets]
    for i in range(len(theirs)):
        mine, other = ours[i], theirs[i]
        assert mine[1] == other[1]
        if isinstance(other[0], torch.Tensor):
            assert equal(mine[0], other[0])
        else:
            assert mine[0].mode == other[0].mode
            assert (numpy.asarray(mine[0]) == numpy.asarray(other[0])).all()
    if ours.transform is not None:
        with ht.DataLoader(ours, 4) as loader:
            for _ in range(2):
                assert equal(list(loader), list(DataLoader(theirs, 4)))
            assert loader._content.making.recipe is None  # all by the daemon


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("transform", [None, STEPS])
@pytest.mark.parametrize("dump", [python2_pickle, newer_pickle])
@pytest.mark.parametrize("hundred", [False, True])
def test_cifar(tmp_path, unchecked, train, transform, dump, hundred):
    cifar(tmp_path, hundred, dump=dump)
    name = "CIFAR100" if hundred else "CIFAR10"
    arguments = (tmp_path, train, transform)
    same(getattr(ht, name)(*arguments), getattr(datasets, name)(*arguments))


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("transform", [None, STEPS])
def test_mnist(tmp_path, name, train, transform):
    mnist(tmp_path / name / "raw", ["train", "t10k"])
    arguments = (tmp_path, train, transform)
    same(getattr(ht, name)(*arguments), getattr(datasets, name)(*arguments))


@pytest.mark.parametrize("split", ["byclass", "bymerge", "balanced", "letters", "digits", "mnist"])
def test_emnist(tmp_path, split):
    prefixes = [f"emnist-{split}-{part}" for part in ("train", "test")]
    mnist(tmp_path / "EMNIST" / "raw", prefixes)
    for train in (True, False):
        same(
            ht.EMNIST(tmp_path, split, train, STEPS),
            datasets.EMNIST(tmp_path, split, train=train, transform=STEPS),
        )


def test_a_usual_recipe_is_the_daemons(tmp_path):
    """What one writes for CIFAR runs in the daemon, and gives what it gives in Python."""
    cifar(tmp_path)
    steps = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.TrivialAugmentWide(),
            transforms.ToTensor(),
            transforms.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
        ]
    )
    data = ht.CIFAR10(tmp_path, transform=steps)
    options = {"shuffle": True, "seed": 3}
    with (
        ht.DataLoader(data, 8, **options) as ours,
        ht.DataLoader(data, 8, offload=False, **options) as theirs,
    ):
        for _ in range(2):
            assert equal(list(ours), list(theirs))
        assert ours._content.making.recipe is None


def test_torchvisions_own_class_stays_in_memory(tmp_path, unchecked):
    """It has its images already, so that there is nothing for the daemon to read."""
    cifar(tmp_path)
    data = datasets.CIFAR10(tmp_path, transform=STEPS)
    with ht.DataLoader(data, 4) as loader:
        assert equal(list(loader), list(DataLoader(data, 4)))


class Harm:
    def __reduce__(self):
        return print, ("harm",)


def test_pickles_are_not_run(tmp_path, capfd):
    base = cifar(tmp_path)
    for content, match in {
        pickle.dumps({"data": Harm(), "labels": [1]}): "names builtins.print",
        pickle.dumps([1]): "no dict",
        pickle.dumps({"labels": [1]}): "no array 'data'",
        pickle.dumps({"data": numpy.zeros((2, 3072), "i2"), "labels": [1, 2]}): "no array of uint8",
        pickle.dumps({"data": numpy.zeros((3072, 2), "u1").T, "labels": [1, 2]}, 4): "in C order",
        pickle.dumps({"data": numpy.zeros((2, 3000), "u1"), "labels": [1, 2]}, 4): "not 3072",
        pickle.dumps({"data": numpy.zeros((2, 3072), "u1"), "labels": [1]}, 4): "1 labels",
        pickle.dumps({"data": numpy.zeros((2, 3072), "u1"), "labels": [1, "a"]}, 4): "no list of",
        pickle.dumps({"data": numpy.zeros((2, 3072), "u1"), "labels": [1, 10]}, 4): "10 classes",
        python2_pickle({"data": numpy.zeros((2, 3072), "u1"), "labels": [1, 2]})[:-9]: "pickle",
        b"": "pickle",
        b"\x80\x02}r\xff\xff\xff\xff.": "value of number 4294967295",
        b"not a pickle": "pickle",
    }.items():
        (base / "data_batch_2").write_bytes(content)
        with pytest.raises(errors.ConfigError, match=match):
            ht.CIFAR10(tmp_path)
    assert not any(capfd.readouterr())


def test_files_that_are_missing_or_others(tmp_path):
    with pytest.raises(errors.DatasetNotFoundError, match=r"CIFAR10\(\.\.\., download=True\)"):
        ht.CIFAR10(tmp_path)
    with pytest.raises(errors.ConfigError, match="HDMLP does not download"):
        ht.CIFAR10(tmp_path, download=True)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(errors.DatasetNotFoundError, match=r"gunzip -k"):
        ht.MNIST(tmp_path)
    with pytest.raises(errors.ConfigError, match="split='numbers': allowed: 'byclass'"):
        ht.EMNIST(tmp_path, "numbers")
    mnist(raw, ["train"])
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(numpy.zeros(10, "u1")))
    with pytest.raises(errors.ConfigError, match="10 labels, and 11 images"):
        ht.MNIST(tmp_path)
    (raw / "train-labels-idx1-ubyte").write_bytes(idx(numpy.full(11, 10, "u1")))
    with pytest.raises(errors.ConfigError, match="there are 10 classes"):
        ht.MNIST(tmp_path)
    (raw / "train-images-idx3-ubyte").write_bytes(idx(numpy.zeros((11, 28), "u1")))
    with pytest.raises(errors.ConfigError, match="not of uint8 with 3 axes"):
        ht.MNIST(tmp_path)
    whole = idx(numpy.zeros((11, 28, 28), "u1"))
    for content, match in {
        b"\1" + whole[1:]: "no idx file, as MNIST's.*begins with 01 00 08 03",
        whole[:3] + b"\x09" + whole[4:]: "no idx file.*begins with 00 00 08 09",
        b"": "no idx file.*begins with nothing",
        whole[:-1]: "it was cut off",
        whole + b"x": "has 8641 bytes, and its array of shape .* ends at byte 8640: it is damaged",
        whole[:7] + b"\x0a" + whole[8:]: "ends at byte 7856: it is damaged",
    }.items():
        (raw / "train-images-idx3-ubyte").write_bytes(content)
        with pytest.raises(errors.ConfigError, match=match):
            ht.MNIST(tmp_path)
