"""Training on a GPU with torch's loader and with HDMLP, in turn: python gpu.py FOLDER.

ResNet-50 in bfloat16 over a folder of images, one directory per class, with torchvision's usual
transforms; both loaders with pin_memory, and torch's with workers that stay. Prints the images per
second of every epoch, and what next() and a step take in those after the first.
"""

import argparse
import gc
import statistics
import time
from typing import Any

import hdmlp.torch as ht
import torch
import torch.utils.data
import torchvision

T = torchvision.transforms


def loader(which: str, root: str, batch: int, workers: int) -> Any:
    """A loader of the folder's samples in random order."""
    transform = T.Compose(
        [
            T.RandomResizedCrop(224),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
            T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    theirs = which == "torch"
    folder = torchvision.datasets.ImageFolder if theirs else ht.ImageFolder
    kind = torch.utils.data.DataLoader if theirs else ht.DataLoader
    return kind(
        folder(root, transform),
        batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=True,
    )


def train(batches: Any, epochs: int, device: str) -> list[tuple[float, int, list[float]]]:
    """Trains a new model; returns the seconds, images, and seconds of next() of each epoch."""
    model = torchvision.models.resnet50(num_classes=1000).to(
        device, memory_format=torch.channels_last
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = []
    for _ in range(epochs):
        began = asked = time.perf_counter()
        images, waits = 0, []
        for x, y in batches:
            waits.append(time.perf_counter() - asked)
            images += len(y)
            x = x.to(device, memory_format=torch.channels_last, non_blocking=True)
            y = y.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            del x, y
            asked = time.perf_counter()
        if device == "cuda":
            torch.cuda.synchronize()
        done.append((time.perf_counter() - began, images, waits))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device")
    for _ in range(given.rounds):
        for which in ("torch", "hdmlp"):
            batches = loader(which, given.folder, given.batch, given.workers)
            epochs = train(batches, given.epochs, given.device)
            del batches
            gc.collect()
            rates = " ".join(f"{images / seconds:.0f}" for seconds, images, _ in epochs)
            waits = sorted(wait for _, _, waits in epochs[1:] for wait in waits[1:])
            text = f"{which:6} {rates} images/s"
            if waits:
                text += (
                    f"; next() takes {statistics.median(waits) * 1e3:.2f} ms, in 90 % of the calls "
                    f"{waits[len(waits) * 9 // 10] * 1e3:.2f} ms at most"
                )
            print(text, flush=True)


if __name__ == "__main__":
    main()
