"""timm's transforms in the daemon: with the daemon's random draws, timm's own objects give the same
bits."""

import itertools
import json
import random
import subprocess

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from fakemodule import with_classes
from hdmlp import transforms as T
from hdmlp._daemon import connecting
from reference import decoded, jpegs

V = torchvision.transforms
MODES = (V.InterpolationMode.BILINEAR, V.InterpolationMode.BICUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(
        tmp_path_factory.mktemp("jpegs") / "data", {"ant": 7, "bee": 6, "cat": 7}, edges=(60, 120)
    )


@pytest.fixture
def timm():
    return pytest.importorskip("timm").data


def names(parts):
    return [type(t).__name__ for t in parts.described]


# What is recognised; with classes that have timm's attributes, where timm is not installed.


@pytest.fixture
def fake(monkeypatch):
    classes = (
        "RandomResizedCropAndInterpolation",
        "CenterCropOrPad",
        "MaybeToTensor",
        "MaybePILToTensor",
        "ToNumpy",
        "ToTensor",
        "ResizeKeepRatio",
    )
    return with_classes(monkeypatch, "timm.data.transforms", classes)


def timms(size, interpolation):
    """Our transform, with timm's draws."""
    crop = T.RandomResizedCrop(size, interpolation=interpolation)
    crop._draws_as = "timm"
    return crop


def test_timms_transforms_are_read_by_their_attributes(fake):
    crop = fake.RandomResizedCropAndInterpolation(
        size=(24, 20), scale=(0.08, 1.0), ratio=(0.75, 4 / 3), interpolation=MODES
    )
    norm = V.Normalize(torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))
    parts = T.split(
        [crop, V.RandomHorizontalFlip(), V.ColorJitter(0.4, 0.4, 0.4), fake.MaybeToTensor(), norm]
    )
    assert parts.rest == []
    assert parts.described[0] == timms((24, 20), ("bilinear", "bicubic"))
    assert names(parts) == [
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "ColorJitter",
        "ToTensor",
        "Normalize",
    ]
    crop.interpolation = MODES[1]
    assert T.split([crop, fake.MaybePILToTensor()]).described == [
        timms((24, 20), "bicubic"),
        T.ToTensor(dtype="uint8"),
    ]
    pad = fake.CenterCropOrPad(size=(9, 8), fill=0, padding_mode="constant")
    assert T.split([pad, fake.MaybeToTensor()]).described == [T.CenterCrop((9, 8)), T.ToTensor()]
    pad.padding_mode = "reflect"
    assert "black" in T.split([pad, fake.MaybeToTensor()]).why
    # What makes something else than torchvision's of that name, or what HDMLP has not, stays in
    # Python.
    for last in (
        fake.ToTensor(dtype=torch.float32),
        fake.ToNumpy(),
        fake.ResizeKeepRatio(size=(9, 9)),
    ):
        parts = T.split([crop, last])
        assert parts.rest == [last]
        assert "not a transform that HDMLP has" in parts.why
    assert T.split([V.Resize((9, 9)), V.ToTensor(), crop]).rest == [
        crop
    ]  # of tensors, it resizes otherwise
    subclass = type("RandomResizedCropAndInterpolation", (type(crop),), {})
    assert T.split([subclass(**vars(crop))]).described == []
    del crop.ratio
    assert "not those that HDMLP has" in T.split([crop]).why


def test_timms_interpolations_are_mapped():
    for modes, want in (
        (MODES, ["bilinear", "bicubic"]),
        (["box"], "box"),
        ("lanczos", "lanczos"),
        ((0, 2, 3), ["nearest", "bilinear", "bicubic"]),
    ):
        t = T.RandomResizedCrop(9, interpolation=modes)
        assert t.describe()["interpolation"] == want
        assert repr(want) in repr(t) or f"interpolation={want}" in repr(t)
    for modes in ((), ("bilinear", "cubic"), ["box"] * 17):
        with pytest.raises(ValueError, match="interpolation should be one"):
            T.RandomResizedCrop(9, interpolation=modes)


# The real thing.


def drawn(paths, transforms, seed, epoch, tmp_path):
    """The daemon's draws for the samples, by the transform's name, from `hdmlp transform`."""
    text = json.dumps([t.describe() for t in transforms])
    done = subprocess.run(
        [
            connecting.find_binary(),
            "transform",
            *paths,
            "--transforms",
            text,
            "--seed",
            str(seed),
            "--epoch",
            str(epoch),
            "--json",
            "--out",
            str(tmp_path / f"out{epoch}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for image in json.loads(done.stdout)["images"]:
        [draw] = image["draws"]
        found.append({d["transform"]: d["parameters"] for d in draw["drawn"]})
    return found


FACTORS = ["brightness", "contrast", "saturation", "hue"]


def likewise(transform, values, image, order, monkeypatch):
    """What timm's own transform makes of the image, with these draws, and ColorJitter's factors in
    this order."""
    for t in transform.transforms:
        name = type(t).__name__
        with monkeypatch.context() as patch:
            if name == "RandomResizedCropAndInterpolation":
                v = values["RandomResizedCrop"]
                patch.setattr(
                    t,
                    "get_params",
                    lambda *_, v=v: [int(v[k]) for k in ("top", "left", "height", "width")],
                )
                patch.setattr(random, "choice", lambda modes, v=v: modes[int(v["interpolation"])])
            elif name == "RandomHorizontalFlip":
                flip = values[name]["flip"]
                patch.setattr(
                    torch, "rand", lambda *_, flip=flip: torch.tensor([0.0 if flip else 1.0])
                )
            elif name == "ColorJitter":
                patch.setattr(
                    t,
                    "get_params",
                    lambda *_, drawn=values[name]: (
                        [FACTORS.index(k) for k in order],
                        *map(drawn.get, FACTORS),
                    ),
                )
            image = t(image)
    return image


TRAINS = [
    dict(),
    dict(interpolation="random"),
    dict(interpolation="random", use_prefetcher=True),
    dict(interpolation="random", vflip=0.0, hflip=1.0, scale=(0.5, 1.0)),
    dict(interpolation="random", color_jitter=(0.3, 0.2, 0.1, 0.1)),
]


@pytest.mark.parametrize("more", TRAINS, ids=str)
def test_training_transforms_equal_timms(real, timm, folder, tmp_path, monkeypatch, more):
    transform = timm.create_transform(40, is_training=True, **more)
    dataset = ht.ImageFolder(folder, transform)
    paths = [path for path, _ in dataset.samples]
    modes, orders = set(), set()
    with ht.DataLoader(dataset, 6, shuffle=True, seed=3, epochs=2) as loader:
        assert loader._engine._made.recipe is None  # nothing runs in Python
        described = T.split(transform).described
        for epoch in range(2):
            values = drawn(paths, described, 3, epoch, tmp_path)
            for step, (images, labels) in enumerate(loader):
                said = loader.explain(epoch, step)
                assert labels.tolist() == said.labels
                for sample, image in zip(said.ids, images):
                    for order in itertools.permutations(
                        values[sample]["ColorJitter"]
                    ):  # hdmlp transform does not say which
                        want = likewise(
                            transform, values[sample], decoded(paths[sample]), order, monkeypatch
                        )
                        if torch.equal(image, want):
                            break
                    else:
                        pytest.fail(
                            f"sample {sample} of epoch {epoch}, {values[sample]}: not what timm "
                            f"makes"
                        )
                    assert image.dtype == want.dtype
                    orders.add(order)
                    modes.add(values[sample]["RandomResizedCrop"].get("interpolation"))
    assert modes == ({0.0, 1.0} if more.get("interpolation") == "random" else {None})
    assert len(orders) > 3


@pytest.mark.parametrize(
    "more",
    [
        dict(),
        dict(interpolation="bicubic", crop_pct=0.95),
        dict(crop_mode="squash"),
        dict(use_prefetcher=True),
    ],
    ids=str,
)
def test_validation_transforms_equal_timms(real, timm, folder, more):
    transform = timm.create_transform(40, is_training=False, **more)
    dataset = ht.ImageFolder(folder, transform)
    with ht.DataLoader(dataset, 6) as loader:
        assert loader._engine._made.recipe is None
        got = torch.cat([images for images, _ in loader])
    assert torch.equal(got, torch.stack([transform(decoded(path)) for path, _ in dataset.samples]))


def test_transforms_that_stay_in_python_are_named(timm, caplog):
    for more, described, cause in (
        (
            dict(auto_augment="rand-m9-tweights"),
            ["RandomResizedCrop", "RandomHorizontalFlip"],
            "RandAugment",
        ),
        (
            dict(auto_augment="augmix-m5"),
            ["RandomResizedCrop", "RandomHorizontalFlip"],
            "AugMixAugment",
        ),
    ):
        parts = T.split(timm.create_transform(40, is_training=True, interpolation="random", **more))
        assert names(parts) == described
        assert type(parts.left[0]).__name__ == cause
        assert parts.hands == "image"
