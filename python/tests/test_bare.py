"""The package alone: it needs neither numpy nor torch nor Pillow."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("real")

SCRIPT = """
import sys
for name in ("numpy", "torch", "PIL", "torchvision"):
    sys.modules[name] = None  # importing it fails, as if it were not installed
import hdmlp
import hdmlp.transforms as T
from hdmlp import data

with data.DataLoader(sys.argv[1], 5, seed=1, epochs=2) as loader:
    for samples, labels in loader:
        assert type(labels) is list and len(samples) == 5, labels
    state = loader.state_dict()
with hdmlp.Job(sys.argv[1], 5, 1) as job:
    assert job.get()[0] in ("ant", "bee", "cat")
try:
    data.DataLoader(sys.argv[1], 5, transforms=[T.RandomResizedCrop(8), T.ToTensor()])
except hdmlp.ConfigError as error:
    assert "numpy is missing" in str(error), error
else:
    raise AssertionError("no error")
"""


def test_the_package_needs_no_other(folder):
    subprocess.run([sys.executable, "-c", SCRIPT, folder], check=True, timeout=60)
