"""Augmentations in the daemon: the pixels of torchvision and timm under the same random numbers."""

import importlib.util
import re
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
import PIL.ImageEnhance
import PIL.ImageOps
from byhand import by_hand
from hdmlp import errors
from hdmlp._lib.originals import replaced
from hdmlp.transforms import split
from PIL import Image
from torchvision import transforms as V

SEED = 5

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """JPEGs of many sizes, grey ones among them."""
    path = tmp_path_factory.mktemp("augmented")
    rng = numpy.random.default_rng(4)
    for name in ("ant", "bee"):
        (path / name).mkdir()
        for i in range(12):
            height, width = rng.integers(40, 260, 2)
            levels = rng.integers(-9, 10, (height, width, 3)).cumsum(1).cumsum(0) // 4 + 128
            image = Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))
            if i == 5:
                image = image.convert("L")
            image.save(path / name / f"{i}.jpg", quality=90)
    return str(path)


def modules():
    """torchvision's v1, and v2 where it is."""
    found = {"v1": V}
    if importlib.util.find_spec("torchvision.transforms.v2") is not None:
        from torchvision.transforms import v2

        found["v2"] = v2
    return found


def policies(T):
    """Transforms of images, by name."""
    mode = V.InterpolationMode
    every = {
        f"RandAugment {n} {m} {i.value}": T.RandAugment(n, m, interpolation=i, fill=fill)
        for n, m, i, fill in (
            (2, 9, mode.NEAREST, None),
            (3, 30, mode.BILINEAR, 7),
            (1, 0, mode.BICUBIC, [1, 2, 3]),
        )
    }
    every["TrivialAugmentWide"] = T.TrivialAugmentWide()
    every["TrivialAugmentWide bilinear"] = T.TrivialAugmentWide(
        11, interpolation=mode.BILINEAR, fill=128
    )
    for policy in V.AutoAugmentPolicy:
        every[f"AutoAugment {policy.value}"] = T.AutoAugment(policy, mode.BILINEAR)
    every.update(
        {
            "RandomInvert": T.RandomInvert(0.3),
            "RandomPosterize": T.RandomPosterize(3, 0.7),
            "RandomSolarize": T.RandomSolarize(100.5, 0.7),
            "RandomAdjustSharpness": T.RandomAdjustSharpness(2.3, 0.7),
            "RandomAutocontrast": T.RandomAutocontrast(0.7),
            "RandomEqualize": T.RandomEqualize(0.7),
            "RandomGrayscale": T.RandomGrayscale(0.4),
            "RandomRotation": T.RandomRotation(180, mode.BILINEAR, fill=(9, 8, 7)),
            "RandomRotation about": T.RandomRotation((-30, 90), center=(3.5, 20)),
            "RandomRotation expand": V.Compose(
                [T.RandomRotation(40, mode.BICUBIC, expand=True), T.CenterCrop(48)]
            ),
            "RandomAffine": T.RandomAffine(30, (0.2, 0.4), (0.5, 1.7), 20),
            "RandomAffine bicubic": T.RandomAffine(
                (0, 0), None, None, (1, 2, 3, 40), mode.BICUBIC, 200, [5, 6]
            ),
            "RandomPerspective": T.RandomPerspective(0.6, 0.8, mode.BILINEAR, 3),
            "RandomApply": T.RandomApply(
                [T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomInvert()], 0.7
            ),
            "RandomOrder": T.RandomOrder(
                [T.RandomInvert(), T.Compose([T.RandomSolarize(99), T.RandomRotation(9)])]
            ),
        }
    )
    if T is V:
        every["RandomChoice"] = T.RandomChoice([T.RandomInvert(), T.RandomRotation(9)])
        every["RandomChoice by weights"] = T.RandomChoice(
            [T.RandomInvert(1), T.Compose([T.RandomHorizontalFlip(), T.RandomRotation(9)])], [1, 3]
        )
    return every


CASES = [(version, name) for version, T in modules().items() for name in policies(T)]


def loaded(folder, transform, workers=0):
    """The tensors of one epoch in the order of the folder, and how many of the list ran where."""
    dataset = ht.ImageFolder(folder, transform)
    with ht.DataLoader(dataset, 8, shuffle=False, seed=SEED, num_workers=workers) as loader:
        images = [image for images, _ in loader for image in images]
    return dataset, images


def wanted(dataset, transform):
    return [
        by_hand(transform, Image.open(path).convert("RGB"), SEED, 0, i)
        for i, (path, _) in enumerate(dataset.samples)
    ]


@pytest.mark.parametrize("version, name", CASES)
def test_a_policy_equals_its_library(folder, version, name):
    T = modules()[version]
    transform = V.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), policies(T)[name]])
    transform = V.Compose([transform, V.PILToTensor()])
    parts = split(transform)
    if not (name == "RandomPerspective" and "computes perspectives in float32" in parts.why):
        assert not parts.rest, parts.why
    dataset, got = loaded(folder, transform)
    for i, (x, y) in enumerate(zip(got, wanted(dataset, transform))):
        assert torch.equal(x, y), f"{i}: {(x != y).sum()} elements of {x.numel()} differ"


def mirror(image, *given, **named):
    return PIL.ImageOps.mirror(image)


def timms(name="Rotate", **changed):
    """timm's RandAugment, of which one operation is changed."""
    policy = pytest.importorskip("timm.data").auto_augment.rand_augment_transform("rand-m9-p1", {})
    for op in policy.ops:
        if op.name == name:
            vars(op).update(changed)
    return policy


def of_another_class():
    policy = timms()
    cls = type(policy.ops[0])
    policy.ops[0] = type("Mine", (cls,), {"__call__": lambda op, image: mirror(image)})("Rotate")
    return policy


def rotate(image, degrees, **given):
    return mirror(image)


def v2_policy():
    policy = pytest.importorskip("torchvision.transforms.v2").RandAugment()
    policy._apply_image_or_video_transform = mirror
    return policy


def erasing():
    erasing = pytest.importorskip("timm.data.random_erasing").RandomErasing(1, device="cpu")
    erasing._erase = mirror
    return erasing


@pytest.mark.parametrize(
    "changed", [v2_policy, erasing, of_another_class, lambda: timms(aug_fn=rotate)]
)
def test_an_object_with_functions_of_its_own_runs_in_python(changed):
    parts = split([V.CenterCrop(9), changed(), V.ToTensor()])
    assert len(parts.described) <= 1
    assert parts.why


@pytest.mark.parametrize(
    "module, name",
    [
        ("PIL.ImageEnhance", "Contrast.__init__"),
        ("random", "gauss"),
        ("numpy.random", "choice"),
        ("torch", "Tensor.uniform_"),
    ],
)
def test_what_draws_and_what_changes_colours_may_be_replaced(monkeypatch, module, name):
    policy = timms()
    assert not replaced("images", "timm")
    owner = sys.modules[module]
    *classes, function = name.split(".")
    for cls in classes:
        owner = getattr(owner, cls)
    monkeypatch.setattr(owner, function, mirror)
    assert replaced("images", "timm").startswith(f"{module}.{name} was replaced by mirror")
    assert module.startswith("PIL") or not split([V.CenterCrop(9), policy]).described[1:]


def narrow_crops(size=(4, 5)):
    """Crops of which some of an image of few pixels has no width or no height."""
    for T in modules().values():
        yield T.RandomResizedCrop(size, scale=(2, 3), ratio=(5, 6))
        yield T.RandomResizedCrop(size, scale=(2, 3), ratio=(0.1, 0.2))
    timm = pytest.importorskip("timm.data.transforms")
    yield timm.RandomResizedCropAndInterpolation(size, interpolation="random")
    yield timm.RandomResizedCropAndInterpolation(size, ratio=(5, 6), interpolation="nearest")


def test_a_crop_without_pixels_is_black_as_with_the_library(tmp_path):
    folder = tmp_path / "data"
    (folder / "ant").mkdir(parents=True)
    for i, size in enumerate(((1, 1), (2, 1), (1, 3), (1, 300), (300, 1)) * 6):
        Image.new("RGB", size, (200, 100, 50)).save(folder / "ant" / f"{i:02}.png")
    black = 0
    for crop in narrow_crops():
        transform = V.Compose([crop, V.PILToTensor()])
        assert not split(transform).rest
        dataset, got = loaded(str(folder), transform)
        for i, (x, y) in enumerate(zip(got, wanted(dataset, transform))):
            black += not y.any()
            assert torch.equal(x, y), f"{crop}, {dataset.samples[i][0]}"
    assert black


def recipes():
    """Whole lists, by name, each with how far levels or numbers may be from the library's."""
    every = {
        "erasing": (
            [V.Resize((40, 50)), V.ToTensor(), V.RandomErasing(0.7, value=(0.1, 2, 3))],
            0,
        ),
        "erasing noise": (
            [
                V.RandomResizedCrop(64),
                V.ToTensor(),
                V.Normalize([0.5] * 3, [0.2, 0.3, 0.4]),
                V.RandomErasing(0.7, value="random"),
            ],
            1e-5,
        ),
        "erasing before Normalize": (
            [
                V.RandomResizedCrop(64),
                V.ToTensor(),
                V.RandomErasing(0.7, (0.1, 0.4), value=0.3),
                V.Normalize([0.5] * 3, [0.2, 0.3, 0.4]),
            ],
            0,
        ),
        "SimCLR": (
            [
                V.RandomResizedCrop(64),
                V.RandomHorizontalFlip(),
                V.RandomApply([V.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
                V.RandomGrayscale(0.2),
                V.GaussianBlur(9),
                V.ToTensor(),
            ],
            1.01 / 255,
        ),
        "sizes vary": ([V.RandomEqualize(), V.RandAugment(), V.Resize((40, 50)), V.ToTensor()], 0),
    }
    for version, T in modules().items():
        every[f"preset {version}"] = (
            [
                T.RandomResizedCrop(64, interpolation=V.InterpolationMode.BILINEAR, antialias=True)
                if version == "v2"
                else V.RandomResizedCrop(64),
                T.RandomHorizontalFlip(0.5),
                T.TrivialAugmentWide(interpolation=V.InterpolationMode.BILINEAR),
                T.PILToTensor(),
                T.ConvertImageDtype(torch.float)
                if version == "v1"
                else T.ToDtype(torch.float, scale=True),
                T.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
                T.RandomErasing(0.4),
            ],
            1e-6,  # of ToDtype, which multiplies by 1/255
        )
    if "v2" in modules():
        v2 = modules()["v2"]
        every["v2 on levels"] = (
            [
                v2.RandomResizedCrop(64, antialias=True),
                v2.ToImage(),
                v2.RandomInvert(0.3),
                v2.RandomSolarize(100, 0.5),
                v2.RandomPosterize(3),
                v2.GaussianBlur(5),
                v2.RGB(),
            ],
            1,
        )
    if importlib.util.find_spec("timm") is not None:
        from timm.data import create_transform

        for policy in (
            "rand-m9-mstd0.5-inc1",
            "rand-m7-n3-mstd101",
            "rand-m20-mmax30-p1",
            "rand-t3a",
            "original",
            "originalr-mstd0.5",
            "v0",
            "v0r-mstd1",
            "3a",
        ):
            for mode in ("const", "pixel", "rand")[: 1 if policy != "original" else 3]:
                every[f"timm {policy} {mode}"] = (
                    create_transform(
                        64,
                        is_training=True,
                        auto_augment=policy,
                        re_prob=0.4,
                        re_mode=mode,
                        re_count=3,
                        interpolation="random" if policy != "v0" else "bicubic",
                    ),
                    0 if mode == "const" else 1e-5,
                )
        every["timm SimCLR"] = (
            create_transform(
                64,
                is_training=True,
                color_jitter_prob=0.8,
                grayscale_prob=0.2,
                gaussian_blur_prob=0.5,
                auto_augment="3a",
            ),
            0.02,
        )
    return every


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_recipe_equals_its_library(folder, name, workers):
    transform, most = recipes()[name]
    transform = V.Compose(transform) if isinstance(transform, list) else transform
    parts = split(transform)
    assert not parts.rest, parts.why
    dataset, got = loaded(folder, transform, workers)
    for i, (x, y) in enumerate(zip(got, wanted(dataset, transform))):
        difference = (x.double() - y.double()).abs().max().item()
        assert difference <= most, f"{i}: {difference}"


def refused():
    """Transforms that torchvision and timm make, and refuse to apply."""
    mode = V.InterpolationMode
    every = {
        "fill": V.RandomRotation(9, fill=(1, 2)),
        "interpolation": V.RandomRotation(9, interpolation=mode.LANCZOS),
        "bits": V.RandomPosterize(0 if bits_are_checked() else "3"),
        "bins": V.TrivialAugmentWide(0),
        "operations": V.RandAugment(2.5),
        "index": V.RandAugment(2, 40),
        "p": V.RandomInvert("a"),
        "no choice": V.RandomChoice([]),
        "weights": V.RandomChoice([V.RandomInvert()], p=[1, 2]),
        "within": V.RandomApply([V.RandomRotation(9, fill=(1, 2))], p=1.0),
    }
    return {name: [V.CenterCrop(40), t] for name, t in every.items()} | {
        "value": [V.CenterCrop(40), V.ToTensor(), V.RandomErasing(value=(1, 2))]
    }


def bits_are_checked():
    """Whether this Pillow refuses to posterize to 0 bits."""
    import PIL

    return int(PIL.__version__.split(".")[0]) >= 13


def error_of(call):
    try:
        call()
    except Exception as e:
        return e
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("name", sorted(refused()))
def test_arguments_that_a_library_refuses_raise_at_once(folder, name):
    """Its own error, when the loader is made; what is drawn afterwards is not changed."""
    transform = V.Compose(refused()[name])
    image = Image.open(ht.ImageFolder(folder).samples[0][0]).convert("RGB")
    theirs = error_of(lambda: [transform(image) for _ in range(50)])
    torch.manual_seed(1)
    want = torch.rand(1)
    torch.manual_seed(1)
    said = re.escape(str(theirs)[:40])
    with pytest.raises((type(theirs), errors.ConfigError), match=said):  # of a TypeError
        ht.DataLoader(ht.ImageFolder(folder, transform), 4, shuffle=False)
    assert torch.equal(torch.rand(1), want)


def test_a_constant_of_timms_that_was_changed_counts(monkeypatch):
    module = pytest.importorskip("timm.data.auto_augment")
    policy = module.rand_augment_transform("rand-m9", {})
    assert not split([V.CenterCrop(9), policy]).rest
    monkeypatch.setattr(module, "_LEVEL_DENOM", 20.0)
    parts = split([V.CenterCrop(9), policy])
    assert parts.rest == [policy]
    assert "_LEVEL_DENOM was changed" in parts.why
