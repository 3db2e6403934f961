"""Trains a small network on a dataset of Hugging Face's: hf.py DATA.

DATA is a directory with one subdirectory per class, as load_dataset("imagefolder") takes it; any
other datasets.Dataset with a column of images would do.
"""

import sys
import tempfile

import datasets
import torch
from hdmlp.torch import DataLoader, HFDataset
from torchvision.transforms import v2

EPOCHS, BATCH_SIZE = 4, 32

if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} DATA, a directory that has one subdirectory per class")

with tempfile.TemporaryDirectory() as cache:
    data = datasets.load_dataset("imagefolder", data_dir=sys.argv[1], cache_dir=cache)
    parts = data["train"].train_test_split(0.2, seed=42)
    transform = [
        v2.RGB(),
        v2.RandomResizedCrop(96, scale=(0.5, 1.0)),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    # before: parts["train"].with_transform(...), and torch.utils.data.DataLoader
    dataset = HFDataset(parts["train"], transform={"image": transform})
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, seed=42, epochs=EPOCHS)

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(dataset.classes)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(loader.report())
