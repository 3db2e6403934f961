"""Trains a small network on class folders, alone or by a launcher of ranks: train.py DATA."""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler
from torchvision import transforms
from hdmlp.torch import DataLoader, ImageFolder

EPOCHS, BATCH_SIZE = 4, 32

if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} DATA, a directory that has one subdirectory per class")


def launched(*names: str, default: int) -> int:
    """What the launcher says: the first of these variables that is set."""
    return int(next((os.environ[name] for name in names if name in os.environ), default))


rank = launched("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", default=0)
world_size = launched(
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", default=1
)
if world_size > 1:
    dist.init_process_group(
        "gloo", rank=rank, world_size=world_size
    )  # at MASTER_ADDR and MASTER_PORT

transform = transforms.Compose(
    [transforms.RandomResizedCrop(96, scale=(0.5, 1.0)), transforms.ToTensor()]
)
dataset = ImageFolder(sys.argv[1], transform)
sampler = DistributedSampler(dataset, world_size, rank, seed=42)
loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, num_workers=2, epochs=EPOCHS)

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, len(dataset.classes)),
)
if world_size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    total = 0.0
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if rank == 0:
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")

if world_size > 1:
    dist.destroy_process_group()  # else torch may abort the process as it exits
