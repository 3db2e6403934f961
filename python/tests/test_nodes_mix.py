"""Mixes over several nodes: real daemons in network namespaces of their own.

Epochs are those of mix_oracle.py, and what all nodes together read from the source is each sample
once, although samples come in several epochs, some more than once in one.
"""

import hashlib
import json
import os
import random

import mix_oracle
import pytest
from nodes import binary, run_script  # noqa: F401

pytestmark = pytest.mark.slow

#: Where scripts find this directory's modules.
PATH = f"{os.environ.get('PYTHONPATH', '')}:{os.path.dirname(os.path.abspath(__file__))}"
SIZES, EPOCHS, RANKS, BATCH = (40, 9, 21), 4, 4, 3
MIX = {
    "sizes": list(SIZES),
    "weights": [[5, 4, 1]],
    "entries": 36,
    "single": False,
}

SCRIPT = """
import glob, hashlib, json, os, sys

import hdmlp.torch as ht
from waiting import barrier

root, batches, resumed, directory = sys.argv[1:]
rank = int(os.environ["RANK"])
datasets = [ht.Files(sorted(glob.glob(f"{root}/{d}/*"))) for d in range(3)]
mix = ht.Mix(datasets, weights=[5, 4, 1], epoch_size=36, batches=batches)
state = json.loads(resumed)
epochs = []
with ht.DataLoader(
    mix, 3, shuffle=True, shard=True, seed=7, epochs=4, memory="1MB"
) as loader:
    if state:
        loader.load_state_dict(state)
    for epoch in range(state.get("epoch", 0), 4):
        epochs.append([])
        for step, batch in enumerate(loader):
            epochs[-1].append([hashlib.sha256(data).hexdigest()[:16] for data in batch])
            if rank == 0 and (epoch, step) == (1, 0):
                state = loader.state_dict()
        barrier(directory, f"epoch-{epoch}", rank, 4)
    tiers = {tier["tier"]: tier for tier in loader.report()["tiers"]}
    barrier(directory, "reported", rank, 4)
print(json.dumps({"rank": rank, "epochs": epochs, "tiers": tiers, "state": state}), flush=True)
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """The directory with three datasets, and the bytes of all samples by ID."""
    root, draw, contents = tmp_path_factory.mktemp("mix"), random.Random(5), []
    for d, size in enumerate(SIZES):
        (root / str(d)).mkdir()
        for i in range(size):
            contents.append(draw.randbytes(1000 + 31 * i))
            (root / str(d) / f"{i:03d}.bin").write_bytes(contents[-1])
    return str(root), contents


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("batches", ["mixed", "one dataset each"])
def test_nodes_read_each_sample_once_in_the_oracles_order(binary, tmp_path, samples, batches):
    root, contents = samples
    unit = 1 if batches == "mixed" else RANKS * BATCH
    want = list(mix_oracle.epochs(MIX, 7, True, EPOCHS, unit))
    said, done = run_script(binary, tmp_path, SCRIPT, root, batches, "{}", PYTHONPATH=PATH)
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    for rank, value in enumerate(said):
        for epoch, samples_of in enumerate(want):
            mine = [digest(contents[k]) for k in samples_of[rank::RANKS]]
            assert [x for step in value["epochs"][epoch] for x in step] == mine, (rank, epoch)
    once = {k for epoch in want for k in epoch}
    of_nodes = [said[0]["tiers"], said[2]["tiers"]]  # ranks 0 and 1 are on one node
    assert sum(tiers["source"]["samples"] for tiers in of_nodes) == len(once)
    assert sum(tiers["source"]["bytes"] for tiers in of_nodes) == sum(
        len(contents[k]) for k in once
    )
    assert all(tiers["peer"]["samples"] > 0 for tiers in of_nodes)
    (tmp_path / "again").mkdir()
    state = json.dumps(said[0]["state"])
    said, done = run_script(
        binary, tmp_path / "again", SCRIPT, root, batches, state, PYTHONPATH=PATH
    )
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    for rank, value in enumerate(said):
        rest = [x for step in value["epochs"][0] for x in step]
        assert rest == [digest(contents[k]) for k in want[1][rank::RANKS]][BATCH:]
