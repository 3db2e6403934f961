"""Images with masks and boxes over several nodes: real daemons in network namespaces of their own.

What each rank gets is what torchvision makes of its samples, in DistributedSampler's order, whether
the nodes' memory holds the dataset or not.
"""

import json
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision.tv_tensors")

import triples
from jointlists import LISTS, digests
from nodes import binary, run_script, slow_source  # noqa: F401
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.slow

#: Where scripts find this directory's modules.
PATH = f"{os.environ.get('PYTHONPATH', '')}:{os.path.dirname(os.path.abspath(__file__))}"
SAMPLES, EPOCHS, RANKS, SEED = 28, 2, 4, 7

SCRIPT = """
import json, os, sys

import hdmlp.torch as ht
from jointlists import KINDS, LISTS, digests
from waiting import barrier

paths, where, memory, directory = sys.argv[1:]
rank = int(os.environ["RANK"])
with open(paths) as file:
    dataset = ht.Files(json.load(file), kinds=KINDS, transform=LISTS[where])
epochs = []
with ht.DataLoader(
    dataset, 3, shuffle=True, shard=True, seed=7, epochs=2, memory=memory, num_workers=0
) as loader:
    assert (loader._content.making.recipe is None) == (where == "daemon")
    for epoch in range(2):
        epochs.append([])
        for batch in loader:
            for fields in zip(batch["jpg"], batch["png"], *batch["json"].values()):
                epochs[-1].append(digests(*fields))
        barrier(directory, f"epoch-{epoch}", rank, 4)
    tiers = {tier["tier"]: tier for tier in loader.report()["tiers"]}
    barrier(directory, "reported", rank, 4)
print(json.dumps({"rank": rank, "epochs": epochs, "tiers": tiers}), flush=True)
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return triples.write(tmp_path_factory.mktemp("triples"), SAMPLES, edges=(60, 160))


@pytest.mark.parametrize(
    "where, memory", [("daemon", "4MB"), ("daemon", "30KB"), ("python", "30KB")]
)
def test_nodes_deliver_what_torchvision_makes(binary, tmp_path, paths, where, memory):
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    whole = sum(os.path.getsize(path) for record in paths for path in record.values())
    said, done = run_script(
        binary,
        tmp_path,
        SCRIPT,
        str(tmp_path / "paths.json"),
        where,
        memory,
        PYTHONPATH=PATH,
        HDMLP_CONFIG=slow_source(tmp_path),
    )
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    for rank, value in enumerate(said):
        sampler = DistributedSampler(range(SAMPLES), RANKS, rank, shuffle=True, seed=SEED)
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            for place, index in enumerate(sampler):
                image, target = triples.of_v2(LISTS[where], paths[index], SEED, epoch, index)
                of_boxes = (target["boxes"], target["labels"])
                want = digests(image, target["png"], *of_boxes)
                assert value["epochs"][epoch][place] == want, (rank, epoch, index)
    of_nodes = [said[0]["tiers"], said[2]["tiers"]]  # ranks 0 and 1 are on one node
    read = sum(tiers["source"]["samples"] for tiers in of_nodes)
    if memory == "4MB":
        assert read == SAMPLES
        assert all(tiers["peer"]["samples"] > 0 for tiers in of_nodes)
    else:
        assert whole > 2 * 30_000  # more than the memory of both nodes
        assert read > SAMPLES
