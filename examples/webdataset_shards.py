"""Trains a small network on tar shards as webdataset writes them: webdataset_shards.py SHARDS.

SHARDS are paths or URLs with braces, as "/data/train-{000..146}.tar" or "s3://bucket/{0..9}.tar";
each sample has an image (jpg or png) and its class (cls).
"""

import sys

import hdmlp.torch as ht
import torch
from torchvision import transforms

EPOCHS, BATCH_SIZE = 3, 32

if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} SHARDS, such as '/data/train-{{000..146}}.tar'")

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(96, scale=(0.5, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
)
# before: wds.WebDataset(...).shuffle(1000).decode("pil").to_tuple(...).map_tuple(augment)
dataset = (
    ht.WebDataset(sys.argv[1]).decode("pil").to_tuple("jpg;png", "cls").map_tuple(augment, None)
)
# A full shuffle over all shards, and any number of ranks: shard=True shares each epoch among them.
loader = ht.DataLoader(dataset, BATCH_SIZE, shuffle=True, shard=True, seed=42, epochs=EPOCHS)

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, max(dataset.targets) + 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    total = 0.0
    for images, classes in loader:
        loss = torch.nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.3f} of {len(dataset)} samples", flush=True)
print(loader.report())
loader.close()
