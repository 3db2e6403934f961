"""Files of arrays and shards of which any bytes were changed, cut off or lost.

HDMLP gives what the format's own library gives, or an error of its own that names the file.
"""

import os
import pickle
import random

import arrayfiles
import mdsfiles
import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
from hdmlp import errors

TURNS = 200


def damaged(whole, generator, head):
    """Yields other bytes, most of them changed in the first ``head``."""
    for turn in range(TURNS):
        data = bytearray(whole)
        at = generator.randrange(min(head, len(whole)) if turn % 4 else len(whole))
        if turn % 10 == 0:
            del data[at:]
        elif turn % 10 == 5:
            del data[at : at + generator.randrange(1, 9)]
        else:
            bit = data[at] ^ 1 << generator.randrange(8)
            data[at] = generator.choice([0, 0x7F, 0x80, 0xFF, bit, generator.randrange(256)])
        yield bytes(data)


def item(value):
    """A value of an item, which can be compared."""
    if isinstance(value, dict):
        return {name: item(own) for name, own in value.items()}
    if isinstance(value, (tuple, list)):
        return [item(own) for own in value]
    if isinstance(value, (bytes, memoryview)):
        return bytes(value)
    if isinstance(value, (str, int)):
        return value
    array = numpy.asarray(value)
    return array.dtype.newbyteorder("="), array.shape, array.tobytes()


def compare(path, ours, theirs, head=1 << 30):
    """Compares datasets of a file that was damaged; returns how many turns were equal."""
    whole, equal, message = path.read_bytes(), 0, None
    for data in damaged(whole, random.Random(8), head):
        path.write_bytes(data)
        try:
            made = ours()
            found = [item(made[i]) for i in range(len(made))]
        except errors.HDMLPError as error:
            message = str(error)
        else:
            assert found == list(map(item, theirs()))
            equal += 1
            continue
        assert str(path.parent) in message
    path.write_bytes(whole)
    return equal


def test_npy(tmp_path):
    path = tmp_path / "a.npy"
    numpy.save(path, numpy.arange(60, dtype="i2").reshape(20, 3))
    assert compare(path, lambda: ht.Arrays(path), lambda: numpy.load(path), 140) > 20


@pytest.mark.parametrize("which, head", [("images-idx3", 16), ("labels-idx1", 8)])
def test_mnist(tmp_path, which, head):
    from torchvision.datasets import mnist

    raw = tmp_path / "MNIST" / "raw"
    arrayfiles.mnist(raw, ["train"], count=4)
    of = str(raw / "train-{}-ubyte")

    def theirs():
        images = mnist.read_image_file(of.format("images-idx3")).numpy()
        return list(zip(images, mnist.read_label_file(of.format("labels-idx1")).tolist()))

    path = raw / f"train-{which}-ubyte"
    assert compare(path, lambda: ht.MNIST(tmp_path), theirs, head) > 10


@pytest.mark.parametrize("dump", [arrayfiles.python2_pickle, arrayfiles.newer_pickle])
@pytest.mark.parametrize("which", ["data_batch_2", "batches.meta"])
@pytest.mark.filterwarnings("ignore:dtype.*align")
def test_cifar(tmp_path, dump, which):
    base = arrayfiles.cifar(tmp_path, count=2, dump=dump)
    whole = {path.name: path.read_bytes() for path in base.iterdir()}

    def load(name):
        try:
            return pickle.loads((base / name).read_bytes(), encoding="latin1")
        except Exception:  # of whatever the pickle names, by numpy's version
            # HDMLP neither imports nor calls it: what it reads nevertheless must be undamaged.
            return pickle.loads(whole[name], encoding="latin1")

    def theirs():
        made = []
        for i in range(1, 6):
            batch = load(f"data_batch_{i}")
            images = batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            made += zip(images, batch["labels"])
        return made

    def ours():
        data = ht.CIFAR10(tmp_path)
        assert data.classes == load("batches.meta")["label_names"]
        return data

    assert compare(base / which, ours, theirs, 200) > 10


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_hdf5(tmp_path, version):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        file["x"] = numpy.arange(60, dtype="f4").reshape(20, 3)
        file.create_dataset("y", data=numpy.arange(20), chunks=(4,))

    def theirs():
        with h5py.File(path) as file:
            return list(zip(file["x"][()], file["y"][()]))

    assert compare(path, lambda: ht.HDF5(path, "x", "y"), theirs) > 20


@pytest.mark.parametrize("which", ["index.json", "shard.00000.mds"])
def test_mds(tmp_path, which):
    """Of the shard, all but the values themselves, which nothing checks."""
    samples = [{"i": i, "r": bytes(i), "t": "x" * i} for i in range(8)]
    encodings = {"i": "int", "r": "bytes", "t": "str"}
    mdsfiles.write(tmp_path, encodings, samples, 5)
    path = tmp_path / which
    head = 7 * 4 if which != "index.json" else path.stat().st_size

    def ours():
        data = path.read_bytes()
        if which == "index.json":
            made = ht.MDS(tmp_path)
            renamed = made.fields != ("i", "r", "t") or made.encodings != encodings
            return samples if renamed else made
        if len(data) == len(whole) and data[:head] == whole[:head]:
            return samples
        return ht.MDS(tmp_path)

    whole = path.read_bytes()
    assert compare(path, ours, lambda: samples, head) > 10


def test_a_fifo_does_not_block(tmp_path):
    """In the place of a file whose places are read: a FIFO has no writer, so open would wait."""
    raw, base = tmp_path / "MNIST" / "raw", arrayfiles.cifar(tmp_path, count=2)
    arrayfiles.mnist(raw, ["train"], count=4)
    mdsfiles.write(tmp_path, {"i": "int"}, [{"i": i} for i in range(8)], 5)
    for path, make in (
        (tmp_path / "p", ht.Parquet),
        (tmp_path / "t", lambda path: ht.TFRecord(path, "x")),
        (tmp_path / "h", lambda path: ht.HDF5(path, "x")),
        (tmp_path / "n", ht.Arrays),
        (tmp_path / "z", ht.Zip),
        (raw / "train-images-idx3-ubyte", lambda _: ht.MNIST(tmp_path)),
        (base / "data_batch_2", lambda _: ht.CIFAR10(tmp_path)),
        (tmp_path / "shard.00000.mds", lambda _: ht.MDS(tmp_path)),
        (tmp_path / "index.json", lambda _: ht.MDS(tmp_path)),
    ):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(errors.ConfigError, match=f"{path}: it is not a regular file"):
            make(path)


def test_a_chunk_that_lies_outside(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("y", data=numpy.arange(5), chunks=(1,))
    with h5py.File(path) as file:
        last = file["y"].id.get_chunk_info(4).byte_offset
    whole = path.read_bytes()
    assert whole.count(last.to_bytes(8, "little")) == 1
    path.write_bytes(whole.replace(last.to_bytes(8, "little"), (1 << 40).to_bytes(8, "little")))
    with pytest.raises(errors.ConfigError, match=f"{path}, dataset y: .* it is damaged; copy it"):
        ht.HDF5(path, "y")
