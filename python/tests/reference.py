"""The reference for HDMLP: image folders, and what torchvision and torch's own loader make of
them."""

import numpy
import torch
import torchvision
from PIL import Image
from torch.utils.data import DistributedSampler


def read(path):
    """A file's bytes."""
    with open(path, "rb") as file:
        return file.read()


def decoded(path):
    """An image as torchvision's loader decodes it."""
    return Image.open(path).convert("RGB")


def picture(rng, width, height):
    """A smooth random image with an edge in it."""
    coarse = rng.integers(0, 255, (4, 5, 3), numpy.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
    image.paste(
        tuple(rng.integers(0, 255, 3).tolist()), (width // 3, height // 3, width // 2, height // 2)
    )
    return image


def jpegs(root, counts, seed=0, edges=(30, 70)):
    """Fills a folder with classes of JPEGs of various sizes, qualities and subsamplings, and
    returns its path."""
    rng = numpy.random.default_rng(seed)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            width, height = rng.integers(*edges, 2).tolist()
            picture(rng, width, height).save(
                root / name / f"{i:04d}.jpg", quality=int(rng.integers(40, 96)), subsampling=i % 3
            )
    return str(root)


def batches(
    root, batch, epochs, seed, drop_last, rank, world, transform=None, shuffle=True, **more
):
    """What torch's own loader gives a rank: per epoch, a list of batches; without a transform, of
    the files' bytes."""
    dataset = torchvision.datasets.ImageFolder(
        root, transform, loader=read if transform is None else decoded, **more
    )
    sampler = DistributedSampler(
        dataset, world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    collate = None if transform else (lambda b: ([x for x, _ in b], [y for _, y in b]))
    loader = torch.utils.data.DataLoader(
        dataset, batch, sampler=sampler, drop_last=drop_last, collate_fn=collate
    )
    out = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        out.append(list(loader))
        assert len(out[-1]) == len(loader)
    return out
