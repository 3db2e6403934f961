"""The transforms' classes, and which of torchvision's the daemon can carry out."""

import inspect
import json
import pickle
import re
import sys
import types

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
    ("Pad", ("3",), TypeError),
    ("Pad", (3, "black"), TypeError),
    ("Pad", (3, 0, "mirror"), ValueError),
    ("Pad", ((1, 2, 3),), ValueError),
    ("ColorJitter", (-1,), ValueError),
    ("ColorJitter", ((2, 1),), ValueError),
    ("ColorJitter", ("1",), TypeError),
    ("ColorJitter", (0, 0, 0, (-1, 1)), ValueError),
]


def plain(text):
    """A repr without what torchvision changes from release to release."""
    text = re.sub(r",? antialias=\w+|interpolation=bilinear\)(?=,)|[\])]|(?<=\d)\.0\b", "", text)
    return re.sub(r"[\[(]|interpolation=bilinear", "", text)


@pytest.mark.parametrize("name, args, keywords", SAME)
def test_same_as_torchvision(name, args, keywords):
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
        [T.Resize((300, 300)), *([T.ToTensor()] if name == "Normalize" else []), theirs]
    )
    assert parts.rest == [] and parts.described[-1].describe() == ours.describe()


def _listed(value):
    return list(value) if isinstance(value, (list, tuple)) else value


def arguments(cls):
    """Names and defaults, in order."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [(p.name, getattr(p.default, "value", p.default)) for p in parameters]


@pytest.mark.parametrize(
    "name", [n for n in T.__all__ if n != "InterpolationMode" and hasattr(V, n)]
)
def test_arguments_of_torchvision(name):
    ours, theirs = arguments(getattr(T, name)), arguments(getattr(V, name))
    assert [n for n, _ in ours[: len(theirs)]] == [n for n, _ in theirs]
    for (argument, mine), (_, default) in zip(ours, theirs):
        if argument != "antialias" and (name, argument) != (
            "ConvertImageDtype",
            "dtype",
        ):  # of no effect; v2 has a default
            assert mine == default, argument
    assert all(n in ("layout", "dtype") for n, _ in ours[len(theirs) :])


@pytest.mark.parametrize("name, args, error", WRONG)
def test_refused_as_torchvision(name, args, error):
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
def test_refused(make, message):
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
    T.ToTensor("NHWC", "float16"),
    T.ConvertImageDtype(torch.half),
    T.Normalize(0.5, 0.5),
    T.Reshape(1, 2, 3, "int16"),
    T.ScaleShift16(2, (1, 2, 3)),
]


@pytest.mark.parametrize("transform", EVERY, ids=repr)
def test_describes(transform):
    description = transform.describe()
    assert description["name"] == type(transform).__name__
    assert json.loads(json.dumps(description)) == description
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform and hash(copy) == hash(transform) and repr(copy) == repr(transform)
    assert transform != T.CenterCrop(4321)
    with pytest.raises(
        TypeError, match=r"describes what the daemon does.*DataLoader of hdmlp"
    ) as caught:
        transform(b"")
    assert ("torchvision" in str(caught.value)) == hasattr(V, type(transform).__name__)


def test_every_class_is_tested():
    classes = {c for c in vars(T).values() if isinstance(c, type) and issubclass(c, T.Transform)}
    untested = {c.__name__ for c in classes - {T.Transform, T.Compose} - {type(t) for t in EVERY}}
    assert not untested, f"add one of each to EVERY: {sorted(untested)}"


def test_dtypes():
    import numpy as np

    for dtype in ("float16", "half", torch.float16, np.float16, np.dtype("float16")):
        assert T.ConvertImageDtype(dtype).dtype == "float16"
    assert T.ConvertImageDtype(torch.bfloat16).dtype == "bfloat16"
    assert T.ToTensor(dtype=torch.float).dtype == T.ConvertImageDtype().dtype == "float32"


def test_interpolations():
    from PIL import Image

    for mode in V.InterpolationMode:
        assert T.Resize(3, mode).interpolation.value == mode.value.replace(
            "-exact", ""
        )  # the same of PIL images
    assert T.Resize(3, Image.BICUBIC).interpolation is T.InterpolationMode.BICUBIC
    assert T.Resize(3, Image.HAMMING).interpolation is T.InterpolationMode.HAMMING


IMAGENET = [
    V.RandomResizedCrop(224),
    V.RandomHorizontalFlip(),
    V.ToTensor(),
    V.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


def names(parts):
    return [type(t).__name__ for t in parts.described], parts.hands, parts.rest


def test_compose():
    for given in (
        IMAGENET,
        tuple(IMAGENET),
        V.Compose(IMAGENET),
        T.Compose(IMAGENET),
        [V.Compose(IMAGENET[:2]), IMAGENET[2:]],
        V.Compose([torch.nn.Sequential(*IMAGENET[:2]), torch.nn.Identity(), *IMAGENET[2:]]),
    ):
        parts = T.split(given)
        assert names(parts) == (
            ["RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"],
            "tensor",
            [],
        )
        assert T.describe(given) == [t.describe() for t in parts.described]
        described, rest = parts
        assert described == parts.described and rest == []
    ours = T.Compose([T.RandomResizedCrop(224), T.ToTensor()])
    assert ours.describe() == [t.describe() for t in ours.transforms]
    assert repr(ours).startswith("Compose(\n    RandomResizedCrop(size=(224, 224)")
    assert T.split(None).described == [] and T.split([]).hands == "bytes"


def test_rest():
    def other(x):
        return x

    rotate = V.RandomRotation(5)
    for given, described, hands, rest in [
        (
            [V.Resize(256), V.CenterCrop(224), rotate, V.ToTensor()],
            ["Resize", "CenterCrop"],
            "image",
            2,
        ),
        (
            [*IMAGENET, V.RandomErasing(), other],
            ["RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"],
            "tensor",
            2,
        ),
        ([V.Resize(256), V.ToTensor()], [], "bytes", 2),
        ([V.Resize(256), other, V.CenterCrop(224)], [], "bytes", 3),
        ([other, *IMAGENET], [], "bytes", 5),
        ([V.Resize((9, 9)), V.Normalize([0.5], [0.5])], ["Resize"], "image", 1),
        ([V.Resize((9, 9)), V.ToTensor(), V.ToTensor()], ["Resize", "ToTensor"], "tensor", 1),
        ([V.Resize((9, 9)), V.RandomCrop(10)], ["Resize"], "image", 1),
        ([V.Resize((9, 9)), V.Pad(1, fill=-5)], ["Resize"], "image", 1),
        (
            [V.Resize((9, 9)), V.ToTensor(), V.ConvertImageDtype(torch.float64)],
            ["Resize", "ToTensor"],
            "tensor",
            1,
        ),
        (
            [V.Grayscale(), V.Resize((9, 9)), V.ToTensor(), V.Normalize([1, 2, 3], [1, 1, 1])],
            ["Grayscale", "Resize", "ToTensor"],
            "tensor",
            1,
        ),
    ]:
        parts = T.split(given)
        assert names(parts) == (described, hands, given[len(given) - rest :]), given
        assert parts.why
        with pytest.raises(ValueError, match="the daemon cannot do"):
            T.describe(given)


def test_others_may_do_anything():
    class Crop(V.CenterCrop):
        def forward(self, img):
            return img

    patched = V.CenterCrop(4)
    patched.forward = lambda img: img
    hooked = V.CenterCrop(4)
    hooked.register_forward_hook(lambda *a: None)
    impostor = type(
        "CenterCrop",
        (),
        {
            "size": (4, 4),
            "__module__": "torchvision.transforms.transforms",
            "__call__": lambda s, x: x,
        },
    )()
    for t in (Crop(4), patched, hooked, impostor):
        assert T.split([t]).described == []


def test_presets():
    """What ``weights.transforms()`` gives is carried out, and is what it makes of an image."""
    import numpy as np
    from PIL import Image

    presets = pytest.importorskip("torchvision.transforms._presets")
    preset = presets.ImageClassification(
        crop_size=22, resize_size=25, interpolation=V.InterpolationMode.BICUBIC
    )
    parts = T.split(preset)
    assert parts.described == [
        T.Resize([25], "bicubic"),
        T.CenterCrop(22),
        T.ToTensor(),
        T.Normalize(preset.mean, preset.std),
    ]
    assert parts.rest == [] and parts.hands == "tensor"
    img = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8))
    likewise = V.Compose(
        [
            V.Resize(25, V.InterpolationMode.BICUBIC),
            V.CenterCrop(22),
            V.ToTensor(),
            V.Normalize(preset.mean, preset.std),
        ]
    )
    assert torch.equal(preset(img), likewise(img))
    assert T.split([V.Resize((9, 9)), V.ToTensor(), preset]).rest == [
        preset
    ]  # of tensors, it resizes otherwise
    preset.forward = lambda img: img
    assert T.split(preset).described == []


def test_a_class_around_a_compose():
    class Preset:
        def __init__(self):
            self.crop, self.inner = 3, V.Compose(IMAGENET)

        def __call__(self, img):
            return self.inner(img)

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.augment = Preset().inner

    assert T.split(Preset()).described == []
    assert T.split(Preset()).why.endswith(
        "(if all that it does is its inner, give .inner in its place)"
    )
    assert "give .augment in its place" in T.split(Module()).why
    assert T.split(abs).why == "it is not a transform that HDMLP knows"


@pytest.mark.parametrize(
    "given", [T.Resize, [T.CenterCrop(3), V.ToTensor], V.Compose, T.Compose([V.CenterCrop])]
)
def test_a_class_is_no_transform(given):
    with pytest.raises(
        TypeError, match=r"(Resize|ToTensor|Compose|CenterCrop) is a class.*write \1\(\.\.\.\)"
    ):
        T.split(given)


def test_ours_cannot_run_in_python():
    with pytest.raises(TypeError, match=r"CenterCrop.*cannot run in Python after"):
        T.split([V.RandomRotation(5), T.CenterCrop(3)])
    for given, message in [
        (
            [T.Resize((9, 9)), T.ScaleShift16(1, 2), abs],
            r"^ScaleShift16.* cannot stand here: HDMLP cannot do it here",
        ),
        (
            [T.CenterCrop(3), T.Normalize(1, 1), abs],
            "^Normalize.* cannot stand here: it needs a tensor",
        ),
        ([abs, T.Reshape(1, 1, 1)], r"^Reshape.* cannot run in Python after .*knows\)$"),
    ]:
        with pytest.raises(TypeError, match=message):
            T.split(given)
    # Lists of ours alone are the daemon's to refuse.
    assert T.split([T.Resize(256), T.ToTensor()]).rest == []
    assert T.split([T.Reshape(1, 2, 3), T.ScaleShift16(1, 2)]).hands == "tensor"
    assert names(T.split([T.Reshape(1, 2, 3), T.ScaleShift16(1, 2), abs])) == (
        ["Reshape", "ScaleShift16"],
        "tensor",
        [abs],
    )


class _Fake:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __call__(self, x):
        return x


@pytest.fixture
def v2(monkeypatch):
    """torchvision's v2 classes, with the attributes that releases 0.15 and later give them."""
    module = types.ModuleType("torchvision.transforms.v2._fake")
    for name in (
        "Compose",
        "ToImage",
        "ToDtype",
        "Resize",
        "CenterCrop",
        "RandomCrop",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        "Normalize",
        "Pad",
        "ColorJitter",
        "Identity",
        "ToPureTensor",
        "GaussianBlur",
    ):
        setattr(module, name, type(name, (_Fake,), {"__module__": module.__name__}))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_v2(v2):
    crop = v2.RandomResizedCrop(
        size=(224, 224),
        scale=(0.08, 1.0),
        ratio=(0.75, 4 / 3),
        interpolation=V.InterpolationMode.BILINEAR,
        antialias=True,
    )
    flip, image = v2.RandomHorizontalFlip(p=0.5), v2.ToImage()
    to_float = v2.ToDtype(dtype=torch.float32, scale=True)
    norm = v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], inplace=False)
    recommended = v2.Compose(
        transforms=[
            image,
            v2.ToDtype(dtype=torch.uint8, scale=True),
            crop,
            flip,
            to_float,
            norm,
            v2.ToPureTensor(),
        ]
    )
    parts = T.split(recommended)
    assert [t.describe() for t in parts.described] == T.describe(
        [
            T.RandomResizedCrop(224),
            T.RandomHorizontalFlip(),
            T.ToTensor(dtype="uint8"),
            T.ConvertImageDtype("float32"),
            T.Normalize(norm.mean, norm.std),
        ]
    )
    assert parts.rest == [] and parts.hands == "tensor"
    assert T.split([crop, flip, image, to_float, norm]).rest == []
    blur = v2.GaussianBlur()
    for given, rest in [
        (
            [crop, image, blur, to_float],
            3,
        ),  # the rest begins with ToImage, as it makes its kind of tensor of any
        ([crop, image, v2.ToPureTensor(), blur, to_float], 2),
        ([image, crop, flip, to_float, blur], [image, blur]),
        ([crop, image, v2.ToDtype(dtype=torch.float32, scale=False)], 2),
        ([crop, image, v2.ToDtype(dtype={"others": None}, scale=True)], 2),
        ([image, to_float, crop], 3),  # resized as floats, which are not rounded
        ([image, v2.RandomResizedCrop(**{**vars(crop), "antialias": False})], 2),
        ([crop, v2.Pad(padding=1, fill={}, padding_mode="constant")], 1),
        (
            [
                crop,
                v2.Resize(
                    size=None,
                    max_size=30,
                    interpolation=V.InterpolationMode.BILINEAR,
                    antialias=True,
                ),
            ],
            1,
        ),
        (
            [
                crop,
                v2.RandomCrop(
                    size=(9, 9),
                    padding=[1, 1, 1, 1],
                    pad_if_needed=True,
                    fill=0,
                    padding_mode="reflect",
                ),
            ],
            1,
        ),
        (
            [
                crop,
                v2.RandomCrop(
                    size=(9, 9),
                    padding=[1, 1, 1, 1],
                    pad_if_needed=True,
                    fill=0,
                    padding_mode="edge",
                ),
                v2.Identity(),
            ],
            [],
        ),
    ]:
        parts = T.split(given)
        assert parts.rest == (given[len(given) - rest :] if isinstance(rest, int) else rest), given


def test_padding_of_v2s_random_crop(v2):
    """It is kept as (left, right, top, bottom), and was given as (left, top, right, bottom)."""
    crop = v2.RandomCrop(
        size=(9, 9), padding=[1, 3, 2, 4], pad_if_needed=False, fill=0, padding_mode="constant"
    )
    assert T.split([crop]).described == [T.RandomCrop(9, (1, 2, 3, 4))]
