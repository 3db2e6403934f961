"""Labels as numbers and as names, for every way to make a batch."""

import pytest

pytest.importorskip("torch")
PIL = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp import transforms as T


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("labels")
    for number, name in enumerate(["ant", "bee"]):
        (root / name).mkdir()
        for i in range(4):
            PIL.new("RGB", (12, 10), (100 * number, 10 * i, 0)).save(root / name / f"{i}.png")
    return str(root)


def doubled(text):
    return 2 * text


@pytest.mark.parametrize(
    "options", [{"raw": True}, {"offload": False}, {"offload": False, "num_workers": 1}, {}]
)
def test_labels_can_be_names_of_classes(folder, options):
    kept = [T.CenterCrop(8), T.ToTensor()] if options == {} else None
    for target, want in (
        (None, ["ant"] * 4 + ["bee"] * 4),
        (doubled, ["antant"] * 4 + ["beebee"] * 4),
    ):
        if options.get("raw"):
            target, want = None, ["ant"] * 4 + ["bee"] * 4
        dataset = ht.ImageFolder(folder, kept or (lambda image: 1), target_transform=target)
        with ht.DataLoader(dataset, 8, shuffle=False, labels="name", **options) as loader:
            ((_, names),) = loader
        assert list(names) == want
        assert type(names) is tuple


def test_an_invalid_labels_argument_is_refused(folder):
    with pytest.raises(errors.ConfigError, match="labels='text': must be 'index' or 'name'"):
        ht.DataLoader(ht.ImageFolder(folder), 2, labels="text", shuffle=True)
