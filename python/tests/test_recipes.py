"""docs/SUPPORTED.md's table of recipes, from the factories of torchvision and timm."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
v2 = pytest.importorskip("torchvision.transforms.v2")
timm = pytest.importorskip("timm.data")

from hdmlp.transforms import Views, split
from torchvision import models
from torchvision import transforms as V

SUPPORTED = pathlib.Path(__file__).parents[2] / "docs" / "SUPPORTED.md"
HEAD = "| recipe | by the daemon | in Python |\n| --- | --- | --- |\n"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def reference(T, policy, erase=0.1):
    """``ClassificationPresetTrain`` of torchvision's references, on images."""
    mode = V.InterpolationMode.BILINEAR
    steps = [
        T.RandomResizedCrop(224, interpolation=mode, antialias=True),
        T.RandomHorizontalFlip(0.5),
    ]
    if policy is not None:
        steps.append(policy)
    to_float = T.ConvertImageDtype(torch.float) if T is V else T.ToDtype(torch.float, scale=True)
    steps += [T.PILToTensor(), to_float, T.Normalize(mean=MEAN, std=STD), T.RandomErasing(p=erase)]
    return T.Compose(steps if T is V else [*steps, T.ToPureTensor()])


def on_tensors(policy):
    """The same with ``backend="tensor"``."""
    steps = [
        v2.PILToTensor(),
        v2.RandomResizedCrop(224, antialias=True),
        v2.RandomHorizontalFlip(0.5),
        policy,
        v2.ToDtype(torch.float, scale=True),
        v2.Normalize(mean=MEAN, std=STD),
    ]
    return v2.Compose(steps)


def recipes():
    """(name, transform) of each row."""
    for release, T in (("v1", V), ("v2", v2)):
        what = f"torchvision's reference for training, {release}"
        yield f"{what}, no policy", reference(T, None)
        for policy in (T.RandAugment(), T.TrivialAugmentWide(), T.AutoAugment(), T.AugMix()):
            yield f"the same, {type(policy).__name__}", reference(T, policy)
    yield "the same on tensors, TrivialAugmentWide", on_tensors(v2.TrivialAugmentWide())
    weights = models.ResNet50_Weights.IMAGENET1K_V2
    yield "`weights.transforms()` of torchvision's classifiers", weights.transforms()
    train = timm.create_transform
    for given in (
        {},
        {"color_jitter": None, "auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel"},
        {"auto_augment": "rand-m9-tweights"},
        {"auto_augment": "original-mstd0.5"},
        {"auto_augment": "v0"},
        {"auto_augment": "augmix-m5"},
        {"auto_augment": "3a"},
        {"color_jitter_prob": 0.8, "grayscale_prob": 0.2, "gaussian_blur_prob": 0.5},
        {"train_crop_mode": "rkrc"},
        {"use_prefetcher": True},
        {"normalize": False},
    ):
        shown = ", ".join(f"{k}={v!r}" for k, v in given.items())
        what = "timm's `create_transform(224, is_training=True" + (f", {shown}" if shown else "")
        yield what + ")`", train(224, is_training=True, **given)
    for given in ({}, {"crop_mode": "border"}, {"crop_mode": "squash"}):
        shown = ", ".join(f"{k}={v!r}" for k, v in given.items())
        what = "timm's `create_transform(224" + (f", {shown}" if shown else "")
        yield what + ")`", train(224, **given)
    yield (
        "SimCLR: crop, flip, jitter in RandomApply, RandomGrayscale, GaussianBlur",
        V.Compose(
            [
                V.RandomResizedCrop(224),
                V.RandomHorizontalFlip(),
                V.RandomApply([V.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
                V.RandomGrayscale(0.2),
                V.GaussianBlur(23),
                V.ToTensor(),
            ]
        ),
    )

    for name, number in (("MoCo", 0), ("DINO", 8)):
        crops = [V.Compose([V.RandomResizedCrop(224), *STEPS]) for _ in range(2)]
        crops += [V.Compose([V.RandomResizedCrop(96, (0.05, 0.4)), *STEPS])] * number
        yield (
            f"{name}: `Views` of 2 such crops" + f", and {number} small ones" * (number > 0),
            Views(crops),
        )


#: What follows the crops.
STEPS = [
    V.RandomApply([V.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8),
    V.RandomGrayscale(0.2),
    V.GaussianBlur(23, (0.1, 2.0)),
    V.RandomHorizontalFlip(),
    V.ToTensor(),
    V.Normalize(MEAN, STD),
]


def names(transforms):
    return ", ".join(type(t).__name__ for t in transforms)


def rows():
    for name, transform in recipes():
        parts = split(transform)
        if parts.rest:
            yield f"| {name} | {names(parts.done) or 'decoding'} | {names(parts.rest)} |\n"
        else:
            yield f"| {name} | all | |\n"


def test_the_table_is_what_lists_are_split_into():
    table = HEAD + "".join(rows())
    found = re.search(re.escape(HEAD) + r"(\|.*\n)*", SUPPORTED.read_text("utf-8"))
    assert found is not None, table
    assert found[0] == table, table
