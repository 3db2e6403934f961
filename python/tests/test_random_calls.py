"""docs/SEMANTICS.md's table of what transforms draw, from the calls that the libraries make."""

import functools
import pathlib
import random
import re

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
timm = pytest.importorskip("timm.data.transforms")

from PIL import Image

SEMANTICS = pathlib.Path(__file__).parents[2] / "docs" / "SEMANTICS.md"
HEAD = "| library | transform | what it draws, in order |\n| --- | --- | --- |\n"


def calls(monkeypatch, transform, size):
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

    record(torch, "rand", lambda *_, **__: "torch.rand(1)")
    record(torch, "randint", lambda *_, **__: "torch.randint(0, n)")
    record(torch, "randperm", lambda n, **_: f"torch.randperm({n})")
    record(torch.Tensor, "uniform_", lambda _, a=0, b=1: f"uniform_({number(a)}, {number(b)})")
    record(random, "random", lambda: "random.random()")
    record(random, "uniform", lambda a, b: f"random.uniform({number(a)}, {number(b)})")
    record(random, "randint", lambda *_: "random.randint(0, n)")
    record(random, "choice", lambda several: f"random.choice of {len(several)}")
    torch.manual_seed(1)
    random.seed(1)
    transform(Image.linear_gradient("L").convert("RGB").resize(size))
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
        ):
            yield f"| {library} | {what} | {calls(monkeypatch, transform, size)} |\n"
    crop = timm.RandomResizedCropAndInterpolation
    for transform, what in (
        (crop(9, (0.2, 0.5), interpolation="bilinear"), "`RandomResizedCropAndInterpolation`"),
        (crop(9, (0.2, 0.5), interpolation="random"), 'the same, `interpolation="random"`'),
    ):
        yield f"| timm | {what} | {calls(monkeypatch, transform, (80, 80))} |\n"


def test_the_table_is_what_the_libraries_call(monkeypatch):
    """If this fails because of a new release, the daemon has to draw as it does."""
    text = SEMANTICS.read_text("utf-8")
    table = HEAD + "".join(rows(monkeypatch))
    found = re.search(re.escape(HEAD) + r"(\|.*\n)*", text)
    assert found is not None
    assert found[0] == table, table
