"""Datasets beside HDMLP's own that the daemon serves: torchvision's folders, subsets and
concatenations.

The oracle is torch's own loader over the same object.
"""

import logging
import os
import re
import shutil

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
import hdmlp.torch as ht
from hdmlp import errors
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torchvision import datasets, transforms

pytestmark = pytest.mark.usefixtures("real")

TENSOR = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])


@pytest.fixture
def images(tmp_path):
    """23 lossless images in 3 classes, each of a single colour."""
    number = 0
    for name, count in (("ant", 9), ("bee", 8), ("cat", 6)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (10, 9), (number * 9, 255 - number, 7)).save(
                tmp_path / "data" / name / f"{i:03d}.png"
            )
            number += 1
    return str(tmp_path / "data")


def same(a, b):
    """The labels are equal, and the images are within one grey level."""
    if isinstance(a, torch.Tensor):
        return (
            a.shape == b.shape and a.dtype == b.dtype and bool((a - b).abs().max() <= 1.01 / 255)
            if a.numel()
            else a.shape == b.shape
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check(dataset, served=True, epochs=2, **arguments):
    """Checks that both loaders give the same batches; with ``served``, that the daemon delivered
    them."""
    ours, theirs = (
        ht.DataLoader(dataset, **{"batch_size": 4, **arguments}),
        DataLoader(dataset, **{"batch_size": 4, **arguments}),
    )
    with ours:
        for _ in range(epochs):
            torch.manual_seed(5)
            got = list(ours)
            torch.manual_seed(5)
            assert same(got, list(theirs))
        if served:
            assert "source" in ours.report()
            assert ours.output is not None or ours._order is None
        else:
            assert "source" not in ours.report()


class Paths(datasets.ImageFolder):
    """A folder of users who want the path with each item."""

    def __getitem__(self, i):
        return (*super().__getitem__(i), self.samples[i][0])


class Numbered(ht.ImageFolder):
    """The same, with numbers."""

    def __getitem__(self, i):
        return (*super().__getitem__(i), i)


class Wrapped(Dataset):
    """A folder's samples, from an object around it."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return 23

    def __getitem__(self, i):
        return (self.data if not isinstance(self.data, list) else self.data[0])[i]


class Part(Subset):
    pass


class Two(datasets.ImageFolder):
    """A folder with classes of the user's own: two of the directories, in another order."""

    def find_classes(self, directory):
        return ["cat", "ant"], {"cat": 0, "ant": 5}


def red(path):
    return Image.new("RGB", (10, 9), (255, 0, len(path) % 255))


@pytest.mark.parametrize(
    "arguments", [{}, {"shuffle": True}, {"batch_size": 5, "drop_last": True}, {"num_workers": 1}]
)
def test_torchvisions_folder_is_served(images, arguments):
    check(datasets.ImageFolder(images, TENSOR), **arguments)


def test_samplers_over_torchvisions_folder_are_served(images):
    data = datasets.ImageFolder(images, TENSOR)
    check(data, sampler=DistributedSampler(data, 2, 1, seed=4))
    check(data, sampler=WeightedRandomSampler(torch.arange(1, 24).float(), 40))


def test_every_kind_of_dataset_folder_is_served(images):
    check(datasets.DatasetFolder(images, datasets.folder.default_loader, (".png",), TENSOR))
    check(datasets.ImageFolder(images + "/", TENSOR, target_transform=lambda y: y * 2.5))
    check(
        datasets.ImageFolder(
            images, TENSOR, is_valid_file=lambda path: path.endswith(("1.png", "4.png"))
        )
    )
    check(Two(images, TENSOR))


def test_classes_have_the_names_of_the_users_numbers(images):
    data = datasets.ImageFolder(images, TENSOR)
    data.samples = [(path, 2 - label) for path, label in data.samples]
    data.classes = ["of cats", "of bees", "of ants"]
    with ht.DataLoader(data, 23, labels="name") as loader:
        assert list(next(iter(loader))[1]) == ["of ants"] * 9 + ["of bees"] * 8 + ["of cats"] * 6
    data.target_transform = str.upper
    with ht.DataLoader(data, 23, labels="name") as loader:
        assert next(iter(loader))[1][0] == "OF ANTS"
    with pytest.raises(errors.ConfigError, match="labels='name': the label 5 "):
        ht.DataLoader(Two(images, TENSOR), 4, labels="name")


def test_imagenet_is_served(tmp_path, images):
    """Its root has the files of the devkit beside the split, and its classes are tuples of
    names."""
    names = {name: (name, name.upper()) for name in os.listdir(images)}
    (tmp_path / "imagenet").mkdir()
    torch.save((names, []), tmp_path / "imagenet" / "meta.bin")
    os.rename(images, tmp_path / "imagenet" / "val")
    data = datasets.ImageNet(str(tmp_path / "imagenet"), "val", transform=TENSOR)
    assert data.classes[0] == ("ant", "ANT")
    check(data, shuffle=True)
    with ht.DataLoader(data, 4) as loader:
        assert loader.classes == data.classes
    with ht.DataLoader(data, 23, labels="name") as loader:
        assert "ant" in str(next(iter(loader))[1])


def test_samples_that_the_user_changed_are_served_as_changed(images):
    """As in torch: fewer, in another order, some twice, or with labels of their own."""

    def changed(change):
        data = datasets.ImageFolder(images, TENSOR)
        data.samples = change(data.samples)
        return data

    check(changed(lambda samples: samples[::-2]), shuffle=True)
    check(changed(lambda samples: samples[:5] * 3))
    check(changed(lambda samples: [(path, 2 - label) for path, label in samples]))
    check(changed(lambda samples: [(path, float(label)) for path, label in samples]))
    check(changed(lambda samples: [(path, i) for i, (path, _) in enumerate(samples)]), served=False)
    data = datasets.ImageFolder(images, TENSOR)
    data.samples = numpy.array(data.samples, dtype=object)
    check(data, shuffle=True)
    data.samples = data.samples[::-2]
    check(data)
    data = datasets.ImageFolder(images, TENSOR)
    data.targets = [7] * 23  # torchvision does not look there
    check(data)


class Files(Dataset):
    """A dataset of the user's own."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    "make, name",
    [
        (Files, "Files"),
        (lambda: Subset(Files(), [1, 2]), "Files"),
        (lambda: ConcatDataset([range(3), Files()]), "Files"),
        (lambda: TensorDataset(torch.arange(3)), None),
        (lambda: list(range(3)), None),
        (Numbers, None),
    ],
)
def test_what_is_not_done_for_datasets_of_ones_own_is_said_once(make, name, caplog, monkeypatch):
    monkeypatch.setattr("hdmlp.torch._engine.content._SAID", [])
    for _ in range(2):
        with ht.DataLoader(make(), 2) as loader:
            list(loader)
    said = [r.getMessage() for r in caplog.records if "read ahead" in r.getMessage()]
    assert len(said) == (name is not None)
    if name is not None:
        assert f"{name}: the files that a dataset of your own reads are neither cached" in said[0]


def test_nothing_of_the_kind_is_said_of_folders(images, caplog, monkeypatch):
    monkeypatch.setattr("hdmlp.torch._engine.content._SAID", [])
    for data in (ht.ImageFolder(images, TENSOR), Paths(images, TENSOR)):
        with ht.DataLoader(data, 4) as loader:
            next(iter(loader))
    assert "read ahead" not in caplog.text


@pytest.mark.parametrize(
    "make, why",
    [
        (
            lambda root: datasets.ImageFolder(root, TENSOR, loader=red),
            "its loader is a function of yours",
        ),
        (
            lambda root: Subset(datasets.ImageFolder(root, TENSOR, loader=red), [3, 1]),
            "its loader is a function of yours",
        ),
        (
            lambda root: ConcatDataset(
                [
                    datasets.ImageFolder(root, TENSOR),
                    datasets.ImageFolder(root, transforms.Compose([*TENSOR.transforms, torch.neg])),
                ]
            ),
            "different transforms",
        ),
        (
            lambda root: ConcatDataset(
                [datasets.ImageFolder(root, TENSOR), [(torch.zeros(3, 8, 8), 1)] * 3]
            ),
            "not a folder",
        ),
        (
            lambda root: Wrapped(ht.ImageFolder(root, TENSOR)),
            "it seems to take them from the ImageFolder that it has",
        ),
        (
            lambda root: Wrapped([Wrapped(datasets.ImageFolder(root, TENSOR))]),
            "it seems to take them from the ImageFolder that it has",
        ),
        (
            lambda root: ConcatDataset(
                [ht.ImageFolder(root, TENSOR), Part(ht.ImageFolder(root, TENSOR), [3, 1])]
            ),
            "it seems to take them from the ImageFolder that it has",
        ),
        (
            lambda root: Part(ht.ImageFolder(root, TENSOR), [3, 1]),
            "it seems to take them from the ImageFolder that it has",
        ),
        (
            lambda root: Numbered(root, TENSOR),
            "Numbered has methods of its own (__getitem__)",
        ),
        (
            lambda root: Subset(Paths(root, TENSOR), [3, 1]),
            "Paths has methods of its own (__getitem__)",
        ),
    ],
)
def test_what_the_daemon_cannot_serve_is_correct_and_warns_once(images, caplog, make, why):
    with caplog.at_level(logging.WARNING, "hdmlp"):
        data = make(images)
        check(data, served=False, shuffle=True, num_workers=1)
    said = [
        record.message for record in caplog.records if "nothing of it is cached" in record.message
    ]
    assert len(said) == 1
    assert why in said[0]
    with pytest.raises(errors.ConfigError, match=f"memory='1GB': no meaning.*{re.escape(why)}"):
        ht.DataLoader(data, 4, memory="1GB")


def test_overridden_item_methods_are_called(images):
    check(Paths(images, TENSOR), served=False)
    data = datasets.ImageFolder(images, TENSOR)
    data.__getitem__ = data.__getitem__  # over the class's, which may do anything
    check(data, served=False)


def test_a_folder_with_empty_classes_gives_torchs_batches(images):
    os.mkdir(os.path.join(images, "dog"))
    try:
        data = datasets.ImageFolder(images, TENSOR, allow_empty=True)
    except TypeError:
        pytest.skip("this torchvision knows no allow_empty")
    check(data, served=False)


@pytest.mark.parametrize("of", [datasets.ImageFolder, ht.ImageFolder])
def test_subsets_and_concatenations_are_served(images, of):
    def checked(make, **arguments):
        data = make(of(images, TENSOR))
        ours, theirs = (
            ht.DataLoader(data, 4, **arguments),
            DataLoader(make(datasets.ImageFolder(images, TENSOR)), 4, **arguments),
        )
        with ours:
            for _ in range(2):
                torch.manual_seed(5)
                got = list(ours)
                torch.manual_seed(5)
                assert same(got, list(theirs))
            assert "source" in ours.report()

    checked(lambda d: Subset(d, [3, 22, 4, 3, -1]))
    checked(lambda d: Subset(Subset(d, range(5, 20)), [3, -1, 4]), shuffle=True)
    checked(lambda d: random_split(d, [20, 3], torch.Generator().manual_seed(1))[0], shuffle=True)
    checked(lambda d: ConcatDataset([d, Subset(d, [4, 5])]), shuffle=True)
    checked(
        lambda d: ConcatDataset([Subset(d, range(0, 10)), Subset(d, range(15, 23))])
    )  # a fold is left out
    checked(lambda d: Subset(ConcatDataset([d, d]), [40, 2, 25]))


def test_a_folder_that_occurs_twice_is_one(images):
    """Two objects with the same directory and transforms count as one."""
    check(
        ConcatDataset([datasets.ImageFolder(images, TENSOR), datasets.ImageFolder(images, TENSOR)]),
        shuffle=True,
    )


def test_torchvisions_folders_of_several_directories_are_served(images, tmp_path):
    other = datasets.ImageFolder(shutil.copytree(images, tmp_path / "copy"), TENSOR)
    data = ConcatDataset([Subset(datasets.ImageFolder(images, TENSOR), range(3)), other])
    check(data, shuffle=True)
    other.samples.pop()
    check(ConcatDataset(data.datasets), shuffle=True)


def test_transforms_apply_as_they_are_when_iteration_begins(images):
    data = datasets.ImageFolder(images, TENSOR)
    with ht.DataLoader(data, 23) as loader:
        before = next(iter(loader))
        data.transform = transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()])
        data.target_transform = lambda y: y + 10
        after = next(iter(loader))
        assert before[0].shape[-1] == 8
        assert after[0].shape[-1] == 4
        assert torch.equal(after[1], before[1] + 10)


@pytest.mark.parametrize("shuffle", [True, False])
def test_items_that_change_after_iteration_began_raise(images, shuffle):
    def change_loader(data):
        data.loader = red

    for change, says in (
        (lambda data: data.samples.pop(), "epoch 1: .*it had 23, and has 22"),
        (lambda data: data.samples.reverse(), "they are other samples"),
        (lambda data: data.samples.append(data.samples[0]), "it had 23, and has 24"),
        (change_loader, "a function of yours"),
    ):
        data = datasets.ImageFolder(images, TENSOR)
        with ht.DataLoader(data, 4, shuffle=shuffle) as loader:
            list(loader)
            change(data)
            with pytest.raises(errors.ConfigError, match=says):
                iter(loader)

    def change_index(indices):
        indices[1] = 9

    for change, says in (
        (lambda indices: indices.append(4), "it had 3, and has 4"),
        (change_index, "they are other samples"),
    ):
        part = Subset(datasets.ImageFolder(images, TENSOR), [1, 2, 3])
        with ht.DataLoader(part, 2, shuffle=shuffle) as loader:
            list(loader)
            change(part.indices)
            with pytest.raises(
                errors.ConfigError, match=f"epoch 1: the items of the Subset changed .*{says}"
            ):
                iter(loader)


def test_a_loader_can_be_pickled_to_another_process(images):
    import pickle

    data = ConcatDataset(
        [
            Subset(datasets.ImageFolder(images, TENSOR), [1, 2, 3]),
            Subset(datasets.ImageFolder(images, TENSOR), [4]),
        ]
    )
    with ht.DataLoader(data, 2) as loader:
        want = list(loader)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert same(list(copy), want)


def test_an_empty_subset_has_no_batches(folder):
    data = Subset(ht.ImageFolder(folder), [])
    with ht.DataLoader(data, 4) as loader:
        assert list(loader) == []
        assert len(loader) == 0


def test_a_method_of_one_subset_is_called(images, caplog):
    data = Subset(ht.ImageFolder(images, TENSOR), [1, 2, 3])
    data.__getitems__ = lambda indices: [(torch.zeros(3), 100 + i) for i in indices]
    with ht.DataLoader(data, 3) as loader:
        assert next(iter(loader))[1].tolist() == [100, 101, 102]
    assert "__getitems__" in caplog.text
