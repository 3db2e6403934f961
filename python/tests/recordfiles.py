"""Files for tests of records, and the obvious torch dataset over them."""

import io
import json
import tarfile

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms

TENSOR = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])


def image(number, size=(10, 9)):
    """A lossless image of a single colour."""
    data = io.BytesIO()
    Image.new("RGB", size, (number * 9 % 256, 255 - number, 7)).save(data, "PNG")
    return data.getvalue()


def write(directory, count=23):
    """Images, other images as masks, and annotations. Returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(count):
        of = (
            directory / f"{i:03d}.png",
            directory / f"{i:03d}_mask.png",
            directory / f"{i:03d}.json",
        )
        of[0].write_bytes(image(i, (10 + i, 9)))
        of[1].write_bytes(image(100 + i, (10 + i, 9)))
        of[2].write_text(json.dumps({"n": i, "half": i / 2}))
        paths.append(tuple(map(str, of)))
    return paths


def shards(directory, counts=(7, 8, 8), suffix="png"):
    """Tar shards with an image, a class and annotations per sample. Returns (key, fields) each."""
    directory.mkdir(parents=True, exist_ok=True)
    samples = []
    for number, count in enumerate(counts):
        with tarfile.open(directory / f"{number:03d}.tar", "w") as archive:
            for _ in range(count):
                i = len(samples)
                fields = {
                    suffix: image(i, (10 + i, 9)),
                    "cls": str(i % 4).encode(),
                    "seg.json": json.dumps({"n": i}).encode(),
                }
                for name, data in fields.items():
                    member = tarfile.TarInfo(f"part/{i:05d}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                samples.append((f"part/{i:05d}", fields))
    return samples


class Pairs(Dataset):
    """What a torch user would write for images, masks and labels."""

    def __init__(self, paths, labels):
        self.paths, self.labels = paths, labels

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        first, second = (TENSOR(Image.open(p).convert("RGB")) for p in self.paths[i][:2])
        return first, second, self.labels[i]


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def equal(a, b):
    """Batches are equal, with memoryviews by their bytes."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, (bytes, memoryview)):
        return bytes(a) == bytes(b)
    return a == b
