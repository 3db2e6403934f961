"""``ht.ImageFolder`` takes what torchvision's takes, with torchvision's as the oracle."""

import json
import math
import os
import random

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from hdmlp import errors
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision import transforms as V
from torchvision.datasets.folder import default_loader

pytestmark = pytest.mark.usefixtures("real")

SMALL = V.Compose([V.CenterCrop(8), V.ToTensor()])
NEWER = "allow_empty" in datasets.ImageFolder.__init__.__annotations__


@pytest.fixture
def root(tmp_path):
    """Lossless images in 3 classes, a file in one of them that is none, and JSON about them."""
    generator, listed = random.Random(3), []
    for name, count in (("ant", 5), ("bee", 4), ("cat", 3)):
        for number in range(count):
            path = tmp_path / "data" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 10), tuple(generator.randbytes(3))).save(path)
            listed.append([str(path), number % 2])
    (tmp_path / "data" / "ant" / "list.txt").write_text("none")
    (tmp_path / "train.json").write_text(json.dumps(listed))
    return str(tmp_path / "data")


def even(path):
    return path.endswith(("0.png", "2.png", "4.png"))


def two(base):
    class Two(base):
        def find_classes(self, directory):
            classes, _ = super().find_classes(directory)
            return classes[:2], {name: 1 - i for i, name in enumerate(classes[:2])}

    return Two


def every_third(base):
    class Third(base):
        @staticmethod
        def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, **more):
            given = (directory, class_to_idx, extensions, is_valid_file)
            return base.make_dataset(*given, **more)[::3]

    return Third


def uninitialised(base):
    """As DeiT's INatDataset."""

    class INat(base):
        def __init__(self, root, transform=None, target_transform=None, loader=default_loader):
            self.transform, self.target_transform = transform, target_transform
            self.loader = loader
            with open(os.path.join(os.path.dirname(root), "train.json")) as file:
                self.samples = [(path, label) for path, label in json.load(file)]

    return INat


def changed(change):
    def of(base):
        def make(*arguments, **more):
            data = base(*arguments, **more)
            data.samples = change(list(data.samples))
            data.targets = [label for _, label in data.samples]
            return data

        return make

    return of


def itself(base):
    return base


#: What is made of a base class, with which arguments; and whether the daemon serves it.
FOLDERS = {
    "plain": (itself, {}, True),
    "is_valid_file": (itself, {"is_valid_file": even}, True),
    "target_transform": (itself, {"target_transform": math.sqrt}, True),
    "find_classes": (two, {}, True),
    "make_dataset": (every_third, {}, True),
    "samples": (changed(lambda samples: samples[::-2]), {}, True),
    "labels": (changed(lambda samples: [(p, 2 - y) for p, y in samples]), {}, True),
    "labels of files": (changed(lambda s: [(p, i) for i, (p, _) in enumerate(s)]), {}, False),
    "not initialised": (uninitialised, {}, False),
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("more", [{}, {"shuffle": True}, {"num_workers": 1}], ids=str)
def test_batches_are_those_of_torchvisions(root, name, more, caplog):
    made, arguments, served = FOLDERS[name]
    theirs = made(datasets.ImageFolder)(root, SMALL, **arguments)
    ours = made(ht.ImageFolder)(root, SMALL, **arguments)
    with ht.DataLoader(ours, 3, **more) as loader:
        for _ in range(2):
            torch.manual_seed(4)
            got = list(loader)
            torch.manual_seed(4)
            want = list(DataLoader(theirs, 3, **more))
            assert len(got) == len(want)
            for (x, y), (u, v) in zip(got, want):
                assert torch.equal(x, u)
                assert torch.equal(y, v)
        assert ("source" in loader.report()) == served
    assert ("nothing of it is cached" in caplog.text) == (not served)


@pytest.mark.parametrize("name", FOLDERS)
def test_attributes_are_those_of_torchvisions(root, name):
    made, arguments, _ = FOLDERS[name]
    theirs = made(datasets.ImageFolder)(root, SMALL, **arguments)
    ours = made(ht.ImageFolder)(root, SMALL, **arguments)
    names = ["samples", "imgs", "targets", "classes", "class_to_idx"]
    for attribute in names if name != "not initialised" else ["samples"]:
        if attribute == "imgs" and name in ("samples", "labels", "labels of files"):
            continue  # which torchvision's keeps
        assert list(getattr(ours, attribute)) == list(getattr(theirs, attribute))
    assert len(ours) == len(theirs)
    assert torch.equal(ours[1][0], theirs[1][0])
    assert ours[1][1] == theirs[1][1]
    if name != "not initialised":  # whose repr torchvision cannot make
        assert repr(ours) == repr(theirs)
        assert repr(ours.transforms) == repr(theirs.transforms)
        image = Image.new("RGB", (9, 9))
        assert torch.equal(ours.transforms(image, 1)[0], theirs.transforms(image, 1)[0])


def test_a_repr_without_transforms(root):
    assert repr(ht.ImageFolder(root)) == repr(datasets.ImageFolder(root))
    assert ht.ImageFolder(root).transforms is None


def test_torchvisions_subclass_that_is_not_initialised(root, caplog):
    data = uninitialised(datasets.ImageFolder)(root, SMALL)
    with ht.DataLoader(data, 3) as loader:
        got = list(loader)
    assert all(torch.equal(x, u) for (x, _), (u, _) in zip(got, DataLoader(data, 3)))
    assert "INat.__init__ does not call super().__init__(), so it has no root, ext" in caplog.text


@pytest.mark.skipif(not NEWER, reason="this torchvision has no allow_empty")
def test_allow_empty(root):
    os.mkdir(os.path.join(root, "dog"))
    with pytest.raises(FileNotFoundError, match="dog"):
        datasets.ImageFolder(root, SMALL)
    theirs = datasets.ImageFolder(root, SMALL, None, default_loader, None, True)
    ours = ht.ImageFolder(root, SMALL, None, default_loader, None, True)
    assert ours.classes == theirs.classes
    with ht.DataLoader(ours, 3) as loader:
        got = list(loader)
    assert all(torch.equal(x, u) for (x, _), (u, _) in zip(got, DataLoader(theirs, 3)))
    with pytest.raises(FileNotFoundError, match="for the classes dog"):
        ht.ImageFolder(root, is_valid_file=lambda path: True)


def test_methods_are_torchvisions(root):
    ours, theirs = ht.ImageFolder(root), datasets.ImageFolder(root)
    assert ours.find_classes(root) == theirs.find_classes(root)
    arguments = (root, {"ant": 3, "cat": 1}, (".png", ".txt"))
    assert ours.make_dataset(*arguments) == theirs.make_dataset(*arguments)
    for wrong in ((root, {}, (".png",)), (root, {"ant": 0}), (root, {"ant": 0}, (".x",), even)):
        for dataset in (ours, theirs):
            with pytest.raises(ValueError, match=r"class_to_index|extensions"):
                dataset.make_dataset(*wrong)
    with pytest.raises(FileNotFoundError):
        ours.make_dataset(root, {"ant": 0}, (".webp",))
    with pytest.raises(FileNotFoundError):
        ours.find_classes(os.path.join(root, "ant"))


def test_a_listing_of_its_own_keeps_the_loader(root):
    """Bytes of files that are no images, for a loader of the user's."""
    data = ht.ImageFolder(root, loader=len, is_valid_file=lambda path: path.endswith("0.png"))
    sizes = [os.path.getsize(path) for path, _ in data.samples]
    with ht.DataLoader(data, 3) as loader:
        assert next(iter(loader))[0].tolist() == sizes
    data = ht.ImageFolder(root, is_valid_file=even)
    with ht.DataLoader(data, 3) as loader:
        raw, _ = next(iter(loader))
    assert bytes(raw[0]) == open(data.samples[0][0], "rb").read()  # noqa: SIM115
    with ht.DataLoader(data, 3, labels="name", raw=False, collate_fn=list) as loader:
        assert next(iter(loader))[0][1] == "ant"


def test_samples_that_change_afterwards_need_a_new_loader(root):
    data = ht.ImageFolder(root, SMALL)
    with ht.DataLoader(data, 3) as loader:
        next(iter(loader))
        data.samples = data.samples[:4]
        with pytest.raises(errors.ConfigError, match="make a new loader"):
            iter(loader)


def test_a_function_in_place_of_torchvisions_loader(root, monkeypatch, caplog):
    monkeypatch.setattr(datasets.folder, "pil_loader", lambda path: Image.new("RGB", (9, 9)))
    with pytest.raises(errors.ConfigError, match=r"folder\.pil_loader was replaced by .*lambda"):
        ht.ImageFolder(root, SMALL, loader=default_loader)
    ht.ImageFolder(root, SMALL)
    assert "HDMLP's ImageFolder does not call it" in caplog.text


@pytest.mark.parametrize("names", [(), ("ant",)])
def test_a_folder_without_samples_raises_when_it_is_asked(tmp_path, names):
    """Where torchvision's raises when it is made."""
    (tmp_path / "data").mkdir()
    for name in names:
        (tmp_path / "data" / name).mkdir()
    with pytest.raises(FileNotFoundError):
        datasets.ImageFolder(tmp_path / "data")
    data = ht.ImageFolder(tmp_path / "data")
    for ask in (len, lambda d: d.classes, lambda d: d[0], lambda d: next(iter(ht.DataLoader(d)))):
        with pytest.raises(errors.DatasetError, match=r"no class directories|have no samples"):
            ask(data)
