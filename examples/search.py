"""Searches for a learning rate by HyperBand: search.py DATA.

The trials of a round train at the same time, on batches that are prepared once for all of them
(share=). The best third goes on from where it is, for three times as many epochs.
"""

import multiprocessing
import random
import sys
import tempfile

import hdmlp.torch as ht
import torch
from torchvision import transforms

MOST, ETA = 9, 3  # epochs of the best trial; one trial in so many survives a round


def train(data, path, rate, batch, first, last, together):
    """Trains a trial from one epoch until before another, and keeps its state in a file."""
    crop = transforms.RandomResizedCrop(96, scale=(0.5, 1.0))
    dataset = ht.ImageFolder(data, transforms.Compose([crop, transforms.ToTensor()]))
    order = {"shuffle": True, "seed": 42, "epochs": MOST, "drop_last": True}
    loader = ht.DataLoader(dataset, batch, **order, share="search", share_members=together)
    torch.set_num_threads(1)
    linear = torch.nn.Linear(48, len(dataset.classes))
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), linear)
    if first > 0:
        net.load_state_dict(torch.load(path)["net"])
    optimizer = torch.optim.SGD(net.parameters(), rate)
    loader.set_epoch(first)
    for _ in range(first, last):
        losses = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.save({"net": net.state_dict(), "loss": sum(losses) / len(losses)}, path)


def search(data, folder):
    """Runs brackets of 9 trials for 1 epoch at first, 5 for 3, and 3 for 9; yields the best."""
    processes = multiprocessing.get_context("spawn")
    for epochs, number in ((1, 9), (3, 5), (9, 3)):
        trials = [
            (f"{folder}/{epochs}-{i}", 10 ** random.uniform(-4, 0), random.choice([8, 16]))
            for i in range(number)
        ]
        first = 0
        while epochs <= MOST:
            runs = [(data, *trial, first, epochs, len(trials)) for trial in trials]
            running = [processes.Process(target=train, args=run) for run in runs]
            for process in running:
                process.start()
            for process in running:
                process.join()
            trials.sort(key=lambda trial: torch.load(trial[0])["loss"])
            first, epochs, best = epochs, epochs * ETA, trials[0]
            trials = trials[: max(len(trials) // ETA, 1)]
        yield torch.load(best[0])["loss"], best


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        loss, (_, rate, batch) = min(search(sys.argv[1], scratch))
    print(f"loss {loss:.3f} with a learning rate of {rate:.2g} and batches of {batch}")
