"""Finds a box in images with annotations in JSON: ``annotations.py DIRECTORY [--plain]``."""

import argparse
import json
import os

import torch
import torch.utils.data
from PIL import Image
from torch import nn
from torchvision.transforms import functional as F


class BoxDataset(torch.utils.data.Dataset):
    def __init__(self, root, plain):
        self.root, self.plain = root, plain
        self.names = sorted(os.listdir(os.path.join(root, "annotations")))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with open(os.path.join(self.root, "annotations", self.names[i])) as file:
            annotation = json.load(file)
        image = Image.open(os.path.join(self.root, "images", annotation["imagePath"]))
        boxes = torch.tensor([shape["points"] for shape in annotation["shapes"]]).flatten(1).float()
        image = F.to_tensor(image.convert("RGB"))
        if not self.plain and torch.rand(1) < 0.5:
            image = F.hflip(image)
            boxes[:, [0, 2]] = image.shape[2] - boxes[:, [2, 0]]
        return image, {"boxes": boxes, "image_id": i}


def collate(batch):
    return tuple(zip(*batch))


parser = argparse.ArgumentParser()
parser.add_argument("root")
parser.add_argument("--plain", action="store_true", help="no augmentation")
args = parser.parse_args()
torch.manual_seed(1)

data = BoxDataset(args.root, args.plain)
loader = torch.utils.data.DataLoader(data, 2, shuffle=True, num_workers=2, collate_fn=collate)

model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(0), nn.Linear(48, 4))
criterion = nn.SmoothL1Loss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(2):
    for images, targets in loader:
        optimizer.zero_grad()
        for image, target in zip(images, targets):
            for box in target["boxes"]:
                criterion(model(image), box).backward()
        optimizer.step()
