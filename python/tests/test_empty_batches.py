"""Batches of which on_error="skip" leaves no sample."""

import tarfile

import hdmlp.torch as ht
import pytest
import torch
from triples import KINDS, of_v2, write

v2 = pytest.importorskip("torchvision.transforms.v2")

pytestmark = pytest.mark.usefixtures("real")

SIZED = [v2.Resize((20, 20)), v2.ToImage()]
#: Rotations are left to Python.
LISTS = {"daemon": SIZED, "python": [v2.RandomRotation(3), *SIZED], "own sizes": [v2.ToImage()]}
LOADERS = [{}, {"drop_last": True}, {"offload": False}, {"sampler": range(3)}]


@pytest.fixture(scope="module")
def triples(tmp_path_factory):
    """Three triples, of which the second one has a mask that is cut off."""
    root = tmp_path_factory.mktemp("triples")
    found = write(root, 3, 8, seed=1)
    with open(found[1]["png"], "r+b") as file:
        file.truncate(60)
    return found


@pytest.mark.parametrize("options", LOADERS, ids=str)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", sorted(LISTS))
def test_fields_that_are_transformed_jointly(triples, name, workers, options):
    transform = v2.Compose(LISTS[name])
    dataset = ht.Files(triples, kinds=KINDS, transform=transform)
    with ht.DataLoader(
        dataset, 1, shuffle=False, seed=3, on_error="skip", num_workers=workers, **options
    ) as loader:
        batches = list(loader)
    assert len(batches) == 3
    for batch, count in zip(batches, (1, 0, 1)):
        assert set(batch) == {"jpg", "png", "json"}
        assert len(batch["jpg"]) == len(batch["png"]) == count
        assert isinstance(batch["jpg"], torch.Tensor)
        assert {name: len(of) for name, of in batch["json"].items()} == dict.fromkeys(
            ("boxes", "labels"), count
        )
    if name == "daemon" and options.get("offload", True):
        assert batches[1]["jpg"].shape == (0, 3, 20, 20)
    image, _ = of_v2(transform, triples[2], 3, 0, 2)
    if name != "python":  # which rotates
        assert torch.equal(batches[2]["jpg"][0], image.as_subclass(torch.Tensor))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "labels", [[4, 5, 6], [0.5, 1.5, 2], ["a", ["b"], "c"], [True, False, True]]
)
def test_labels_have_their_types(triples, labels, workers):
    pairs = [(triple["jpg"], triple["png"]) for triple in triples]
    dataset = ht.Files(
        pairs, labels, kinds={"0": "image", "1": "mask"}, transform=v2.Compose(LISTS["python"])
    )
    with ht.DataLoader(dataset, 1, shuffle=False, on_error="skip", num_workers=workers) as loader:
        batches = list(loader)
    assert [list(map(len, batch)) for batch in batches] == [[1] * 3, [0] * 3, [1] * 3]
    kinds = {type(batch[2]) for batch in batches}
    assert len(kinds) == 1
    if kinds == {torch.Tensor}:
        assert len({batch[2].dtype for batch in batches}) == 1


def test_all_members_of_dicts_are_there(triples, tmp_path):
    with tarfile.open(tmp_path / "shard.tar", "w") as shard:
        for key, triple in zip("abc", triples):
            for name, path in triple.items():
                shard.add(path, f"{key}.{name}")
    dataset = ht.WebDataset(
        str(tmp_path / "shard.tar"),
        kinds={"jpg": "image", "png": "mask"},
        transform=v2.Compose(LISTS["python"]),
    )
    with ht.DataLoader(dataset, 1, shuffle=False, on_error="skip") as loader:
        batches = list(loader)
    assert len({frozenset(batch) for batch in batches}) == 1
    assert [set(map(len, batch.values())) for batch in batches] == [{1}, {0}, {1}]


@pytest.mark.parametrize("offload", [True, False])
def test_images_of_their_own_sizes(triples, offload):
    masks = [triple["png"] for triple in triples]
    dataset = ht.Files(masks, transform=v2.Compose([v2.ToImage()]))
    with ht.DataLoader(dataset, 1, shuffle=False, on_error="skip", offload=offload) as loader:
        assert [len(batch) for batch in loader] == [1, 0, 1]
