"""Small classes of training scripts, which are recognised by their code."""

import random

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from byhand import by_hand
from hdmlp.transforms import split
from PIL import Image, ImageFilter, ImageOps
from test_augmentations import SEED, folder, loaded, wanted  # noqa: F401  # a fixture
from torchvision import transforms as V


class Blur:
    """As MoCo v2's, with another name for a variable."""

    def __init__(self, sigma=(0.1, 2.0)):
        self.sigma = sigma

    def __call__(self, image):
        s = random.uniform(self.sigma[0], self.sigma[1])
        image = image.filter(ImageFilter.GaussianBlur(radius=s))
        return image


class BlurByChance:
    """As DINO's."""

    def __init__(self, p=0.5, radius_min=0.1, radius_max=2.0):
        self.prob = p
        self.radius_min = radius_min
        self.radius_max = radius_max

    def __call__(self, img):
        do_it = random.random() <= self.prob
        if not do_it:
            return img

        return img.filter(
            ImageFilter.GaussianBlur(radius=random.uniform(self.radius_min, self.radius_max))
        )


class Solarize:
    """As MoCo v3's."""

    def __call__(self, x):
        return ImageOps.solarize(x)


class Solarization:
    """As DINO's."""

    def __init__(self, p):
        self.p = p

    def __call__(self, img):
        if random.random() < self.p:
            return ImageOps.solarize(img)
        else:
            return img


class Gray:
    """As DeiT's."""

    def __init__(self, p=0.2):
        self.p = p
        self.transf = V.Grayscale(3)

    def __call__(self, img):
        if random.random() < self.p:
            return self.transf(img)
        else:
            return img


LISTS = {
    "MoCo v2": [V.RandomApply([Blur([0.1, 2.0])], p=0.5)],
    "MoCo v3": [V.RandomApply([Blur([0.1, 2.0])], p=1.0), V.RandomApply([Solarize()], p=0.2)],
    "DINO": [BlurByChance(0.6), Solarization(0.4)],
    "DeiT III": [V.RandomChoice([Gray(p=1.0), Solarization(p=1.0), BlurByChance(p=1.0)])],
}


@pytest.mark.parametrize("name", LISTS)
def test_classes_of_scripts_equal_their_code(folder, name):
    transform = V.Compose([V.RandomResizedCrop(48), *LISTS[name], V.ToTensor()])
    parts = split(transform)
    assert not parts.rest, parts.why
    dataset, got = loaded(folder, transform)
    assert all(map(torch.equal, got, wanted(dataset, transform)))


def test_other_code_runs_in_python(folder, monkeypatch):
    class Other(Solarization):
        def __call__(self, img):
            if random.random() <= self.p:  # and not below it
                return ImageOps.solarize(img)
            else:
                return img

    class Attribute(Solarization):
        p = property(lambda self: 0.5, lambda self, value: None)

    for step in (
        Other(0.5),
        Attribute(0.5),
        Solarization("0.5"),
        Blur((2.0, 0.1)),
        Blur(3),
        BlurByChance(-1),
    ):
        assert split([V.CenterCrop(9), step]).rest == [step]
    gray = Gray()
    gray.transf = V.Grayscale(1)
    assert split([V.CenterCrop(9), gray]).rest == [gray]
    replaced = Solarization(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(ImageOps, "solarize", lambda image: image)
        assert split([V.CenterCrop(9), replaced]).rest == [replaced]
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "random", type("", (), {"random": staticmethod(lambda: 0.0)}))
        transform = V.Compose([V.CenterCrop(40), replaced, V.ToTensor()])
        assert split(transform).rest
        dataset = ht.ImageFolder(folder, transform)
        with ht.DataLoader(dataset, 8, shuffle=False, seed=SEED) as loader:
            first = next(iter(loader))[0][0]
        image = Image.open(dataset.samples[0][0]).convert("RGB")
        assert torch.equal(first, by_hand(transform, image, SEED, 0, 0))
