"""Whether a file is damaged is decided once, for all of it, whatever a crop needs of it."""

import io
import random
import struct
import zlib

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import carriers
import hdmlp.torch as ht
from hdmlp import errors
from reference import picture

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

#: Crops that need a small part of an image.
CROP = V.Compose([V.RandomResizedCrop(16, scale=(0.02, 0.1)), V.ToTensor()])
#: What each format is written with.
KINDS = {
    "jpeg": ("JPEG", "RGB", {"quality": 90}),
    "gray jpeg": ("JPEG", "L", {}),
    "cmyk jpeg": ("JPEG", "CMYK", {}),
    "progressive jpeg": ("JPEG", "RGB", {"progressive": True}),
    "png": ("PNG", "RGB", {}),
    "palette png": ("PNG", "P", {}),
    "webp": ("WEBP", "RGB", {"quality": 80}),
    "webp with alpha": ("WEBP", "RGBA", {"quality": 80}),
    "lossless webp": ("WEBP", "RGB", {"lossless": True}),
    "extended webp": ("WEBP", "RGB", {"quality": 80, "icc_profile": bytes(300)}),
}


def saved(rng, kind, size=(90, 80)):
    file_format, mode, options = KINDS[kind]
    noise = rng.integers(0, 50, (size[1], size[0], 3), numpy.uint8)
    image = Image.fromarray(numpy.asarray(picture(rng, *size)) // 2 + noise)
    if mode == "RGBA":
        image.putalpha(image.convert("L"))
    file = io.BytesIO()
    image.convert(mode).save(file, file_format, **options)
    return file.getvalue()


def refused(data):
    """Reports whether Pillow refuses a file."""
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
    except Exception:
        return True
    return False


def damaged(draw, data):
    """A file with one of the damages that disks, transfers and people cause."""
    at, n = draw.randrange(20, len(data) - 40), len(data)
    return draw.choice(
        [
            data[: n * draw.randrange(90, 100) // 100],
            data[: draw.randrange(30, n)],
            data[:at] + draw.randbytes(40) + data[at + 40 :],
            data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :],
            data[:at] + b"\xff" + bytes([draw.randrange(0xC0, 0xFF)]) + data[at + 2 :],
            data[:at] + data[at + draw.randrange(1, 30) :],
            data[:at] + draw.randbytes(7) + data[at:],
            data[:at] + bytes(30) + data[at + 30 :],
        ]
    )


def late(rng, kind):
    """A file that Pillow refuses, and whose damage is at its end."""
    whole = saved(rng, kind, (300, 200))
    draw = random.Random(1)
    while True:
        at = len(whole) * 9 // 10
        data = whole[:at] + draw.randbytes(40) + whole[at + 40 :]
        for candidate in (data, whole[: len(whole) * 99 // 100]):
            if refused(candidate):
                return candidate


def good(root, rng, count=5):
    (root / "a").mkdir(parents=True)
    for i in range(count):
        picture(rng, 60, 50).save(root / "a" / f"{i}.jpg")


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_decides_alike(tmp_path, kind):
    rng = numpy.random.default_rng(3)
    root = tmp_path / "data"
    good(root, rng)
    (root / "a" / "z.jpg").write_bytes(late(rng, kind))
    dataset = torchvision.datasets.ImageFolder(str(root), CROP)
    options = {"shuffle": True, "seed": 4, "num_workers": 0}
    with ht.DataLoader(dataset, 6, on_error="skip", **options) as loader:
        assert [len(labels) for _ in range(12) for _, labels in loader] == [5] * 12
        (fault,) = loader.report()["faults"]
        assert fault["sample"] == 5
    with ht.DataLoader(dataset, 6, **options) as loader:
        for _ in range(3):
            with pytest.raises(errors.SampleError, match=r"z\.jpg"):
                list(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_what_pillow_refuses_is_refused(tmp_path, kind):
    """Damages of all kinds: what Pillow refuses is left out at once, and nothing else is."""
    rng, draw = numpy.random.default_rng(6), random.Random(6)
    root = tmp_path / "data"
    good(root, rng)
    bad = set()
    whole = saved(rng, kind)
    for i in range(120):
        data = damaged(draw, whole)
        (root / "a" / f"z{i:03}.jpg").write_bytes(data)
        if refused(data):
            bad.add(5 + i)
    assert len(bad) > 10
    dataset = ht.ImageFolder(str(root), CROP)
    with ht.DataLoader(dataset, 25, on_error="skip", shuffle=True, seed=1, num_workers=0) as loader:
        first = sum(len(labels) for _, labels in loader)
        found = {fault["sample"] for fault in loader.report()["faults"]}
        assert sum(len(labels) for _, labels in loader) == first
    assert first == 125 - len(found)
    assert bad <= found
    # Of a PNG with more pixels than its header says, PIL shows the first.
    assert found == bad or "png" in kind


def pieces(data):
    """Begin and end of a JPEG's segments up to its scan, or of a PNG's chunks, without pixels."""
    if data[:4] == b"\x89PNG":
        at, kinds = 8, data
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at : at + 4], "big")
            if kinds[at + 4 : at + 8] not in {b"IHDR", b"IDAT", b"IEND", b"PLTE"}:
                yield at, end
            at = end
        return
    at = 2
    while data[at + 1] != carriers.SOS:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] >= 0xE0:
            yield at, end
        at = end


def shortened(data, most=40):
    """An image with what it has beside its pixels cut, one piece at a time, to each length."""
    for begin, end in pieces(data):
        png = data[:4] == b"\x89PNG"
        body = data[begin + 8 : end - 4] if png else data[begin + 4 : end]
        for size in range(min(len(body), most)):
            if png:
                piece = carriers.chunk(data[begin + 4 : begin + 8], body[:size])
            else:
                piece = carriers.segment(data[begin + 1], body[:size])
            yield data[:begin] + piece + data[end:]


def strange():
    """Images which Pillow takes or refuses for other things than their pixels."""
    plain, png = carriers.saved("JPEG"), carriers.saved("PNG")
    large = zlib.compress(bytes((1 << 20) + 1))
    frame = struct.pack(">LLLLLHHBB", 0, carriers.WIDTH, carriers.HEIGHT, 0, 0, 1, 1, 0, 0)
    narrow = struct.pack(">LLLLLHHBB", 0, carriers.WIDTH - 1, carriers.HEIGHT, 0, 0, 1, 1, 0, 0)
    for piece in (
        carriers.chunk(b"zTXt", b"a\0\0" + large),
        carriers.chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20))),
        carriers.chunk(b"zTXt", b"a\0\7" + zlib.compress(b"a")),
        carriers.chunk(b"zTXt", b"a\0\0" + large[: len(large) // 2]),
        carriers.chunk(b"zTXt", b"a\0\0" + bytes(2000)),
        carriers.chunk(b"iTXt", b"a\0\1\0\0\0" + large),
        carriers.chunk(b"iTXt", b"a\0\1\7\0\0" + large),
        carriers.chunk(b"iTXt", b"a\0\0\0\0\0" + large),
        carriers.chunk(b"iCCP", b"a\0\0" + large),
        carriers.chunk(b"iCCP", b"a\0\7"),
        carriers.chunk(b"fcTL", frame),
        carriers.chunk(b"fcTL", frame) * 2,
        carriers.chunk(b"fcTL", b"\0\0\0\1" + frame[4:]),
        carriers.chunk(b"fcTL", frame[:12] + b"\0\0\0\1" + frame[16:]),
        carriers.chunk(b"fcTL", narrow),
        carriers.chunk(b"fdAT", bytes(4)),
        carriers.chunk(b"tRNS", bytes(5)),
        carriers.chunk(b"tRNS", bytes(6)),
        carriers.chunk(b"cHRM", bytes(33)),
        carriers.chunk(b"cHRM", bytes(36)),
    ):
        yield carriers.with_chunks(png, [piece])
        yield carriers.with_chunks(png, after=[piece])
    for piece in (
        b"\xff\x01",
        b"\xff\x02\0\2",
        b"\xff\xbf\0\2",
        b"\xff\xfe\0\0",
        b"\xff\xfe\0\1",
        b"\xff\xe1\0\0",
        b"\xff\xe0\0\1",
        b"\xff\xd0",
        b"\xff\xff\xff",
        b"\xff\0",
        b"junk",
    ):
        yield carriers.placed(plain, carriers.SOF, piece)
        yield carriers.placed(plain, carriers.SOS, piece)
    for piece in odd_directories():
        yield carriers.placed(plain, carriers.SOF, piece)
        yield carriers.placed(plain, carriers.SOS, piece)


def odd_directories():
    """Segments of JPEGs with TIFF data, of which Pillow reads the resolution and the images."""
    inch, short, text, raw, images, entries = (0x0128, 3, 1), 3, 2, 7, 0xB001, 0xB002
    for kind, count, value in (
        (short, 1, b"\x48\0\0\0"),
        (text, 2, b"5\0\0\0"),
        (text, 3, b"72\0\0"),
        (text, 1, bytes(4)),
        (raw, 1, b"\x48\0\0\0"),
        (raw, 2, b"\x48\1\0\0"),
    ):
        resolution, unit = (0x011A, kind, count, value), (*inch, b"\2\0\0\0")
        yield carriers.app1(carriers.directory(unit, resolution))
        outside = (0x010F, text, 16, b"\xff\xff\0\0")
        yield carriers.app1(carriers.directory(unit, outside, resolution))
        halves = carriers.directory(resolution, unit)
        yield carriers.app1(halves[:9]) + carriers.app1(halves[9:])
    for head in (b"II+\0", b"MM\0+"):
        yield carriers.app1(head + bytes(12))
        yield carriers.app1(head)
    for count, size in ((1, 16), (2, 16), (2, 32)):
        number = (images, 4, 1, struct.pack("<L", count))
        entry = (entries, raw, size, struct.pack("<L", 8 + 2 + 2 * 12 + 4))
        for order in ((number, entry), (entry, number)):
            data = carriers.directory(*order, tail=bytes(size))
            yield carriers.segment(0xE2, b"MPF\0" + data)


def named(files):
    """The kinds of file of which ``pieces`` has the structure."""
    return [data for name, data in files.items() if "fill bytes" not in name]


@pytest.mark.parametrize("transform", ["made by the daemon", "decoded by it"])
def test_what_pillow_refuses_beside_the_pixels(tmp_path, transform):
    """Files that Pillow refuses for their metadata alone are refused, and no others."""
    known = named(carriers.jpegs()) + named(carriers.pngs())
    files = sorted({cut for data in known for cut in shortened(data)} | set(strange()))
    root = tmp_path / "data" / "a"
    root.mkdir(parents=True)
    for i, data in enumerate(files):
        (root / f"{i:05}.jpg").write_bytes(data)
    want = {i for i, data in enumerate(files) if refused(data)}
    assert len(want) > 100
    assert len(files) - len(want) > 1000
    made = {"made by the daemon": CROP, "decoded by it": V.Lambda(V.functional.pil_to_tensor)}
    dataset = torchvision.datasets.ImageFolder(str(tmp_path / "data"), made[transform])
    with ht.DataLoader(dataset, 1, on_error="skip", num_workers=0) as loader:
        taken = sum(len(labels) for _, labels in loader)
        found = {fault["sample"] for fault in loader.report()["faults"]}
    assert found == want
    assert taken == len(files) - len(want)
