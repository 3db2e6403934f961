"""What runs in Python, and the warning about it: which transform is the cause, why, and which
others run there because of it."""

import logging
import re

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from elsewhere import elastic
from hdmlp import errors
from hdmlp import transforms as T
from hdmlp.torch._data.folder import offload, short
from reference import batches, jpegs

V = torchvision.transforms
UNKNOWN = "it is not a transform that HDMLP has"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 5, "bee": 4})


@pytest.mark.parametrize(
    "mean, std",
    [
        (0.5, 0.25),
        (torch.tensor(0.5), torch.tensor(0.25)),
        (numpy.float32(0.5), 0.25),
        (torch.tensor([0.4, 0.5, 0.6]), numpy.array([0.2, 0.3, 0.4])),
    ],
)
def test_the_daemon_normalizes_to_the_same_bits(real, folder, mean, std):
    """For all arguments that torchvision's Normalize takes."""
    transform = V.Compose([V.CenterCrop((20, 16)), V.ToTensor(), V.Normalize(mean, std)])
    assert T.split(transform).rest == []
    want = batches(folder, 4, 1, 3, False, 0, 1, transform)[0]
    with ht.DataLoader(ht.ImageFolder(folder, transform), 4, seed=3, shuffle=True) as loader:
        got = list(loader)
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(got, want))
    assert len(got) == len(want)


def test_invalid_numbers_of_normalize_are_refused():
    for mean, says in (
        ("half", "mean should be a number or a sequence"),
        ([0.5, None, 0.5], "mean should be numbers"),
        ([1, 2], "1 or 3"),
        (float("nan"), "finite"),
    ):
        parts = T.split([V.Resize((9, 9)), V.ToTensor(), V.Normalize(mean, 1.0)])
        assert len(parts.rest) == 1
        assert says in parts.why
    norm = V.Normalize(0.5, 0.5)
    del norm.std
    assert "not those that HDMLP has" in T.split([V.Resize((9, 9)), V.ToTensor(), norm]).why


ROTATE, ERASE = elastic(), elastic()
SIZE = "images have no fixed size after it"


@pytest.mark.parametrize(
    "given, described, cause, also, why",
    [
        ([V.Resize((9, 9)), V.ToTensor(), ERASE], 2, ERASE, [], UNKNOWN),
        (
            [V.Resize((9, 9)), ROTATE, V.RandomHorizontalFlip(), V.ToTensor()],
            1,
            ROTATE,
            [2, 3],
            UNKNOWN,
        ),
        ([V.Resize(9), ROTATE, V.CenterCrop(8), V.ToTensor()], 0, ROTATE, [0, 2, 3], UNKNOWN),
        ([V.RandomHorizontalFlip(), V.Resize(9), V.ToTensor()], 0, 1, [0, 2], SIZE),
        ([V.RandomHorizontalFlip(), V.ToTensor()], 0, 0, [1], SIZE),
        (
            [V.Resize((9, 9)), V.ToTensor(), V.ToTensor(), ERASE],
            2,
            2,
            [3],
            "there is a tensor already",
        ),
    ],
)
def test_the_transform_that_cannot_be_offloaded_is_named(
    caplog, given, described, cause, also, why
):
    caplog.set_level(logging.WARNING, "hdmlp")
    parts = T.split(given)
    cause = given[cause] if isinstance(cause, int) else cause
    assert len(parts.described) == described
    assert parts.left == [cause, *(given[i] for i in also)]
    assert parts.why.startswith(why)
    with pytest.raises(ValueError, match="^" + re.escape(f"the daemon cannot do {cause!r}: {why}")):
        T.describe(given)
    offload(ht.pil_loader, given)
    [message] = [record.getMessage() for record in caplog.records]
    name = short(cause)
    assert message.startswith(
        f"{name} runs in Python, after what the daemon applies: {why}"
        if described
        else f"all transforms run in Python, because of {name}: {why}"
    )
    assert message.endswith(
        "; because of it also: " + ", ".join(short(given[i]) for i in also) if also else parts.why
    )


def test_hdmlps_transforms_beside_the_cause_are_refused():
    with pytest.raises(
        errors.ConfigError,
        match=r"Resize\(size=9.* cannot run in Python before ElasticTransform.* \(it is not",
    ):
        offload(ht.pil_loader, [T.Resize(9), ROTATE, V.CenterCrop(8)])
    with pytest.raises(
        errors.ConfigError,
        match=r"CenterCrop\(size=\(8, 8\)\) .* cannot run in Python after ElasticTransform",
    ):
        offload(ht.pil_loader, [V.Resize(9), ROTATE, T.CenterCrop(8)])
    with pytest.raises(
        errors.ConfigError, match=r"Resize\(size=9.* cannot stand here: images have no fixed size"
    ):
        offload(ht.pil_loader, [T.Resize(9), V.ToTensor()])


def test_explain_says_that_the_daemon_has_no_samples(real, folder):
    """It is not the sampler's fault: a seed was given."""

    class Own(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return index

        def __len__(self):
            return 8

    class Derived(torchvision.datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)[1]

    both = torch.utils.data.ConcatDataset([Own(), Own()])
    for dataset in (Own(), Derived(folder), both):
        with ht.DataLoader(dataset, 4, shuffle=True, seed=3, num_workers=0) as loader:
            says = f"the items of the {type(dataset).__name__} are made in Python, and the daemon"
            with pytest.raises(errors.ConfigError, match=says):
                loader.explain(0, 0)
    sampler = torch.utils.data.RandomSampler(range(9))
    served = ht.ImageFolder(folder, V.Compose([V.CenterCrop(8), V.ToTensor()]))
    with ht.DataLoader(served, 4, sampler=sampler) as loader:
        with pytest.raises(errors.ConfigError, match="the order is the sampler's"):
            loader.explain(0, 0)
