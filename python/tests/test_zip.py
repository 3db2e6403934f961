"""Images in zip archives; zipfile, and torchvision's folder of what it unpacks, are the oracles."""

import io
import os
import random
import struct
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
from hdmlp import errors
from recordfiles import TENSOR, equal, image
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

#: In an order that is not ImageFolder's, of which other members are no images.
NAMES = [
    *("train/cat/2.png", "train/cat/10.PNG", "train/a b/ü.png", "train/cat/sub/1.png"),
    *("train/cat/sub-a/1.png", "train/bee/3.jpg.png", "train/README", "train/cat/notes.txt"),
    *("other/dog/1.png", "train/bee/x/y/z.png", "train/a b/1.png"),
]


def write(path, names=NAMES, **options):
    """An archive of images, each of its own colour; of other members, which are no images."""
    with zipfile.ZipFile(path, "w", **options) as file:
        for i, name in enumerate(names):
            content = image(i, (10 + i, 9)) if name.lower().endswith("png") else b"text"
            file.writestr(name, content)
    return path


def unpacked(tmp_path, *paths):
    for path in paths:
        with zipfile.ZipFile(path) as file:
            file.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("context", [None, "fork", "spawn"])
def test_images_come_as_from_the_unpacked_folder(tmp_path, rank, context):
    paths = [
        write(tmp_path / "a.zip", NAMES[:5]),
        write(tmp_path / "b.zip", NAMES[5:]),
    ]
    steps = TENSOR if context is None else transforms.Compose([TENSOR, torch.neg])
    theirs = ImageFolder(unpacked(tmp_path, *paths) / "train", steps)
    ours = ht.Zip(paths, "train", steps)
    assert (ours.classes, ours.targets) == (theirs.classes, theirs.targets)
    assert ours.class_to_idx == theirs.class_to_idx
    assert [ours.key(i) for i in range(len(ours))] == [
        os.path.relpath(path, tmp_path / "unpacked") for path, _ in theirs.samples
    ]
    assert equal([ours[i] for i in range(len(ours))], list(theirs))
    samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
    options = {} if context is None else {"num_workers": 2, "multiprocessing_context": context}
    with ht.DataLoader(ours, 3, sampler=samplers[1], **options) as loader:
        assert equal(list(loader), list(DataLoader(theirs, 3, sampler=samplers[0])))
        assert (loader._content.making.recipe is None) == (context is None)


class Stream(io.RawIOBase):
    """A file without positions, for which sizes are written after members."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def forms(path):
    """Yields the ways in which an archive may be written, which all are read."""
    write(path)
    whole = path.read_bytes()
    yield "plain"
    path.write_bytes(b"#!/bin/sh\nexit 1\n" + whole)
    yield "after other bytes"
    with zipfile.ZipFile(path, "a") as file:
        file.comment = b"a comment" * 99
    yield "with a comment"
    with zipfile.ZipFile(path, "w") as file:
        for i, name in enumerate(NAMES):
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<HH4s", 0x7777, 4, b"more") * i
            with file.open(info, "w", force_zip64=True) as member:
                member.write(image(i) if name.lower().endswith("png") else b"")
    yield "zip64"
    stream = Stream()
    with zipfile.ZipFile(stream, "w") as file:
        for i, name in enumerate(NAMES):
            file.writestr(name, image(i))
    path.write_bytes(stream.data)
    yield "sizes after the data"


def test_forms_of_archives(tmp_path):
    path = tmp_path / "a.zip"
    for form in forms(path):
        data = ht.Zip(path, "train", loader=bytes)
        with zipfile.ZipFile(path) as file:
            wanted = [file.read(data.key(i)) for i in range(len(data))]
        assert [data[i][0] for i in range(len(data))] == wanted, form
        assert len(data) == 8


def test_labels_of_ones_own(tmp_path):
    path = write(tmp_path / "a.zip", ["b.png", "x/a.png", "c.txt", "0.png"])
    data = ht.Zip(path, transform=TENSOR, labels=["ant", "bee", "ant"])
    assert [data.key(i) for i in range(3)] == ["0.png", "b.png", "x/a.png"]
    with ht.DataLoader(data, 3, shuffle=False) as loader:
        ((images, labels),) = loader
    assert equal(labels, torch.tensor([0, 1, 0]))
    assert equal(images, torch.stack([data[i][0] for i in range(3)]))


def refused(match, *args, **options):
    with pytest.raises(errors.ConfigError, match=match):
        ht.Zip(*args, **options)


def test_what_is_refused(tmp_path):
    path = write(tmp_path / "a.zip", ["a/1.png", "b/2.png"])
    refused("no file below 'test/' ends with", path, "test")
    refused("labels has 1 entries, and there are 2 records", path, labels=[1])
    refused("classes without labels", path, classes=["a"])
    refused("no such file", tmp_path / "none.zip")
    refused("not at URLs", "s3://bucket/a.zip")
    refused("a/1.png is there twice", [path, write(tmp_path / "b.zip", ["a/1.png"])])
    other = tmp_path / "c.zip"
    refused("1.png is in no directory of a class.*root=", write(other, ["1.png", "a/2.png"]))
    refused("directory docs has no images", write(other, ["a/1.png", "docs/x.txt"]))
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a/1.png", image(1))
        file.writestr("b/", b"")
    refused("directory b has no images", other)
    for method, name in (
        (zipfile.ZIP_DEFLATED, "deflate"),
        (zipfile.ZIP_BZIP2, "bzip2"),
        (zipfile.ZIP_LZMA, "lzma"),
    ):
        write(other, ["a/1.png"], compression=method)
        refused(rf"a/1.png is compressed \({name}\).*zip -0", other)
    whole = path.read_bytes()
    at = whole.index(b"PK\x01\x02")
    for content, match in {
        b"": "no zip archive",
        b"text": "no zip archive",
        whole[:-30]: "no zip archive",
        whole[: at + 8] + b"\x01" + whole[at + 9 :]: "is encrypted",
        b"\0\0" + whole[2:]: "there is no header of a/1.png",
        whole[:30] + b"x" + whole[31:]: "header of a/1.png is another one",
        whole[: at + 20] + b"\1\1" + whole[at + 22 :]: "is stored, and has 257 bytes",
        whole[: at + 20] + b"\xff\xff\0\0" * 2 + whole[at + 28 :]: "differs from the list",
    }.items():
        other.write_bytes(content)
        refused(match, other)
    data = ht.Zip(path)
    write(path, ["a/3.png"])
    with pytest.raises(errors.MismatchError, match="was written since this Zip was made"):
        list(ht.DataLoader(data, 2))


@pytest.mark.parametrize("before", ["./", "/", "../", "x/./../", "a//"])
def test_names_are_those_of_what_is_unpacked(tmp_path, before):
    path = write(tmp_path / "a.zip", [f"{before}{name}" for name in NAMES[:6]])
    root = "" if before[0] in "./" else before[0]
    theirs = ImageFolder(unpacked(tmp_path, path) / root, TENSOR)
    ours = ht.Zip(path, root, TENSOR)
    assert (ours.classes, ours.targets) == (theirs.classes, theirs.targets)
    assert all(equal(a, b) for a, b in zip(ours, theirs))
    assert ht.Zip(path, f"./{root}").targets == ours.targets


def flat(path, *values):
    """An archive of images without compression, each of one value."""
    with zipfile.ZipFile(path, "w") as file:
        for i, value in enumerate(values):
            file.writestr(f"a/{i}.ppm", b"P6\n64 64\n255\n" + bytes([value]) * 12288)
    return bytearray(path.read_bytes())


def test_headers_that_lie_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    whole = flat(path, 10, 200)
    second = whole.index(b"PK\x03\x04", 4)
    for at, bit in (
        *((29, 0x10), (second + 29, 0x10), (second + 28, 4)),  # the extra field's length
        *((second + 6, 1), (second + 8, 8), (second + 18, 1), (second + 22, 1)),
    ):
        data = whole.copy()
        data[at] ^= bit
        path.write_bytes(data)
        with pytest.raises(errors.ConfigError, match=rf"{path}: a/\d.ppm|of a/\d.ppm"):
            ht.Zip(path)
    data = whole.copy()
    listed = data.index(b"PK\x01\x02")
    for at, message in (
        (listed + 20, "differs from the list of files"),  # of the first member, in the list
        (18, "ends after what follows it begins"),  # and in its header
    ):
        data[at : at + 8] = struct.pack("<II", 13000, 13000)
        path.write_bytes(data)
        with pytest.raises(errors.ConfigError, match=rf"a/0\.ppm {message}"):
            ht.Zip(path)


def test_links_and_names_that_are_cut_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("a/1.png")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/0.png", image(0, (4, 4)))
        file.writestr(link, "0.png")
    with pytest.raises(errors.ConfigError, match=r"a/1\.png is a symbolic link"):
        ht.Zip(path)
    data = write(path, ["a/0.png", "a/1_png"]).read_bytes()
    path.write_bytes(data.replace(b"1_png", b"1\0png"))
    with pytest.raises(errors.ConfigError, match="has a NUL"):
        ht.Zip(path)


def test_any_byte(tmp_path):
    """Whatever a byte is: the bytes that zipfile reads, or an error; checksums are not read."""
    path = write(tmp_path / "a.zip", ["a/1.png", "a/x/2.png", "b/3.png"])
    whole, generator = path.read_bytes(), random.Random(4)
    structure = whole.index(b"PK\x01\x02")
    same = refusals = 0
    for turn in range(300):
        at = generator.randrange(structure if turn % 3 == 0 else 0, len(whole))
        value = generator.choice([0, 0x7F, 0xFF, whole[at] ^ 1 << generator.randrange(8)])
        path.write_bytes(whole[:at] + (bytes([value]) if turn % 9 else b"") + whole[at + 1 :])
        try:
            data = ht.Zip(path, loader=bytes)
        except errors.ConfigError as error:
            found = str(error)
        else:
            found = [(data.key(i), data[i][0]) for i in range(len(data))]
        if isinstance(found, str):
            assert str(path) in found
            refusals += 1
            continue
        with zipfile.ZipFile(path) as file:
            for name, content in found:
                try:
                    wanted = file.read(name)
                except zipfile.BadZipFile as error:
                    assert "CRC" in str(error)  # noqa: PT017
                    continue
                assert content == wanted
        same += 1
    assert same > 50
    assert refusals > 50
