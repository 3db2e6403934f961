"""Other nodes get files from a node that keeps JPEGs as coefficients: real daemons in network
namespaces of their own."""

import hashlib
import os
import pathlib

import numpy
import pytest
from nodes import binary, run_script  # noqa: F401
from PIL import Image
from reference import picture

pytestmark = pytest.mark.slow

#: Where scripts find this directory's modules.
PATH = f"{os.environ.get('PYTHONPATH', '')}:{os.path.dirname(os.path.abspath(__file__))}"
BASELINE, PROGRESSIVE = 100, 20
EPOCHS, RANKS = 3, 4

SCRIPT = """
import hashlib, json, os, sys

import hdmlp.data as data
import hdmlp.torch as ht
from hdmlp import transforms as T
from waiting import barrier, until

root, count, directory = sys.argv[1:]
rank = int(os.environ["RANK"])


def forms(loader):
    return loader.report()["classes"][0].get("forms", {})


if rank == 0:  # a job of this node alone, as without a launcher
    launched = dict(os.environ)
    for name in launched:
        if name.startswith(("MASTER_", "TORCHELASTIC_")) or name.endswith(("RANK", "WORLD_SIZE")):
            del os.environ[name]
    decodes = T.Compose([T.RandomResizedCrop(64), T.ToTensor()])
    with ht.DataLoader(
        ht.ImageFolder(root, decodes), 16, shuffle=False, memory="64MiB", epochs=9
    ) as loader:
        for _ in loader:
            pass
        until(lambda: forms(loader).get("samples", 0) == int(count), "all samples are converted")
    os.environ.update(launched)
barrier(directory, "converted", rank, 4)
epochs = []
with data.DataLoader(root, 16, memory="64MiB", shuffle=True, seed=3, epochs=3) as raw:
    for epoch in range(3):
        epochs.append([])
        for batch in raw:
            epochs[-1] += [hashlib.sha256(x).hexdigest()[:16] for x in batch.samples]
        barrier(directory, f"epoch-{epoch}", rank, 4)
    report = raw.report()
    barrier(directory, "reported", rank, 4)
tiers = {tier["tier"]: tier["samples"] for tier in report["tiers"]}
again = report["classes"][0].get("forms", {}).get("read_again", 0)
print(json.dumps({"rank": rank, "epochs": epochs, "again": again, "tiers": tiers}), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """JPEGs, baseline and progressive, with noise: forms of smooth ones are large."""
    root, rng = tmp_path_factory.mktemp("images"), numpy.random.default_rng(7)
    for i in range(BASELINE + PROGRESSIVE):
        image = picture(rng, *rng.integers(100, 300, 2).tolist())
        levels = numpy.asarray(image) + rng.normal(0, 12, (image.height, image.width, 1))
        path = root / "ab"[i % 2] / f"{i:04d}.jpg"
        path.parent.mkdir(exist_ok=True)
        image = Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))
        image.save(path, quality=85, progressive=i >= BASELINE)
    return root


def test_nodes_get_files_of_coefficients(binary, folder, tmp_path):
    said, done = run_script(
        binary,
        tmp_path,
        SCRIPT,
        str(folder),
        str(BASELINE + PROGRESSIVE),
        PYTHONPATH=PATH,
        HDMLP_LINGER="60s",
    )
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    want = sorted(
        hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in pathlib.Path(folder).rglob("*.jpg")
    )
    for epoch in range(EPOCHS):
        assert sorted(x for value in said for x in value["epochs"][epoch]) == want
    # Each progressive one is read again when it is first needed, on the node that kept it, and once
    # more for each epoch for which it is needed before the others have made room for it.
    assert said[0]["again"] == PROGRESSIVE
    assert PROGRESSIVE <= said[0]["tiers"]["source"] <= (EPOCHS + 1) * PROGRESSIVE
    assert said[2]["tiers"]["source"] == 0
    assert said[2]["tiers"]["peer"] > 0
