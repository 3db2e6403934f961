"""For scripts of tests: the items of a folder without anything of HDMLP's, for torch's loader, and
the length of a sample as its content.

PATH is the Python path with which such a script finds this module, and the package.
"""

import os

import torch
from torch.utils.data import Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.pathsep.join([os.path.dirname(HERE), HERE])


class Items(Dataset):
    """A folder's items as a dataset of which torch's loader sees nothing else."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def length(data):
    return torch.tensor(len(data))
