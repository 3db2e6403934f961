"""Classifies the images that a CSV file lists: ``table.py DIRECTORY [--plain]``."""

import argparse
import csv
import os

import torch
import torch.utils.data
from PIL import Image
from torch import nn
from torchvision import transforms


class CSVDataset(torch.utils.data.Dataset):
    def __init__(self, root, transform):
        self.root, self.transform = root, transform
        with open(os.path.join(root, "train.csv"), newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.labels = {name: i for i, name in enumerate(sorted({r["label"] for r in self.rows}))}

    def __len__(self):
        return len(self.rows)

    def path(self, i):
        return os.path.join(self.root, "images", self.rows[i]["id"] + ".jpg")

    def __getitem__(self, i):
        image = Image.open(self.path(i)).convert("RGB")
        return self.transform(image), self.labels[self.rows[i]["label"]]


parser = argparse.ArgumentParser()
parser.add_argument("root")
parser.add_argument("--plain", action="store_true", help="no augmentation")
args = parser.parse_args()
torch.manual_seed(1)

steps = [transforms.Resize((32, 32)), transforms.ToTensor()]
if not args.plain:
    steps.insert(1, transforms.RandomHorizontalFlip())
data = CSVDataset(args.root, transforms.Compose(steps))
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for images, labels in loader:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()
