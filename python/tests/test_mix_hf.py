"""Mixes of Hugging Face's datasets: rows as each of them gives."""

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
import hffiles
from hdmlp import errors
from torchvision.transforms import v2

pytestmark = pytest.mark.usefixtures("real")

TENSOR = v2.Compose([v2.Resize((16, 18)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])


def make(path, count, first=0, names=("ant", "bee"), images=None):
    """Rows that say which they are, on disk."""
    numbers = range(first, first + count)
    images = images or [{"bytes": hffiles.image(i), "path": None} for i in numbers]
    features = datasets.Features(
        {
            "image": datasets.Image(mode="RGB"),
            "number": datasets.Value("int64"),
            "label": datasets.ClassLabel(names=list(names)),
        }
    )
    rows = {"image": images, "number": list(numbers), "label": [i % 2 for i in numbers]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(path))
    return datasets.load_from_disk(str(path))


@pytest.mark.parametrize("offload", [True, False])
def test_rows_are_those_of_their_datasets(tmp_path, offload):
    whole = make(tmp_path / "a", 20), make(tmp_path / "b", 9, 100)
    parts = whole[0].shuffle(seed=2), whole[1].select([7, 1, 3])
    mixed = [ht.HFDataset(part, transform={"image": TENSOR}) for part in parts]
    mix = ht.Mix(mixed, weights=[1, 1], epoch_size=20)
    with ht.DataLoader(mix, 4, shuffle=True, seed=1, offload=offload) as loader:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                for place, sample in enumerate(loader.explain(epoch, step).ids):
                    number, own = mix.source_of(sample)
                    want = mixed[number][own]
                    assert set(batch) == set(want)
                    assert torch.equal(batch["image"][place], torch.as_tensor(want["image"]))
                    for name in ("number", "label"):
                        assert batch[name][place].item() == want[name] == parts[number][own][name]
        assert (loader._content.making.recipe is None) == offload


def test_what_cannot_be_mixed(tmp_path):
    a = ht.HFDataset(make(tmp_path / "a", 4), transform={"image": TENSOR})
    others = make(tmp_path / "b", 4, names=("bee", "ant"))
    lacks = make(tmp_path / "c", 2, images=[None, {"bytes": hffiles.image(3), "path": None}])
    again = datasets.load_from_disk(str(tmp_path / "a"))
    for other, what in (
        (ht.HFDataset(others, transform={"image": TENSOR}), "the column 'label' is ClassLabel"),
        (
            ht.HFDataset(lacks, transform={"image": TENSOR}),
            "some rows have no 'image', which a Mix does not say",
        ),
        (
            ht.HFDataset(again.with_transform(lambda rows: rows)),
            "set_transform or with_format makes its rows",
        ),
        (ht.HFDataset(datasets.Dataset.from_dict({"number": [1]})), "no column of images"),
        (ht.HFDataset(again), "the field 'image' is a PIL image in datasets.1., and Tensor of"),
    ):
        with pytest.raises(errors.ConfigError, match=what):
            ht.Mix([a, other])
