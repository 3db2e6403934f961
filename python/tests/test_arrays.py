"""Arrays in files: npy, raw and idx; windows of sequences. The oracle is numpy."""

import copy
import multiprocessing
import os
import pickle

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
from arrayfiles import idx
from hdmlp import errors
from object_server import BUCKET, ObjectServer
from recordfiles import equal
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

COUNT = 29


@pytest.fixture
def made(tmp_path):
    """Arrays of several types and shapes by name, in files of these names."""
    random = numpy.random.default_rng(1)
    arrays = {
        "bytes": random.integers(0, 256, (COUNT, 6, 5, 3), "u1"),
        "short": random.integers(-500, 500, (COUNT, 3), "i2"),
        "half": random.random((COUNT, 2, 2)).astype("f2"),
        "float": random.random((COUNT, 7)).astype("f4"),
        "double": random.random(COUNT),
        "long": random.integers(0, 9, COUNT),
        "truth": random.random((COUNT, 3)) < 0.5,
        "complex": (random.random((COUNT, 2)) + 1j).astype("c8"),
        "swapped": random.random((COUNT, 3)).astype(">f4"),
    }
    for name, array in arrays.items():
        numpy.save(tmp_path / f"{name}.npy", array)
    return tmp_path, arrays


class Reference(Dataset):
    """What a user of torch would write."""

    def __init__(self, arrays):
        self.arrays = {
            name: torch.from_numpy(a.astype(a.dtype.newbyteorder("=")))
            for name, a in arrays.items()
        }

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        return {name: array[i] for name, array in self.arrays.items()}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_arrays_come_as_from_torch(made, workers, rank):
    """In DistributedSampler's order, over two epochs, and in types of any size side by side."""
    root, arrays = made
    ours = ht.Arrays({name: root / f"{name}.npy" for name in arrays})
    theirs = Reference(arrays)
    assert len(ours) == COUNT
    assert all(equal(ours[i], theirs[i]) for i in (0, 3, -1))
    samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
    with ht.DataLoader(ours, 4, sampler=samplers[1], num_workers=workers) as loader:
        reference = DataLoader(theirs, 4, sampler=samplers[0])
        for epoch in range(2):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            assert equal(list(loader), list(reference))
        assert loader._content.making.recipe is None  # Python makes nothing
        assert all(t.data_ptr() % t.element_size() == 0 for t in next(iter(loader)).values())


def _doubled(item):
    return {name: value + value for name, value in item.items() if name != "truth"}


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_functions_run_in_workers(made, context):
    root, arrays = made
    ours = ht.Arrays({name: root / f"{name}.npy" for name in arrays}, transforms=_doubled)
    theirs = Reference(arrays)
    with ht.DataLoader(ours, 5, num_workers=2, multiprocessing_context=context) as loader:
        found = list(loader)
    wanted = [_doubled(theirs[i]) for i in range(COUNT)]
    assert equal(found, list(DataLoader(wanted, 5)))


def test_forms(made):
    root, arrays = made
    x, y = root / "float.npy", root / "long.npy"
    floats, longs = (torch.from_numpy(arrays[name]) for name in ("float", "long"))
    assert equal(next(iter(ht.DataLoader(ht.Arrays(x), 3))), floats[:3])
    assert equal(next(iter(ht.DataLoader(ht.Arrays((x, y)), 3))), [floats[:3], longs[:3]])
    labelled = ht.Arrays(x, labels=["b", "a"] * 14 + ["c"])
    assert labelled.classes == ["a", "b", "c"]
    assert equal(next(iter(ht.DataLoader(labelled, 3))), [floats[:3], torch.tensor([1, 0, 1])])
    twice = ht.Arrays({"x": x}, transform={"x": lambda t: t.double() * 2})
    assert equal(next(iter(ht.DataLoader(twice, 3))), {"x": floats[:3].double() * 2})
    part = Subset(ht.Arrays((x, y)), [4, 2, 9])
    assert equal(next(iter(ht.DataLoader(part, 3))), [floats[[4, 2, 9]], longs[[4, 2, 9]]])


@pytest.mark.parametrize("window", [None, 3])
def test_workers_start_by_themselves(made, caplog, window):
    """What HDMLP itself does with arrays has no state, also where a function takes the items."""
    root, _ = made
    data = ht.Arrays(root / "long.npy", window=window)
    with ht.DataLoader(data, 3, collate_fn=_first) as loader:
        next(iter(loader))
    assert "state of its own" not in caplog.text


def _first(items):
    return items[0]


def test_shards_follow_one_another(made):
    root, arrays = made
    numpy.save(root / "more.npy", arrays["float"][:4] + 1)
    data = ht.Arrays([root / "float.npy", root / "more.npy"])
    whole = numpy.concatenate([arrays["float"], arrays["float"][:4] + 1])
    with ht.DataLoader(data, 8) as loader:
        assert equal(torch.cat(list(loader)), torch.from_numpy(whole))
    assert data.key(30).endswith("more.npy")


def test_raw_files(made):
    root, arrays = made
    path = root / "raw.bin"
    path.write_bytes(b"12345678" + arrays["float"].tobytes())
    for shape in ((-1, 7), (COUNT, 7), (5, 7)):
        data = ht.Arrays(path, dtype="float32", shape=shape, offset=8)
        with ht.DataLoader(data, 40) as loader:
            n = len(data)
            assert equal(next(iter(loader)), torch.from_numpy(arrays["float"][:n]))
        assert n == (5 if shape[0] == 5 else COUNT)
    both = ht.Arrays(
        {"raw": path, "npy": root / "long.npy"},
        dtype={"raw": ">i2"},
        shape={"raw": (COUNT, 14)},
        offset={"raw": 8},
    )
    swapped = arrays["float"].view(">i2").astype("i2")
    assert equal(
        both[3], {"raw": torch.from_numpy(swapped[3]), "npy": torch.from_numpy(arrays["long"])[3]}
    )
    with ht.DataLoader(both, COUNT) as loader:
        assert equal(next(iter(loader))["raw"], torch.from_numpy(swapped))


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "f8"])
def test_idx_files(tmp_path, dtype):
    array = (numpy.random.default_rng(1).random((5, 2, 3)) * 200).astype(dtype)
    (tmp_path / "x-idx3").write_bytes(idx(array))
    with ht.DataLoader(ht.Arrays(tmp_path / "x-idx3"), 5) as loader:
        assert equal(next(iter(loader)), torch.from_numpy(array))


# Windows.


def nanogpt(data, starts, block_size):
    """x and y as nanoGPT's get_batch makes them."""
    x = torch.stack(
        [torch.from_numpy(data[i : i + block_size].astype(numpy.int64)) for i in starts]
    )
    y = torch.stack(
        [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(numpy.int64)) for i in starts]
    )
    return x, y


@pytest.mark.parametrize("stride, workers", [(1, 0), (16, 0), (5, 2), (40, 0)])
def test_windows_are_nanogpts(tmp_path, stride, workers):
    tokens = numpy.random.default_rng(2).integers(0, 50257, 300, "u2")
    tokens.tofile(tmp_path / "train.bin")
    data = ht.Arrays(tmp_path / "train.bin", dtype="uint16", window=16, stride=stride)
    memory = numpy.memmap(tmp_path / "train.bin", dtype=numpy.uint16, mode="r")
    starts = list(range(0, len(memory) - 16, stride))
    assert len(data) == len(starts)
    assert equal(data[1], tuple(t[0] for t in nanogpt(memory, starts[1:2], 16)))
    sampler = DistributedSampler(data, 1, 0, seed=5)
    with ht.DataLoader(data, 12, sampler=sampler, num_workers=workers) as loader:
        for ids, (x, y) in zip(torch.tensor(list(sampler)).split(12), loader):
            assert equal((x, y), nanogpt(memory, [starts[i] for i in ids], 16))
            assert x.is_contiguous()
            assert y.is_contiguous()


def test_windows_of_rows_and_shards(tmp_path):
    """Windows do not cross the ends of files, and may be of rows of floats."""
    rows = numpy.random.default_rng(2).random((50, 3)).astype("f4")
    paths = [tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "c.npy"]
    for path, part in zip(paths, (rows[:23], rows[23:27], rows[27:])):
        numpy.save(path, part)
    data = ht.Arrays(paths, window=4, shift=2, stride=3)
    starts = [*range(0, 23 - 5, 3), *range(27, 50 - 5, 3)]
    assert len(data) == len(starts)
    with ht.DataLoader(data, len(starts)) as loader:
        x, y = next(iter(loader))
    for i, start in enumerate(starts):
        assert equal(x[i], torch.from_numpy(rows[start : start + 4]))
        assert equal(y[i], torch.from_numpy(rows[start + 2 : start + 6]))
    alone = ht.Arrays(paths[0], window=4, shift=None)
    with ht.DataLoader(alone, 9) as loader:
        assert equal(next(iter(loader)), torch.from_numpy(rows[:20].reshape(5, 4, 3)))


def test_millions_of_windows_take_no_memory(tmp_path):
    """In the process: what a loader is given does not grow with the number of windows."""
    numpy.arange(3_000_100, dtype="u4").tofile(tmp_path / "train.bin")
    data = ht.Arrays(tmp_path / "train.bin", dtype="uint32", window=99, stride=1)
    assert len(data) == 3_000_001
    assert len(pickle.dumps(data)) < 4000
    with ht.DataLoader(data, 512, shuffle=True, seed=1) as loader:
        x, y = next(iter(loader))
        assert len(data._bytes) < 500
    assert torch.equal(x, x[:, :1] + torch.arange(99))
    assert torch.equal(y, x + 1)
    assert len(set(x[:, 0].tolist())) == 512


def test_resuming(tmp_path):
    numpy.arange(4000, dtype="u2").tofile(tmp_path / "t.bin")

    def loader():
        data = ht.Arrays(tmp_path / "t.bin", dtype="uint16", window=9, stride=7)
        return ht.DataLoader(data, 16, shuffle=True, seed=4, epochs=2)

    with loader() as whole:
        wanted = list(whole)
    with loader() as first:
        iterator = iter(first)
        found = [next(iterator) for _ in range(9)]
        state = copy.deepcopy(first.state_dict())
    with loader() as second:
        second.load_state_dict(state)
        found += list(second)
    assert equal(found, wanted)


# Images.


def test_images_of_arrays(made):
    """The daemon makes of pixels what torchvision makes of PIL images of them."""
    from PIL import Image

    root, arrays = made
    planes = numpy.ascontiguousarray(arrays["bytes"].transpose(0, 3, 1, 2))
    numpy.save(root / "planes.npy", planes)
    numpy.save(root / "gray.npy", arrays["bytes"][..., 0])
    steps = transforms.Compose(
        [transforms.Pad(2, fill=7), transforms.Resize((9, 8)), transforms.ToTensor()]
    )
    names = {"a": "bytes", "b": "planes", "c": "gray"}
    data = ht.Arrays(
        {field: root / f"{name}.npy" for field, name in names.items()},
        images=True,
        transform=dict.fromkeys(names, steps),
    )
    with ht.DataLoader(data, COUNT) as loader:
        found = next(iter(loader))
        assert loader._content.making.recipe is None
    colour = torch.stack([steps(Image.fromarray(a)) for a in arrays["bytes"]])
    gray = torch.stack([steps(Image.fromarray(a)) for a in arrays["bytes"][..., 0]])
    assert equal(found, {"a": colour, "b": colour, "c": gray})
    assert equal(data[2], {"a": colour[2], "b": colour[2], "c": gray[2]})
    plain = ht.Arrays(root / "planes.npy", images="0")[1]
    assert plain.size == (5, 6)
    assert (numpy.asarray(plain) == arrays["bytes"][1]).all()


@pytest.mark.parametrize("rest", [[], [lambda t: t + 1]])
def test_random_transforms_are_those_of_python(made, rest):
    root, _ = made
    steps = [transforms.RandomCrop(6, padding=3), transforms.RandomHorizontalFlip()]
    steps = transforms.Compose([*steps, transforms.ToTensor(), *rest])
    data = ht.Arrays(root / "bytes.npy", images=True, transform=steps)
    options = {"shuffle": True, "seed": 3}
    with (
        ht.DataLoader(data, 5, **options) as ours,
        ht.DataLoader(data, 5, offload=False, **options) as theirs,
    ):
        assert equal(list(ours), list(theirs))
        assert ours._content.making.transforms
        assert not theirs._content.making.transforms


# Without torch.


def test_numpy(made):
    root, arrays = made
    data = hd.Arrays((root / "swapped.npy", root / "long.npy"), labels=list(range(COUNT)))
    first, second, label = data[4]
    assert (first == arrays["swapped"][4]).all()
    assert (second, label) == (arrays["long"][4], 4)
    with hd.DataLoader(data, 7, shuffle=False) as loader:
        samples, labels = next(iter(loader))
    assert samples[0].dtype == numpy.dtype("f4")
    assert (samples[0] == arrays["swapped"][:7]).all()
    assert samples[1].dtype == numpy.dtype("i8")
    assert (samples[1] == arrays["long"][:7]).all()
    assert labels.tolist() == list(range(7))


# Errors.


def refused(match, *args, **options):
    with pytest.raises(errors.ConfigError, match=match):
        ht.Arrays(*args, **options)


def test_files_that_are_refused(made):
    root, arrays = made
    save = {
        "fortran": numpy.asfortranarray(arrays["float"]),
        "objects": numpy.array([{}, 1], object),
        "structure": numpy.zeros(3, [("a", "f4"), ("b", "i2")]),
        "texts": numpy.array(["a", "bc"]),
        "dates": numpy.array(["2026-01-01"], "M8[D]"),
        "number": numpy.float32(3),
        "empty": numpy.zeros((0, 3)),
        "hollow": numpy.zeros((3, 0)),
        "long double": numpy.zeros(3, numpy.longdouble),
    }
    for name, array in save.items():
        numpy.save(root / f"{name}.npy", array, allow_pickle=True)
    for name, match in {
        "fortran": "Fortran's order.*ascontiguousarray",
        "objects": "Python objects",
        "structure": "no tensors",
        "texts": "no tensors",
        "dates": "no tensors",
        "number": "one number, without an axis",
        "empty": r"shape is \(0, 3\)",
        "hollow": r"shape is \(3, 0\)",
        "long double": "no tensors",
        "nothing": "no such file",
    }.items():
        refused(match, root / f"{name}.npy")
    numpy.savez(root / "x.npz", a=arrays["float"])
    refused("numpy.save", root / "x.npz")
    (root / "x.gz").write_bytes(b"\x1f\x8b\x08")
    refused("gunzip", root / "x.gz")
    (root / "raw").write_bytes(bytes(range(1, 101)))
    refused("give dtype and shape", root / "raw")
    refused("give its dtype as well", root / "raw", shape=(3,))
    refused("no multiple of 12", root / "raw", dtype="f4", shape=(-1, 3))
    refused("ends at byte 120", root / "raw", dtype="f4", shape=(10, 3))
    for offset in (100, 99999):
        match = f"has 100 bytes, and offset={offset} is its end"
        refused(match, root / "raw", dtype="f4", offset=offset)
    refused("offset=-4: must be 0 or more", root / "raw", dtype="f4", offset=-4)
    refused("offset=True: must be a whole number", root / "raw", dtype="u1", offset=True)
    refused("shape=True: must be a whole number", root / "raw", dtype="u1", shape=(True, 2))
    refused("nothing else may be negative", root / "raw", dtype="f4", shape=(3, -1))
    refused("no tensors", root / "raw", dtype=[("a", "f4")])
    refused("dtype='f5'", root / "raw", dtype="f5")
    refused(r"samples of shape \(7,\).*float32.*\(3,\)", [root / "short.npy", root / "float.npy"])
    refused("0 has 29 samples, and 1 has 4", (root / "float.npy", _saved(root, arrays["long"][:4])))
    refused("labels has 2 entries, and there are 29", root / "float.npy", labels=[1, 2])
    refused("there is no field of that name", root / "float.npy", dtype={"x": "f4"})
    refused("images='x': there is no field", root / "float.npy", images="x")
    refused("float32 of shape", root / "float.npy", images=True)
    refused("not 1 or 3 channels", _saved(root, numpy.zeros((2, 4, 5, 6), "u1")), images=True)
    refused("windows are those of one array", (root / "long.npy",) * 2, window=3)
    refused("no file has as many as 29 places", root / "long.npy", window=29)
    refused("window=0", root / "long.npy", window=0)
    refused("window=True: must be a whole number", root / "long.npy", window=True)
    refused("stride=True: must be a whole number", root / "long.npy", window=2, stride=True)
    refused("shift=True: must be a whole number", root / "long.npy", window=2, shift=True)
    refused("give window as well", root / "long.npy", stride=2)
    refused("at most 268435456", _sparse(root, 1 << 29), dtype="u1", window=8, stride=1)


def _saved(root, array):
    numpy.save(root / "other.npy", array)
    return root / "other.npy"


def _sparse(root, size):
    with open(root / "sparse", "wb") as file:
        file.truncate(size)
    return root / "sparse"


def test_damaged_headers(made):
    """Whatever a header has, it is an error or the array that it describes, and nothing is run."""
    root, _ = made
    whole = (root / "float.npy").read_bytes()
    path = root / "damaged.npy"
    for at in range(0, 128):
        for value in (0, 0x27, 0x2C, 0x39, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                data = ht.Arrays(path)
            except errors.ConfigError:
                continue
            size = data._elements["0"].nbytes
            assert size * len(data) <= len(whole) - 64
    for length in (0, 5, 6, 8, 11, 60, 127, 128, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(r"damaged\.npy", path)


@pytest.mark.parametrize(
    "shape, match",
    [
        (b"(-1, 3)", r"damaged: its shape is \(-1, 3\)"),
        (b"(29, -3)", r"damaged: its shape is \(29, -3\)"),
        (b"(1<<62,)", "header is damaged: malformed"),
        (b"(29.0, 3)", "header is damaged: shape is not valid"),
        (b"(1, 1" + b"0" * 30 + b")", "it was cut off, or is another one"),
        (b"__import__('os').abort()", "header is damaged: malformed"),
    ],
)
def test_headers_that_lie(made, shape, match):
    root, _ = made
    whole = (root / "short.npy").read_bytes()
    head, rest = whole[:128].replace(b"(29, 3)", shape).rstrip(b"\n "), whole[128:]
    (root / "lie.npy").write_bytes(head.ljust(127) + b"\n" + rest)
    refused(match, root / "lie.npy")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_npy_files(made, version):
    root, arrays = made
    with open(root / "version.npy", "wb") as file:
        numpy.lib.format.write_array(file, arrays["float"], version=version)
    assert equal(list(ht.Arrays(root / "version.npy")), list(torch.tensor(arrays["float"])))
    with open(root / "version.npy", "wb") as file:
        numpy.lib.format.write_array(file, numpy.zeros(3, [("ä", "f4")]), version=(3, 0))
    refused("elements are .*ä.*no tensors", root / "version.npy")


def test_files_that_change(made):
    root, arrays = made
    path = root / "float.npy"
    data = ht.Arrays(path)
    numpy.save(path, arrays["float"].astype("f8"))
    with pytest.raises(errors.MismatchError, match=r"float\.npy was written since this Arrays"):
        ht.DataLoader(data, 4)
    data = ht.Arrays(path)
    with ht.DataLoader(data, 4) as loader:
        next(iter(loader))
    os.truncate(path, 200)
    with pytest.raises(errors.MismatchError, match="make a new one"):
        ht.DataLoader(data, 4)
    with pytest.raises(errors.SampleError, match="record 20"):
        data[20]
    os.remove(path)
    with pytest.raises(errors.ConfigError, match="there is no such file"):
        ht.DataLoader(data, 4)


def test_files_that_shrink_under_a_loader(made):
    root, _ = made
    with open(root / "big.bin", "wb") as file:
        file.write(os.urandom(1 << 22))
    data = ht.Arrays(root / "big.bin", dtype="u1", shape=(-1, 4096))
    with ht.DataLoader(data, 8, memory="1MB", source_threads=1) as loader:
        iterator = iter(loader)
        next(iterator)
        os.truncate(root / "big.bin", 5000)
        with pytest.raises((errors.SampleError, errors.MismatchError)):
            list(iterator)


@pytest.mark.parametrize("transform", [None, torch.neg])
def test_mixes_are_of_arrays_of_one_type(made, transform):
    """Arrays of another type or shape are an error, also where a sample has as many bytes."""
    root, arrays = made
    more = {
        "same": arrays["long"] + 100,
        "other": arrays["double"],
        "wide": arrays["long"][:, None],
    }
    for name, array in more.items():
        numpy.save(root / f"{name}.npy", array)
    first, same, other, wide = (
        ht.Arrays(root / f"{name}.npy", transform=transform)
        for name in ("long", "same", "other", "wide")
    )
    mix = ht.Mix([first, same])
    with ht.DataLoader(mix, 2 * COUNT, shuffle=True, seed=1) as loader:
        found = next(iter(loader))
    wanted = torch.from_numpy(numpy.concatenate([arrays["long"], more["same"]]))
    wanted = wanted if transform is None else transform(wanted)
    assert found.sort().values.tolist() == wanted.sort().values.tolist()
    for another in (other, wide):
        with pytest.raises(errors.ConfigError, match="differ in what is made of the field"):
            ht.Mix([first, another])


def test_the_header_of_an_npy_file_is_no_sample(made):
    """A type is given of raw files; that of an npy file is in its header."""
    root, _ = made
    with pytest.raises(errors.ConfigError, match="it is an npy file, which says its type"):
        ht.Arrays(root / "long.npy", dtype="float32")


def test_packed_arrays_are_npy_files(made, tmp_path):
    import hdmlp

    root, arrays = made
    data = ht.Arrays({"x": root / "swapped.npy", "y": root / "long.npy"}, labels=[7] * COUNT)
    hdmlp.pack(data, tmp_path / "out")
    packed = ht.WebDataset(str(tmp_path / "out" / "*.tar")).decode()
    assert len(packed) == COUNT
    item = packed[3]
    assert (numpy.asarray(item["x.npy"]) == arrays["swapped"][3]).all()
    assert (numpy.asarray(item["y.npy"]), item["cls"]) == (arrays["long"][3], 7)
    with pytest.raises(errors.ConfigError, match="windows overlap"):
        hdmlp.pack(ht.Arrays(root / "long.npy", window=3), tmp_path / "windows")


def test_arrays_at_urls(made, monkeypatch):
    """Headers, and no more, are asked for when the dataset is made."""
    root, arrays = made
    arrays["float"].tofile(root / "raw.bin")
    with ObjectServer(str(root), "-key", "the-id") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        data = ht.Arrays(
            {"x": f"s3://{BUCKET}/float.npy", "raw": f"s3://{BUCKET}/raw.bin"},
            dtype={"raw": "f4"},
            shape={"raw": (COUNT, 7)},
        )
        assert server.counts()["gets"] <= 3
        assert equal(data[4], dict.fromkeys(("x", "raw"), torch.from_numpy(arrays["float"][4])))
        with ht.DataLoader(data, COUNT) as loader:
            batch = next(iter(loader))
        assert equal(batch, dict.fromkeys(("x", "raw"), torch.from_numpy(arrays["float"])))
        with pytest.raises(errors.ConfigError, match="give the whole shape"):
            ht.Arrays(f"s3://{BUCKET}/raw.bin", dtype="f4")


def test_the_class_goes_to_other_processes(made):
    root, arrays = made
    data = pickle.loads(pickle.dumps(ht.Arrays(root / "float.npy")))
    assert equal(data[3], torch.from_numpy(arrays["float"][3]))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (data,)) == COUNT
