"""Images that need much memory: the daemon's threads share a budget, and keep to it."""

import re
import struct
import zlib

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp import transforms as T
from reference import decoded, picture

V = torchvision.transforms
pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow]

MIB = 1 << 20
SIDE = 13000  # 169 million pixels, which max_pixels allows


def bomb(side, colour=6, depth=16):
    """A PNG of zeros, which is compressed to a thousandth: 1.3 MB for 1.35 GB of pixels."""

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    size = side * (side * {0: 1, 2: 3, 6: 4}[colour] * depth // 8 + 1)
    block = zlib.compressobj(9, wbits=-15)
    some = block.compress(bytes(MIB)) + block.flush(zlib.Z_FULL_FLUSH)
    rest = zlib.compressobj(9, wbits=-15)
    packed = b"\x78\x9c" + some * (size // MIB) + rest.compress(bytes(size % MIB)) + rest.flush()
    packed += struct.pack(">HH", size % 65521, 1)  # Adler-32 of zeros
    header = struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def peak(pid):
    """The largest memory of the process so far, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read()).group(1)) * 1024


@pytest.fixture
def images(tmp_path):
    """Eight pictures, and after each second one a decompression bomb."""
    rng = numpy.random.default_rng(1)
    (tmp_path / "data" / "a").mkdir(parents=True)
    content = bomb(SIDE)
    assert len(content) < 2_000_000
    for i in range(12):
        path = tmp_path / "data" / "a" / f"{i:02d}.png"
        if i % 3 == 2:
            path.write_bytes(content)
        else:
            picture(rng, 300, 260).save(path)
    return str(tmp_path / "data")


def test_a_crop_of_a_bomb_takes_memory_for_the_crop(images):
    dataset = ht.ImageFolder(images, [T.CenterCrop(224), T.ToTensor()])
    with ht.DataLoader(dataset, 3, shuffle=False, epochs=1, source_timeout="5m") as loader:
        got = torch.cat([x for x, _ in loader])
        most = peak(loader._engine._feeds[0].stream.daemon.pid)
    for i, (path, _) in enumerate(dataset.samples):
        want = (
            torch.zeros(3, 224, 224)
            if i % 3 == 2
            else V.ToTensor()(V.CenterCrop(224)(decoded(path)))
        )
        assert torch.equal(got[i], want), path
    assert most < 300 * MIB, f"{most / MIB:.0f} MiB"  # it was 1.4 GB for each thread


def test_an_image_that_can_never_fit_raises_sample_error(images):
    budget = 64 * MIB
    dataset = ht.ImageFolder(images, [T.Resize((64, 64)), T.ToTensor()])
    options = dict(shuffle=False, epochs=1, decode_memory="64MiB", transform_threads=4)
    with ht.DataLoader(dataset, 12, on_error="skip", **options) as loader:
        [[got, _]] = list(loader)
        most, faults = peak(loader._engine._feeds[0].stream.daemon.pid), loader.report()["faults"]
    ordinary = [path for i, (path, _) in enumerate(dataset.samples) if i % 3 != 2]
    assert len(got) == len(ordinary)
    for x, path in zip(got, ordinary):
        assert torch.equal(x, V.ToTensor()(decoded(path).resize((64, 64), Image.BILINEAR))), path
    assert [fault["sample"] for fault in faults] == [2, 5, 8, 11]
    assert most < budget + 150 * MIB, f"{most / MIB:.0f} MiB"
    with ht.DataLoader(dataset, 3, **options) as loader:
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
    error = caught.value
    assert error.path == dataset.samples[2][0]
    assert error.sample == 2
    need, most = map(
        int,
        re.search(
            r"needs .* \((\d+) bytes\).* may take .* \((\d+) bytes\) of decode_memory = 64.0 MiB",
            str(error),
        ).groups(),
    )
    assert need > 3 * SIDE * SIDE
    assert most < budget
    assert "set decode_memory to" in str(error)


def test_large_images_take_turns(tmp_path):
    rng = numpy.random.default_rng(2)
    (tmp_path / "data" / "a").mkdir(parents=True)
    for i in range(8):  # 37 MB each; a thread alone may have 32 of the 128 MiB
        numpy_image = numpy.kron(
            rng.integers(0, 255, (70, 88, 3), dtype=numpy.uint8),
            numpy.ones((50, 40, 1), numpy.uint8),
        )
        path = tmp_path / "data" / "a" / f"{i}.{'png' if i % 2 else 'jpg'}"
        Image.fromarray(numpy_image).save(path, compress_level=1)
    dataset = ht.ImageFolder(str(tmp_path / "data"), [T.Resize((64, 64)), T.ToTensor()])
    paths = [path for path, _ in dataset.samples]
    want = [V.ToTensor()(decoded(path).resize((64, 64), Image.BILINEAR)) for path in paths]
    with ht.DataLoader(dataset, 4, shuffle=False, epochs=2, decode_memory="128MiB") as loader:
        for _ in range(2):
            got = torch.cat([x for x, _ in loader])
            assert torch.equal(got, torch.stack(want))
        most = peak(loader._engine._feeds[0].stream.daemon.pid)
    assert most < (128 + 150) * MIB, f"{most / MIB:.0f} MiB"
