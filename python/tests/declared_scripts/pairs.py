"""Segments images, of which each has a mask beside it: ``pairs.py DIRECTORY [--plain]``."""

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class BasicDataset(Dataset):
    def __init__(self, images, masks, plain):
        self.images, self.masks, self.plain = Path(images), Path(masks), plain
        self.ids = sorted(path.stem for path in self.images.iterdir())

    def __len__(self):
        return len(self.ids)

    def files(self, i):
        return self.images / f"{self.ids[i]}.jpg", self.masks / f"{self.ids[i]}_mask.png"

    @staticmethod
    def load(path):
        return np.asarray(Image.open(path).resize((32, 32), Image.NEAREST))

    def __getitem__(self, i):
        image, mask = map(self.load, self.files(i))
        if not self.plain and random.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        image = torch.as_tensor(image.transpose(2, 0, 1).copy()).float() / 255
        return {"image": image, "mask": torch.as_tensor(mask.copy()).long()}


parser = argparse.ArgumentParser()
parser.add_argument("root", type=Path)
parser.add_argument("--plain", action="store_true", help="no augmentation")
args = parser.parse_args()
torch.manual_seed(1)

data = BasicDataset(args.root / "images", args.root / "masks", args.plain)
train, rest = random_split(data, [len(data) - 5, 5], torch.Generator().manual_seed(0))
loader = DataLoader(train, batch_size=3, shuffle=True, drop_last=True)

model = nn.Conv2d(3, 3, 5, padding=2)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for batch in loader:
        optimizer.zero_grad()
        criterion(model(batch["image"]), batch["mask"]).backward()
        optimizer.step()
