"""The examples of segmentation and detection train, and their samples are those that torchvision
makes with the same random numbers."""

import importlib.util
import json
import os
import re
import subprocess

import hdmlp.torch as ht
import numpy
import preloaded
import pytest
import torch
from PIL import Image

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")

pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.usefixtures("real")


def loaded(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(EXAMPLES, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(name, *arguments):
    """What an example prints."""
    path = os.path.join(EXAMPLES, f"{name}.py")
    done = subprocess.run(
        [preloaded.PYTHON, path, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data(tmp_path):
    """Images with a bright rectangle each: its mask, and its box."""
    rng = numpy.random.default_rng(3)
    for name in ("images", "masks", "objects"):
        (tmp_path / name).mkdir()
    for i in range(24):
        width, height = rng.integers(70, 120, 2).tolist()
        left, top = rng.integers(5, 30, 2).tolist()
        pixels = rng.integers(0, 90, (height, width, 3), dtype=numpy.uint8)
        pixels[top : top + 30, left : left + 25] += 120
        mask = numpy.zeros((height, width), numpy.uint8)
        mask[top : top + 30, left : left + 25] = 1 + i % 2
        for name in ("images", "objects"):
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.jpg")
        palette = Image.fromarray(mask, "P")
        palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
        palette.save(tmp_path / "masks" / f"{i}.png")
        box = {"boxes": [[left, top, left + 25, top + 30]], "labels": [i % 2]}
        (tmp_path / "objects" / f"{i}.json").write_text(json.dumps(box))
    return tmp_path


def losses(text):
    return [float(found) for found in re.findall(r"loss ([0-9.]+)", text)]


def test_segmentation_trains(data):
    for loader in ("hdmlp", "torch"):
        text = ran(
            "segmentation", data / "images", data / "masks", "--classes", 3, "--loader", loader
        )
        first, last = losses(text)
        assert "24 pairs" in text
        assert last < first


def test_segmentation_has_torchvisions_samples(data):
    """The line that makes the loader is all that differs: samples are those of the dataset in
    Python, whose transforms draw the same random numbers."""
    module = loaded("segmentation")
    pairs = module.pairs_of(data / "images", data / "masks")
    transform = module.transforms(32)
    dataset = ht.Files(pairs, kinds={"0": "image", "1": "mask"}, transform=transform)
    with ht.DataLoader(dataset, 8, shuffle=False, seed=42) as loader:
        found = [pair for batch in loader for pair in zip(*batch, strict=True)]
    plain = module.Pairs(pairs, lambda *pair: pair)
    for index, (image, mask) in enumerate(found):
        pair = plain[index]
        for position, step in enumerate(transform.transforms):
            with ht.seeded(42, 0, index, 0, position):
                pair = step(*pair)
        assert torch.allclose(image, pair[0], atol=1e-6)
        assert torch.equal(mask, pair[1])


@pytest.mark.parametrize("heavy", [(), ("--heavy",)])
def test_detection_trains(data, heavy):
    text = ran("detection", data / "objects", "--classes", 2, "--epochs", 3, *heavy)
    found = losses(text)
    assert "24 images" in text
    assert found[-1] < found[0]
