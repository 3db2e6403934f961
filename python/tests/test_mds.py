"""Shards of mosaicml-streaming. Those here are written by its layout; the oracle is what was given.

The library itself has read the same shards, by hand, with the same results.
"""

import decimal
import os
import struct

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
import recordfiles
from hdmlp import errors
from hdmlp._records import mds
from mdsfiles import change, image, write
from recordfiles import equal
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

COUNT = 17
COLUMNS = {
    "a": "ndarray:int16:2,3",
    "dynamic": "ndarray",
    "f": "float32",
    "half": "ndarray:float32",
    "i": "int",
    "j": "json",
    "n": "uint8",
    "raw": "bytes",
    "t": "str",
    "whole": "str_int",
    "x": "str_float",
    "z": "str_decimal",
}
TENSOR = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])


def sample(i):
    random = numpy.random.default_rng(i)
    return {
        "a": random.integers(-99, 99, (2, 3), "i2"),
        "dynamic": random.random((i % 3 + 1, 300)).astype("f4"),
        "f": numpy.float32(i / 3),
        "half": random.random((2, i + 1)).astype("f4"),
        "i": i - 5,
        "j": {"n": [i, None]},
        "n": numpy.uint8(i),
        "raw": bytes(i),
        "t": "ä" * i,
        "whole": 10**30 + i,
        "x": i / 7,
        "z": decimal.Decimal(i) / 10,
    }


@pytest.fixture
def shards(tmp_path):
    samples = [sample(i) for i in range(COUNT)]
    write(tmp_path, COLUMNS, samples)
    return tmp_path, samples


def same(mine, other):
    if isinstance(other, numpy.ndarray):
        return mine.dtype == other.dtype and mine.shape == other.shape and (mine == other).all()
    return type(mine) in (type(other), memoryview) and mine == other


def test_items_are_what_was_written(shards):
    root, samples = shards
    for path in (root, root / "index.json"):
        data = ht.MDS(path)
        assert len(data) == COUNT
        for i in range(COUNT):
            item = data[i]
            assert list(item) == sorted(COLUMNS)
            for name, value in samples[i].items():
                assert same(item[name], value), name
    assert list(ht.MDS(root, columns=["t", "i"])[3]) == ["t", "i"]


class Reference(torch.utils.data.Dataset):
    def __init__(self, samples, columns):
        self.samples, self.columns = samples, columns

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return {name: self.samples[i][name] for name in self.columns}


@pytest.mark.parametrize("columns", [["a", "f", "i", "n"], ["a", "i", "t", "x"]])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs(shards, columns, workers):
    """Of numbers, the daemon makes them; with texts, Python."""
    root, samples = shards
    for rank in (0, 1):
        ours, theirs = ht.MDS(root, columns=columns), Reference(samples, columns)
        samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
        with ht.DataLoader(ours, 4, sampler=samplers[1], num_workers=workers) as loader:
            for epoch in range(2):
                for sampler in samplers:
                    sampler.set_epoch(epoch)
                reference = DataLoader(theirs, 4, sampler=samplers[0])
                assert equal(list(loader), list(reference))
            assert (loader._content.making.recipe is None) == ("t" not in columns)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_images_are_the_daemons(tmp_path, context):
    samples = [{"png": image(i), "label": i} for i in range(COUNT)]
    write(tmp_path, {"png": "png", "label": "int"}, samples)
    wanted = torch.stack([TENSOR(s["png"]) for s in samples])
    data = ht.MDS(tmp_path, transform={"png": TENSOR})
    with ht.DataLoader(data, COUNT) as loader:
        batch = next(iter(loader))
        assert loader._content.making.recipe is None
    assert equal(batch, {"label": torch.arange(COUNT), "png": wanted})
    rest = transforms.Compose([TENSOR, torch.neg])
    data = ht.MDS(tmp_path, transform={"png": rest})
    with ht.DataLoader(data, COUNT, num_workers=1, multiprocessing_context=context) as loader:
        assert equal(next(iter(loader))["png"], -wanted)
    assert ht.MDS(tmp_path)[2]["png"].mode == "RGB"


def test_other_encodings_of_images(tmp_path):
    from io import BytesIO

    def jpeg(of):
        out = BytesIO()
        of.save(out, "JPEG")
        return out.getvalue()

    samples = [
        {"p": image(i), "l": [image(i), image(i + 1)], "j": [jpeg(image(i))]} for i in range(3)
    ]
    write(tmp_path, {"p": "pil", "l": "list[png]", "j": "jpeg_array"}, samples)
    item = ht.MDS(tmp_path)[1]
    assert item["p"].mode == "RGB"
    assert item["p"].tobytes() == image(1).tobytes()
    assert [x.tobytes() for x in item["l"]] == [image(1).tobytes(), image(2).tobytes()]
    assert [x.format for x in item["j"]] == ["JPEG"]


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGBA", "1", "I;16"])
def test_pil_images_keep_their_mode(tmp_path, mode):
    """As mosaicml-streaming gives them: Image.frombytes of the mode that is stored."""
    made = image(3).convert("L").convert(mode) if mode == "I;16" else image(3).convert(mode)
    write(tmp_path, {"p": "pil"}, [{"p": made}])
    own = ht.MDS(tmp_path)[0]["p"]
    assert (own.mode, own.size, own.tobytes()) == (mode, made.size, made.tobytes())


def test_values_that_cannot_be_decoded_name_their_file(shards):
    root, _ = shards
    path = root / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace("ä".encode() * 4, b"\xff" * 8))
    data = ht.MDS(root)
    with pytest.raises(errors.SampleError, match=r"record 4 \(.*shard.00000.mds\): field t: Uni"):
        data[4]
    with pytest.raises(errors.SampleError, match=r"shard.00000.mds.*field t"):
        list(ht.DataLoader(data, 4, shuffle=False, collate_fn=list))


def test_bytes_with_a_transform_are_images(tmp_path):
    """As of Parquet and TFRecord; without one they stay bytes."""
    write(tmp_path, {"raw": "bytes"}, [{"raw": recordfiles.image(i)} for i in range(5)])
    with ht.DataLoader(ht.MDS(tmp_path, transform={"raw": TENSOR}), 5, shuffle=False) as loader:
        (batch,) = loader
    assert batch["raw"].shape == (5, 3, 8, 8)
    assert equal(batch["raw"][2], ht.MDS(tmp_path, transform={"raw": TENSOR})[2]["raw"])
    assert bytes(ht.MDS(tmp_path)[2]["raw"]) == recordfiles.image(2)


def test_numpy(shards):
    root, samples = shards
    data = hd.MDS(root, columns=["a", "t"])
    assert same(data[2]["a"], samples[2]["a"])
    with hd.DataLoader(data, 5, shuffle=False) as loader:
        batch = next(iter(loader)).samples
    assert (batch["a"] == numpy.stack([s["a"] for s in samples[:5]])).all()
    assert [bytes(x).decode() for x in batch["t"]] == [s["t"] for s in samples[:5]]


def refused(match, *args, kind=errors.ConfigError, **options):
    with pytest.raises(kind, match=match):
        ht.MDS(*args, **options)


def test_what_is_refused(shards):
    root, _ = shards
    refused("there is no 'y'; there are a, ", root, columns=["y"])
    refused("columns: 'i' is given twice", root, columns=["i", "a", "i"])
    refused("no such file", root / "none", kind=errors.DatasetNotFoundError)
    (root / "odd").mkdir()
    for text, match in {
        "{": "no JSON",
        "[]": "lists no shards",
        '{"shards": []}': "lists no shards",
        '{"shards": [{}]}': "shard 0 is not as mosaicml-streaming writes it",
        '{"shards": [{"format": 3}]}': "writes it: it has no 'version'",
        '{"shards": [3]}': "shard 0 is not as .*: it is 3: take the file once more",
        "[" * 100_000: "no JSON",
    }.items():
        (root / "odd" / "index.json").write_text(text)
        refused(match, root / "odd")


@pytest.mark.parametrize(
    "edit, match",
    [
        (lambda s: s[1].update(samples=3), "it has 5 samples, and index.json says 3"),
        (lambda s: s[1].update(samples=1 << 40), "its offsets alone"),
        (lambda s: s[1].update(samples=-1), "-1 samples"),
        (lambda s: s[1].update(version=1), "version 1"),
        (lambda s: s[1].update(format="json"), "format json"),
        (lambda s: s[1]["raw_data"].update(bytes=7), "and index.json says 7"),
        (lambda s: s[1]["raw_data"].update(basename="../x"), "is not beside it"),
        (lambda s: s[1]["raw_data"].update(basename="/etc/passwd"), "is not beside it"),
        (lambda s: s[1]["column_encodings"].__setitem__(0, "int"), "columns of shard 1 are not"),
        (lambda s: s[1]["column_names"].pop(), "other numbers of names"),
        (lambda s: [x["column_sizes"].__setitem__(4, 4) for x in s], "the shard is damaged"),
        (
            lambda s: [x["column_encodings"].__setitem__(4, "int8") for x in s],
            r"/index\.json: column .*int8 has 1 bytes",
        ),
        (
            lambda s: [x["column_encodings"].__setitem__(8, "pkl") for x in s],
            r"/index\.json: column 't' is a pickle",
        ),
        (
            lambda s: [x["column_encodings"].__setitem__(8, "new") for x in s],
            r"/index\.json: .* encoding 'new'",
        ),
    ],
)
def test_an_index_that_lies(shards, edit, match):
    root, _ = shards
    change(root, edit)
    refused(match, root)


def test_shards_that_lie(shards):
    """Whatever the offsets and sizes at the heads say: an error, or the bytes of the shard."""
    root, _ = shards
    path = root / "shard.00001.mds"
    whole = path.read_bytes()
    first = struct.unpack_from("<I", whole, 4)[0]
    for at in (*range(0, 28, 4), first, first + 4):
        for value in (0, 1, 40, first - 1, len(whole), 0xFFFFFFFF):
            damaged = bytearray(whole)
            struct.pack_into("<I", damaged, at, value)
            path.write_bytes(damaged)
            if bytes(damaged) == whole:
                continue
            refused(r"shard\.00001\.mds: .*(damaged|samples)", root)


def test_shards_that_are_compressed_or_gone(shards):
    root, samples = shards
    change(root, lambda s: s[1].update(compression="zstd:3", zip_data={"basename": "x"}))
    assert len(ht.MDS(root)) == COUNT  # it was decompressed beside the index
    os.remove(root / "shard.00001.mds")
    refused(r"compressed \(zstd:3\).*decompress them once", root)
    change(root, lambda s: s[1].update(compression=None))
    refused("no such file, and .*index.json lists it", root, kind=errors.DatasetNotFoundError)
    write(root, COLUMNS, samples)
    data = ht.MDS(root)
    write(root, COLUMNS, samples[1:])
    with pytest.raises(errors.MismatchError, match="was written since this MDS was made"):
        list(ht.DataLoader(data, 4))


def test_columns_that_vary_at_urls(shards, monkeypatch):
    """Only the samples say where each ends: refused before a byte of a shard is asked for."""
    root, _ = shards

    def read(path, *_):
        assert path == "s3://bucket/data/index.json"
        return (root / "index.json").read_bytes()

    monkeypatch.setattr(mds, "read_file", read)
    refused(
        r"00000.mds: its samples have 8 columns whose sizes vary \(dynamic, half.*copy the "
        "shards to a file system, or write them with one",
        "s3://bucket/data",
    )


def test_a_pickle_has_a_loader(shards):
    root, samples = shards
    change(root, lambda s: [x["column_encodings"].__setitem__(8, "pkl") for x in s])
    data = ht.MDS(root, columns=["t"], loader={"t": lambda data: bytes(data).decode()})
    assert data[3] == {"t": samples[3]["t"]}
