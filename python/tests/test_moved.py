"""Transforms after ToTensor: the daemon applies them before it only if the result is the same."""

import inspect
import itertools

import pytest
from hdmlp import transforms as T
from hdmlp._transforms.split import _MAPPINGS
from test_transforms import SAME

V = pytest.importorskip("torchvision.transforms")
torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
try:
    from torchvision.transforms import v2
except ImportError:  # before torchvision 0.15
    v2 = None

HALF = V.Normalize([0.5], [0.5])

#: Arguments for every class that is mapped and not in SAME, which test_transforms.py compares.
ARGUMENTS = {
    "PILToTensor": [((), {})],
    "ConvertImageDtype": [((torch.float32,), {}), ((torch.uint8,), {})],
    "ToImage": [((), {})],
    "ToPureTensor": [((), {})],
    "ToDtype": [((torch.float32,), {"scale": True}), ((torch.float32,), {})],
    "ImageClassification": [((), {"crop_size": 10})],
    "RGB": [((), {})],
    "RandAugment": [((), {})],
    "TrivialAugmentWide": [((), {})],
    "AutoAugment": [((), {})],
    "RandomAffine": [((3, (0.1, 0.2)), {})],
    "RandomPhotometricDistort": [((), {})],
}


def images():
    rng = np.random.default_rng(1)
    for height, width in ((72, 72), (40, 60)):
        levels = rng.integers(0, 255, (height // 8, width // 9 + 1, 3), np.uint8)
        yield Image.fromarray(levels.repeat(8, 0).repeat(9, 1))


IMAGES = list(images())


def carried_out(described, sample):
    """The result of the daemon's transforms, each computed by torchvision's transform of the same
    name."""
    for t in described:
        arguments = t.describe()
        name = arguments.pop("name")
        cls = getattr(V, name)
        if name == "ToTensor":
            sample = (V.PILToTensor if arguments["dtype"] == "uint8" else V.ToTensor)()(sample)
            continue
        if arguments.get("scale") == "none":
            sample = sample.to(getattr(torch, arguments["dtype"]))
            continue
        known = inspect.signature(cls.__init__).parameters
        arguments = {k: v for k, v in arguments.items() if k in known}
        if "dtype" in arguments:
            arguments["dtype"] = getattr(torch, arguments["dtype"])
        if "interpolation" in arguments:
            arguments["interpolation"] = V.InterpolationMode(arguments["interpolation"])
        if "padding" in arguments:
            arguments["padding"] = arguments["padding"] or 0
        sample = cls(**arguments)(sample)
    return sample


def distance(transforms, split):
    """The largest difference between torchvision's result of a list and that of its parts.

    In levels from 0 to 255. None: torchvision refuses the list, so there is nothing to compare.
    """
    most = 0.0
    for seed, image in zip(range(4), itertools.cycle(IMAGES)):
        torch.manual_seed(seed)
        try:
            want = V.Compose(transforms)(image)
        except (TypeError, ValueError, RuntimeError):
            return None
        torch.manual_seed(seed)
        got = carried_out(split.described, image)
        for t in split.rest:
            got = t(got)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        scale = 255 if want.dtype.is_floating_point else 1
        most = max(most, (got.double() - want.double()).abs().max().item() * scale)
    return most


def every_transform():
    """(name, transform) for every class that is mapped, in torchvision's versions 1 and 2."""
    for name in _MAPPINGS:
        given = [(args, keywords) for n, args, keywords in SAME if n == name]
        given += ARGUMENTS.get(name, [])
        assert given, f"{name} has no arguments here: add it to SAME in test_transforms.py"
        for args, keywords in given:
            for module in (V, v2, getattr(V, "_presets", None)):
                if hasattr(module, name):
                    yield name, getattr(module, name)(*args, **keywords)


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        [V.CenterCrop(16), V.ToTensor()],
        [V.ToTensor()],
        [V.CenterCrop(16), V.ToTensor(), HALF],
        [V.PILToTensor()],
    ],
    ids=["float", "float of any size", "normalized", "uint8"],
)
def test_each_moved_transform_equals_torchvisions_after_the_tensor(before):
    for name, transform in every_transform():
        # A crop gives lists that begin with a tensor of any size a fixed one: the daemon's part.
        for given in ([*before, transform], [*before, transform, V.CenterCrop(12)]):
            parts = T.split(given)
            # torchvision rounds a resized tensor of levels differently from PIL.
            limit = 1 if "Resize" in name or "Blur" in name else 0
            off = distance(given, parts)
            assert off is None or off <= limit + 1e-4, (
                f"{given} is off by {off:.4g} levels: the daemon's part is {parts.described}; "
                f"is `_same_on_tensor` right in hdmlp.transforms.{name}?"
            )


@pytest.mark.parametrize(
    "given, levels",
    [
        ([V.ToTensor(), V.CenterCrop((90, 20)), V.RandomHorizontalFlip(1), HALF], 0),
        ([V.ToTensor(), V.RandomCrop(40, padding=0), V.Pad((1, 2, 3, 4))], 0),
        (
            [
                V.PILToTensor(),
                V.Resize((33, 44), antialias=True),
                V.Pad(2, fill=9),
                V.ConvertImageDtype(torch.float),
            ],
            1,
        ),
        ([V.PILToTensor(), V.ConvertImageDtype(torch.uint8), V.CenterCrop(15)], 0),
    ],
    ids=repr,
)
def test_whole_lists_equal_torchvisions(given, levels):
    parts = T.split(given)
    assert parts.rest == [], parts
    assert not isinstance(parts.described[0], T.ToTensor), parts
    assert distance(given, parts) <= levels + 1e-4


def test_drawn_interpolations_are_moved():
    several = T.RandomResizedCrop(9, interpolation=("bilinear", "bicubic"))
    moved = T.split([T.Resize((20, 20)), T.ToTensor(dtype="uint8"), several, abs])
    assert moved.described[1] == several
    assert moved.rest == [abs]


@pytest.mark.parametrize(
    "transform",
    [
        V.Resize((9, 9)),
        V.ColorJitter(1),
        V.Grayscale(),
        V.Pad(1, fill=3),
        V.RandomResizedCrop(9),
    ],
    ids=repr,
)
def test_transforms_that_differ_stay_after_the_tensor(transform):
    parts = T.split([V.Resize((20, 20)), V.ToTensor(), transform])
    assert parts.rest == [transform]
    assert "put it before ToTensor" in parts.why


def test_a_border_that_must_not_be_normalized_stays_after_the_tensor():
    border = [V.ToTensor(), HALF, V.CenterCrop((20, 30)), V.Pad(4, padding_mode="reflect")]
    assert T.split(border).described == []


def test_a_new_transform_stays_after_the_tensor():
    assert not T.Transform._same_on_tensor
