"""Samples of 5 ms each from files of their own, and steps of 20 ms.

Arguments: a directory of files, the number of workers, and perhaps "pairs" (each sample also has a
mask, a file beside it) or "replacement" (an epoch has some samples several times).
"""

import os
import sys
import time

import torch
from durations import Timed
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Files(Dataset):
    def __init__(self, root):
        self.paths = [os.path.join(root, name) for name in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            first = file.read()[0]
        with Timed("item"):
            time.sleep(0.005)
        return torch.full((3,), float(first))


class Pairs(Files):
    def __init__(self, root):
        super().__init__(root)
        self.paths = [path for path in self.paths if path.endswith(".bin")]

    def __getitem__(self, index):
        with open(self.paths[index].replace(".bin", ".mask"), "rb") as file:
            file.read()
        return super().__getitem__(index)


def main():
    root, workers, kind = sys.argv[1], int(sys.argv[2]), "".join(sys.argv[3:])
    dataset = Pairs(root) if kind == "pairs" else Files(root)
    sampler = RandomSampler(dataset, replacement=kind == "replacement", num_samples=300)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=workers)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for epoch in range(100):
        print("epoch", epoch, flush=True)
        for batch in loader:
            with Timed("step"):
                loss = model(batch).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                batch.zero_()  # a script may change what it was given
                time.sleep(0.02)


if __name__ == "__main__":
    main()
