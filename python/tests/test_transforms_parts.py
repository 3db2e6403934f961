"""Which transforms of a composition the daemon runs, and which are left to Python."""

import pytest
from elsewhere import elastic
from fakemodule import with_classes
from hdmlp import transforms as T
from test_transforms import without_logs

V = pytest.importorskip("torchvision.transforms")
torch = pytest.importorskip("torch")


IMAGENET = [
    V.RandomResizedCrop(224),
    V.RandomHorizontalFlip(),
    V.ToTensor(),
    V.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
]


def names(parts):
    return [type(t).__name__ for t in parts.described], parts.hands, parts.rest


def test_compositions_are_flattened():
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
        assert described == parts.described
        assert rest == []
    ours = T.Compose([T.RandomResizedCrop(224), T.ToTensor()])
    assert ours.describe() == [t.describe() for t in ours.transforms]
    assert repr(ours).startswith("Compose(\n    RandomResizedCrop(size=(224, 224)")
    assert T.split(None).described == []
    assert T.split([]).hands == "bytes"


def test_the_rest_is_left_to_python():
    def other(x):
        return x

    rotate = elastic()
    for given, described, hands, rest in [
        (
            [V.Resize(256), V.CenterCrop(224), rotate, V.ToTensor()],
            ["Resize", "CenterCrop"],
            "image",
            2,
        ),
        (
            [*IMAGENET, elastic(), other],
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


def test_changed_transforms_are_left_to_python():
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


def test_presets_of_weights_are_carried_out():
    """The presets of ``weights.transforms()``, with the same result."""
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
    assert parts.rest == []
    assert parts.hands == "tensor"
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


def test_a_class_that_wraps_a_composition_is_carried_out():
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
        "; if all that it does is its inner, give .inner in its place)"
    )
    assert "give .augment in its place" in T.split(Module()).why
    assert T.split(abs).why == "it is not a transform that HDMLP has"


@pytest.mark.parametrize("others", ["compose", "transform", "function", "list", "dict"])
def test_one_of_several_parts_is_no_advice(others):
    """With it the training would be another one, as with one of DINO's crops."""

    class Crops:
        def __init__(self):
            self.global_transfo1 = V.Compose([V.Resize(8), V.ToTensor()])
            self.other = {
                "compose": V.Compose([V.Resize(4)]),
                "transform": V.Resize(4),
                "function": len,
                "list": [V.Compose([V.Resize(4)])],
                "dict": {"small": V.Compose([V.Resize(4)])},
            }[others]

        def __call__(self, image):
            return self.global_transfo1(image)

    assert T.split(Crops()).why == (
        "it is not a transform that HDMLP has (if it makes several views of an image, give "
        "hdmlp.transforms.Views in its place)"
    )


@pytest.mark.parametrize(
    "given", [T.Resize, [T.CenterCrop(3), V.ToTensor], V.Compose, T.Compose([V.CenterCrop])]
)
def test_a_class_in_place_of_an_object_is_refused(given):
    with pytest.raises(
        TypeError, match=r"(Resize|ToTensor|Compose|CenterCrop) is a class.*write \1\(\.\.\.\)"
    ):
        T.split(given)


def test_hdmlps_transforms_cannot_run_in_python():
    with pytest.raises(TypeError, match=r"CenterCrop.*cannot run in Python after"):
        T.split([elastic(), T.CenterCrop(3)])
    for given, message in [
        (
            [T.Resize((9, 9)), T.ScaleShift16(1, 2), abs],
            r"^ScaleShift16.* cannot stand here: HDMLP cannot do it here",
        ),
        (
            [T.CenterCrop(3), T.Normalize(1, 1), abs],
            "^Normalize.* cannot stand here: it needs a tensor",
        ),
        ([abs, T.Reshape(1, 1, 1)], r"^Reshape.* cannot run in Python after .*has\)$"),
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


@pytest.fixture
def v2(monkeypatch):
    """torchvision's v2 classes, with the attributes that releases 0.15 and later give them."""
    classes = (
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
        "ElasticTransform",
    )
    return with_classes(monkeypatch, "torchvision.transforms.v2._fake", classes)


def test_v2_classes_are_mapped(v2):
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
    assert [without_logs(t.describe()) for t in parts.described] == T.describe(
        [
            T.RandomResizedCrop(224),
            T.RandomHorizontalFlip(),
            T.ToTensor(dtype="uint8"),
            T.ConvertImageDtype("float32").scaling("multiply"),
            T.Normalize(norm.mean, norm.std),
        ]
    )
    assert parts.rest == []
    assert parts.hands == "tensor"
    assert T.split([crop, flip, image, to_float, norm]).rest == []
    assert T.split([crop, image, v2.ToDtype(dtype=torch.float32, scale=False)]).rest == []
    blur = v2.ElasticTransform()
    for given, rest in [
        (
            [crop, image, blur, to_float],
            3,
        ),  # the rest begins with ToImage, as it makes its kind of tensor of any
        ([crop, image, v2.ToPureTensor(), blur, to_float], 2),
        ([image, crop, flip, to_float, blur], [image, blur]),
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


def test_padding_of_v2s_random_crop_is_reordered(v2):
    """It is stored as (left, right, top, bottom), and given as (left, top, right, bottom)."""
    crop = v2.RandomCrop(
        size=(9, 9), padding=[1, 3, 2, 4], pad_if_needed=False, fill=0, padding_mode="constant"
    )
    [described] = T.split([crop]).described
    assert described.describe() == {**T.RandomCrop(9, (1, 2, 3, 4)).describe(), "draws": "v2"}
