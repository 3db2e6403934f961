"""A folder of images for tests of transforms in the daemon, and a list of transforms with the same
list of torchvision's.

The fixture is for modules to import.
"""

import pytest
import torch
from hdmlp import transforms as T
from reference import jpegs
from torchvision import transforms as V

TENSOR = [T.Resize((20, 16)), T.ToTensor()]
REFERENCE = V.Compose([V.Resize((20, 16)), V.ToTensor()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 7, "bee": 6, "cat": 8})


def darker(x):
    return x * 0.5


def same(got, want):
    """Reports whether both have equal batches, of the same types."""
    got, want = list(got), list(want)
    return len(got) == len(want) and all(
        torch.equal(x, u) and x.dtype == u.dtype and torch.equal(y, v)
        for (x, y), (u, v) in zip(got, want)
    )
