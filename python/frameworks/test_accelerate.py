"""accelerate and transformers' Trainer, which make loaders of their own, give every rank what they
give it with torch's loader."""

import os
from importlib.util import find_spec

import hdmlp.torch as ht
import pytest
import torch
from hdmlp import errors

# Only the tests that use them import them, which takes seconds.
pytestmark = [
    *(
        pytest.mark.skipif(find_spec(name) is None, reason=f"no {name}")
        for name in ("accelerate", "transformers")
    ),
    pytest.mark.usefixtures("with_transformers"),
]


@pytest.mark.parametrize(
    "ranks, kinds", [(1, "random,seedable,stateful"), (2, "random,seedable,stateful,split")]
)
def test_accelerate(same, ranks, kinds):
    ours, _ = same("train_accelerate.py", ranks, kinds)
    for rank in range(ranks):
        found = ours[rank]
        assert found["_module"].startswith("hdmlp.")
        for kind in kinds.split(","):
            assert all(a == b > 0 for a, b in found[f"_{kind}"])
        for kind in (
            "seedable",
            "stateful",
        ):  # else accelerate does not keep what the order follows from
            whole = found[f"{kind}, whole"]
            assert found[f"{kind}, resumed"] == [whole[0][2:], whole[1]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_transformers(same, ranks):
    """A Trainer that is given the dataset, its evaluation, and one that goes on from a checkpoint
    amid an epoch."""
    ours, _theirs = same("train_hf.py", ranks)
    for rank in range(ranks):
        steps = ours[rank]["steps"]
        assert 0 < steps < len(ours[rank]["trained"])
        assert ours[rank]["resumed"] == ours[rank]["trained"][steps:]
        assert ours[rank]["_module"].startswith("hdmlp.")
        assert ours[rank]["_served"][0] == ours[rank]["_served"][1] > 0


@pytest.fixture
def pictures(tmp_path):
    """A folder of square images in three classes, of which some are gray, or turned by EXIF."""
    from PIL import Image

    for number in range(30):
        directory = tmp_path / "pictures" / f"class{number % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        image = Image.linear_gradient("L").resize((20 + number, 20 + number))
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8
        image = image if number % 5 == 0 else Image.merge("RGB", [image, image.rotate(90), image])
        image.save(directory / f"{number:02d}.jpg", quality=95, exif=exif)
    return str(tmp_path / "pictures")


@pytest.mark.parametrize("ranks", [1, 2])
def test_image_classification_of_transformers(same, pictures, ranks):
    """The structure of run_image_classification.py, with datasets that are wrapped."""
    pytest.importorskip("datasets")
    ours, _theirs = same("train_hf_images.py", ranks, data=pictures)
    for rank in range(ranks):
        assert ours[rank]["_module"].startswith("hdmlp.")
        assert ours[rank]["_served"][0] == ours[rank]["_served"][1] > 0


@pytest.fixture
def hooked(monkeypatch):
    """An Accelerator of this process, in which the hook is taken back at the end."""
    import accelerate
    from accelerate import data_loader as module

    monkeypatch.setenv("HDMLP_SOCKET", f"frameworks-{os.getpid()}")
    monkeypatch.setattr(module, "DataLoader", module.DataLoader)
    monkeypatch.setattr(module.DataLoaderAdapter, "__init__", module.DataLoaderAdapter.__init__)
    ht.use_in(accelerate)
    ht.use_in("transformers")
    return accelerate.Accelerator(cpu=True)


def test_what_only_our_loader_has_goes_along(hooked, folder):
    from accelerate import skip_first_batches

    loader = ht.DataLoader(
        ht.ImageFolder(folder),
        4,
        shuffle=True,
        seed=3,
        epochs=2,
        labels="name",
        verify=True,
        memory="48MiB",
    )
    expected = [
        list(labels)
        for _, labels in ht.DataLoader(
            ht.ImageFolder(folder), 4, shuffle=True, seed=3, labels="name"
        )
    ]
    for prepared in (hooked.prepare(loader), skip_first_batches(loader, 0)):
        made = getattr(prepared, "base_dataloader", prepared)
        assert type(made) is ht.DataLoader
        assert made is not loader
        assert (made.epochs, made.labels, made.verify, made.memory, made.seed) == (
            2,
            "name",
            True,
            "48MiB",
            3,
        )
        assert [list(labels) for _, labels in prepared] == expected
        loader.set_epoch(0)


def test_what_it_cannot_share_raises(hooked, folder):
    with pytest.raises(
        errors.ConfigError,
        match="shard=True: accelerate gives each rank its batches of this loader itself; leave "
        "shard",
    ):
        hooked.prepare(ht.DataLoader(ht.ImageFolder(folder), 4, shard=True))


def test_other_datasets_stay_with_torch(hooked):
    prepared = hooked.prepare(
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), 4)
    )
    assert type(prepared.base_dataloader) is torch.utils.data.DataLoader
    assert [x.tolist() for (x,) in prepared] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
