"""hdmlp.pack: the items that a dataset has are packed, all of them, in shards that can be read."""

import gzip
import pathlib
import tarfile

import hdmlp
import pytest
from hdmlp import data as plain
from hdmlp.errors import ConfigError

CASES = pathlib.Path(__file__).parents[2] / "internal/source/formats/lmdb/testdata"


def members(directory):
    """The names and contents of all shards' members, which must differ in a shard."""
    found = []
    for path in sorted(directory.glob("*.tar")):
        with tarfile.open(path) as archive:
            part = [(member.name, archive.extractfile(member).read()) for member in archive]
        assert len({name for name, _ in part}) == len(part)
        found += part
    return found


def packed(dataset, tmp_path, **options):
    hdmlp.pack(dataset, tmp_path / "out", **options)
    return members(tmp_path / "out")


@pytest.fixture
def paths(tmp_path):
    made = [tmp_path / name for name in ("a.bin", "b.bin", "c.bin")]
    for path in made:
        path.write_bytes(path.name.encode())
    return made


class LooksLikeASubset:
    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        return {"bin": b"changed %d" % i}


def test_a_dataset_that_has_another_one_is_asked_itself(tmp_path):
    data = LooksLikeASubset([{"bin": b"of the other"}] * 2, [0, 1])
    assert [content for _, content in packed(data, tmp_path)] == [b"changed 0", b"changed 1"]


def test_a_subclass_of_subset_is_asked_itself(tmp_path):
    data = pytest.importorskip("torch.utils.data")

    class Changed(data.Subset):
        def __getitem__(self, i):
            return {"bin": b"changed"}

        def __getitems__(self, indices):
            return [self[i] for i in indices]

    assert packed(Changed([{"bin": b"1"}], [0]), tmp_path) == [("000000000.bin", b"changed")]


def test_a_subclass_of_files_is_asked_itself(paths, tmp_path):
    class Upper(plain.Files):
        def __getitem__(self, i):
            return {"txt": super().__getitem__(i).upper()}

    made = packed(Upper(paths), tmp_path)
    assert [content for _, content in made] == [b"A.BIN", b"B.BIN", b"C.BIN"]


def test_subsets_may_count_from_the_end(paths, tmp_path):
    data = pytest.importorskip("torch.utils.data")
    made = packed(data.Subset(plain.Files(paths), [-1, 0, -2]), tmp_path)
    assert [name for name, _ in made] == ["c.bin", "a.bin", "b.bin"]


def test_shards_count_from_the_end_as_well(real, paths, tmp_path):
    data = pytest.importorskip("torch.utils.data")
    hdmlp.pack(plain.Files(paths), tmp_path / "shards")
    shards = plain.WebDataset(tmp_path / "shards" / "*.tar")
    made = packed(data.Subset(shards, [-1, 0]), tmp_path)
    assert made == [("c.bin", b"c.bin"), ("a.bin", b"a.bin")]


def test_a_label_is_not_lost_beside_a_file_of_its_name(paths, tmp_path):
    renamed = tmp_path / "x.cls"
    renamed.write_bytes(b"x")
    data = plain.Files([renamed], [5])
    with pytest.raises(ConfigError, match="a file and its label would both be called cls: give"):
        packed(data, tmp_path)
    assert packed(data, tmp_path, fields=("bin",)) == [("x.bin", b"x"), ("x.cls", b"5")]


def test_labels_that_a_function_makes_are_packed(real, tmp_path):
    path = tmp_path / "data.mdb"
    path.write_bytes(gzip.decompress((CASES / "one.mdb.gz").read_bytes()))
    data = plain.LMDB(path, label=lambda key, value: len(key) + len(value))
    (value, label), (_, other) = data[0], packed(data, tmp_path)
    assert other[0].endswith(".cls")
    assert (int(other[1]), label) == (label, len(data.key(0)) + len(value))


def test_two_fields_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="item 0: two of its fields would be called a"):
        packed([{"A": b"1", "a": b"2"}], tmp_path)
    with pytest.raises(ConfigError, match=r"'txt': .*surrogates not allowed; give bytes"):
        packed([{"txt": "\udcff"}], tmp_path)


@pytest.mark.parametrize(
    "keys, expected",
    [
        (["k", "k-2", "k"], ["k", "k-2", "k-2-2"]),
        (["k", "k", "k-1"], ["k", "k-1", "k-1-2"]),
    ],
)
def test_no_two_samples_of_a_shard_have_one_key(tmp_path, keys, expected):
    items = [{"__key__": key, "bin": b"%d" % i} for i, key in enumerate(keys)]
    made = packed(items, tmp_path)
    assert made == [(f"{key}.bin", b"%d" % i) for i, key in enumerate(expected)]
    assert packed(items, tmp_path) == made  # goes on after the last
