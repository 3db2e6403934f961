"""Labels and values of records, and the tables that have them: nothing wrong without a word."""

import gzip
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
import numpy
from hdmlp import errors
from recordfiles import equal, image
from torch.utils.data import DataLoader, default_collate

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def paths(tmp_path):
    made = [tmp_path / name for name in "abcd"]
    for path in made:
        path.write_bytes(path.name.encode())
    return list(map(str, made))


class Series:
    """Indexed by its labels, as pandas' is: those of rows that were shuffled."""

    ndim = 1
    iloc = None

    def __init__(self, values, index):
        self.by_label = dict(zip(index, values))

    def __len__(self):
        return len(self.by_label)

    def __getitem__(self, label):
        return self.by_label[label]

    def to_numpy(self):
        return numpy.array(list(self.by_label.values()))


def test_values_of_shuffled_rows_are_taken_by_position(paths):
    index = [3, 1, 0, 2]
    data = ht.Records(
        Series(paths, index),
        {"x": range(4)},
        values={"v": Series([10, 11, 12, 13], index)},
        labels=Series([5, 6, 7, 8], index),
    )
    expected = [{"v": 10 + i, "x": b"abcd"[i : i + 1], "label": 5 + i} for i in range(4)]
    assert list(data) == expected
    with ht.DataLoader(data, 4, collate_fn=list) as loader:
        assert next(iter(loader)) == expected
    assert list(ht.Files(Series(paths, [7, 8, 9, 5]))) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("given", [{0: 5, 1: 6}, {5, 6}, "ab", numpy.array(3)])
def test_what_has_no_order_is_refused(paths, given):
    two = paths[:2]
    with pytest.raises(errors.ConfigError, match=r"^labels is of type .* in their order"):
        ht.Files(two, given)
    with pytest.raises(errors.ConfigError, match=r"^values\['v'\] is of type"):
        ht.Records(two, {"x": [0, 1]}, values={"v": given})
    if not isinstance(given, str):
        with pytest.raises(errors.ConfigError, match=r"^paths is of type"):
            ht.Files(given)


def test_a_field_and_the_label_cannot_have_one_name(paths):
    for make in (
        lambda: ht.Files([{"label": paths[0]}], [5]),
        lambda: ht.Records(paths, {"label": [0]}, labels=[5]),
        lambda: ht.Records(paths, {"x": [0]}, {"label": [1]}, labels=[5]),
    ):
        with pytest.raises(errors.ConfigError, match="'label'"):
            make()
    assert ht.Files([{"label": paths[0]}])[0] == {"label": b"a"}
    with pytest.raises(errors.ConfigError, match=r"paths\[0\] has the key 5: keys must be texts"):
        ht.Files([{5: paths[0]}])


@pytest.mark.parametrize("loader", [None, len])
def test_batches_have_values_as_torch_collates_them(paths, loader):
    values = {
        "i": [1, 2, 3, 4],
        "f": numpy.arange(4) / 2,
        "s": list("wxyz"),
        "t": torch.ones(4, 2),
        "n": [{"a": k} for k in range(4)],
    }
    data = ht.Records(paths, {"x": range(4)}, values, loader=loader)
    with ht.DataLoader(data, 4, num_workers=0) as loader:
        assert equal(next(iter(loader)), default_collate(list(data)))


@pytest.mark.parametrize(
    "rows",
    [
        numpy.arange(8, dtype=">i4").reshape(4, 2),
        numpy.arange(8.0).reshape(4, 2)[::-1],
        numpy.arange(16, dtype=numpy.int16).reshape(4, 4)[:, ::-2],
        numpy.array([["a", "b"]] * 4),
        torch.arange(8).reshape(2, 4).T,
    ],
)
def test_rows_of_any_array(paths, rows):
    with ht.DataLoader(ht.Files(paths, rows), 4, num_workers=0) as loader:
        made = next(iter(loader))[1]
    assert equal(made, rows) if torch.is_tensor(rows) else numpy.array_equal(made, rows)


def table(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize(
    "cells, targets, classes",
    [
        (["1_11", "11_1", "1_1"], [2, 0, 1], ["11_1", "1_1", "1_11"]),
        (["٣", "1", "2"], [2, 0, 1], ["1", "2", "٣"]),
        (["nan", "inf", "nan"], [1, 0, 1], ["inf", "nan"]),
        ([" 7", "007", "+7"], [7, 7, 7], []),
        (["1e3", ".5", "-2."], [1000.0, 0.5, -2.0], []),
        (["inf", "1", "2"], [float("inf"), 1.0, 2.0], []),
    ],
)
def test_only_numbers_are_numbers(paths, tmp_path, cells, targets, classes):
    text = "path,y\n" + "".join(f"a,{cell}\n" for cell in cells)
    data = hd.Files.from_csv(table(tmp_path, text), label="y")
    assert (data.targets, data.classes) == (targets, classes)


def test_a_label_that_is_missing_is_not_a_class(paths, tmp_path):
    given = table(tmp_path, "path,y,z\na,3,x\nb,,y\nc,5,\n")
    for label, line in (("y", 3), ("z", 4), (["z", "y"], 4)):
        with pytest.raises(errors.ConfigError, match=rf"t.csv, line {line}: [yz] is empty, and is"):
            hd.Files.from_csv(given, label=label)
    kept = hd.Files.from_csv(given, label="y", where=lambda row: row["y"])
    assert kept.targets == [3, 5]


def test_several_labels_are_rows_only_if_they_are_numbers(paths, tmp_path):
    given = table(tmp_path, "path,y,z,n\na,3,x,1\nb,5,y,.5\n")
    assert hd.Files.from_csv(given, label=["y", "z"]).targets == [(3, "x"), (5, "y")]
    assert hd.Files.from_csv(given, label=["y", "n"]).targets == [[3, 1], [5, 0.5]]


def test_tables_by_their_names(paths, tmp_path):
    assert hd.Files.from_csv(table(tmp_path, "path\ty\na\t1\n", "T.TSV"), label="y").targets == [1]
    lines = table(tmp_path, '{"path": "a", "y": 2}\n', "t.ndjson")
    assert hd.Files.from_csv(lines, label="y").targets == [2]
    twice = table(tmp_path, '{"path": "a", "path": "b"}\n', "t.jsonl")
    with pytest.raises(errors.ConfigError, match="line 1: 'path' is there twice"):
        hd.Files.from_csv(twice)


def npz():
    file = io.BytesIO()
    numpy.savez(file, a=numpy.arange(2))
    return file.getvalue()


def test_files_are_decoded_by_their_own_suffixes(tmp_path):
    """And not by that of the first file of the list."""
    contents = {
        "a.txt": b"1",
        "b.json": b'{"x": 1}',
        "c.CLS": b"3",
        "d.png": image(1),
        "e.npz": npz(),
        "f.json.gz": gzip.compress(b"[4]"),
        "g.raw": b"5",
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    data = ht.Files([tmp_path / name for name in contents], decode=True)
    items = list(data)
    assert items[:3] == ["1", {"x": 1}, 3]
    assert (items[3].mode, items[4]["a"].tolist(), items[5:]) == ("RGB", [0, 1], [[4], b"5"])
    with ht.DataLoader(data, 7, collate_fn=list, num_workers=0) as loader:
        made = next(iter(loader))
    assert made[:3] + made[5:] == items[:3] + items[5:]
    sizes = ht.Files([tmp_path / "a.txt", tmp_path / "d.png"], transform=lambda x: type(x).__name__)
    assert list(sizes) == ["bytes", "Image"]
    parts = ht.Records([tmp_path / "g.raw"], {"json": ([0], [0], [1])}, decode=True)
    assert parts[0] == {"json": 5}


def test_a_mask_is_looked_for_where_there_is_one(tmp_path):
    from PIL import Image

    Image.new("L", (4, 4)).save(tmp_path / "mask.png")
    (tmp_path / "a.png").write_bytes(image(1))
    with pytest.raises(errors.ConfigError, match="the field '1' has images of mode 'L'"):
        pairs = [(tmp_path / "a.png", None), (tmp_path / "a.png", tmp_path / "mask.png")]
        ht.Files(pairs, decode=True)


@pytest.mark.parametrize(
    "name, message",
    [
        ("none", "there is no such file: check the path"),
        (".", "it is a directory: give the path of a file"),
        ("a/b", "a part of its path is no directory"),
    ],
)
def test_why_a_file_cannot_be_read(paths, tmp_path, name, message):
    with pytest.raises(errors.SampleError, match=rf"^record 0 \(.*\): {message}"):
        hd.Files([tmp_path / name])[0]


def test_ranges_outside_of_a_file(paths):
    for offset, length in ((5, -2), (1 << 62, -2), (1 << 62, 1), (0, 1 << 62)):
        data = hd.Records(paths, {"x": ([0], [offset], [length])})
        with pytest.raises(errors.SampleError, match=r"it has 1 bytes, and|1 bytes from byte 0"):
            data[0]


def test_files_of_an_item_must_have_an_order(paths):
    class Mine(ht.FileDataset):
        def __len__(self):
            return 1

        def files_of(self, i):
            return {"a": paths[0]}

        def make(self, i, data):
            return bytes(data)

    with pytest.raises(errors.ConfigError, match="it must return a path, or a list or tuple"):
        Mine()[0]


def test_truth_values_are_no_numbers(paths):
    """A mask that indexes a batch must stay one."""
    given = numpy.array([True, False, True, True])
    data = ht.Files(paths, given)
    assert data[1][1] is False
    for options in ({}, {"collate_fn": default_collate_of_labels}):
        with ht.DataLoader(data, 4, num_workers=0, **options) as loader:
            labels = next(iter(loader))[1]
        assert equal(labels, torch.tensor(given))
    assert ht.Files(paths, given, classes=["no", "yes"]).targets == [1, 0, 1, 1]


def default_collate_of_labels(items):
    return None, default_collate([label for _, label in items])


def test_an_error_says_that_loaders_give_memoryviews(paths):
    data = ht.Files(paths, loader=lambda data: data.decode())
    assert data[0] == "a"
    with ht.DataLoader(data, 4, num_workers=0) as loader:
        with pytest.raises(AttributeError) as raised:
            next(iter(loader))
    notes = getattr(raised.value, "__notes__", ["a read-only memoryview"])
    assert any("a read-only memoryview" in note for note in notes)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_that_are_not_batched_are_converted_as_by_torch(paths, workers):
    loader = len
    for data in (
        ht.Files(paths, numpy.ones((4, 2)), loader=loader),
        ht.Files(paths, [1, 2, 3, 4]),
        ht.Files([(path, path) for path in paths]),
        ht.Records(paths, {"x": range(4)}, {"v": numpy.arange(4)}, loader=loader),
    ):
        expected = list(DataLoader(data, batch_size=None))
        with ht.DataLoader(data, batch_size=None, num_workers=workers) as ours:
            made = list(ours)
        assert equal(made, expected)
        assert list(map(type, made)) == list(map(type, expected))


@pytest.mark.parametrize("kind", ["?", "i1", "u4", "f4", "f8", "U1"])
def test_scalars_of_numpy_are_what_their_array_is(paths, kind):
    """As comprehensions over columns of tables have them."""
    array = numpy.array([1, 0, 1, 1]).astype(kind)
    for labels in (array, list(array)):
        data = ht.Files(paths, labels)
        assert data.classes == (["0", "1"] if kind == "U1" else [])
        with ht.DataLoader(data, 4) as loader:
            found = next(iter(loader))[1]
        assert found.tolist() == [1, 0, 1, 1]
        assert found.dtype == {"?": torch.bool, "f4": torch.float64, "f8": torch.float64}.get(
            kind, torch.int64
        )
