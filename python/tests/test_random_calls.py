"""docs/SEMANTICS.md's table of what transforms draw, from the calls that the libraries make."""

import functools
import math
import pathlib
import random
import re

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
timm = pytest.importorskip("timm.data.transforms")

from PIL import Image

SEMANTICS = pathlib.Path(__file__).parents[2] / "docs" / "SEMANTICS.md"
HEAD = "| library | transform | what it draws, in order |\n| --- | --- | --- |\n"


def calls(monkeypatch, transform, size, of_tensor=False):
    """The calls that draw, of a transform of an image of that size."""
    made = []

    def record(owner, name, said):
        original = getattr(owner, name)

        @functools.wraps(original)
        def recorded(*args, **kwargs):
            before = len(made)
            result = original(*args, **kwargs)
            del made[before:]  # what it calls itself
            made.append(said(*args, **kwargs))
            return result

        monkeypatch.setattr(owner, name, recorded)

    def number(value):
        return f"{float(value):.4g}"

    def times(call, shape):
        count = math.prod(
            n for part in shape for n in (part if hasattr(part, "__len__") else [part])
        )
        return call if count == 1 else f"{call} {count} times"

    record(torch, "rand", lambda *shape, **_: times("torch.rand(1)", shape))
    record(
        torch,
        "randint",
        lambda *a, size=None, **_: times("torch.randint(0, n)", [a[-1] if size is None else size]),
    )
    record(torch, "randperm", lambda n, **_: f"torch.randperm({n})")
    record(torch.Tensor, "uniform_", lambda _, a=0, b=1: f"uniform_({number(a)}, {number(b)})")
    record(random, "random", lambda: "random.random()")
    record(random, "uniform", lambda a, b: f"random.uniform({number(a)}, {number(b)})")
    record(random, "randint", lambda *_: "random.randint(0, n)")
    record(random, "choice", lambda several: f"random.choice of {len(several)}")
    record(random, "choices", lambda several, weights=None: f"random.choices of {len(several)}")
    record(random, "shuffle", lambda several: f"random.shuffle of {len(several)}")
    record(random, "gauss", lambda mean, deviation: f"random.gauss({mean}, {deviation})")
    record(numpy.random, "choice", lambda several, n, **_: f"numpy's choice of {len(several)}, {n}")
    record(torch.Tensor, "normal_", lambda t: f"normal_ of {len(t.shape)} dimensions")
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    image = Image.linear_gradient("L").convert("RGB").resize(size)
    transform(torchvision.transforms.functional.to_tensor(image) if of_tensor else image)
    monkeypatch.undo()
    return ", ".join(f"`{call}`" for call in made) or "nothing"


def rows(monkeypatch):
    """The rows of the table."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    libraries = [("torchvision, v1", torchvision.transforms), ("torchvision, v2", v2)]
    for library, module in libraries:
        for transform, what, size in (
            (
                module.RandomResizedCrop(9, (0.2, 0.5)),
                "`RandomResizedCrop(9, (0.2, 0.5))`",
                (80, 80),
            ),
            (module.RandomCrop(9), "`RandomCrop(9)`", (30, 20)),
            (module.RandomCrop(9), "the same, of 9 x 20 pixels", (20, 9)),
            (module.RandomCrop(9), "the same, of 9 x 9 pixels", (9, 9)),
            (module.RandomHorizontalFlip(), "`RandomHorizontalFlip()`", (9, 9)),
            (module.RandomVerticalFlip(), "`RandomVerticalFlip()`", (9, 9)),
            (module.ColorJitter(0.2, 0.3, 0.4, 0.1), "`ColorJitter(0.2, 0.3, 0.4, 0.1)`", (9, 9)),
            (module.ColorJitter(hue=0.1), "`ColorJitter(hue=0.1)`", (9, 9)),
            (module.RandAugment(2), "`RandAugment(2)`", (9, 9)),
            (module.TrivialAugmentWide(), "`TrivialAugmentWide()`", (9, 9)),
            (module.AutoAugment(), "`AutoAugment()`", (9, 9)),
            (module.RandomInvert(), "`RandomInvert()`", (9, 9)),
            (module.RandomPosterize(2), "`RandomPosterize(2)`", (9, 9)),
            (module.RandomSolarize(2), "`RandomSolarize(2)`", (9, 9)),
            (module.RandomAdjustSharpness(2), "`RandomAdjustSharpness(2)`", (9, 9)),
            (module.RandomAutocontrast(), "`RandomAutocontrast()`", (9, 9)),
            (module.RandomEqualize(), "`RandomEqualize()`", (9, 9)),
            (module.RandomGrayscale(), "`RandomGrayscale()`", (9, 9)),
            (module.RandomRotation(9), "`RandomRotation(9)`", (9, 9)),
            (
                module.RandomAffine(9, (0.5, 0.5), (1, 2), (1, 2, 3, 4)),
                "`RandomAffine(9, (0.5, 0.5), (1, 2), (1, 2, 3, 4))`",
                (10, 10),
            ),
            (module.RandomPerspective(p=1), "`RandomPerspective(p=1)`", (9, 9)),
            (module.GaussianBlur(3), "`GaussianBlur(3)`", (9, 9)),
            (module.RandomErasing(1), "`RandomErasing(1)`", (50, 50)),
            (module.RandomErasing(1, value="random"), 'the same, `value="random"`', (50, 50)),
            (
                module.RandomApply([module.RandomInvert(), module.RandomEqualize()], 1),
                "`RandomApply([RandomInvert(), RandomEqualize()], 1)`",
                (9, 9),
            ),
            (
                module.RandomOrder([module.RandomInvert(), module.RandomEqualize()]),
                "`RandomOrder([RandomInvert(), RandomEqualize()])`",
                (9, 9),
            ),
        ):
            erases = isinstance(transform, module.RandomErasing)
            drawn = calls(monkeypatch, transform, size, erases)
            yield f"| {library} | {what} | {drawn} |\n"
    V = torchvision.transforms
    choice = V.RandomChoice([V.RandomInvert(), V.RandomInvert()])
    drawn = calls(monkeypatch, choice, (9, 9))
    yield f"| torchvision, v1 | `RandomChoice([RandomInvert(), RandomInvert()])` | {drawn} |\n"
    crop = timm.RandomResizedCropAndInterpolation
    for transform, what in (
        (crop(9, (0.2, 0.5), interpolation="bilinear"), "`RandomResizedCropAndInterpolation`"),
        (crop(9, (0.2, 0.5), interpolation="random"), 'the same, `interpolation="random"`'),
    ):
        yield f"| timm | {what} | {calls(monkeypatch, transform, (80, 80))} |\n"
    from timm.data import auto_augment, random_erasing

    for name, transform in (
        ("rand-m9-n3-mstd0.5", auto_augment.rand_augment_transform("rand-m9-n3-mstd0.5", {})),
        ("rand-m9-mstd101-p1", auto_augment.rand_augment_transform("rand-m9-mstd101-p1", {})),
        ("original", auto_augment.auto_augment_transform("original", {})),
        ("3a", auto_augment.auto_augment_transform("3a", {})),
    ):
        yield f"| timm | `{name}` | {calls(monkeypatch, transform, (80, 80))} |\n"
    for mode in ("const", "rand", "pixel"):
        erasing = random_erasing.RandomErasing(1, mode=mode, max_count=2, device="cpu")
        drawn = calls(monkeypatch, erasing, (80, 80), True)
        yield f'| timm | `RandomErasing(1, mode="{mode}", max_count=2)` | {drawn} |\n'


def test_the_table_is_what_the_libraries_call(monkeypatch):
    """If this fails because of a new release, the daemon has to draw as it does."""
    text = SEMANTICS.read_text("utf-8")
    table = HEAD + "".join(rows(monkeypatch))
    found = re.search(re.escape(HEAD) + r"(\|.*\n)*", text)
    assert found is not None
    assert found[0] == table, table
