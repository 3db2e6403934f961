"""Nodes that keep JPEGs as coefficients send these to each other, and files to jobs that need
files: real daemons in network namespaces of their own."""

import hashlib
import json
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
COUNT = BASELINE + PROGRESSIVE

#: What a job over both nodes delivers, and what was sent for that: each sample is kept by one node.
DECODES = """
import hashlib, json, os, signal, sys

import hdmlp.data as data
import hdmlp.torch as ht
from hdmlp import errors
from hdmlp import transforms as T
from hdmlp._daemon import connecting
from waiting import barrier, until

root, count, event, options, directory = sys.argv[1:]
rank, ranks = int(os.environ["RANK"]), 4
options = json.loads(options)
options |= options.pop("of_node", {}).get(str(rank // 2), {})
options = {"memory": "64MiB"} | options
listed = options.pop("listed", False)
transform = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()])
dataset = ht.ImageFolder(root, transform)
if listed:  # the same samples, as records
    paths, labels = map(list, zip(*dataset.samples))
    dataset = ht.Files(paths, labels, transform=transform)
epochs, reports, files = [], [], []


def formed(loader):
    nodes = loader.report(cluster=True)["nodes"]
    return sum(c.get("forms", {}).get("samples", 0) for node in nodes for c in node["classes"])


def kept(loader):
    report = loader.report()
    tiers = {tier["tier"]: tier["samples"] for tier in report["tiers"]}
    forms = [c.get("forms", {}) for c in report["classes"]]
    reports.append((forms or [{}])[0] | {"tiers": tiers})


def joined():
    \"\"\"A job that needs the files reads them on both nodes, while the other one is open.\"\"\"
    with data.DataLoader(root, 8, memory="64MiB", shuffle=False, epochs=2, name="raw",
                         policy="lbann_dynamic") as raw:
        for epoch in range(2):
            for batch in raw:
                files.extend(hashlib.sha256(x).hexdigest()[:16] for x in batch.samples)
            barrier(directory, f"raw-{epoch}", rank, ranks)


try:
    with ht.DataLoader(
        dataset, 8, shuffle=True, shard=True, seed=3, epochs=8,
        policy="lbann_dynamic", prefetch_batches=1, **options
    ) as loader:
        for epoch in range(8):
            seen = hashlib.sha256()
            for x, y in loader:
                seen.update(x.numpy().tobytes())
                seen.update(y.numpy().tobytes())
            epochs.append(seen.hexdigest()[:16])
            if event == "kill" and epoch == 2:
                barrier(directory, "kill", rank, ranks)
                if rank == 2:
                    os.kill(connecting.connect().pid, signal.SIGKILL)
            if event == "kill" and epoch >= 2:
                barrier(directory, f"epoch-{epoch}", rank % 2, 2)
                continue
            barrier(directory, f"epoch-{epoch}", rank, ranks)
            if epoch == 0 and int(count) > 0:
                until(lambda: formed(loader) >= int(count), "all samples are converted")
                barrier(directory, "converted", rank, ranks)
            if epoch == 1:
                kept(loader)
                barrier(directory, "kept", rank, ranks)
                if event == "join":
                    joined()
        kept(loader)
        barrier(directory, "done", rank % 2, 2)
except errors.DaemonDiedError:
    pass
print(json.dumps({"rank": rank, "epochs": epochs, "reports": reports, "files": files}), flush=True)
"""

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
    want = digests(folder)
    for epoch in range(EPOCHS):
        assert sorted(x for value in said for x in value["epochs"][epoch]) == want
    # Each progressive one is read again when it is first needed, on the node that kept it, and once
    # more for each epoch for which it is needed before the others have made room for it.
    assert said[0]["again"] == PROGRESSIVE
    assert PROGRESSIVE <= said[0]["tiers"]["source"] <= (EPOCHS + 1) * PROGRESSIVE
    assert said[2]["tiers"]["source"] == 0
    assert said[2]["tiers"]["peer"] > 0


def decoded(binary, folder, tmp_path, count, event, **options):
    """Runs DECODES, with so many samples to be converted; returns what its ranks said."""
    said, done = run_script(
        binary,
        tmp_path,
        DECODES,
        str(folder),
        str(count),
        event,
        json.dumps(options),
        PYTHONPATH=PATH,
        HDMLP_LINGER="60s",
    )
    assert [value["rank"] for value in said] == list(range(RANKS)), done.stderr
    return said


@pytest.fixture(scope="module")
def want(binary, folder, tmp_path_factory):
    """What ranks get of files, by rank, a digest for each epoch."""
    said = decoded(binary, folder, tmp_path_factory.mktemp("files"), 0, "none", forms="off")
    assert all(not {"samples", "received"} & value["reports"][-1].keys() for value in said)
    return [value["epochs"] for value in said]


def digests(folder):
    return sorted(
        hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in pathlib.Path(folder).rglob("*.jpg")
    )


def test_nodes_send_coefficients(binary, folder, want, tmp_path):
    """The same pixels; all that is needed of another node comes in the form that it keeps."""
    said = decoded(binary, folder, tmp_path, COUNT, "none")
    assert [value["epochs"] for value in said] == want
    sent = received = 0
    for value in said[::2]:
        then, now = value["reports"]
        assert not {"read_again", "damaged", "unpacked"} & now.keys()
        assert then["tiers"]["source"] == now["tiers"]["source"]
        came = now["received"] - then["received"]
        # Of a batch of each rank that was in flight then, either may count what came.
        assert abs(came - (now["tiers"]["peer"] - then["tiers"]["peer"])) <= 16 < came
        sent, received = sent + now["sent"], received + now["received"]
    assert sent >= received
    assert sum(value["reports"][0]["tiers"]["source"] for value in said[::2]) == COUNT


def test_a_node_that_makes_none_takes_them(binary, folder, want, tmp_path):
    """With forms = "off" in its own configuration, for what it decodes: it sends files."""
    half = decoded(binary, folder, tmp_path, COUNT // 2, "none", of_node={"1": {"forms": "off"}})
    assert [value["epochs"] for value in half] == want
    makes, none = half[0]["reports"][1], half[2]["reports"][1]
    assert not {"unpacked", "read_again", "received"} & makes.keys()
    assert makes["sent"] >= none["received"] > 16
    assert none["samples"] == 0
    assert makes["tiers"]["peer"] > 0


@pytest.mark.parametrize("memory", [True, False])
def test_samples_of_several_fields(binary, folder, want, tmp_path, memory):
    """Also if the other node has no memory that could hold any."""
    count, of_node = COUNT, {}
    if not memory:
        count, of_node = COUNT // 2, {"1": {"memory": 0, "cache_dir": str(tmp_path / "cache")}}
    said = decoded(binary, folder, tmp_path, count, "none", listed=True, of_node=of_node)
    assert [value["epochs"] for value in said] == want
    then, now = said[2]["reports"]
    assert now["tiers"]["peer"] > then["tiers"]["peer"]
    assert then["tiers"]["source"] == now["tiers"]["source"]
    first = said[0]["reports"][1]
    assert first["sent"] > 16
    assert not {"read_again", "damaged"} & first.keys()
    assert not memory or "unpacked" not in first  # but for what files are to keep


def test_coefficients_in_directories(binary, folder, want, tmp_path):
    """Without memory for any: each node converts what the plan gives to its cache directory, and
    nothing is read again. Progressive ones stay files there."""
    of_node = {str(n): {"memory": 0, "cache_dir": str(tmp_path / f"cache-{n}")} for n in range(2)}
    said = decoded(binary, folder, tmp_path, BASELINE, "none", of_node=of_node)
    assert [value["epochs"] for value in said] == want
    ends = [value["reports"][1] for value in said[::2]]
    assert sum(end["samples"] for end in ends) == BASELINE
    assert all(end["samples"] > 0 for end in ends)
    assert not any({"read_again", "damaged", "restored"} & end.keys() for end in ends)
    for value in said[::2]:
        then, now = value["reports"]
        assert then["tiers"]["source"] == now["tiers"]["source"]
    assert sum(end["tiers"]["source"] for end in ends) == COUNT


def test_a_node_that_ends(binary, folder, want, tmp_path):
    """Its samples are read from the source, and kept, by the other one."""
    said = decoded(binary, folder, tmp_path, COUNT, "kill")
    for value in said[:2]:
        assert value["epochs"] == want[value["rank"]]
        assert value["reports"][1]["received"] > 0
    for value in said[2:]:
        assert value["epochs"] == want[value["rank"]][: len(value["epochs"])]
        assert 3 <= len(value["epochs"]) < 8


def test_files_beside_coefficients(binary, folder, want, tmp_path):
    """A job that needs files joins on both nodes: of what a node keeps, only progressive ones are
    read again, once."""
    read = []
    for name, count, options in ("auto", COUNT, {}), ("off", 0, {"forms": "off"}):
        (tmp_path / name).mkdir()
        said = decoded(binary, folder, tmp_path / name, count, "join", **options)
        assert [value["epochs"] for value in said] == want
        assert sorted(x for value in said for x in value["files"]) == sorted(2 * digests(folder))
        ends = [value["reports"][1] for value in said[::2]]
        again = sum(end.get("read_again", 0) for end in ends)
        read.append(sum(end["tiers"]["source"] for end in ends) - again)
    assert again == 0
    assert read[0] <= read[1]
