"""Records over several nodes: real daemons in network namespaces of their own.

What lies in several ranges of files is delivered in DistributedSampler's order, and read from the
source once by all nodes together.
"""

import hashlib
import json
import os
import random

import pytest
import shards
from nodes import binary, run_script  # noqa: F401
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.slow

#: Where scripts find this directory's modules.
PATH = f"{os.environ.get('PYTHONPATH', '')}:{os.path.dirname(os.path.abspath(__file__))}"
SAMPLES, EPOCHS, RANKS = 46, 2, 4  # ranks get 12 each, two samples twice

SCRIPT = """
import glob, hashlib, json, os, sys

import hdmlp.torch as ht
from waiting import barrier

root, kind, directory = sys.argv[1:]
rank = int(os.environ["RANK"])
if kind == "WebDataset":
    dataset = ht.WebDataset(root + "/*.tar", fields=("image", "mask"))
elif kind == "Records":
    images, masks = (os.path.join(root, name) for name in ("images.bin", "masks.bin"))
    with open(os.path.join(root, "ranges.json")) as file:
        ranges = {name: tuple(of) for name, of in json.load(file).items()}
    dataset = ht.Records([images, masks], ranges)
else:
    paths = sorted(glob.glob(root + "/*.image"))
    dataset = ht.Files([(path, path.replace(".image", ".mask")) for path in paths])
epochs = []
with ht.DataLoader(
    dataset, 3, shuffle=True, shard=True, seed=7, epochs=2, memory="1MB", collate_fn=list
) as loader:
    for epoch in range(2):
        epochs.append([])
        for batch in loader:
            for item in batch:
                image, mask = item.values() if kind == "Records" else item
                digests = [hashlib.sha256(data).hexdigest()[:16] for data in (image, mask)]
                epochs[-1].append(digests)
        barrier(directory, f"epoch-{epoch}", rank, 4)
    tiers = {tier["tier"]: tier for tier in loader.report()["tiers"]}
    barrier(directory, "reported", rank, 4)
print(json.dumps({"rank": rank, "epochs": epochs, "tiers": tiers}), flush=True)
"""


@pytest.fixture(scope="module")
def samples():
    """The fields of each sample."""
    draw = random.Random(5)
    return [(draw.randbytes(1000 + 31 * n), draw.randbytes(200 + n)) for n in range(SAMPLES)]


def write(kind, root, samples):
    """Lays the samples out as this kind of dataset has them."""
    root.mkdir()
    if kind == "WebDataset":
        for shard in range(3):
            mine = range(SAMPLES * shard // 3, SAMPLES * (shard + 1) // 3)
            of = [(f"{n:04d}", dict(zip(("image", "mask"), samples[n]))) for n in mine]
            shards.write(root / f"{shard}.tar", of)
    elif kind == "Files":
        for n, fields in enumerate(samples):
            for name, data in zip(("image", "mask"), fields):
                (root / f"{n:04d}.{name}").write_bytes(data)
    else:
        ranges = {}
        for field, name in enumerate(("image", "mask")):
            data = [sample[field] for sample in samples]
            starts = [sum(map(len, data[:n])) for n in range(SAMPLES)]
            (root / f"{name}s.bin").write_bytes(b"".join(data))
            ranges[name] = ([field] * SAMPLES, starts, list(map(len, data)))
        (root / "ranges.json").write_text(json.dumps(ranges))


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("kind", ["Files", "Records", "WebDataset"])
def test_nodes_read_each_range_once_in_the_samplers_order(binary, tmp_path, samples, kind):
    write(kind, tmp_path / "data", samples)
    said, done = run_script(binary, tmp_path, SCRIPT, str(tmp_path / "data"), kind, PYTHONPATH=PATH)
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    for rank, value in enumerate(said):
        sampler = DistributedSampler(range(SAMPLES), RANKS, rank, shuffle=True, seed=7)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            want = [[digest(data) for data in samples[i]] for i in sampler]
            assert value["epochs"][epoch] == want, (rank, epoch)
    of_nodes = [said[0]["tiers"], said[2]["tiers"]]  # ranks 0 and 1 are on one node
    assert sum(tiers["source"]["samples"] for tiers in of_nodes) == SAMPLES
    assert all(tiers["peer"]["samples"] > 0 for tiers in of_nodes)
