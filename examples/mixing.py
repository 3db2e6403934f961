"""Trains a small network on two directories of class folders, of which the second is mixed in more
and more: mixing.py DATA MORE. Both have the same classes."""

import sys

import hdmlp.torch as ht
import torch
from torchvision import transforms

EPOCHS, BATCH_SIZE, EPOCH_SIZE = 3, 32, 320

if len(sys.argv) != 3:
    sys.exit(f"usage: {sys.argv[0]} DATA MORE, directories with the same subdirectories, classes")

transform = transforms.Compose(
    [transforms.RandomResizedCrop(96, scale=(0.5, 1.0)), transforms.ToTensor()]
)
datasets = {
    "data": ht.ImageFolder(sys.argv[1], transform),
    "more": ht.ImageFolder(sys.argv[2], transform),
}
# One row per epoch, and the last for all later ones: nothing of "more", a tenth, a half.
mix = ht.Mix(datasets, weights=[[1, 0], [0.9, 0.1], [0.5, 0.5]], epoch_size=EPOCH_SIZE)
# With several ranks, started by a launcher: shard=True shares each epoch among them.
loader = ht.DataLoader(mix, BATCH_SIZE, shuffle=True, shard=True, seed=42, epochs=EPOCHS)

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, len(mix.classes)),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    total, taken = 0.0, {name: 0 for name in datasets}
    for step, (images, labels) in enumerate(loader):
        for number in mix.source_of(torch.tensor(loader.explain(epoch, step).ids))[0].tolist():
            taken[list(datasets)[number]] += 1
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.3f}, of this rank {taken}", flush=True)
loader.close()
