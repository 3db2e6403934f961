"""HDF5 files. The oracle is h5py."""

import os

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
h5py = pytest.importorskip("h5py")

import hdmlp.data as hd
import hdmlp.torch as ht
from hdmlp import errors
from recordfiles import equal
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

COUNT = 23


class Reference(Dataset):
    """What a user of h5py writes."""

    def __init__(self, path, *names):
        with h5py.File(path) as file:
            self.arrays = [torch.from_numpy(native(file[name][...])) for name in names]

    def __len__(self):
        return len(self.arrays[0])

    def __getitem__(self, i):
        return tuple(array[i] for array in self.arrays)


def native(array):
    return array.astype(array.dtype.newbyteorder("="))


def fill(file, **arrays):
    """Datasets of every layout that is read in place; ``arrays`` are further ones."""
    random = numpy.random.default_rng(1)
    x = random.integers(-999, 999, (COUNT, 4, 5, 2), "i2")
    file.create_dataset("plain", data=x)
    file.create_dataset("one", data=x + 1, chunks=(1, 4, 5, 2))
    file.create_dataset("some", data=x + 2, chunks=(4, 4, 5, 2))
    file.create_dataset("group/inner", data=random.random((COUNT, 3)).astype(">f8"))
    file.create_dataset("y", data=numpy.arange(COUNT))
    file.create_dataset("truth", data=random.random(COUNT) < 0.5)
    grown = file.create_dataset("grown", (0, 3), "f4", maxshape=(None, 3), chunks=(2, 3))
    for i in range(COUNT):  # chunks of two datasets lie between one another
        grown.resize(i + 1, 0)
        grown[i] = i
    for name, array in arrays.items():
        file.create_dataset(name, data=array)


NAMES = ("plain", "one", "some", "group/inner", "y", "truth", "grown")


@pytest.mark.parametrize("version", [("earliest", "v108"), ("latest", "latest")])
@pytest.mark.parametrize("block", [0, 1024])
def test_datasets_come_as_h5py_reads_them(tmp_path, version, block):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=version, userblock_size=block) as file:
        fill(file)
    theirs, ours = Reference(path, *NAMES), ht.HDF5(path, *NAMES)
    assert len(ours) == COUNT
    assert all(equal(ours[i], theirs[i]) for i in range(COUNT))
    for rank in (0, 1):
        samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
        with ht.DataLoader(ours, 4, sampler=samplers[1]) as loader:
            assert equal(list(loader), list(DataLoader(theirs, 4, sampler=samplers[0])))
            assert loader._content.making.recipe is None


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers(tmp_path, context):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        fill(file)
    ours = ht.HDF5(path, "one", "y", transform={"one": torch.neg})
    with ht.DataLoader(ours, 6, num_workers=2, multiprocessing_context=context) as loader:
        found = list(loader)
    for (x, y), (mine, label) in zip(DataLoader(Reference(path, "one", "y"), 6), found):
        assert equal((mine, label), (-x, y))


def test_several_files_and_forms(tmp_path):
    paths = [tmp_path / f"{i}.h5" for i in range(3)]
    for path in paths:
        with h5py.File(path, "w") as file:
            fill(file)
    alone = ht.HDF5(paths, "plain", labels=list(range(3 * COUNT)))
    with ht.DataLoader(alone, COUNT) as loader:
        for i, (x, label) in enumerate(loader):
            assert equal(x, Reference(paths[0], "plain").arrays[0])
            assert label.tolist() == list(range(i * COUNT, (i + 1) * COUNT))
    plain = hd.HDF5(paths[0], "plain")
    with hd.DataLoader(plain, COUNT, shuffle=False) as loader:
        assert (next(iter(loader)).samples == Reference(paths[0], "plain").arrays[0].numpy()).all()


def test_files_that_are_records(tmp_path):
    """CosmoFlow's layout: a volume of int16 with 4 channels, and 4 parameters, in each file."""
    random = numpy.random.default_rng(1)
    volumes = random.integers(0, 99, (5, 6, 6, 6, 4), "i2")
    parameters = random.random((5, 4)).astype("f4")
    for i in range(5):
        with h5py.File(tmp_path / f"{i}.hdf5", "w") as file:
            chunks = (6, 6, 6, 4) if i % 2 else None
            file.create_dataset("full", data=volumes[i], chunks=chunks)
            file.create_dataset("unitPar", data=parameters[i])
            file.create_dataset("namePar", data=[b"a", b"b"])
    data = ht.HDF5(sorted(tmp_path.glob("*.hdf5")), "full", "unitPar", whole=True)
    assert len(data) == 5
    with ht.DataLoader(data, 5) as loader:
        found = next(iter(loader))
    assert equal(found, [torch.from_numpy(volumes), torch.from_numpy(parameters)])
    assert equal(data[3][0], torch.from_numpy(volumes[3]))


def test_images(tmp_path):
    from PIL import Image

    images = numpy.random.default_rng(1).integers(0, 256, (COUNT, 9, 8, 3), "u1")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = images
    steps = transforms.Compose([transforms.CenterCrop(6), transforms.ToTensor()])
    data = ht.HDF5(tmp_path / "a.h5", "images", images=True, transform=steps)
    with ht.DataLoader(data, COUNT) as loader:
        wanted = torch.stack([steps(Image.fromarray(x)) for x in images])
        assert equal(next(iter(loader)), wanted)
        assert loader._content.making.recipe is None


def refused(match, *args, **options):
    with pytest.raises(errors.ConfigError, match=match):
        ht.HDF5(*args, **options)


def test_what_is_refused(tmp_path):
    path, x = tmp_path / "a.h5", numpy.zeros((6, 4, 5), "f4")
    with h5py.File(path, "w") as file:
        fill(file)
        file.create_dataset("packed", data=x, compression="gzip")
        file.create_dataset("shuffled", data=x, chunks=(1, 4, 5), shuffle=True, fletcher32=True)
        file.create_dataset("split", data=x, chunks=(1, 2, 5))
        file.create_dataset("hollow", (6, 4), "f4", chunks=(1, 4))
        file["hollow"][0] = 1
        file.create_dataset("unwritten", (6, 4), "f4")
        file.create_dataset("texts", data=["a", "b"], dtype=h5py.string_dtype())
        file["fixed texts"] = numpy.array(["a", "b"], "S5")
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        file["null"] = h5py.Empty("f4")
        plist, space = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple((20,))
        plist.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, plist)
        odd = h5py.h5t.NATIVE_INT32.copy()
        odd.set_precision(24)
        odd.set_size(3)
        h5py.h5d.create(file.id, b"odd", odd, space)
        file.create_dataset("record", data=numpy.zeros(3, [("a", "f4"), ("b", "i4")]))
        file.create_dataset("number", data=3.0)
        file.create_dataset("empty", data=numpy.zeros((0, 3)))
        file.create_dataset("six", data=numpy.zeros(6))
        file.create_dataset("outside", (2,), "f4", external=[("raw", 0, 8)])
        layout = h5py.VirtualLayout((COUNT,), "i8")
        layout[:] = h5py.VirtualSource(str(path), "y", (COUNT,))
        file.create_virtual_dataset("virtual", layout)
        with h5py.File(tmp_path / "b.h5", "w") as other:
            other["x"] = x
        file["link"] = h5py.ExternalLink("b.h5", "x")
    for name, match in {
        "packed": r"through filters \(deflate\).*without compression",
        "shuffled": "shuffle, fletcher32",
        "split": r"chunks are \(1, 2, 5\).*several chunks",
        "hollow": "chunk of place 1 has never been written",
        "unwritten": "never been written",
        "texts": "dataset /texts: it has texts.*give them as labels=",
        "fixed texts": "it has texts",
        "lists": "samples are lists of other lengths",
        "null": "without even a shape",
        "compact": "lie in its header: write it with chunks=None",
        "odd": "dataset odd: h5py cannot read it",
        "record": "dataset /record: its elements are .*no tensors",
        "number": "one number",
        "empty": "has no samples",
        "outside": "lie in other files",
        "virtual": "lie in other files",
        "link": r"lies in .*b\.h5",
        "nothing": "there is no dataset 'nothing'; there are",
        "group": "there is no dataset 'group'",
    }.items():
        refused(match, path, name)
    refused("name its datasets: there are", path)
    refused("plain has 23 samples, and six has 6", path, "plain", "six")
    refused("is there twice", path, "plain", "plain")
    refused("no such file", tmp_path / "c.h5", "x")
    refused("not at URLs", "s3://bucket/a.h5", "x")
    refused("chunks are", path, "one", whole=True)
    (tmp_path / "text.h5").write_text("no HDF5 file at all")
    refused("h5py cannot read it", tmp_path / "text.h5", "x")


def test_shards_that_differ(tmp_path):
    for name, kind in (("a", "f4"), ("b", "f8")):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = numpy.zeros((3, 2), kind)
    refused(
        "type float64, and .*a.h5 of .* and float32", [tmp_path / "a.h5", tmp_path / "b.h5"], "x"
    )


def test_damaged_files(tmp_path):
    """Whatever bytes of the file say: an error, or what h5py reads."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = numpy.arange(12.0).reshape(6, 2)
    whole = path.read_bytes()
    served = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            data = ht.HDF5(path, "x")
        except errors.ConfigError:
            continue
        with h5py.File(path) as file:
            assert (numpy.asarray(data[0]) == file["x"][0]).all() or at >= len(whole) - 96
        served += 1
    assert served > 10
    path.write_bytes(whole[:-5])
    refused("h5py cannot read it", path, "x")


def test_files_that_change(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        fill(file)
    data = ht.HDF5(path, "plain")
    with h5py.File(path, "a") as file:
        file["more"] = numpy.zeros(1000)
    with pytest.raises(errors.MismatchError, match="was written since this HDF5 was made"):
        ht.DataLoader(data, 4)
    os.remove(path)
    with pytest.raises(errors.ConfigError, match="no such file"):
        ht.DataLoader(data, 4)
