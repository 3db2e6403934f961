"""The end of a script: what Python prints of objects that are still there."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import hdmlp

#: A script that ends in the middle of an epoch, as one does that only looks at the first batch.
SCRIPT = """
import sys
from torchvision import transforms
import hdmlp.torch as ht

resize = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
loader = ht.DataLoader(ht.ImageFolder(sys.argv[1], resize), 2, num_workers=int(sys.argv[2]))
iterator = iter(loader)
next(iterator)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_that_ends_in_an_epoch_says_nothing(real, tmp_path, workers):
    pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    root = tmp_path / "images"
    (root / "a").mkdir(parents=True)
    for n in range(12):
        image.new("RGB", (9, 9), (n, n, n)).save(root / "a" / f"{n}.png")
    package = os.path.dirname(os.path.dirname(hdmlp.__file__))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, root, str(workers)],
        env=dict(os.environ, PYTHONPATH=package),
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    assert done.returncode == 0
