"""The code of README.md and of the guide to frameworks runs as it stands there.

HDMLP's daemon, and not a loop in Python, serves its samples.
"""

import os
import pathlib
import re
import subprocess

import preloaded
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCKS = {
    block.split("\n", 1)[0][2:].split(":")[0].split(",")[0]: block
    for page in ("README.md", "docs/guides/frameworks.md")
    for block in re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
}

# What they take for granted.
BEFORE = """
import sys

import torch
from torchvision import transforms

import hdmlp.torch as ht

train = val = sys.argv[1]
transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])


class Model(torch.nn.Module):
    seen = 0

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 2)

    def forward(self, images, labels=None):
        Model.seen += len(images)
        scores = self.line(images.mean((2, 3)))
        if labels is None:
            return scores
        return {"loss": torch.nn.functional.cross_entropy(scores, labels)}


def served(loader):
    return sum(epoch["samples"] for rank in loader.report()["ranks"] for epoch in rank["epochs"])


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
"""

# By the framework that a block's first line names: what is taken for granted of it, and how the
# result is used or checked.
AROUND = {
    "before": ("import torchvision", "assert sum(len(labels) for _, labels in loader) == 300"),
    "after": ("", "assert sum(len(labels) for _, labels in loader) == served(loader) == 300"),
    "validation": ("", "assert Model.seen == served(validation) == 300 and 0 <= correct <= 300"),
    "Lightning": (
        """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, _):
        return self.model(*batch)["loss"]
    def validation_step(self, batch, _):
        self.model(*batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

module = Module()
""",
        "assert served(trainer.train_dataloader) == 600 and served(validation) >= 600",
    ),
    "accelerate": (
        "import accelerate",
        """
for images, labels in loader:
    accelerator.backward(model(images, labels)["loss"])
    optimizer.step()
assert Model.seen == served(loader) == 300
""",
    ),
    "transformers": (
        """
import transformers

def collate(items):
    images, labels = zip(*items)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}

arguments = transformers.TrainingArguments(
    "out",
    num_train_epochs=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    remove_unused_columns=False,
)
""",
        "assert Model.seen == served(trainer.callback_handler.train_dataloader) == 600",
    ),
    "timm": (
        "import timm.data",
        """
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for images, labels in loader:
        model(images, labels)
assert Model.seen == served(loader) == 512
""",
    ),
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """300 JPEGs in two classes."""
    numpy, Image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("readme") / "data"
    for number in range(300):
        folder = root / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(
            numpy.random.default_rng(number).integers(0, 255, (48, 64, 3), numpy.uint8)
        ).save(folder / f"{number}.jpg")
    return str(root)


def test_every_block_is_run():
    assert BLOCKS.keys() == AROUND.keys()
    for block in BLOCKS.values():
        assert len(block.splitlines()) <= 6  # five, and the line that names it


@pytest.mark.parametrize("name", AROUND)
def test_the_code_of_readme(name, pictures, tmp_path, request):
    if name not in ("before", "after", "validation"):
        pytest.importorskip(name.lower())
    if name == "Lightning":
        request.getfixturevalue("with_lightning")
    if name in ("accelerate", "transformers"):
        request.getfixturevalue("with_transformers")
    before, after = AROUND[name]
    script = tmp_path / "script.py"
    script.write_text("\n".join([BEFORE, before, BLOCKS[name], after]))
    done = subprocess.run(
        [preloaded.PYTHON, str(script), pictures],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "python"),
            "HDMLP_SOCKET": f"readme-{os.getpid()}",
            "HDMLP_MEMORY": "64MiB",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
