"""What a group refuses, and what it takes: settings, transforms, names."""

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import data, errors
from hdmlp import transforms as T
from members import (
    COUNTS,
    EPOCHS,
    STEPS,
    TRANSFORMS,
    V,
    folder,  # noqa: F401
    member,  # noqa: F401
    options,
    transformed,
)
from sharing import digest

pytestmark = pytest.mark.usefixtures("real")


def test_the_variable_makes_members_of_loaders_that_can_be(member, monkeypatch, folder, caplog):
    want = member(share=None).end()
    monkeypatch.setenv("HDMLP_SHARE", "v")
    monkeypatch.setenv("HDMLP_SHARE_MEMBERS", "2")
    members = [member(share=None) for _ in range(2)]
    for m in members:
        assert m.all() == want
    assert transformed() == (EPOCHS * sum(COUNTS.values()), 0)
    with data.DataLoader(data.Folder(folder), batch_size=8, epochs=1) as loader:
        assert len(list(loader)) == STEPS
    assert "nothing to share" in caplog.text


@pytest.mark.parametrize(
    "key, changes",
    [
        ("seed", {"seed": 4}),
        ("drop_last", {"drop_last": True}),
    ],
)
def test_a_member_that_differs_is_refused(folder, key, changes):
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    with ht.DataLoader(dataset, batch_size=8, **options()) as first:
        with pytest.raises(errors.MismatchError, match=f'share = "s".*: {key} is') as refused:
            ht.DataLoader(dataset, **{"batch_size": 8, **options(**changes)})
        assert refused.value.details["key"] == key
        assert len(list(first)) == STEPS


def test_other_transforms_are_refused(folder):
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    with ht.DataLoader(dataset, batch_size=8, **options()):
        other = ht.ImageFolder(folder, V.Compose([TRANSFORMS[0], V.CenterCrop(20), V.ToTensor()]))
        with pytest.raises(errors.MismatchError, match=r'transforms is \{"name":"CenterCrop".* in'):
            ht.DataLoader(other, batch_size=8, **options())


@pytest.mark.parametrize(
    "transforms, changes, says",
    [
        ([], {}, "nothing to share"),
        (TRANSFORMS, {"on_error": "skip"}, "on_error"),
        (TRANSFORMS, {"policy": "naive"}, "naive"),
        (TRANSFORMS, {"share": "x" * 129}, "at most 128 bytes"),
        (TRANSFORMS, {"share_members": -1}, "share_members"),
        (TRANSFORMS, {"share_members": float("nan")}, "share_members=nan: must be a finite"),
        (TRANSFORMS, {"share": True}, "share=True: must be text, not bool"),
        (TRANSFORMS, {"share": "x\ud800"}, "share='x.*': not valid Unicode"),
        (TRANSFORMS, {"share": None, "share_join": True}, "share_join.* without share"),
    ],
    ids=[
        "raw",
        "on_error",
        "naive",
        "name",
        "members",
        "nan",
        "bool",
        "surrogate",
        "join",
    ],
)
def test_what_cannot_be_shared_raises(folder, transforms, changes, says):
    dataset = ht.ImageFolder(folder, V.Compose(transforms) if transforms else None)
    with pytest.raises(errors.ConfigError, match=says):
        ht.DataLoader(dataset, batch_size=8, **options(**changes))


def test_a_dataset_is_the_same_by_a_symbolic_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    datasets = [ht.ImageFolder(path, V.Compose(TRANSFORMS)) for path in (folder, tmp_path / "link")]
    loaders = [ht.DataLoader(dataset, batch_size=8, **options()) for dataset in datasets]
    batches = [[digest(*batch) for batch in loader] for loader in loaders]
    assert batches[0] == batches[1]
    for loader in loaders:
        loader.close()


def test_the_variable_has_no_effect_on_items_made_in_python(real, monkeypatch, caplog):
    monkeypatch.setenv("HDMLP_SHARE", "v")
    items = torch.utils.data.TensorDataset(torch.arange(3))
    with ht.DataLoader(items) as loader:
        assert len(list(loader)) == 3
    assert "HDMLP_SHARE has no effect on a loader of a TensorDataset" in caplog.text


def test_an_unseeded_member_takes_the_groups_seed(folder):
    dataset = data.Folder(folder)
    made = [T.CenterCrop(16), T.ToTensor()]
    loaders = [data.DataLoader(dataset, 8, epochs=1, transforms=made, share="s") for _ in range(2)]
    assert loaders[0].seed == loaders[1].seed
    for loader in loaders:
        loader.close()
