"""Trains a small detector on images with boxes.

Beside each image lies its JSON: ``{"boxes": [[x1, y1, x2, y2], ...], "labels": [...]}``, in pixels.
One list of torchvision's v2 transforms is for both, and the daemon carries it out: boxes are
flipped, cropped and resized with their image, and those of which nothing is left go.

    python detection.py data --classes 3

With ``--heavy`` the list is that of torchvision's SSD preset, of which the daemon decodes the
images and Python does the rest.
"""

import argparse
import os

import hdmlp.torch as ht
import torch
from torch import nn
from torch.nn import functional as F
from torchvision import tv_tensors
from torchvision.transforms import v2


def transforms(size, heavy):
    """For training."""
    first = [v2.RandomPhotometricDistort(), v2.RandomHorizontalFlip()]
    if heavy:
        fill = {tv_tensors.Image: (123.0, 117.0, 104.0), "others": 0}
        first = [
            v2.RandomPhotometricDistort(),
            v2.RandomZoomOut(fill=fill),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
        ]
    return v2.Compose(
        [
            *first,
            v2.Resize((size, size), antialias=True),
            v2.SanitizeBoundingBoxes(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


def files_of(root):
    """Pairs of an image and the JSON of the same name."""
    names = sorted(name for name in os.listdir(root) if name.endswith((".jpg", ".png")))
    paths = [os.path.join(root, name) for name in names]
    return [{"image": path, "boxes": os.path.splitext(path)[0] + ".json"} for path in paths]


class Detector(nn.Module):
    """For each cell of a grid of 8 x 8, whether an object's middle is in it, its class, and its
    box (Redmon et al. 2016)."""

    GRID = 8

    def __init__(self, classes, width=16):
        super().__init__()
        layers, inside = [], 3
        for _ in range(3):
            layers += [nn.Conv2d(inside, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
            inside, width = width, 2 * width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(self.GRID))
        self.head = nn.Conv2d(inside, 5 + classes, 1)

    def forward(self, images):
        return self.head(self.body(images))

    def loss(self, images, boxes, labels):
        """The loss of a batch; boxes and labels are lists with a tensor for each image."""
        found = self(images)
        size, grid = images.shape[-1], self.GRID
        there = torch.zeros_like(found[:, 0])
        loss = 0.0
        for i, (of, classes) in enumerate(zip(boxes, labels)):
            if len(of) == 0:
                continue
            of = of.as_subclass(torch.Tensor)
            middle = (of[:, :2] + of[:, 2:]) / 2
            x, y = (middle * grid / size).long().clamp(max=grid - 1).unbind(1)
            there[i, y, x] = 1
            cells = found[i, :, y, x].T
            loss = loss + F.l1_loss(cells[:, 1:5], of / size) / len(boxes)
            loss = loss + F.cross_entropy(cells[:, 5:], classes) / len(boxes)
        return loss + F.binary_cross_entropy_with_logits(found[:, 0], there)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--heavy", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    dataset = ht.Files(
        files_of(arguments.root),
        kinds={"image": "image", "boxes": "boxes"},
        transform=transforms(arguments.size, arguments.heavy),
    )
    loader = ht.DataLoader(dataset, arguments.batch_size, shuffle=True, seed=42)
    model = Detector(arguments.classes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(arguments.epochs):
        total, objects = 0.0, 0
        for batch in loader:
            targets = batch["boxes"]
            loss = model.loss(batch["image"], targets["boxes"], targets["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            objects += sum(map(len, targets["labels"]))
        print(f"epoch {epoch}: {len(dataset)} images, {objects} objects, loss {total:.3f}")


if __name__ == "__main__":
    main()
