"""albumentations' pipelines among transforms, where it is installed (requirements-peers.txt)."""

import numpy
import pytest

torch = pytest.importorskip("torch")
albumentations = pytest.importorskip("albumentations")
V = pytest.importorskip("torchvision.transforms")

import hdmlp.torch as ht
from hdmlp import transforms as T
from PIL import Image

SEED = 3
PIPELINE = albumentations.Compose([albumentations.RandomBrightnessContrast(p=1)])


def by_global(image):
    return PIPELINE(image=numpy.asarray(image))["image"]


class ByAttribute:
    """Has a pipeline with a seed."""

    def __init__(self):
        steps = [albumentations.HorizontalFlip(), albumentations.RandomGamma(p=1)]
        self.pipeline = albumentations.Compose(steps, seed=137)

    def __call__(self, image):
        return self.pipeline(image=numpy.asarray(image))["image"]


class Twice:
    """Makes two views."""

    def __init__(self, transform):
        self.transform = transform

    def __call__(self, image):
        return [self.transform(image), self.transform(image)]


@pytest.mark.parametrize("step", [by_global, ByAttribute()], ids=["global", "attribute"])
def test_pipelines_draw_for_each_sample(tmp_path, step):
    """The same without workers and with two, and resumed; others for each sample and epoch."""
    (tmp_path / "a").mkdir()
    levels = numpy.random.default_rng(0).integers(0, 255, (30, 30, 3), dtype=numpy.uint8)
    for i in range(12):
        Image.fromarray(levels).save(tmp_path / "a" / f"{i:02}.png")
    transform = V.Compose([V.CenterCrop(20), step, V.ToTensor()])
    made = {}
    for workers in (0, 2):
        dataset = ht.ImageFolder(str(tmp_path), transform)
        with ht.DataLoader(
            dataset, 4, shuffle=False, seed=SEED, epochs=2, num_workers=workers
        ) as loader:
            made[workers] = [torch.cat([images for images, _ in loader]) for _ in range(2)]
    assert all(map(torch.equal, made[0], made[2]))
    samples = [sample.numpy().tobytes() for epoch in made[0] for sample in epoch]
    assert len(set(samples)) == len(samples)
    if step is by_global:  # by hand, as documented
        PIPELINE.set_random_seed(ht.item_seed(SEED, 1, 7, position=1) & 0xFFFFFFFF)
        image = V.CenterCrop(20)(Image.open(dataset.samples[7][0]))
        assert torch.equal(V.ToTensor()(by_global(image)), made[0][1][7])


@pytest.mark.parametrize("make", [lambda t: T.Views(t, n=2), Twice], ids=["Views", "wrapper"])
def test_pipelines_within_views_draw_for_each_sample(tmp_path, make):
    (tmp_path / "a").mkdir()
    levels = numpy.random.default_rng(0).integers(0, 255, (30, 30, 3), dtype=numpy.uint8)
    for i in range(6):
        Image.fromarray(levels).save(tmp_path / "a" / f"{i:02}.png")
    dataset = ht.ImageFolder(str(tmp_path), make(V.Compose([by_global, V.ToTensor()])))
    made = {}
    for workers in (0, 2):
        options = {"shuffle": False, "seed": SEED, "epochs": 2, "num_workers": workers}
        with ht.DataLoader(dataset, 2, **options) as loader:
            made[workers] = [v for _ in range(2) for views, _ in loader for v in zip(*views)]
    assert all(torch.equal(x, y) for a, b in zip(made[0], made[2]) for x, y in zip(a, b))
    samples = {view.numpy().tobytes() for views in made[0] for view in views}
    assert len(samples) == 24
