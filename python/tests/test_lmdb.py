"""LMDB environments: what py-lmdb wrote and read of them is on record (golden.txt)."""

import gzip
import hashlib
import pathlib
import shutil

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
from hdmlp import errors
from recordfiles import TENSOR, equal, image
from torch.utils.data import DataLoader, DistributedSampler

pytestmark = pytest.mark.usefixtures("real")

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "internal/source/formats/lmdb/testdata"
RECORDED = [line.split() for line in (GOLDEN / "golden.txt").read_text().splitlines()]


def unpacked(packed, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(packed) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    return path


@pytest.fixture
def case(tmp_path):
    def unpack(name):
        return unpacked(
            ROOT / f"python/tests/cases/{name}.mdb.gz", tmp_path / name / "data.mdb"
        ).parent

    return unpack


@pytest.mark.parametrize("kind, database, count, digest", RECORDED, ids=lambda x: str(x)[:12])
def test_records_are_those_of_py_lmdb(tmp_path, kind, database, count, digest):
    """Keys, places and values, read by Python and by the daemon, in the cursor's order."""
    path = unpacked(GOLDEN / f"{kind}.mdb.gz", tmp_path / "env" / "data.mdb")
    options = {} if database == "-" else {"database": database}
    if count == "0":
        with pytest.raises(errors.DatasetError, match=r"no samples|has no records"):
            hd.LMDB(path, **options)
        return
    data = hd.LMDB(path.parent, **options)
    assert len(data) == int(count)
    with hd.DataLoader(data, 50, shuffle=False, epochs=1) as loader:
        values = [value for batch in loader for value in batch.samples]
    found = hashlib.sha256()
    for i, value in enumerate(values):
        offset, length = data._place(0, i)
        offset *= length > 0  # py-lmdb does not say where an empty value is
        found.update(b"%s %d %d\n" % (data.key(i).hex().encode(), offset, length))
        found.update(value)
        assert data[i] == bytes(value)
    assert found.hexdigest() == digest


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, i):
        from io import BytesIO

        from PIL import Image

        # In the order of the keys: those of cats come first.
        number = 2 * i if i < 12 else 2 * (i - 12) + 1
        picture = Image.open(BytesIO(image(number, (10 + number, 9)))).convert("RGB")
        return TENSOR(picture), int(i >= 12)


@pytest.mark.parametrize("workers", [0, 2])
def test_keys_give_classes(case, workers):
    data = ht.LMDB(case("images"), label="prefix", transform=TENSOR)
    assert (data.classes, data.targets) == (["cat", "dog"], [0] * 12 + [1] * 11)
    assert data.key(12) == b"dog_001"
    samplers = [DistributedSampler(d, 2, 1, seed=4) for d in (data, Images())]
    with ht.DataLoader(data, 4, sampler=samplers[0], num_workers=workers) as loader:
        assert equal(list(loader), list(DataLoader(Images(), 4, sampler=samplers[1])))
        assert loader._content.making.recipe is None


def test_a_function_gives_labels(case):
    data = ht.LMDB(case("images"), label=lambda key, value: len(key) + len(value), transform=TENSOR)
    expected = [7 + len(image(n, (10 + n, 9))) for n in [*range(0, 23, 2), *range(1, 23, 2)]]
    with ht.DataLoader(data, 23, num_workers=0) as loader:
        assert next(iter(loader))[1].tolist() == expected
    assert data[3][1] == expected[3]


def test_datums(case):
    encoded = ht.LMDB(case("datums"), decoder="datum", transform=TENSOR)
    assert (encoded.fields, encoded.targets) == (("data",), [i % 5 for i in range(23)])
    with ht.DataLoader(encoded, 23) as loader:
        images, labels = next(iter(loader))
    assert loader._content.making.recipe is None
    assert labels.tolist() == [i % 5 for i in range(23)]
    assert equal(images[4], encoded[4][0])
    arrays = ht.LMDB(case("arrays"), decoder="datum")
    shapes = [(3, 4 + i % 3, 5) for i in range(12)]
    expected = [
        (numpy.arange(i, i + 15 * (4 + i % 3)) % 256).astype(numpy.uint8).reshape(shapes[i])
        for i in range(12)
    ]
    with ht.DataLoader(arrays, 12, num_workers=0) as loader:
        made, labels = next(iter(loader))
    assert [x.shape for x in made] == shapes
    assert all((numpy.asarray(x) == y).all() for x, y in zip(made, expected))
    assert labels.tolist() == list(range(12))


def test_a_datum_whose_bytes_are_not_those_of_its_shape_is_named(case):
    """Also if they would be those of an array of floats."""
    arrays = ht.LMDB(case("arrays"), decoder="datum")
    arrays._shapes[3] = (3, 1, 5)
    arrays._shapes[4] = (1, 1, 1)
    for i in (3, 4):
        with pytest.raises(Exception, match=r"a Datum of \d+ bytes, whose shape \(\d, 1, \d\) is"):
            arrays[i]
    with ht.DataLoader(arrays, 12, num_workers=0, on_error="skip") as loader:
        assert [len(batch[0]) for batch in loader] == [10]


def test_values_without_options(case):
    data = ht.LMDB(case("images"))
    with ht.DataLoader(data, 23) as loader:
        assert [bytes(v) for v in next(iter(loader))] == [data[i] for i in range(23)]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: hd.LMDB(p / "none"), "there is no such file"),
        (lambda p: hd.LMDB(p.parent), "the directory has no data.mdb"),
        (lambda p: hd.LMDB(p, database="x"), "no named databases"),
        (lambda p: hd.LMDB(p, decoder="x"), "allowed: 'raw', 'datum'"),
        (lambda p: hd.LMDB(p, label=3), "allowed: 'prefix', or a function"),
        (lambda p: hd.LMDB(p, label="prefix", decoder="datum"), "a Datum has its label"),
        (lambda p: hd.LMDB(p, decoder="datum"), "Datum"),
        (lambda p: hd.LMDB(__file__), "no meta page of LMDB"),
        (lambda p: hd.LMDB(5), "path"),
    ],
)
def test_wrong_arguments(case, make, message):
    with pytest.raises(errors.HDMLPError, match=message):
        make(case("images"))


def test_duplicate_keys_are_refused(tmp_path):
    path = unpacked(GOLDEN / "dups.mdb.gz", tmp_path / "data.mdb")
    with pytest.raises(errors.DatasetError, match=r"(?i)dup"):
        hd.LMDB(path)
