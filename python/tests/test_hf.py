"""Datasets of Hugging Face: what ``datasets`` itself makes of rows, in torch's loader, is the
oracle."""

import json
import os
import pickle
import subprocess

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
pytest.importorskip("torchvision")

import hdmlp
import hdmlp.torch as ht
import hffiles
import numpy
import preloaded
from byhand import by_hand
from hffiles import image, of_all_kinds, saved
from PIL import Image
from recordfiles import equal
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import transforms as v1
from torchvision.transforms import v2

pytestmark = pytest.mark.usefixtures("real")

TENSOR = v2.Compose([v2.Resize((16, 18)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
TO_RGB = v2.Compose([v2.RGB(), v2.CenterCrop(20), v2.PILToTensor()])


def theirs(dataset, transform=TENSOR, **arguments):
    """The batches of torch's loader."""

    def made(batch):
        return {**batch, "image": [transform(x) for x in batch["image"]]}

    return list(DataLoader(dataset.with_transform(made), 4, **arguments))


def is_native(loader):
    return loader._content.making.recipe is None


def from_parquet(dataset, path):
    dataset.to_parquet(path / "x.parquet")
    cache = str(path / "cache")
    return datasets.Dataset.from_parquet(str(path / "x.parquet"), cache_dir=cache)


CHANGES = {
    "whole": lambda d, _: d,
    "shuffled": lambda d, _: d.shuffle(seed=3),
    "sliced": lambda d, _: d.select(range(3, 15)),
    "repeated": lambda d, _: d.select([5, 5, 1, 5]),
    "filtered": lambda d, _: d.filter(lambda r: r["label"] == 1),
    "concatenated": lambda d, _: datasets.concatenate_datasets(
        [d.select(range(2, 9)), d.shuffle(seed=1), d.select([7])]
    ),
    "slice of a concatenation": lambda d, _: (
        datasets.concatenate_datasets([d, d]).select(range(15, 33)).shuffle(seed=2)
    ),
    "sharded": lambda d, _: d.shard(3, 1),
    "split": lambda d, _: d.train_test_split(0.3, seed=1)["test"],
    "one row": lambda d, _: d.select([3]),
    "parquet": from_parquet,
    "fewer columns": lambda d, _: d.select_columns(["image", "text"]),
    "a column more": lambda d, _: d.add_column("new", list(range(len(d)))),
    "mapped": lambda d, _: d.map(lambda r: {"label": 2 - r["label"]}),
    "flattened indices": lambda d, _: d.shuffle(seed=9).flatten_indices(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_are_those_of_datasets(tmp_path, change):
    data = CHANGES[change](saved(tmp_path / "d", 20, num_shards=3), tmp_path)
    ours = ht.HFDataset(data, transform={"image": TENSOR})
    assert not ours.unserved
    assert (len(ours), ours.column_names) == (len(data), data.column_names)
    with ht.DataLoader(ours, 4) as loader:
        assert equal(list(loader), theirs(data))
        assert is_native(loader)
    assert equal(ours[len(data) - 1], {**data[-1], "image": TENSOR(data[-1]["image"])})


def test_renamed_columns_and_classes(tmp_path):
    data = saved(tmp_path / "d").rename_column("image", "img")
    ours = ht.HFDataset(data, TENSOR)
    assert ours.targets == data["label"][:]
    assert (ours.classes, ours.class_to_idx["cat"]) == (["ant", "bee", "cat"], 2)
    assert ours["text"][:3] == ["row 0", "row 1", "row 2"]
    only = data.remove_columns("label")
    with pytest.raises(AttributeError, match="is a ClassLabel, or several are"):
        ht.HFDataset(only, TENSOR).targets  # noqa: B018
    with ht.DataLoader(Subset(ours, [4, 2]), 2) as loader:
        assert equal(next(iter(loader))["img"], torch.stack([ours[4]["img"], ours[2]["img"]]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_order_is_that_of_a_distributed_sampler(tmp_path, rank, workers):
    data = saved(tmp_path / "d", 23).shuffle(seed=1)
    ours = ht.HFDataset(data, transform={"image": TENSOR})
    samplers = [DistributedSampler(d, 3, rank, seed=1) for d in (data, ours)]
    with ht.DataLoader(ours, 4, sampler=samplers[1], num_workers=workers) as loader:
        for epoch in range(2):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            assert equal(list(loader), theirs(data, sampler=samplers[0]))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_of_all_kinds_are_converted_as_by_datasets(tmp_path, mode):
    data = of_all_kinds(tmp_path / "d", mode)
    ours = ht.HFDataset(data, transform={"image": v2.Compose([*TENSOR.transforms])})
    with ht.DataLoader(ours, 4) as loader:
        assert is_native(loader)
        assert equal(list(loader), theirs(data))


@pytest.mark.parametrize(
    "first", [v2.RGB(), v1.Lambda(lambda x: x.convert("RGB")), lambda x: x.convert("RGB")]
)
def test_a_first_conversion_is_the_mode(tmp_path, first):
    data = of_all_kinds(tmp_path / "d")
    steps = [first, v2.CenterCrop(20), v2.PILToTensor()]
    with ht.DataLoader(ht.HFDataset(data, transform={"image": steps}), 4) as loader:
        assert is_native(loader)
        assert equal(list(loader), theirs(data, TO_RGB))


def test_a_conversion_after_the_mode_of_the_column(tmp_path):
    """Gray levels in three channels: not the colours."""
    data = of_all_kinds(tmp_path / "d", "L")
    ours = ht.HFDataset(data, transform={"image": [*TO_RGB.transforms]})
    with ht.DataLoader(ours, 4) as loader:
        assert equal(list(loader), theirs(data, TO_RGB))


def test_images_keep_the_mode_that_they_have(tmp_path):
    """Without a mode: a batch of an image of each kind is what datasets has, mode by mode."""
    data = of_all_kinds(tmp_path / "d")
    for batch_size in (1, 3):
        steps = v1.Compose([v1.Resize((9, 8)), v1.PILToTensor()])
        alike = v1.Compose([steps, lambda x: x.to(torch.float32).mean(0)])
        with ht.DataLoader(ht.HFDataset(data, transform=alike), batch_size) as loader:
            expected = list(
                DataLoader(
                    data.with_transform(
                        lambda b: {**b, "image": [alike(x) for x in b["image"]]}  # noqa: B023
                    ),
                    batch_size,
                )
            )
            assert equal(list(loader), expected)


def test_gray_images_stay_gray(tmp_path):
    images = [{"bytes": image(i, "L"), "path": None} for i in range(9)]
    data = saved(tmp_path / "d", 9, images)
    steps = v1.Compose([v1.ToTensor(), v1.Normalize((0.5,), (0.5,))])
    steps.transforms.insert(0, v1.CenterCrop(12))
    with ht.DataLoader(ht.HFDataset(data, steps), 4) as loader:
        assert is_native(loader)
        batches = list(loader)
    assert batches[0]["image"].shape == (4, 1, 12, 12)
    assert equal(batches, theirs(data, steps))


def test_an_image_of_another_mode_is_an_error(tmp_path):
    """As in datasets, where it cannot be stacked; never a conversion without a word."""
    images = [{"bytes": image(i, "L" if i == 15 else "RGB"), "path": None} for i in range(20)]
    data = saved(tmp_path / "d", 20, images)
    with pytest.raises(RuntimeError):
        theirs(data)
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 4) as loader:
        with pytest.raises(ValueError, match=r"\(1, 16, 18\).* \(3, 16, 18\)"):
            list(loader)


@pytest.mark.parametrize("transforms", [v1, v2])
def test_random_crops_are_torchvisions_on_the_images_of_datasets(tmp_path, transforms):
    data = of_all_kinds(tmp_path / "d", "RGB")
    steps = [
        transforms.RandomResizedCrop(12),
        transforms.RandomHorizontalFlip(),
        v1.ToTensor(),
    ]
    ours = ht.HFDataset(data, transform={"image": steps})
    with ht.DataLoader(ours, 5, shuffle=True, seed=7, epochs=2) as loader:
        assert is_native(loader)
        for epoch in range(2):
            order = DistributedSampler(data, 1, 0, seed=7)
            order.set_epoch(epoch)
            ids = list(order)
            made = torch.cat([batch["image"] for batch in loader])
            assert len(made) == len(ids)
            for i, tensor in zip(ids, made):
                assert torch.equal(tensor, by_hand(steps, data[i]["image"], 7, epoch, i))


def folder(root, names=("a", "b"), count=5):
    for k, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for i in range(count):
            kind = hffiles.KINDS[(i + 3 * k) % 10]
            (root / name / f"{i}.{kind[1].lower()}").write_bytes(image(10 * k + i, *kind))
    return datasets.load_dataset(
        "imagefolder", data_dir=str(root), split="train", cache_dir=str(root.parent / "cache")
    )


def undecoded(data):
    return data.cast_column("image", datasets.Image(decode=False))["image"]


def test_rows_with_paths_are_files(tmp_path):
    data = folder(tmp_path / "train").shuffle(seed=4)
    assert undecoded(data)[0]["bytes"] is None
    ours = ht.HFDataset(data, transform={"image": TENSOR})
    with ht.DataLoader(ours, 4) as loader:
        assert equal(list(loader), theirs(data))
        assert is_native(loader)
    assert ours.key(0) == undecoded(data)[0]["path"]


def test_rows_with_bytes_and_rows_with_paths(tmp_path):
    """Both, some in a relative path, and rows without an image."""
    data = folder(tmp_path / "train").select_columns(["image", "label"])
    other = saved(tmp_path / "d", 6).select_columns(["image", "label"])
    other = other.cast(data.features)
    both = datasets.concatenate_datasets([data, other, data]).shuffle(seed=1)
    with ht.DataLoader(ht.HFDataset(both, TENSOR), 4) as loader:
        assert equal(list(loader), theirs(both))


def test_missing_images_are_none(tmp_path):
    images = [None if i % 3 == 1 else {"bytes": image(i), "path": None} for i in range(9)]
    data = saved(tmp_path / "d", 9, images)
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 4) as loader:
        batches = list(loader)
    expected = [None if x is None else TENSOR(x) for x in data["image"]]
    assert equal([x for batch in batches for x in batch["image"]], expected)
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        pictures = [x for batch in loader for x in batch["image"]]
    assert [x is None for x in pictures] == [x is None for x in expected]
    undecoded = data.cast_column("image", datasets.Image(decode=False))
    with ht.DataLoader(ht.HFDataset(undecoded), 3) as loader:
        raw = [x for batch in loader for x in batch["image"]]
    assert equal(raw, undecoded["image"][:])


def test_images_without_transforms(tmp_path):
    data = of_all_kinds(tmp_path / "d")
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        made = [x for batch in loader for x in batch["image"]]
    for mine, expected in zip(made, data["image"]):
        assert mine.mode == expected.mode
        assert numpy.array_equal(numpy.asarray(mine), numpy.asarray(expected))
        turned = mine.getexif().get(0x0112), expected.getexif().get(0x0112)
        assert turned[0] == turned[1]


def test_bytes_as_they_are(tmp_path):
    data = saved(tmp_path / "d").cast_column("image", datasets.Image(decode=False)).shuffle(seed=2)
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        batches = list(loader)
        assert is_native(loader)
    assert equal(batches, list(DataLoader(data, 4)))
    assert isinstance(batches[0]["image"]["bytes"][0], memoryview)
    ours = ht.HFDataset(data)
    assert equal([ours[i] for i in range(3)], [data[i] for i in range(3)])


def test_columns_of_bytes_and_of_sounds(tmp_path):
    stored = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features(
        {
            "blob": datasets.Value("binary"),
            "large": datasets.Value("large_binary"),
            "sound": stored,
        }
    )
    rows = {
        "blob": [b"x" * i for i in range(7)],
        "large": [None if i == 3 else b"y" * i for i in range(7)],
        "sound": [{"bytes": b"RIFF" * i, "path": f"{i}.wav"} for i in range(7)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "d"))
    data = datasets.load_from_disk(str(tmp_path / "d"))
    data = data.cast_column("sound", datasets.Audio(decode=False))
    ours = ht.HFDataset(data)
    assert ours.fields == ("blob", "large", "sound")
    with ht.DataLoader(ours, 7) as loader:
        (batch,) = loader
    assert equal(batch["blob"], rows["blob"])
    assert equal(batch["large"], rows["large"])
    assert equal(batch["sound"]["bytes"], [row["bytes"] for row in rows["sound"]])
    assert batch["sound"]["path"] == [f"{i}.wav" for i in range(7)]


def test_two_columns_of_images(tmp_path):
    data = saved(tmp_path / "d", 8)
    data = data.add_column("second", [r["image"] for r in data.with_format("arrow")[:].to_pylist()])
    data = data.cast_column("second", datasets.Image(mode="L"))
    data.save_to_disk(str(tmp_path / "e"))
    data = datasets.load_from_disk(str(tmp_path / "e"))
    small = v2.Compose([v2.CenterCrop(5), v2.PILToTensor()])
    with pytest.raises(hdmlp.errors.ConfigError, match="2 columns of images: give one for each"):
        ht.HFDataset(data, TENSOR)
    ours = ht.HFDataset(data, transform={"image": TENSOR, "second": small})

    def made(batch):
        return {
            **batch,
            "image": [TENSOR(x) for x in batch["image"]],
            "second": [small(x) for x in batch["second"]],
        }

    with ht.DataLoader(ours, 4) as loader:
        assert is_native(loader)
        assert equal(list(loader), list(DataLoader(data.with_transform(made), 4)))


def test_values_that_are_no_numbers(tmp_path):
    """Text of any size, None, times, dicts; and what default_collate does with them, or a list."""
    import datetime

    rows = {
        "image": [{"bytes": image(i), "path": None} for i in range(6)],
        "text": ["x" * 10**i for i in range(6)],
        "maybe": [None if i == 2 else i for i in range(6)],
        "when": [datetime.datetime(2026, 1, 1 + i) for i in range(6)],
        "both": [{"a": i, "b": [str(i)]} for i in range(6)],
        "large": [2**60 + i for i in range(6)],
    }
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "text": datasets.Value("string"),
            "maybe": datasets.Value("int32"),
            "when": datasets.Value("timestamp[us]"),
            "both": {"a": datasets.Value("int64"), "b": datasets.List(datasets.Value("string"))},
            "large": datasets.Value("uint64"),
        }
    )
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "d"))
    data = datasets.load_from_disk(str(tmp_path / "d")).shuffle(seed=5)
    ours = ht.HFDataset(data, TENSOR)
    known = [name for name in data.column_names if name not in ("maybe", "when")]
    with ht.DataLoader(ours, 4) as loader:
        batches = list(loader)
    expected = theirs(data.select_columns(known))
    assert equal([{name: batch[name] for name in known} for batch in batches], expected)
    for name in ("maybe", "when"):
        assert [value for batch in batches for value in batch[name]] == data[name][:]
    assert {k: v for k, v in ours[4].items() if k != "image"} == {
        k: v for k, v in data[4].items() if k != "image"
    }


def test_a_state_continues_in_another_loader(tmp_path):
    data = saved(tmp_path / "d", 23).shuffle(seed=1)
    make = lambda: ht.DataLoader(  # noqa: E731
        ht.HFDataset(data, TENSOR), 4, shuffle=True, seed=3
    )
    with make() as loader:
        whole = list(loader)
    with make() as loader:
        batches = iter(loader)
        first = [next(batches) for _ in range(2)]
        state = json.loads(json.dumps(loader.state_dict()))
    with make() as loader:
        loader.load_state_dict(state)
        assert equal([*first, *loader], whole)


def test_copies(tmp_path):
    data = saved(tmp_path / "d")
    ours = pickle.loads(pickle.dumps(ht.HFDataset(data, TENSOR)))
    with ht.DataLoader(ours, 4) as loader:
        assert equal(list(loader), theirs(data))


def test_the_example_trains(tmp_path):
    for number in range(40):
        directory = tmp_path / "data" / f"class{number % 2}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.jpg").write_bytes(image(number, kind="JPEG"))
    example = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "hf.py")
    done = subprocess.run(
        [preloaded.PYTHON, example, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "epoch 3: loss" in done.stdout


def test_images_are_pils(tmp_path):
    assert isinstance(ht.HFDataset(saved(tmp_path / "d"))[0]["image"], Image.Image)


def turned(row):
    return {**row, "image": row["image"].rotate(90, expand=True), "label": 7}


class Turned(datasets.Dataset):
    """Rows that only its method reveals."""

    def __getitem__(self, key):
        row = super().__getitem__(key)
        return turned(row) if isinstance(key, int) else row

    def __getitems__(self, keys):
        return [self[key] for key in keys]


def derived(data, _):
    data.__class__ = Turned


def of_an_object(data, _):
    plain = data.__getitems__
    data.__getitems__ = lambda keys: list(map(turned, plain(keys)))


def of_the_class(_, monkeypatch):
    plain = datasets.Dataset.__getitems__
    monkeypatch.setattr(
        datasets.Dataset, "__getitems__", lambda self, keys: list(map(turned, plain(self, keys)))
    )


def of_the_feature(_, monkeypatch):
    plain = datasets.Image.decode_example
    monkeypatch.setattr(
        datasets.Image, "decode_example", lambda *a, **k: plain(*a, **k).rotate(90, expand=True)
    )


@pytest.mark.parametrize("change", [derived, of_an_object, of_the_class, of_the_feature])
def test_methods_that_the_program_has_replaced_are_called(tmp_path, change, caplog, monkeypatch):
    data = saved(tmp_path / "d")
    plain = [{**row, "image": TENSOR(row["image"])} for row in data]
    change(data, monkeypatch)
    ours = ht.HFDataset(data, transform={"image": TENSOR})
    want = [
        {**row, "image": TENSOR(row["image"])} for row in data.__getitems__([*range(len(data))])
    ]
    with ht.DataLoader(ours, 4, collate_fn=list) as loader:
        got = [row for batch in loader for row in batch]
    assert equal(got, want)
    assert not equal(got, plain)
    assert sum("its items are made in Python" in r.message for r in caplog.records) == 1
