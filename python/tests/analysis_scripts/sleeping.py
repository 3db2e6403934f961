"""Samples of 5 ms each from files of their own, and steps of 20 ms.

Arguments: a directory of files, and the number of workers.
"""

import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, root):
        self.paths = [os.path.join(root, name) for name in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            first = file.read()[0]
        time.sleep(0.005)
        return torch.full((3,), float(first))


def main():
    workers = int(sys.argv[2])
    loader = DataLoader(Files(sys.argv[1]), batch_size=8, shuffle=True, num_workers=workers)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for epoch in range(100):
        for batch in loader:
            loss = model(batch).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch.zero_()  # a script may change what it was given
            time.sleep(0.02)
        print("epoch", epoch, flush=True)


if __name__ == "__main__":
    main()
