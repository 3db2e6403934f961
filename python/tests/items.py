"""What scripts of tests have of a folder where torch's loader is to know nothing of it: its items,
and as samples their lengths.

PATH is the Python path with which such a script finds this module, and the package.
"""

import os

import torch
from torch.utils.data import Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.pathsep.join([os.path.dirname(HERE), HERE])


class Items(Dataset):
    """What torch's loader has of a folder: its items alone."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def length(data):
    return torch.tensor(len(data))
