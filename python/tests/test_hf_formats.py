"""Formats of Hugging Face's datasets, what HDMLP refuses of them, and what it leaves to Python."""

import logging
import os
import random
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
import hdmlp.transforms as T
from hdmlp import errors
from hdmlp._records import arrow
from hdmlp.torch._engine import content
from hffiles import FEATURES, image, of_all_kinds, rows, saved
from recordfiles import equal
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision.transforms import v2

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

TENSOR = v2.Compose([v2.Resize((16, 18)), v2.PILToTensor()])
DRAWS = v2.Compose([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.PILToTensor()])


def transformed(batch):
    """As a script would write it; top level, so that workers of all kinds get it."""
    batch["image"] = [TENSOR(x.convert("RGB")) for x in batch["image"]]
    batch["count"] = [len(batch["label"])] * len(batch["label"])
    return batch


def cropped(batch):
    return {"pixels": [DRAWS(x) for x in batch["image"]], "label": batch["label"]}


def with_worker(batch):
    return {"where": [os.getpid()] * len(batch["label"])}


@pytest.fixture(autouse=True)
def forgets():
    content._SAID.clear()


@pytest.mark.parametrize("workers, context", [(0, None), (2, "fork"), (1, "spawn")])
def test_a_transform_of_the_dataset_is_called_with_batches(tmp_path, workers, context):
    """A column of the dataset's own, columns that come new, and the batch's size: as by torch."""
    data = of_all_kinds(tmp_path / "d").shuffle(seed=1).with_transform(transformed)
    arguments = {"num_workers": workers, "multiprocessing_context": context}
    with ht.DataLoader(ht.HFDataset(data), 4, **arguments) as loader:
        assert loader._content.folder is not None
        for _ in range(2):
            assert equal(list(loader), list(DataLoader(data, 4)))
        assert loader.report()["source"]["samples"] == len(data)
    assert equal(ht.HFDataset(data)[3], data[3])


def test_it_runs_in_workers_on_bytes_that_the_daemon_read(tmp_path):
    data = saved(tmp_path / "d").with_transform(with_worker)
    with ht.DataLoader(ht.HFDataset(data), 4, num_workers=2) as loader:
        for _ in range(2):
            where = torch.cat([batch["where"] for batch in loader])
        assert os.getpid() not in where
        assert loader.report()["source"]["samples"] == len(data)


def test_what_a_transform_draws_follows_from_the_seed(tmp_path):
    data = saved(tmp_path / "d").with_transform(cropped)
    made = []
    for workers in (0, 2):
        random.seed(workers)
        torch.manual_seed(workers)
        ours = ht.HFDataset(data)
        with ht.DataLoader(ours, 4, shuffle=True, seed=5, num_workers=workers) as loader:
            made.append([list(loader), list(loader)])
    assert equal(made[0], made[1])
    assert not equal(made[0][0][0]["pixels"], made[0][1][0]["pixels"])
    ids = list(DistributedSampler(data, 1, 0, seed=5))
    with ht.seeded(5, 0, ids[4]):
        expected = data[ids[4:8]]
    assert equal(made[0][0][1]["pixels"], torch.stack(expected["pixels"]))


def test_a_transform_of_some_columns(tmp_path):
    data = saved(tmp_path / "d")
    columns = ["image", "label"]
    data.set_transform(cropped, columns=columns, output_all_columns=True)
    ours = ht.HFDataset(data)
    with ht.DataLoader(ours, 4) as loader:
        batch = next(iter(loader))
    assert set(batch) == {"pixels", "label", "text", "half", "even", "box"}
    assert equal(batch["box"], next(iter(DataLoader(data, 4)))["box"])


@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_formats_are_those_of_datasets(tmp_path, form):
    images = [{"bytes": image(7 * i), "path": None} for i in range(10)]
    data = saved(tmp_path / "d", 10, images).shuffle(seed=1).with_format(form)
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        assert equal(list(loader), list(DataLoader(data, 4)))
    some = data.with_format(form, columns=["image"])
    with ht.DataLoader(ht.HFDataset(some), 4) as loader:
        assert equal(list(loader), list(DataLoader(some, 4)))


def test_columns_that_are_chosen(tmp_path):
    data = saved(tmp_path / "d")
    data.set_format(columns=["label", "image"])
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 4) as loader:
        batch = next(iter(loader))
    assert set(batch) == {"label", "image"}


def test_formats_that_have_no_rows(tmp_path):
    data = saved(tmp_path / "d")
    with pytest.raises(errors.ConfigError, match=r"^with_format\('pandas'\): a batch is a table"):
        ht.HFDataset(data.with_format("pandas"))
    with pytest.raises(errors.ConfigError, match=r"the dataset has set_transform, .* one of them"):
        ht.HFDataset(data.with_transform(transformed), TENSOR)
    with pytest.raises(errors.ConfigError, match=r"the dataset has with_format\('torch'\)"):
        ht.HFDataset(data.with_format("torch"), TENSOR)
    ours = ht.HFDataset(data)
    data.set_transform(transformed)
    with pytest.raises(errors.ConfigError, match="the format of the dataset changed"):
        ht.DataLoader(ours, 4)


# What is wrong.


@pytest.mark.parametrize(
    "transform, message",
    [
        ({"img": TENSOR}, r"transform\['img'\]: there is no column of that name; there are image,"),
        ({"label": TENSOR}, r"transform\['label'\]: it is a column of ClassLabel\("),
        ({"image": 3}, "must be callable"),
        (7, "must be callable"),
    ],
)
def test_bad_transforms(tmp_path, transform, message):
    data = saved(tmp_path / "d", 3)
    with pytest.raises(errors.ConfigError, match=message):
        ht.HFDataset(data, transform=transform)


def test_images_that_are_not_decoded_have_no_transforms(tmp_path):
    data = saved(tmp_path / "d", 3).cast_column("image", datasets.Image(decode=False))
    with pytest.raises(errors.ConfigError, match=r"not decoded: cast_column\('image', Image\(\)\)"):
        ht.HFDataset(data, TENSOR)


def test_bad_datasets(tmp_path, monkeypatch):
    data = saved(tmp_path / "d", 3)
    splits = datasets.DatasetDict({"train": data, "test": data})
    with pytest.raises(errors.ConfigError, match=r"has the splits train, test: .*\['train'\]"):
        ht.HFDataset(splits)
    for other in ("train", [1, 2], None):
        with pytest.raises(errors.ConfigError, match=r"must be a datasets\.Dataset, as load_data"):
            ht.HFDataset(other)
    monkeypatch.delitem(sys.modules, "datasets")
    monkeypatch.setattr("hdmlp.torch._data.hf.find_spec", lambda name: None)
    with pytest.raises(errors.ConfigError, match="needs the library datasets: pip install"):
        ht.HFDataset(data)


def arrow_file(directory):
    [name] = [name for name in os.listdir(directory) if name.endswith(".arrow")]
    return directory / name


def test_files_that_change_before_the_dataset_is_wrapped(tmp_path):
    data = saved(tmp_path / "d")
    path = arrow_file(tmp_path / "d")
    replaced = path.with_suffix(".new")
    replaced.write_bytes(path.read_bytes())
    os.replace(replaced, path)
    with pytest.raises(errors.DatasetError, match=r"\.arrow was replaced .*: load it again"):
        ht.HFDataset(data)
    data = datasets.load_from_disk(str(tmp_path / "d"))
    os.truncate(path, 1000)
    with pytest.raises(errors.DatasetError, match="it has 1000 bytes, and the column has some up"):
        ht.HFDataset(data)


def test_files_that_change_afterwards(tmp_path):
    data = saved(tmp_path / "d")
    ours = ht.HFDataset(data, TENSOR)
    with ht.DataLoader(ours, 4) as loader:
        list(loader)
    path = arrow_file(tmp_path / "d")
    os.utime(path, (1, 1))
    with pytest.raises(errors.MismatchError, match="was written since this HFDataset was made"):
        ht.DataLoader(ours, 4)
    ours = ht.HFDataset(data, TENSOR)
    os.truncate(path, 1000)
    with pytest.raises(errors.MismatchError, match="was written since this HFDataset was made"):
        ht.DataLoader(ours, 4)


def test_files_whose_maps_are_not_what_they_have(tmp_path, monkeypatch):
    """As on a file system whose maps are not brought up to date, or that another kernel writes."""
    data = saved(tmp_path / "d")
    find = arrow.Maps.find

    def elsewhere(self, begin, end):
        path, shift = find(self, begin, end)
        return path, shift - 64

    monkeypatch.setattr(arrow.Maps, "find", elsewhere)
    with pytest.raises(errors.DatasetError, match=r"^column 'image': .*\(row 0 has other bytes"):
        ht.HFDataset(data, TENSOR)


def test_a_file_that_was_deleted(tmp_path, caplog):
    """Its map is still there, so datasets goes on; the daemon cannot open it."""
    data = saved(tmp_path / "d")
    expected = [TENSOR(x) for x in data["image"]]
    os.unlink(arrow_file(tmp_path / "d"))
    ours = ht.HFDataset(data, TENSOR)
    assert "was deleted since it was loaded" in ours.unserved
    with ht.DataLoader(ours, 4) as loader:
        assert equal(torch.cat([b["image"] for b in loader]), torch.stack(expected))


def test_an_image_file_that_is_missing(tmp_path):
    images = [str(tmp_path / f"{i}.png") for i in range(8)]
    for i, path in enumerate(images):
        with open(path, "wb") as file:
            file.write(image(i))
    data = datasets.Dataset.from_dict({"image": images}).cast_column("image", datasets.Image())
    ours = ht.HFDataset(data, TENSOR)
    assert ours.key(5) == images[5]
    os.unlink(images[5])
    with pytest.raises(errors.DatasetError, match=r"record 5, field image: .*5\.png"):
        ht.DataLoader(ours, 4)


def test_a_broken_image_names_its_row(tmp_path):
    images = [{"bytes": b"none" if i == 6 else image(i), "path": None} for i in range(8)]
    data = saved(tmp_path / "d", 8, images)
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 4) as loader:
        with pytest.raises(errors.SampleError, match="sample 6") as caught:
            list(loader)
    assert caught.value.sample == 6
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 4, on_error="skip") as loader:
        assert sum(len(batch["image"]) for batch in loader) == 7


def test_mixes(tmp_path):
    """Of datasets that have the same columns; others are refused, never delivered otherwise."""
    parts = [saved(tmp_path / name, count) for name, count in (("a", 20), ("b", 12))]
    mix = ht.Mix([ht.HFDataset(part, TENSOR) for part in parts], epoch_size=24)
    with ht.DataLoader(mix, 4, shuffle=True, seed=1) as loader:
        batches = list(loader)
    known = {text: x for part in parts for text, x in zip(part["text"], part["image"])}
    assert sum(len(batch["text"]) for batch in batches) == 24
    for batch in batches:
        assert equal(batch["image"], torch.stack([TENSOR(known[text]) for text in batch["text"]]))
    images = [None if i == 1 else {"bytes": image(i), "path": None} for i in range(4)]
    for other, message in (
        (parts[0].with_transform(transformed), "set_transform or with_format makes its rows"),
        (saved(tmp_path / "c", 4, images), "some rows have no 'image'"),
        (
            parts[0].cast_column("image", datasets.Image(decode=False)),
            r"column 'image' is delivered as bytes and path: give cast_column\('image', Image",
        ),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            ht.Mix([ht.HFDataset(other), ht.HFDataset(other)])


# What is left to Python.


def said(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_in_memory(tmp_path, caplog):
    data = datasets.Dataset.from_dict(rows(10), features=datasets.Features(FEATURES))
    ours = ht.HFDataset(data, TENSOR)
    expected = {"image": [TENSOR(x) for x in data["image"]]}
    with ht.DataLoader(ours, 4) as loader:
        batches = list(loader)
    assert equal(torch.cat([b["image"] for b in batches]), torch.stack(expected["image"]))
    assert equal(batches[0]["box"], next(iter(DataLoader(data.select_columns("box"), 4)))["box"])
    assert [line for line in said(caplog) if "column 'image': it lies in memory" in line]
    with pytest.raises(errors.ConfigError, match="cannot run in Python where column 'image'"):
        ht.HFDataset(data, [T.ToTensor()])
    plain = ht.HFDataset(data)
    for dataset in (plain, Subset(plain, range(7))):
        with ht.DataLoader(dataset, 4, num_workers=2) as loader:
            assert len(next(iter(loader))["image"]) == 4


def test_a_part_in_memory(tmp_path, caplog):
    there = saved(tmp_path / "d", 6)
    here = datasets.Dataset.from_dict(rows(3), features=there.features)
    data = datasets.concatenate_datasets([there, here]).with_transform(transformed)
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        assert equal(list(loader), list(DataLoader(data, 4)))
    assert [line for line in said(caplog) if "it lies in memory" in line]


def test_paths_elsewhere():
    images = ["https://example.org/a.jpg", "zip://a.jpg::https://example.org/x.zip"]
    data = datasets.Dataset.from_dict({"image": images}).cast_column("image", datasets.Image())
    assert "row 0 is https://example.org/a.jpg" in ht.HFDataset(data).unserved


def test_no_columns_of_files(tmp_path, caplog):
    data = saved(tmp_path / "d").select_columns(["text", "label"])
    with ht.DataLoader(ht.HFDataset(data), 4) as loader:
        assert equal(list(loader), list(DataLoader(data, 4)))
    assert [line for line in said(caplog) if "no column of images, sounds or bytes" in line]


def test_no_rows(tmp_path):
    data = saved(tmp_path / "d").select([])
    ours = ht.HFDataset(data, TENSOR)
    assert len(ours) == 0
    with ht.DataLoader(ours, 4) as loader:
        assert list(loader) == []


def test_images_within_lists(tmp_path, caplog):
    many = datasets.Features({**FEATURES, "more": datasets.List(datasets.Image())})
    given = {**rows(6), "more": [[{"bytes": image(i), "path": None}] * 2 for i in range(6)]}
    datasets.Dataset.from_dict(given, features=many).save_to_disk(str(tmp_path / "d"))
    data = datasets.load_from_disk(str(tmp_path / "d"))
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 3) as loader:
        batch = next(iter(loader))
    assert [len(column) for column in batch["more"]] == [3, 3]
    assert [x.size for x in batch["more"][1]] == [x.size for x in data["image"][:3]]
    assert [line for line in said(caplog) if "column more: List of Image is read and dec" in line]


def test_modes_that_the_daemon_does_not_decode(tmp_path, caplog):
    images = [{"bytes": image(i, "RGBA"), "path": None} for i in range(6)]
    data = saved(tmp_path / "d", 6, images)
    with ht.DataLoader(ht.HFDataset(data, TENSOR), 3) as loader:
        batches = list(loader)
    assert equal(
        torch.cat([b["image"] for b in batches]), torch.stack([*map(TENSOR, data["image"])])
    )
    assert [line for line in said(caplog) if "column image have mode RGBA" in line]


def test_without_the_wrapper(tmp_path, caplog):
    data = saved(tmp_path / "d").with_transform(transformed)
    for dataset in (data, Subset(data, range(20))):
        with ht.DataLoader(dataset, 4) as loader:
            assert equal(list(loader), list(DataLoader(data, 4)))
    assert len([line for line in said(caplog) if "hdmlp.torch.HFDataset(dataset" in line]) == 1


def test_a_streamed_dataset_stays_torchs(tmp_path):
    data = saved(tmp_path / "d").to_iterable_dataset().select_columns(["label"])
    with ht.DataLoader(data, 4) as loader:
        assert equal(list(loader), list(DataLoader(data, 4)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_streamed_dataset_that_is_wrapped(tmp_path, caplog, workers):
    data = saved(tmp_path / "d", num_shards=2)
    streamed = data.to_iterable_dataset(num_shards=2)
    with ht.DataLoader(
        ht.HFDataset(streamed, transform={"image": TENSOR}), 4, num_workers=workers
    ) as loader:
        batches = list(loader)
    found = {text: x for b in batches for text, x in zip(b["text"], b["image"])}
    assert equal([found[text] for text in data["text"]], [TENSOR(x) for x in data["image"]])
    assert len([line for line in said(caplog) if "the dataset is streamed" in line]) == 1
    with pytest.raises(errors.ConfigError, match="cannot run in Python where a dataset is stream"):
        ht.HFDataset(streamed, transform={"image": [T.ToTensor()]})
    with pytest.raises(errors.ConfigError, match="give a dict by column"):
        ht.HFDataset(streamed, TENSOR)


def test_copies_of_the_files_are_served_as_well(tmp_path):
    """Another place has the same rows: nothing is remembered of the first."""
    saved(tmp_path / "d")
    shutil.copytree(tmp_path / "d", tmp_path / "with space and ü")
    data = datasets.load_from_disk(str(tmp_path / "with space and ü"))
    ours = ht.HFDataset(data, TENSOR)
    assert not ours.unserved
    with ht.DataLoader(ours, 20) as loader:
        assert equal(next(iter(loader))["image"], torch.stack([*map(TENSOR, data["image"])]))


@pytest.mark.parametrize("transform", [None, TENSOR])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_images_of_which_some_are_missing(tmp_path, transform, batch_size):
    """In the only column of images: None, where the row has none, without workers too."""
    rows = [None if i % 3 == 1 else {"bytes": image(i), "path": None} for i in range(7)]
    features = datasets.Features({"image": datasets.Image()})
    made = datasets.Dataset.from_dict({"image": rows}, features=features)
    made.save_to_disk(str(tmp_path / "data"))
    dataset = ht.HFDataset(datasets.load_from_disk(str(tmp_path / "data")), transform)
    options = {"shuffle": False, "num_workers": 0, "collate_fn": list}
    with ht.DataLoader(dataset, batch_size, **options) as loader:
        items = [item["image"] for batch in loader for item in batch]
    assert [item is None for item in items] == [row is None for row in rows]


def test_files_that_are_replaced_before_there_is_a_loader(tmp_path):
    for name, numbers in (("a", range(8)), ("b", range(7, -1, -1))):
        rows = {"bytes": [b"%03d" % i * 100 for i in numbers], "number": list(numbers)}
        features = {"bytes": datasets.Value("binary"), "number": datasets.Value("int64")}
        made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
        made.save_to_disk(str(tmp_path / name))
    dataset = ht.HFDataset(datasets.load_from_disk(str(tmp_path / "a")))
    arrow = "data-00000-of-00001.arrow"
    (tmp_path / "b" / arrow).replace(tmp_path / "a" / arrow)
    with pytest.raises(errors.MismatchError, match="was written since this HFDataset was made"):
        ht.DataLoader(dataset, 4)


@pytest.mark.parametrize("form", [None, "numpy"])
def test_several_rows_by_index(tmp_path, form):
    """As ``datasets`` gives them: columns, with what is made of each row in them."""
    data = saved(tmp_path / "d", 7).with_format(form)
    ours = ht.HFDataset(data, TENSOR if form is None else None)
    for chosen in (slice(2, 5), slice(None, None, -3), slice(4, 2), range(1, 4), [6, -7]):
        found, wanted = ours[chosen], data[chosen]
        assert list(found) == list(wanted)
        assert list(found["label"]) == list(wanted["label"])
        if form is None:
            images = [TENSOR(image.convert("RGB")) for image in wanted["image"]]
            assert equal(found["image"], images)
    assert ours[torch.tensor(2)]["label"] == data[2]["label"]
    with pytest.raises(IndexError, match="record 7 is out of range"):
        ours[[0, 7]]


def test_values_without_a_byte(tmp_path):
    """Their buffer is no part of the file, but of pyarrow's own library."""
    features = datasets.Features({name: datasets.Value("binary") for name in ("a", "b")})
    columns = {"a": [b""] * 4, "b": [None, b"", b"", None]}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "d")
    data = datasets.load_from_disk(tmp_path / "d")
    ours = ht.HFDataset(data)
    assert all(name.endswith(".arrow") for name in ours._files.names)
    with ht.DataLoader(ours, 4, collate_fn=list, shuffle=False) as loader:
        (batch,) = loader
    assert [{n: None if v is None else bytes(v) for n, v in row.items()} for row in batch] == list(
        data
    )
