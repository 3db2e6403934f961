"""Trains on images that it makes, and compares every batch with what PIL and torch make of them.

`make train-aarch64` runs it under emulation; it runs natively as well.
"""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile

import hdmlp
import numpy
import torch
from hdmlp.torch import DataLoader, ImageFolder
from PIL import Image
from torchvision import transforms

CLASSES, PER_CLASS, EPOCHS = 3, 24, 3


def make(root):
    """A folder of JPEG, PNG and WebP images."""
    rng = numpy.random.default_rng(1)
    for number in range(CLASSES * PER_CLASS):
        directory = os.path.join(root, f"class{number % CLASSES}")
        os.makedirs(directory, exist_ok=True)
        coarse = rng.integers(0, 256, (6, 8, 3), dtype=numpy.uint8)
        image = Image.fromarray(coarse).resize((160, 120), Image.BICUBIC)
        suffix = ("jpg", "png", "webp")[number // CLASSES % 3]
        image.save(os.path.join(directory, f"{number:03}.{suffix}"))


def main():
    """Compares three epochs of batches, then trains with the example."""
    print(f"hdmlp {hdmlp.__version__}, torch {torch.__version__}, {platform.machine()}")
    transform = transforms.Compose(
        [transforms.Resize(64), transforms.CenterCrop(56), transforms.ToTensor()]
    )
    with tempfile.TemporaryDirectory() as root:
        make(root)
        dataset = ImageFolder(root, transform)
        expected = [
            hashlib.sha256(transform(Image.open(path).convert("RGB")).numpy().tobytes()).digest()
            for path, _ in dataset.samples
        ]
        loader = DataLoader(
            dataset, batch_size=8, shuffle=True, seed=42, epochs=EPOCHS, memory="64MiB", verify=True
        )
        for _ in range(EPOCHS):
            delivered = []
            for images, labels in loader:
                assert images.shape == (len(labels), 3, 56, 56)
                delivered += [hashlib.sha256(x.numpy().tobytes()).digest() for x in images]
            assert sorted(delivered) == sorted(expected), (
                "a batch differs from what PIL and torch make"
            )
        print(
            f"{EPOCHS} epochs of {len(expected)} samples, bit for bit as PIL and torch make them",
            flush=True,
        )
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/train.py")
        subprocess.run([sys.executable, script, root], check=True)


if __name__ == "__main__":
    main()
