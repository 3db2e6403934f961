"""Trains a small U-Net on pairs of images and masks.

The masks' pixels are numbers of classes, as gray levels or indices of a palette. One list of
torchvision's v2 transforms is for both: each crop and flip is drawn once for a pair. The daemon
reads, decodes and transforms.

    python segmentation.py data/images data/masks --classes 21

With ``--loader torch`` torch's own loader makes the same batches, in Python: what differs is the
line that makes the loader, and a dataset that opens the pairs.
"""

import argparse
import os

import hdmlp.torch as ht
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torchvision import tv_tensors
from torchvision.transforms import v2


def transforms(size):
    """For training: of an image a float tensor, of a mask int64, which the loss takes."""
    types = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    return v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.5, 1), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2, 0.2),
            v2.ToImage(),
            v2.ToDtype(types, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )


def pairs_of(images, masks):
    """The paths of images and masks that have the same name before the suffix."""
    named = {os.path.splitext(name)[0]: name for name in os.listdir(masks)}
    pairs = []
    for name in sorted(os.listdir(images)):
        stem = os.path.splitext(name)[0]
        if stem in named:
            pairs.append((os.path.join(images, name), os.path.join(masks, named[stem])))
    return pairs


class Pairs(torch.utils.data.Dataset):
    """The same pairs in Python, for torch's loader."""

    def __init__(self, pairs, transform):
        self.pairs, self.transform = pairs, transform

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        image, mask = self.pairs[index]
        pair = Image.open(image).convert("RGB"), tv_tensors.Mask(Image.open(mask))
        return self.transform(*pair)


def double(inside, outside):
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Ronneberger, Fischer and Brox 2015, with two levels."""

    def __init__(self, classes, width=16):
        super().__init__()
        self.first, self.second = double(3, width), double(width, 2 * width)
        self.bottom = double(2 * width, 4 * width)
        self.up = double(6 * width, 2 * width)
        self.top = double(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        up = self.up(torch.cat([F.interpolate(bottom, scale_factor=2), second], 1))
        return self.head(self.top(torch.cat([F.interpolate(up, scale_factor=2), first], 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images")
    parser.add_argument("masks")
    parser.add_argument("--classes", type=int, default=21)
    parser.add_argument("--size", type=int, default=64, help="a multiple of 4")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--loader", choices=["hdmlp", "torch"], default="hdmlp")
    arguments = parser.parse_args()
    pairs, transform = pairs_of(arguments.images, arguments.masks), transforms(arguments.size)
    torch.manual_seed(1)
    if arguments.loader == "torch":
        dataset = Pairs(pairs, transform)
        loader = torch.utils.data.DataLoader(dataset, arguments.batch_size, shuffle=True)
    else:
        kinds = {"0": "image", "1": "mask"}
        dataset = ht.Files(pairs, kinds=kinds, transform=transform)
        loader = ht.DataLoader(dataset, arguments.batch_size, shuffle=True, seed=42)
    model = UNet(arguments.classes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(arguments.epochs):
        total = 0.0
        for images, masks in loader:
            loss = F.cross_entropy(model(images), masks.squeeze(1), ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
        print(f"epoch {epoch}: {len(pairs)} pairs, loss {total / len(pairs):.3f}", flush=True)


if __name__ == "__main__":
    main()
