"""What the scripts have in common."""

import json
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import hdmlp.torch as ht

ROOT, WHICH, OUT, RANKS, *REST = sys.argv[1:]


def length(data):
    """A sample's length."""
    return torch.tensor([float(len(data))])


class Items(Dataset):
    """The folder as torch's loader has it."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


FOLDER = ht.ImageFolder(ROOT, loader=length)
DATA = Items(FOLDER) if WHICH == "torch" else FOLDER
LOADER = DataLoader if WHICH == "torch" else ht.DataLoader


def write(rank, value):
    """Says what this rank was given."""
    with open(os.path.join(OUT, str(rank)), "w") as file:
        json.dump(value, file)
