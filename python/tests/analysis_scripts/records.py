"""Steps of 20 ms over records, by hdmlp's loader or torch's.

Arguments: a directory with pairs of files, shards and an LMDB environment, how many samples they
have, and "Files", "Records", "WebDataset", "LMDB", "Own" (a class of the script's, whose files are
declared), "FileDataset" or "torch" (shards by torch's loader).
"""

import glob
import os
import sys
import time

import hdmlp.torch as ht
import torch


class Own(torch.utils.data.Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        total = 0
        for path in self.pairs[i]:
            with open(path, "rb") as file:
                total += len(file.read())
        return torch.tensor(total)


class Made(ht.FileDataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def files_of(self, i):
        return self.pairs[i]

    def make(self, i, image, mask):
        return torch.tensor(len(image) + len(mask))


def dataset_of(kind, root):
    images = sorted(glob.glob(f"{root}/pairs/*.image"))
    pairs = [(path, path.replace(".image", ".mask")) for path in images]
    if kind == "Files":
        return ht.Files(pairs)
    if kind == "Records":
        sizes = [os.path.getsize(path) for path in images]
        return ht.Records(images, {"image": (list(range(len(images))), [0] * len(images), sizes)})
    if kind == "LMDB":
        return ht.LMDB(f"{root}/lmdb")
    if kind in ("WebDataset", "torch"):
        return ht.WebDataset(f"{root}/shards/*.tar", fields=("image", "mask"))
    return Own(pairs) if kind == "Own" else Made(pairs)


def main():
    root, kind = sys.argv[1:]
    dataset = dataset_of(kind, root)
    more = {"files": lambda i: dataset.pairs[i]} if kind == "Own" else {}
    if kind == "torch":
        loader = torch.utils.data.DataLoader(dataset, 8, shuffle=True, collate_fn=len)
    else:
        loader = ht.DataLoader(dataset, 8, shuffle=True, memory="100MB", **more)
    for _ in range(1000):
        for _ in loader:
            time.sleep(0.02)


if __name__ == "__main__":
    main()
