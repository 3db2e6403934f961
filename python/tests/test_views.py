"""Several views of an image: what calling the lists one after another under the same random numbers
makes, from one decode."""

import importlib.util
import os

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp
import hdmlp.data
import hdmlp.torch as ht
from byhand import by_hand
from hdmlp import errors
from hdmlp import transforms as T
from PIL import Image
from reference import decoded, picture
from torch.utils.data import DataLoader, DistributedSampler, Subset, default_collate
from torchvision import transforms as V

pytestmark = pytest.mark.usefixtures("real")

SEED = 77
NORMALIZE = V.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])


@pytest.fixture
def folder(tmp_path):
    """Two classes of JPEGs of different sizes, and a BMP, which the daemon leaves to Pillow."""
    rng = numpy.random.default_rng(4)
    for name in ("ant", "bee"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(6):
            width, height = rng.integers(40, 200, 2).tolist()
            picture(rng, width, height).save(tmp_path / "data" / name / f"{i}.jpg", quality=90)
    picture(rng, 90, 70).save(tmp_path / "data" / "ant" / "z.bmp")
    return str(tmp_path / "data")


def augment(size, jitter=0.4):
    return V.Compose(
        [
            V.RandomResizedCrop(size),
            V.ColorJitter(jitter, jitter, jitter, 0.1),
            V.RandomHorizontalFlip(),
            V.ToTensor(),
            NORMALIZE,
        ]
    )


def lists():
    """Lists with views, of which the daemon makes all, by name."""
    every = {
        "two": [T.Views(augment(40), n=2)],
        "crops": [V.Resize(80), T.Views([augment(48), augment(40, 0.2)] + [augment(24)] * 4)],
        "plain": [
            V.RandomHorizontalFlip(),
            T.Views(
                [
                    V.Compose([V.RandomCrop(32, padding=8), V.PILToTensor()]),
                    [V.Resize((20, 30)), V.RandomVerticalFlip(), V.Grayscale(3), V.ToTensor()],
                    [V.Resize((30, 33), V.InterpolationMode.NEAREST), V.ToTensor()],
                ]
            ),
        ],
        "one": [T.Views([augment(40)])],
        "policies": [
            T.Views(
                [
                    V.RandomResizedCrop(40, interpolation=V.InterpolationMode.BICUBIC),
                    V.RandomHorizontalFlip(),
                    V.RandomApply([V.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
                    V.RandomGrayscale(0.2),
                    V.RandomSolarize(128, 0.5),
                    V.TrivialAugmentWide(),
                    V.ToTensor(),
                    NORMALIZE,
                    V.RandomErasing(0.7, value=[1.0, 2.0, 3.0]),
                ],
                n=3,
            )
        ],
    }
    if importlib.util.find_spec("torchvision.transforms.v2") is not None:
        from torchvision.transforms import v2

        own = [v2.RandomResizedCrop(40, antialias=True), v2.RandomHorizontalFlip(), v2.ToImage()]
        every["v2"] = [T.Views([own, [*own, v2.CenterCrop(20), v2.ToPureTensor()]])]
    return every


def order(dataset, epoch, seed=SEED):
    sampler = DistributedSampler(dataset, 1, 0, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def hand(transform, dataset, i, epoch=0, occurrence=0, seed=SEED):
    """What a program makes of a sample by hand."""
    return by_hand(transform, decoded(dataset.samples[i][0]), seed, epoch, i, occurrence)


def same(item, want):
    assert type(item) in (list, tuple)
    assert len(item) == len(want)
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(item, want))


def items(loader):
    """The samples of a loader's batches, each a tuple of views."""
    return [item for views, _ in loader for item in zip(*views)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", sorted(lists()))
def test_views_that_are_made_by_hand_are_the_loaders(folder, caplog, name, workers):
    """Over two epochs, the second of which is resumed in the middle; Python only makes the BMP."""
    transform = V.Compose(lists()[name])
    assert T.split(transform).rest == []
    dataset = ht.ImageFolder(folder, transform)

    def loader():
        return ht.DataLoader(dataset, 4, shuffle=True, seed=SEED, epochs=2, num_workers=workers)

    got, state = [], None
    with loader() as first:
        got += items(first)
        for step, (views, _) in enumerate(first):
            got += zip(*views)
            if step == 1:
                state = first.state_dict()
                break
        made = {t["name"] for t in first.report()["preprocessing"]["transforms"]}
    with loader() as second:
        second.load_state_dict(state)
        got += items(second)
    want = [hand(transform, dataset, i, e) for e in range(2) for i in order(dataset, e)]
    assert len(got) == len(want)
    assert all(map(same, got, want))
    assert not [r for r in caplog.records if "in Python" in r.getMessage()]
    assert any(n.startswith("Views: ") for n in made)
    assert "ImgDecode" in made


def test_batches_are_those_of_default_collate(folder):
    dataset = ht.ImageFolder(folder, lists()["crops"])
    with ht.DataLoader(dataset, 4, seed=SEED, shuffle=True) as loader:
        views, labels = next(iter(loader))
    want = default_collate(
        [(hand(V.Compose(lists()["crops"]), dataset, i), i) for i in order(dataset, 0)[:4]]
    )
    assert type(views) is type(want[0]) is list
    assert [v.shape for v in views] == [v.shape for v in want[0]]
    assert all(v.is_contiguous() and torch.equal(v, w) for v, w in zip(views, want[0]))
    assert labels.tolist() == [dataset.targets[i] for i in order(dataset, 0)[:4]]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_occurrence_of_a_sample_has_its_own_views(folder, workers):
    transform = V.Compose(lists()["two"])
    dataset, ids = ht.ImageFolder(folder, transform), [3, 6, 3, 3, 8, 6]
    options = {"shuffle": True, "seed": SEED, "num_workers": workers}
    with ht.DataLoader(Subset(dataset, ids), 4, **options) as loader:
        got = items(loader)
    seen = {}
    for item, place in zip(got, order(ids, 0)):
        occurrence = seen[ids[place]] = seen.get(ids[place], -1) + 1
        assert same(item, hand(transform, dataset, ids[place], 0, occurrence))
    assert seen == {3: 2, 6: 1, 8: 0}


def unknown(value):
    """Changes nothing, and HDMLP does not know that."""
    return value


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "before", [[V.Resize((60, 70))], [V.Resize(70)], []], ids=["one size", "sizes", "files"]
)
def test_a_transform_that_the_daemon_does_not_do_brings_all_views_to_python(
    folder, caplog, before, workers
):
    """With the random numbers that they have in the daemon, which decodes the images."""
    given = [*before, T.Views([augment(40), [*augment(24).transforms, unknown]])]
    known = [*before, T.Views([augment(40), augment(24)])]
    assert T.split(given, ragged=True).hands in ("image", "ragged")
    pair = []
    for transform in (given, known):
        dataset = ht.ImageFolder(folder, transform)
        options = {"shuffle": True, "seed": SEED, "num_workers": workers}
        with ht.DataLoader(dataset, 4, **options) as loader:
            pair.append(items(loader))
    assert all(map(same, *pair))
    [said] = {r.getMessage() for r in caplog.records if "runs in Python" in r.getMessage()}
    assert "in view 1, " in said
    assert "unknown" in said


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_our_own_transforms_and_every_layout(folder, workers, dtype):
    ours = [
        T.Resize(60),
        T.Views(
            [
                [T.RandomResizedCrop(30), T.ToTensor("NHWC", dtype)],
                T.Compose([T.CenterCrop(20), T.RandomHorizontalFlip(), T.ToTensor(dtype=dtype)]),
            ]
        ),
    ]
    made = V.ToTensor() if dtype == "float32" else V.PILToTensor()
    oracle = T.Views(
        [
            [V.RandomResizedCrop(30), made, lambda x: x.permute(1, 2, 0)],
            [V.CenterCrop(20), V.RandomHorizontalFlip(), made],
        ]
    )
    dataset = ht.ImageFolder(folder, ours)
    options = {"shuffle": True, "seed": SEED, "num_workers": workers}
    with ht.DataLoader(dataset, 4, **options) as loader:
        got = items(loader)
    transform = V.Compose([V.Resize(60), oracle])
    for item, i in zip(got, order(dataset, 0)):
        assert same(item, hand(transform, dataset, i))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("more", [[], [unknown]], ids=["all", "rest"])
def test_a_function_of_the_users_gets_items(folder, workers, more):
    """A collate_fn, and transforms that follow the views: a list of tensors of each sample."""
    transform = V.Compose([*lists()["crops"], *more])
    dataset = ht.ImageFolder(folder, transform)
    options = {"shuffle": True, "seed": SEED, "num_workers": workers, "collate_fn": list}
    with ht.DataLoader(dataset, 4, **options) as loader:
        got = [item for batch in loader for item in batch]
    for (views, label), i in zip(got, order(dataset, 0)):
        assert type(views) is list
        assert same(views, hand(transform, dataset, i))
        assert label == dataset.targets[i]


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision.transforms.v2") is None, reason="v2 is missing"
)
def test_items_are_of_torchvisions_type(folder):
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    crop = v2.CenterCrop(20)
    transform = [T.Views([[crop, v2.ToImage()], [crop, V.ToTensor()], [crop, v2.ToImage()]])]
    dataset = ht.ImageFolder(folder, transform)
    with ht.DataLoader(dataset, 4, collate_fn=list) as loader:
        views, _ = next(iter(loader))[0]
    assert [type(view) for view in views] == [tv_tensors.Image, torch.Tensor, tv_tensors.Image]
    assert T.split([*transform, unknown]).rest[-1] is unknown


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["skip", "substitute", "raise"])
def test_damaged_files_follow_on_error(folder, policy, workers):
    for name in ("ant/2.jpg", "ant/z.bmp"):
        with open(f"{folder}/{name}", "r+b") as file:
            file.truncate(200)
    transform = V.Compose(lists()["two"])
    dataset = ht.ImageFolder(folder, transform)
    options = {"num_workers": workers, "on_error": policy, "seed": SEED, "shuffle": True}
    with ht.DataLoader(dataset, 4, **options) as loader:
        if policy == "raise":
            with pytest.raises(errors.SampleError):
                list(loader)
            return
        epochs = [list(loader) for _ in range(2)]
    ids = order(dataset, 0)
    if policy == "skip":
        ids = [i for i in ids if i not in (2, 6)]
    got = [item for views, _ in epochs[0] for item in zip(*views)]
    if policy == "skip":
        assert len(got) == len(ids)
    for item, i in zip(got, ids):
        if i not in (2, 6):
            assert same(item, hand(transform, dataset, i))


@pytest.mark.parametrize("workers", [0, 2])
def test_views_of_one_field_of_records(folder, workers):
    """The value in an item, and in a batch, is a list; other fields are beside it."""
    paths = [path for path, _ in ht.ImageFolder(folder).samples]
    transform = lists()["two"]
    pairs = ht.Files(
        [{"image": path, "other": other} for path, other in zip(paths, paths[::-1])],
        list(range(len(paths))),
        transform={"image": transform, "other": [V.Resize((20, 30)), V.ToTensor()]},
    )
    options = {"shuffle": True, "seed": SEED, "num_workers": workers}
    with ht.DataLoader(pairs, 4, **options) as loader:
        batches = list(loader)
    ids = iter(order(pairs, 0))
    for batch in batches:
        assert type(batch["image"]) is list
        for n, label in enumerate(batch["label"].tolist()):
            i = next(ids)
            assert label == i
            item = [view[n] for view in batch["image"]]
            assert same(item, by_hand(transform, decoded(paths[i]), SEED, 0, i))
            small = by_hand([V.Resize((20, 30)), V.ToTensor()], decoded(paths[-1 - i]), SEED, 0, i)
            assert torch.equal(batch["other"][n], small)


def test_one_field_alone(folder):
    paths = [path for path, _ in ht.ImageFolder(folder).samples]
    dataset = ht.Files(paths, list(range(len(paths))), transform=lists()["two"])
    with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED) as loader:
        got = items(loader)
    for item, i in zip(got, order(dataset, 0)):
        assert same(item, by_hand(lists()["two"], decoded(paths[i]), SEED, 0, i))


def test_without_torch_views_are_arrays(folder):
    transforms = [T.Views([[T.CenterCrop(20), T.ToTensor()], T.CenterCrop(30)])]
    jpegs = hdmlp.data.Folder(folder, [".jpg"])
    for options in ({}, {"collate_fn": list}):
        with hdmlp.data.DataLoader(
            jpegs, 4, shuffle=False, transforms=transforms, **options
        ) as loader:
            batch = next(iter(loader))
        first = batch[0][0] if options else [view[0] for view in batch.samples]
        image = decoded(jpegs.sample(0)[0])
        want = V.Compose([V.CenterCrop(20), V.ToTensor()])(image).numpy()
        assert (first[0] == want).all()
        assert (first[1] == numpy.asarray(V.CenterCrop(30)(image))).all()


def test_the_thesis_loader_yields_views(folder):
    os.remove(f"{folder}/ant/z.bmp")
    transform = V.Compose(lists()["two"])
    job = hdmlp.Job(folder, 4, 2, "uniform", False, seed=SEED)
    dataset = ht.HDMLPImageFolder(folder, job, transform)
    got = items(ht.HDMLPDataLoader(dataset))
    images = ht.ImageFolder(folder)
    want = [hand(transform, images, i) for i in range(len(images))]
    assert len(got) == 12
    assert all(any(same(item, views) for item in got) for views in want)
    item, _ = dataset[0]
    assert any(same(item, hand(transform, images, i, 1)) for i in range(12))
    job.destroy()


def test_little_memory_for_decoding(folder):
    transform = V.Compose(lists()["crops"])
    dataset = ht.ImageFolder(folder, transform)
    options = {"decode_memory": "16MiB", "transform_threads": 2}
    with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED, **options) as loader:
        got = items(loader)
    for item, i in zip(got, order(dataset, 0)):
        assert same(item, hand(transform, dataset, i))


@pytest.mark.parametrize("offload", [True, False])
def test_one_by_one_and_by_other_loaders(folder, offload):
    """``dataset[i]`` calls the lists in Python, and so does torch's loader."""
    transform = V.Compose(
        [T.Views([[V.CenterCrop(20), V.ToTensor()], V.Compose([V.CenterCrop(30), V.ToTensor()])])]
    )
    dataset = ht.ImageFolder(folder, transform)
    image = decoded(dataset.samples[0][0])
    want = [V.Compose([V.CenterCrop(n), V.ToTensor()])(image) for n in (20, 30)]
    assert same(dataset[0][0], want)
    assert same([view[0] for view in next(iter(DataLoader(dataset, 2)))[0]], want)
    with ht.DataLoader(dataset, 2, offload=offload) as loader:
        assert same([view[0] for view in next(iter(loader))[0]], want)
    with ht.DataLoader(dataset, None, offload=offload) as loader:
        assert same(next(iter(loader))[0], want)


def test_a_batch_keeps_its_memory(folder):
    """Views that are kept stay as they are, and can be written to."""
    dataset = ht.ImageFolder(folder, lists()["two"])
    with ht.DataLoader(dataset, 2, shuffle=True, seed=SEED, epochs=3) as loader:
        kept = [views[1] for views, _ in loader]
        copies = [view.clone() for view in kept]
        for views, _ in loader:
            views[0].zero_()
        assert all(map(torch.equal, kept, copies))


def test_what_cannot_be_views_is_refused(folder):
    crop = [V.CenterCrop(3), V.ToTensor()]
    for given, n, says in (
        (V.ToTensor(), None, "should be a list"),
        ([], None, "0 views"),
        ([crop] * 65, None, "65 views"),
        ([3], None, r"views\[0\] should be a transform"),
        ([[V.ToTensor]], None, r"views\[0\]\[0\] should be a transform"),
        (crop, 0, "n=0"),
        (crop, 1.5, "n=1.5"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            T.Views(given, n)
    for transform, says in (
        ([T.Views([[T.RandomCrop(3), unknown]])], "in view 0, <function unknown"),
        ([V.CenterCrop(3), V.ToTensor(), T.Views([T.Grayscale()])], "put it before ToTensor"),
        ([T.Views(crop, 2), T.Normalize(0, 1)], "it gets the list of views"),
        ([T.Views([[T.Reshape(1, 1, 1)], crop])], "within a view"),
        ([T.Views([T.ToTensor()])], "no fixed size"),
    ):
        with pytest.raises((errors.ConfigError, ValueError), match=says):
            ht.DataLoader(ht.ImageFolder(folder, transform), 2).close()


@pytest.mark.parametrize(
    "given, why",
    [
        ([V.Resize(8)], "no ToTensor"),
        ([V.Resize(8), V.ToTensor()], "no fixed size"),
        ([V.Compose([T.Views([V.ToTensor()])])], "within a view"),
    ],
)
def test_the_reason_names_the_view(given, why):
    found = T.split([T.Views([[V.CenterCrop(3), V.ToTensor()], given])])
    assert found.described == []
    assert "view 1" in found.why
    assert why in found.why


def test_views_compare_and_show_what_they_do():
    views = T.Views([T.Compose([T.CenterCrop(3)]), [T.ToTensor()]])
    assert views == T.Views([[T.CenterCrop(3)], T.ToTensor()])
    assert views != T.Views(T.ToTensor(), n=2)
    assert repr(T.Views(T.Grayscale(), n=2)).startswith("Views([[Grayscale(")
    with pytest.raises(TypeError, match="cannot be called"):
        views(Image.new("RGB", (4, 4)))
    with pytest.raises(ValueError, match=r"hdmlp\.transforms\.describe"):
        T.Views(V.Compose([V.CenterCrop(3), V.ToTensor()]), n=2).describe()
    described = T.describe([T.Views(V.Compose([V.CenterCrop(3), V.ToTensor()]), n=2)])
    assert described == [T.Views([T.CenterCrop(3), T.ToTensor()], n=2).describe()]
