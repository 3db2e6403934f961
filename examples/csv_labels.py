"""Trains a small network on images that a table lists: csv_labels.py TABLE.

TABLE is a CSV file with the columns path, relative to it, label and split ("train" or "val").
"""

import sys

import hdmlp.torch as ht
import torch
from torchvision import transforms

EPOCHS, BATCH_SIZE = 3, 32

if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} TABLE, a CSV file with the columns path, label and split")

small = [transforms.Resize(104), transforms.CenterCrop(96), transforms.ToTensor()]
random = [
    transforms.RandomResizedCrop(96, scale=(0.5, 1.0)),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
]


def part(split, steps):
    """The rows of the table with this split."""
    return ht.Files.from_csv(
        sys.argv[1],
        columns="path",
        label="label",
        where=lambda row: row["split"] == split,
        transform=transforms.Compose(steps),
    )


train, val = part("train", random), part("val", small)
if train.class_to_idx != val.class_to_idx:
    sys.exit(f"{sys.argv[1]}: the splits have different labels, {train.classes} and {val.classes}")

# With several ranks, started by a launcher: shard=True shares each epoch among them.
loader = ht.DataLoader(train, BATCH_SIZE, shuffle=True, shard=True, seed=42, epochs=EPOCHS)
validation = ht.DataLoader(val, BATCH_SIZE, shard=True)

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, len(train.classes)),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    total = 0.0
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float().mean().item() for x, y in validation]
    accuracy = sum(right) / len(right)
    print(f"epoch {epoch}: loss {total / len(loader):.3f}, accuracy {accuracy:.3f}", flush=True)
print(loader.report())
loader.close()
validation.close()
