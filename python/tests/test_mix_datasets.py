"""What a mix makes of its datasets: items as each of them gives, and errors where they differ.

The oracle of an item is the dataset that it is of.
"""

import gzip
import math
import pathlib
import pickle
import shutil

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
import hdmlp.transforms
import recordfiles
from byhand import by_hand
from hdmlp import errors
from PIL import Image
from torch.utils.data import ConcatDataset, DistributedSampler, Subset
from torchvision import datasets as theirs
from torchvision import transforms

try:
    from torchvision.transforms import v2
except ImportError:  # before torchvision 0.15
    v2 = None

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

CASES = pathlib.Path(__file__).parent / "cases"
TENSOR = recordfiles.TENSOR


def folder(root, classes=("a", "b"), count=5, **options):
    for c, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}.png").write_bytes(recordfiles.image(10 * c + i, (10, 9)))
    return ht.ImageFolder(str(root), **{"transform": TENSOR, **options})


def files(root, count=6, labels=None, **options):
    paths = [path for path, _, _ in recordfiles.write(root, count)]
    return ht.Files(paths, labels or list(range(count)), **{"transform": TENSOR, **options})


def environment(root, **options):
    """12 images of cats and 11 of dogs."""
    root.mkdir(parents=True)
    with gzip.open(CASES / "images.mdb.gz") as source, open(root / "data.mdb", "wb") as target:
        shutil.copyfileobj(source, target)
    return ht.LMDB(str(root), **{"label": "prefix", "transform": TENSOR, **options})


def delivered(mix, **options):
    """(ID, item) of each sample of an epoch, taken from batches."""
    with ht.DataLoader(mix, 4, shuffle=True, seed=3, **options) as loader:
        for step, batch in enumerate(loader):
            for place, sample in enumerate(loader.explain(0, step).ids):
                if "collate_fn" in options:
                    yield sample, batch[place]
                else:
                    yield sample, tuple(column[place] for column in batch)


def check(mix, datasets, **options):
    """Checks that each delivered item is its dataset's, and so is mix[i]."""
    count = 0
    for sample, item in delivered(mix, **options):
        number, own = mix.source_of(sample)
        want = datasets[number][own]
        assert recordfiles.equal(mix[sample], want)
        if isinstance(want, dict):
            assert list(item) == list(want)
            item, want = tuple(item.values()), tuple(want.values())
        assert len(item) == len(want)
        for a, b in zip(item, want):
            if isinstance(b, torch.Tensor):
                assert torch.equal(a, b)
            elif isinstance(b, bytes):
                assert bytes(a) == b
            else:
                assert (a.item() if hasattr(a, "item") else a) == b
        count += 1
    assert count == mix.epoch_size


def test_folders_files_and_environments(tmp_path):
    datasets = [
        folder(tmp_path / "folder", ("cat", "dog")),
        ht.Files(
            [p for p, _, _ in recordfiles.write(tmp_path / "files", 6)],
            ["dog", "cat", "cat"] * 2,
            transform=TENSOR,
        ),
        environment(tmp_path / "environment"),
    ]
    mix = ht.Mix(datasets, weights=[1, 2, 3], epoch_size=30)
    assert len(mix) == 39
    assert mix.classes == ["cat", "dog"]
    assert mix.targets == [t for d in datasets for t in d.targets]
    assert mix.samples == [s for d in datasets for s in d.samples]
    check(mix, datasets)
    with ht.DataLoader(mix, 4, shuffle=True, seed=3, name="native") as loader:
        assert loader._content.making.recipe is None  # nothing is left to Python
        assert loader.classes == ["cat", "dog"]


def test_shards_with_dicts(tmp_path):
    recordfiles.shards(tmp_path / "one")
    recordfiles.shards(tmp_path / "two", (3, 2))
    datasets = [
        ht.WebDataset(str(tmp_path / name / "*.tar"), decode=True, transform={"png": TENSOR})
        for name in ("one", "two")
    ]
    mix = ht.Mix({"one": datasets[0], "two": datasets[1]}, weights={"two": 1, "one": 1})
    assert mix.epoch_size == 10
    assert mix.key(24) == "part/00001"
    check(mix, datasets, collate_fn=list)
    with ht.DataLoader(mix, 4, shuffle=True, seed=3) as loader:
        batch = next(iter(loader))
        assert list(batch) == ["__key__", "__url__", "png", "cls", "seg.json"]
        assert batch["cls"].tolist() == [int(mix[i]["cls"]) for i in loader.explain(0, 0).ids]


def test_shards_with_tuples_and_files(tmp_path):
    recordfiles.shards(tmp_path / "shards")
    paths = recordfiles.write(tmp_path / "files")
    chosen = ht.WebDataset(
        str(tmp_path / "shards" / "*.tar"), fields=("png", "seg.json"), decode=True
    )
    datasets = [
        chosen.map_tuple(TENSOR),
        ht.Files([(p[0], p[2]) for p in paths], transform={"0": TENSOR}, decode=True),
    ]
    mix = ht.Mix(datasets, epoch_size=12)
    for sample, (image, _) in delivered(mix, collate_fn=list):
        number, own = mix.source_of(sample)
        assert torch.equal(image, datasets[number][own][0])


def test_bytes_and_masks(tmp_path):
    paths = recordfiles.write(tmp_path / "files")
    datasets = [ht.Files(paths[:10]), ht.Files(paths[10:])]
    mix = ht.Mix(datasets, epoch_size=23)
    for sample, item in delivered(mix):
        number, own = mix.source_of(sample)
        assert [bytes(x) for x in item] == list(datasets[number][own])


def test_functions_of_the_program(tmp_path):
    """Transforms of images and items in Python, loaders, and labels by a function of the key."""

    def load(data):
        return torch.frombuffer(bytearray(bytes(data)[:16]), dtype=torch.uint8)

    def twice(x, y):
        return x * 2, y + 1

    options = {"transform": None, "loader": load, "transforms": twice}
    a, b = (files(tmp_path / name, 5, **options) for name in "ab")
    check(ht.Mix([a, b], epoch_size=12), [a, b])
    labelled = [
        environment(tmp_path / name, label=function)
        for name, function in (("c", lambda key, _: int(key[-2:])), ("d", lambda _, v: len(v)))
    ]
    with pytest.raises(errors.ConfigError, match="no labels"):
        ht.Mix([a, labelled[0]])
    check(ht.Mix(labelled, epoch_size=12), labelled, num_workers=0)


def test_one_files_samples_in_several_datasets(tmp_path):
    """Parts of datasets, and another dataset over the same files."""
    whole = files(tmp_path / "files", 12)
    parts = [Subset(whole, [3, 1, 7]), Subset(Subset(whole, range(4, 12)), [0, 2])]
    mix = ht.Mix(parts, weights=[1, 1], epoch_size=10)
    assert len(mix) == 5
    assert mix.targets == [3, 1, 7, 4, 6]
    assert mix.samples == [whole.samples[i] for i in (3, 1, 7, 4, 6)]
    check(mix, parts)
    recordfiles.shards(tmp_path / "shards")
    shards = ht.WebDataset(str(tmp_path / "shards" / "*.tar"), fields=("png", "cls"), decode=True)
    tensors = shards.map_tuple(TENSOR)
    parts = [Subset(tensors, [20, 2]), Subset(tensors, [5])]
    check(ht.Mix(parts, epoch_size=9), parts)


def test_labels_that_are_texts_get_one_list_of_classes(tmp_path):
    a = files(tmp_path / "a", 3, ["dog", "cat", "dog"])
    b = files(tmp_path / "b", 3, ["owl", "cat", "cat"])
    mix = ht.Mix([a, b])
    assert mix.classes == ["cat", "dog", "owl"]
    assert mix.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}
    assert mix.targets == [1, 0, 1, 2, 0, 0]
    assert [mix[i][1] for i in range(6)] == mix.targets
    labels = {sample: int(item[1]) for sample, item in delivered(mix)}
    assert labels == dict(enumerate(mix.targets))
    with ht.DataLoader(mix, 6, labels="name") as loader:
        ((_, names),) = loader
    assert sorted(names) == ["cat", "cat", "cat", "dog", "dog", "owl"]
    given = files(tmp_path / "c", 2, ["owl", "dog"], classes=["owl", "dog", "cat"])
    assert ht.Mix([a, given, b]).targets == [1, 2, 1, 0, 1, 0, 2, 2]
    few = files(tmp_path / "d", 2, ["owl", "dog"], classes=["owl", "dog"])
    with pytest.raises(
        errors.ConfigError, match=r"datasets\[0\] has the label 'cat', which is none"
    ):
        ht.Mix([a, few])


@pytest.mark.parametrize(
    "labels",
    [
        ([5, -3], [7, 2]),
        ([0.5, 1.5], [2.5, 3.0]),
        ([True, False], [False, False]),
        (numpy.array([[1, 2], [3, 4]]), numpy.array([[5, 6], [7, 8]])),
        (torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[5.0, 6], [7, 8]])),
        ([{"x": 1}, None], [("a", 2), 3]),
    ],
)
def test_other_labels_stay_as_they_are(tmp_path, labels):
    datasets = [
        ht.Files([p for p, _, _ in recordfiles.write(tmp_path / name, 2)], own, transform=TENSOR)
        for name, own in zip("ab", labels)
    ]
    mix = ht.Mix(datasets)
    with ht.DataLoader(mix, 4, name="all") as loader:
        ((_, batch),) = loader
        order = loader.explain(0, 0).ids
    want = [datasets[d].targets[i] for d, i in map(mix.source_of, order)]
    assert (batch.tolist() if isinstance(batch, torch.Tensor) else list(batch)) == want


def test_source_of(tmp_path):
    mix = ht.Mix([files(tmp_path / "a", 5), files(tmp_path / "b", 2), files(tmp_path / "c", 3)])
    want = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert [mix.source_of(i) for i in range(10)] == want
    assert mix.source_of(-1) == (2, 2)
    assert mix.source_of([7, 0]) == ([2, 0], [0, 0])
    assert mix.source_of([]) == ([], [])
    datasets, places = mix.source_of(torch.arange(10).reshape(2, 5))
    assert list(zip(datasets.flatten().tolist(), places.flatten().tolist())) == want
    assert datasets.shape == places.shape == (2, 5)
    assert datasets.dtype == torch.int64
    arrays = mix.source_of(numpy.arange(10))
    assert [tuple(map(int, both)) for both in zip(*arrays)] == want
    assert isinstance(arrays[0], numpy.ndarray)
    for wrong in (10, -11, [3, 10]):
        with pytest.raises(IndexError, match="is out of range"):
            mix.source_of(wrong)
    assert mix.source_of(torch.tensor([-1]))[0].tolist() == [2]
    for wrong in (1.5, torch.tensor([1.5]), numpy.array([True])):
        with pytest.raises(TypeError):
            mix.source_of(wrong)


def test_a_mix_can_be_pickled(tmp_path):
    parts = [folder(tmp_path / "a", ("cat", "dog")), environment(tmp_path / "b")]
    mix = ht.Mix(parts, epoch_size=8)
    made = pickle.loads(pickle.dumps(mix))
    assert torch.equal(made[3][0], mix[3][0])
    check(made, parts)
    context = {"num_workers": 1, "multiprocessing_context": "spawn", "offload": False}
    check(ht.Mix(parts, epoch_size=8), parts, name="spawned", **context)


def test_transforms_may_be_replaced(tmp_path):
    """Those of the datasets count, as they are when an epoch begins."""
    parts = [folder(tmp_path / "a"), files(tmp_path / "b", 6)]
    with ht.DataLoader(ht.Mix(parts, epoch_size=8), 4) as loader:
        assert next(iter(loader))[0].shape == (4, 3, 8, 8)
        for part in parts:
            part.transform = transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()])
        assert next(iter(loader))[0].shape == (4, 3, 4, 4)
        parts[0].transform = TENSOR
        with pytest.raises(errors.ConfigError, match=r"shape \(3, 4, 4\) in datasets\[1\], and"):
            next(iter(loader))


def weak_and_strong(tmp_path):
    """Two datasets, of which each has augmentations of its own."""
    weak = transforms.Compose([transforms.RandomCrop(8), transforms.ToTensor()])
    strong = transforms.Compose(
        [
            transforms.RandomResizedCrop(8),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.4),
            transforms.ToTensor(),
        ]
    )
    return [folder(tmp_path / "a", transform=weak), files(tmp_path / "b", 6, transform=strong)]


@pytest.mark.parametrize("options", [{}, {"offload": False}, {"num_workers": 1}])
def test_datasets_have_augmentations_of_their_own(tmp_path, options, caplog):
    """With the random numbers of their positions in the dataset's own list."""
    parts = weak_and_strong(tmp_path)
    mix = ht.Mix(parts, weights=[1, 2], epoch_size=18)
    epochs = []
    with ht.DataLoader(
        mix, 4, shuffle=True, seed=3, epochs=2, **{"num_workers": 0, **options}
    ) as loader:
        for epoch in range(2):
            batches = list(loader)
            ids = [i for step in range(len(loader)) for i in loader.explain(epoch, step).ids]
            epochs.append((ids, torch.cat([images for images, _ in batches])))
    for epoch, (ids, images) in enumerate(epochs):
        assert len(images) == 18
        for place, (sample, image) in enumerate(zip(ids, images)):
            number, own = mix.source_of(sample)
            plain = Image.open(parts[number].sample(own)[0]).convert("RGB")
            before = ids[:place].count(sample)
            want = by_hand(parts[number].transform, plain, 3, epoch, sample, before)
            assert torch.equal(image, want), (epoch, sample)
    said = [r.message for r in caplog.records if "lists of their own" in r.message]
    assert len(said) == ("offload" not in options)


def test_files_that_change_are_noticed(tmp_path):
    parts = [files(tmp_path / "a", 5), files(tmp_path / "b", 5)]
    mix = ht.Mix(parts)
    assert len(list(delivered(mix))) == 10
    with open(parts[1].sample(2)[0], "ab") as file:
        file.write(b"more")
    with pytest.raises(errors.MismatchError, match="a file was written"):
        list(delivered(mix))


class Together(ht.Files):
    """Files of which the program makes items in a way that a mix has no place for."""

    def _plan(self, wanted, say, raw=False):
        plan = super()._plan(wanted, say, raw)
        plan.together = [None, "crop"]
        return plan


def paired(root):
    """Images and masks that are transformed jointly."""
    paths = [path[:2] for path in recordfiles.write(root, 3)]
    crop = v2.Compose([v2.CenterCrop(4), v2.PILToTensor()])
    return ht.Files(paths, kinds={"0": "image", "1": "mask"}, transform=crop)


def wrong(tmp_path):
    """What cannot be mixed, and what the error says."""
    a = files(tmp_path / "a", 5)
    b = files(tmp_path / "b", 5)
    shards = tmp_path / "shards"
    recordfiles.shards(shards)
    web = ht.WebDataset(str(shards / "*.tar"), decode=True, transform={"png": TENSOR})
    other = transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()])
    ours = [hdmlp.transforms.RandomCrop((8, 8)), hdmlp.transforms.ToTensor()]
    arrays = []
    for name, shape, kind in (("x", 4, "u1"), ("y", 5, "u1"), ("z", 4, "f4")):
        numpy.save(tmp_path / f"{name}.npy", numpy.zeros(shape, kind))
        arrays.append(ht.Files([tmp_path / f"{name}.npy"], decode=True))
    return [
        (([],), {}, "the list is empty"),
        ((5,), {}, "must be a list of datasets"),
        ((a,), {}, "must be a list of datasets"),
        (({1: a},), {}, "names of datasets are texts"),
        (([a, b],), {"weights": [1]}, "weights has 1 numbers, and there are 2 datasets"),
        (([a, b],), {"weights": [1, -0.5]}, r"weights\[1\]=-0.5: must be a finite number"),
        (([a, b],), {"weights": [1, math.nan]}, r"weights\[1\]=nan: must be a finite number"),
        (([a, b],), {"weights": [1, math.inf]}, r"weights\[1\]=inf"),
        (([a, b],), {"weights": [1, "x"]}, r"weights\[1\]='x'"),
        (([a, b],), {"weights": [1, True]}, r"weights\[1\]=True"),
        (([a, b],), {"weights": [0, 0]}, "all are 0"),
        (([a, b],), {"weights": [[1, 1], [0, 0.0]], "epoch_size": 5}, r"weights\[1\]=.*all are 0"),
        (([a, b],), {"weights": [[1, 1], [1]], "epoch_size": 5}, r"weights\[1\] has 1 numbers"),
        (([a, b],), {"weights": [1, 1e-12]}, "less than 2.-32"),
        (([a, b],), {"weights": "ab"}, "must be a list with a number"),
        (([a, b],), {"weights": {"a": 1, "b": 1}}, "the datasets have no names"),
        (
            ({"a": a, "b": b},),
            {"weights": {"a": 1, "c": 1}},
            "no dataset of that name; there are a",
        ),
        (({"a": a, "b": b},), {"weights": {"a": 1}}, "it has no weight for b"),
        (([a, b],), {"weights": [[1, 1], [1, 2]]}, "give epoch_size="),
        (([a, b],), {"epoch_size": 0}, "epoch_size"),
        (([a, b],), {"epoch_size": 2.5}, "epoch_size"),
        (([a, b],), {"epoch_size": 2**31}, "epoch_size=2147483648: allowed"),
        (([a, b],), {"stopping_strategy": "never"}, "first_exhausted, all_exhausted"),
        (
            ([a, b],),
            {"weights": [1, 1e-9], "stopping_strategy": "all_exhausted"},
            "until dataset 1 is gone through once",
        ),
        (([a, b],), {"batches": "one"}, "'mixed', 'one dataset each'"),
        (([a, b, a],), {}, r"datasets\[2\] is the same dataset as datasets\[0\].*sum of both"),
        (([a, Subset(b, [])],), {}, r"datasets\[1\] is empty"),
        (([a, ht.Mix([b])],), {}, r"datasets\[1\] is a Mix: give one Mix all"),
        (([Together([a.sample(0)[0]])],), {}, "several fields or of whole rows together"),
        (([a, [1, 2]],), {}, r"datasets\[1\] is a list, whose samples HDMLP does not read"),
        (([a, ConcatDataset([b])],), {}, r"datasets\[1\] is a ConcatDataset"),
        (([a, hd.Files([a.sample(0)[0]])],), {}, "of hdmlp.data: use that of hdmlp.torch"),
        (({"a": a, "w": web},), {}, r"datasets\['w'\] and datasets\['a'\] have different items"),
        (([web, web.to_tuple("png", "cls")],), {}, "different items: tuples and dicts"),
        (([a, files(tmp_path / "c", 3, transform=other)],), {}, r"shape \(3, 4, 4\) in datasets"),
        (
            ([a, files(tmp_path / "k", 3, transform=None, decode=True)],),
            {},
            "field '0' is a PIL image in",
        ),
        (
            ([a, files(tmp_path / "l", 3, transform=ours)],),
            {},
            r"datasets\[1\] and .* differ .*; lists that differ run in Python, where those of",
        ),
        (([a, files(tmp_path / "d", 3, transform=None)],), {}, "what is made of the field '0'"),
        (([a, files(tmp_path / "e", 3, [0.5, 1, 2])],), {}, "labels of the type float, and data"),
        (
            ([a, files(tmp_path / "f", 3, target_transform=abs)],),
            {},
            "different functions for items .target_transform",
        ),
        (
            ([folder(tmp_path / "g"), folder(tmp_path / "h", ("a", "c"))],),
            {},
            r"number 1 is 'b' in datasets\[0\], and 'c' in datasets\[1\]",
        ),
        (
            ([folder(tmp_path / "i"), folder(tmp_path / "j", ("a", "b", "c"))],),
            {},
            r"datasets\[0\] has 2 classes, and datasets\[1\] has 3",
        ),
        ((arrays[:2],), {}, r"ndarray of uint8 of shape \(5,\) in datasets\[1\]"),
        ((arrays[::2],), {}, "ndarray of float32 of shape"),
        (([theirs.FakeData(3)],), {}, "is a FakeData, .* hdmlp.torch's ImageFolder"),
    ]


def test_what_cannot_be_mixed(tmp_path):
    for arguments, options, what in wrong(tmp_path):
        with pytest.raises(errors.ConfigError, match=what):
            ht.Mix(*arguments, **options)


@pytest.mark.skipif(not hasattr(v2, "PILToTensor"), reason="before torchvision 0.16")
def test_pairs_cannot_be_mixed(tmp_path):
    with pytest.raises(errors.ConfigError, match="several fields or of whole rows together"):
        ht.Mix([paired(tmp_path / "pairs")])


def torchvisions(root):
    folder(root)
    return theirs.ImageFolder(str(root), TENSOR)


def own_listings(root):
    """Folders with some of their files alone, and in another order."""
    folder(root)
    some = ht.ImageFolder(
        str(root), TENSOR, is_valid_file=lambda path: path.endswith(("1.png", "3.png"))
    )
    turned = theirs.ImageFolder(str(root), TENSOR)
    turned.samples.reverse()
    turned.imgs = turned.samples
    return [some, Subset(turned, [0, 3, 3]), folder(root.parent / "own")]


def concatenations(tmp_path):
    """Parts of ConcatDatasets that are in several places, and have one transform."""
    webs, tuples = [], []
    for name, counts in (("v", (7, 2)), ("w", (3,))):
        recordfiles.shards(tmp_path / name, counts)
        web = ht.WebDataset(str(tmp_path / name / "*.tar"), fields=("png", "cls"), decode=True)
        webs.append(web.map_tuple(TENSOR))
        paths = recordfiles.write(tmp_path / f"{name}-files", 5)
        tuples.append(ht.Files([p[:2] for p in paths], transform={"0": TENSOR, "1": TENSOR}))
    return {
        "folders": [folder(tmp_path / "a"), folder(tmp_path / "b"), folder(tmp_path / "c")],
        "folder and files": [folder(tmp_path / "d"), files(tmp_path / "e", 4)],
        "parts": [Subset(files(tmp_path / "f", 9), [4, 2]), Subset(folder(tmp_path / "g"), [7])],
        "shards and parts": [webs[0], Subset(webs[1], [2, 0])],
        "environments": [environment(tmp_path / name) for name in ("h", "i")],
        "torchvision's": [torchvisions(tmp_path / name) for name in ("j", "k")],
        "torchvision's and ours": [torchvisions(tmp_path / "l"), folder(tmp_path / "m")],
        "own listings": own_listings(tmp_path / "n"),
        "tuples": [tuples[0], Subset(tuples[1], [1, 1])],
    }


def test_concatenations_are_served(tmp_path):
    """In torch's order, and equal to what torch's own loader gives."""
    for name, parts in concatenations(tmp_path).items():
        data = ConcatDataset(parts)
        samplers = [DistributedSampler(data, 2, 1, seed=4) for _ in range(2)]
        reference = torch.utils.data.DataLoader(data, 4, sampler=samplers[0])
        with ht.DataLoader(data, 4, sampler=samplers[1], name=name) as loader:
            assert loader._folder is not None, name
            assert len(loader._folder) == len(data)
            for epoch in range(2):
                for sampler in samplers:
                    sampler.set_epoch(epoch)
                for ours, theirs_ in zip(loader, reference):
                    assert recordfiles.equal(ours, theirs_), name
            folder_of = loader._folder
            assert loader._content._datasets.samples(data).folder is folder_of


def test_concatenations_that_differ_are_made_in_python(tmp_path, caplog):
    texts = [files(tmp_path / name, 2, of) for name, of in (("a", ["x", "y"]), ("b", ["x", "z"]))]
    other = files(tmp_path / "c", 2, transform=transforms.Compose([transforms.ToTensor()]))
    for parts, why in (
        (texts, "different classes: number 1 is 'y' in part 0, and 'z' in part 1"),
        ([texts[0], other], "part 1 and part 0 differ in what is made of the field"),
    ):
        data = ConcatDataset(parts)
        with ht.DataLoader(data, 1, shuffle=False) as loader:
            assert loader._folder is None
            got = [label.item() for _, label in loader]
            assert got == [part.targets[i] for part in parts for i in range(2)]
        assert why in caplog.text


def test_arrays_and_windows(tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.arange(60, dtype="f4").reshape(20, 3))
    numpy.save(tmp_path / "b.npy", numpy.arange(24, dtype="f4").reshape(8, 3) + 100)
    numpy.save(tmp_path / "c.npy", numpy.zeros((4, 5), "f4"))
    rows = [ht.Arrays(tmp_path / f"{name}.npy") for name in "abc"]
    mix = ht.Mix(rows[:2], weights=[1, 1], epoch_size=20)
    with ht.DataLoader(mix, 4, shuffle=True, seed=3) as loader:
        for step, batch in enumerate(loader):
            wanted = [rows[d][i] for d, i in map(mix.source_of, loader.explain(0, step).ids)]
            assert torch.equal(batch, torch.stack([torch.as_tensor(row) for row in wanted]))
        assert loader._content.making.recipe is None
    with pytest.raises(errors.ConfigError, match="what is made of the field '0'"):
        ht.Mix([rows[0], rows[2]])
    tokens = []
    for name, count in (("t", 900), ("u", 300)):
        numpy.arange(count, dtype="u2").tofile(tmp_path / f"{name}.bin")
        path = tmp_path / f"{name}.bin"
        tokens.append(ht.Arrays(path, dtype="uint16", window=8, stride=3))
    check(ht.Mix(tokens, weights=[1, 3], epoch_size=40), tokens)
