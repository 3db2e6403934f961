"""The transforms' classes, and which of torchvision's the daemon can carry out."""

import inspect
import json
import pickle
import re

import pytest
from hdmlp import transforms as T

V = pytest.importorskip("torchvision.transforms")
torch = pytest.importorskip("torch")

# Arguments that torchvision and we take alike: name, positional, keywords. repr must be the same as
# that of the installed torchvision, but for what plain() removes.
SAME = [
    ("Resize", (256,), {}),
    ("Resize", ((224, 200),), {}),
    ("Resize", ([224],), {"max_size": 300}),
    ("CenterCrop", (224,), {}),
    ("CenterCrop", ((224, 200),), {}),
    ("CenterCrop", ([5],), {}),
    ("RandomCrop", (32,), {"padding": 4}),
    ("RandomCrop", ((32, 30),), {"padding": (1, 2, 3, 4), "padding_mode": "edge"}),
    ("RandomResizedCrop", (224,), {}),
    ("RandomResizedCrop", ((224, 200), (0.5, 1), (0.9, 1.1)), {}),
    ("RandomHorizontalFlip", (), {}),
    ("RandomHorizontalFlip", (0.2,), {}),
    ("RandomVerticalFlip", (), {"p": 1}),
    ("Pad", (3,), {}),
    ("Pad", ((1, 2),), {"fill": (1, 2, 3)}),
    ("Pad", ([1, 2, 3, 4], 0, "reflect"), {}),
    ("ColorJitter", (), {}),
    ("ColorJitter", (0.4, (0.5, 2), 0, 0.1), {}),
    ("ColorJitter", (2,), {"hue": (-0.1, 0.3)}),
    ("Grayscale", (), {}),
    ("Grayscale", (3,), {}),
    ("RandomInvert", (), {}),
    ("RandomPosterize", (3, 0.2), {}),
    ("RandomSolarize", (99.5,), {}),
    ("RandomAdjustSharpness", (2,), {"p": 0.1}),
    ("RandomAutocontrast", (), {}),
    ("RandomEqualize", (), {}),
    ("RandomGrayscale", (), {}),
    ("RandomGrayscale", (0.3,), {}),
    ("RandomRotation", (5,), {}),
    ("RandomRotation", ((0, 9),), {"center": (1, 2), "fill": 7}),
    ("RandomPerspective", (), {}),
    ("GaussianBlur", (3,), {}),
    ("GaussianBlur", ((3, 5), (1, 2)), {}),
    ("RandomErasing", (), {}),
    ("RandomErasing", (0.1, (0.1, 0.2), (1, 2), (1, 2, 3)), {}),
    ("ToTensor", (), {}),
    ("Normalize", ((0.5, 0.4, 0.3), [0.2, 0.2, 0.2]), {}),
]

# And what both refuse, with the same exception.
WRONG = [
    ("Resize", (2.5,), TypeError),
    ("Resize", ((1, 2, 3),), ValueError),
    ("CenterCrop", ((1, 2, 3),), ValueError),
    ("RandomCrop", ((1, 2, 3),), ValueError),
    ("RandomResizedCrop", (224, 0.5), TypeError),
    ("RandomResizedCrop", (224, (0.1, 1), 3), TypeError),
    ("RandomRotation", (-1,), ValueError),
    ("RandomRotation", ("3",), ValueError),
    ("RandomRotation", ((1, 2, 3),), ValueError),
    ("RandomAffine", (1, (0, 2)), ValueError),
    ("RandomAffine", (1, None, (0, 1)), ValueError),
    ("GaussianBlur", (4,), ValueError),
    ("GaussianBlur", (3, (2, 1)), ValueError),
    ("RandomErasing", (0.5, (0.1, 2)), ValueError),
    ("RandomErasing", (0.5, (0.1, 0.2), (1, 2), "black"), ValueError),
    ("RandomErasing", (2,), ValueError),
    ("Pad", ("3",), TypeError),
    ("Pad", (3, "black"), TypeError),
    ("Pad", (3, 0, "mirror"), ValueError),
    ("Pad", ((1, 2, 3),), ValueError),
    ("ColorJitter", (-1,), ValueError),
    ("ColorJitter", ((2, 1),), ValueError),
    ("ColorJitter", ("1",), TypeError),
    ("ColorJitter", (0, 0, 0, (-1, 1)), ValueError),
]


def without_logs(description):
    """A description without logarithms, which are there if torch's differ on this processor."""
    return {key: value for key, value in description.items() if key != "log_ratio"}


def plain(text):
    """A repr without what differs between torchvision's releases."""
    text = re.sub(r",? antialias=\w+|interpolation=bilinear\)(?=,)|[\])]|(?<=\d)\.0\b", "", text)
    return re.sub(r"[\[(]|interpolation=bilinear", "", text)


@pytest.mark.parametrize("name, args, keywords", SAME)
def test_classes_print_as_torchvisions(name, args, keywords):
    ours, theirs = getattr(T, name)(*args, **keywords), getattr(V, name)(*args, **keywords)
    assert plain(repr(ours)) == plain(repr(theirs))
    for attribute in (
        "size",
        "padding",
        "fill",
        "padding_mode",
        "p",
        "scale",
        "ratio",
        "brightness",
        "hue",
        "mean",
        "std",
    ):
        if hasattr(theirs, attribute):
            assert _listed(getattr(ours, attribute)) == _listed(getattr(theirs, attribute)), (
                attribute
            )
    # And torchvision's own is mapped to the same description.
    parts = T.split(
        [
            T.Resize((300, 300)),
            *([T.ToTensor()] if name in ("Normalize", "RandomErasing") else []),
            theirs,
        ]
    )
    if name == "RandomPerspective" and parts.rest:
        assert "computes perspectives in float32" in parts.why
        return
    assert parts.rest == []
    assert without_logs(parts.described[-1].describe()) == ours.describe()


def _listed(value):
    return list(value) if isinstance(value, (list, tuple)) else value


def arguments(cls):
    """Names and defaults, in order."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [(p.name, getattr(p.default, "value", p.default)) for p in parameters]


@pytest.mark.parametrize(
    "name", [n for n in T.__all__ if n != "InterpolationMode" and hasattr(V, n)]
)
def test_arguments_are_torchvisions(name):
    ours, theirs = arguments(getattr(T, name)), arguments(getattr(V, name))
    assert [n for n, _ in ours[: len(theirs)]] == [n for n, _ in theirs]
    for (argument, mine), (_, default) in zip(ours, theirs):
        if argument != "antialias" and (name, argument) != (
            "ConvertImageDtype",
            "dtype",
        ):  # of no effect; v2 has a default
            assert mine == default, argument
    more = ("layout", "dtype", "memory_format", "mask_fill")
    assert all(n in more for n, _ in ours[len(theirs) :])


@pytest.mark.parametrize("name, args, error", WRONG)
def test_arguments_that_torchvision_refuses_are_refused(name, args, error):
    for module in (T, V):
        with pytest.raises(error):
            getattr(module, name)(*args)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: T.Resize(0), "positive"),
        (lambda: T.Resize(True), "int"),
        (lambda: T.Resize(2.5), "int"),
        (lambda: T.Resize((2, 3), max_size=4), "smaller edge"),
        (lambda: T.Resize(5, max_size=5), "strictly greater"),
        (lambda: T.Resize(5, interpolation="cubic"), "bicubic"),
        (lambda: T.RandomHorizontalFlip(1.5), "interval"),
        (lambda: T.RandomHorizontalFlip("x"), "number"),
        (lambda: T.Pad(1, fill=300), "level"),
        (lambda: T.Grayscale(2), "1 or 3"),
        (lambda: T.RandAugment(magnitude=31), "from 0 to 30"),
        (lambda: T.RandAugment(-1), "non-negative"),
        (lambda: T.RandAugment(num_magnitude_bins=1), "at least 2"),
        (lambda: T.RandAugment(interpolation="lanczos"), "nearest, bilinear, bicubic"),
        (lambda: T.TrivialAugmentWide(num_magnitude_bins=0), "at least 2"),
        (lambda: T.AutoAugment("mnist"), "svhn"),
        (lambda: T.RandomPosterize(9), "between"),
        (lambda: T.RandomAdjustSharpness(-1), "negative"),
        (lambda: T.RandomPerspective(2), "between 0 and 1"),
        (lambda: T.RandomApply([]), "at least one"),
        (lambda: T.RandomApply([abs]), "is not a transform of hdmlp"),
        (lambda: T.RandomOrder(T.Grayscale()), "sequence"),
        (lambda: T.RandomChoice([T.Grayscale()], [1, 2]), "weight for each of the 1"),
        (lambda: T.RandomErasing(ratio=(0, 1)), "positive"),
        (lambda: T.RandomResizedCrop(3, scale=(1, 0.5)), "min, max"),
        (lambda: T.RandomResizedCrop(3, ratio=(0, 1)), "positive"),
        (lambda: T.ConvertImageDtype(torch.float64), "float64"),
        (lambda: T.ConvertImageDtype("int8"), "int8"),
        (lambda: T.Normalize([1, 2], [1, 1]), "1 or 3"),
        (lambda: T.Normalize(0, 0), "zero"),
        (lambda: T.Normalize(float("nan"), 1), "finite"),
        (lambda: T.ToTensor("CHW"), "NCHW"),
        (lambda: T.ImgDecode("CMYK"), "mode"),
        (lambda: T.Reshape(1, 2, -3), "positive"),
        (lambda: T.ScaleShift16([], 1), "at least one"),
        (lambda: T.Compose(T.ToTensor()), "list"),
    ],
)
def test_invalid_arguments_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


EVERY = [
    T.ImgDecode("L", fast=True, orient=True),
    T.Resize(5, "bicubic", 9),
    T.CenterCrop(3),
    T.RandomCrop(3, 2, True, 7, "edge"),
    T.RandomResizedCrop(4),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(0.1),
    T.Pad((1, 2), (3, 4, 5)),
    T.ColorJitter(1, 1, 1, 0.5),
    T.Grayscale(),
    T.RandAugment(3, 4, 5, "bilinear", (1, 2, 3)),
    T.TrivialAugmentWide(9),
    T.AutoAugment("svhn", fill=4),
    T.RandomInvert(),
    T.RandomPosterize(2),
    T.RandomSolarize(9.5),
    T.RandomAdjustSharpness(2),
    T.RandomAutocontrast(),
    T.RandomEqualize(),
    T.RandomGrayscale(),
    T.RandomRotation(3, expand=True, center=(1, 2)),
    T.RandomAffine(3, (0.1, 0.2), (1, 2), (1, 2, 3, 4)),
    T.RandomPerspective(),
    T.GaussianBlur((3, 5), 2.0),
    T.RandomApply([T.RandomInvert(), T.Grayscale(3)], 0.1),
    T.RandomOrder([T.RandomInvert(), [T.Grayscale(3), T.RandomEqualize()]]),
    T.RandomChoice([T.RandomInvert(), [T.Grayscale(3), T.RandomEqualize()]], [1, 2]),
    T.RandomErasing(0.3, value="random"),
    T.ToTensor("NHWC", "float16"),
    T.ConvertImageDtype(torch.half),
    T.Normalize(0.5, 0.5),
    T.Views([T.RandomCrop(4), [T.CenterCrop(3), T.ToTensor()]]),
    T.Reshape(1, 2, 3, "int16"),
    T.ScaleShift16(2, (1, 2, 3)),
    T.RandomPhotometricDistort(hue=(-0.1, 0.2), p=0.25),
    T.ConvertMaskDtype(torch.int32),
    T.SanitizeBoundingBoxes(2, 5),
    T.ClampBoundingBoxes(),
    T.ConvertBoundingBoxFormat("cxcywh"),
]


@pytest.mark.parametrize("transform", EVERY, ids=repr)
def test_transforms_describe_themselves(transform):
    description = transform.describe()
    assert description["name"] == type(transform).__name__
    assert json.loads(json.dumps(description)) == description
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform
    assert hash(copy) == hash(transform)
    assert repr(copy) == repr(transform)
    assert transform != T.CenterCrop(4321)
    with pytest.raises(TypeError, match=r"cannot be called: .*DataLoader of hdmlp") as caught:
        transform(b"")
    assert ("torchvision" in str(caught.value)) == hasattr(V, type(transform).__name__)


def test_every_class_is_tested():
    classes = {c for c in vars(T).values() if isinstance(c, type) and issubclass(c, T.Transform)}
    untested = {c.__name__ for c in classes - {T.Transform, T.Compose} - {type(t) for t in EVERY}}
    assert not untested, f"add one of each to EVERY: {sorted(untested)}"


def test_dtypes_are_torchs():
    import numpy as np

    for dtype in ("float16", "half", torch.float16, np.float16, np.dtype("float16")):
        assert T.ConvertImageDtype(dtype).dtype == "float16"
    assert T.ConvertImageDtype(torch.bfloat16).dtype == "bfloat16"
    assert T.ToTensor(dtype=torch.float).dtype == T.ConvertImageDtype().dtype == "float32"


def test_interpolations_are_torchvisions():
    from PIL import Image

    for mode in V.InterpolationMode:
        assert T.Resize(3, mode).interpolation.value == mode.value.replace(
            "-exact", ""
        )  # the same of PIL images
    assert T.Resize(3, Image.BICUBIC).interpolation is T.InterpolationMode.BICUBIC
    assert T.Resize(3, Image.HAMMING).interpolation is T.InterpolationMode.HAMMING
