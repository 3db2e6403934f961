"""Hostile pictures: with false sizes, with more pixels than memory, or not pictures at all."""

import struct
import zlib

from oracle import Listing, digest
from verdicts import expecting, fault


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth=8, colour=2, data=None, extra=b""):
    """A PNG of zeros; its pixels take width * height * channels * depth / 8 bytes, and nearly none
    in the file."""
    channels = {0: 1, 2: 3, 6: 4}[colour]
    if data is None:
        data = zeros((width * channels * depth // 8 + 1) * height)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
        + extra
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )


def zeros(n):
    """zlib's compression of n zeros, made of one block that comes again."""
    block = 1 << 20
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = deflate.compress(bytes(block)) + deflate.flush(zlib.Z_FULL_FLUSH)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    last = deflate.compress(bytes(n % block)) + deflate.flush(zlib.Z_FINISH)
    return b"\x78\xda" + one * (n // block) + last + struct.pack(">I", (n % 65521) << 16 | 1)


CROP = "[T.CenterCrop(4)]"
BLACK = digest(bytes(48))


def pictures(h, evil, count=11):
    a = h.folder("a")
    for c in range(2):
        (a / f"class{c}").mkdir()
        for i in range(count):
            (a / f"class{c}/{i:02}.png").write_bytes(png(8, 8))
    (a / "class1/evil.png").write_bytes(evil)
    listing = Listing(a)
    listing.digests = [BLACK] * len(listing)
    return a, listing


@fault(
    "one PNG of 1.4 MB holds 1.4 GB of pixels, of which 4 x 4 are wanted; memory for 700 MiB",
    clear=["evil.png", r"\d.*(B|byte|pixel)"],
    item=9,
)
def png_bomb(h):
    a, listing = pictures(h, png(13377, 13377, 16, 6))
    h.client(cgroup=h.memory(700 << 20)).open(a, memory="50MB", transform=CROP, within=30).right(
        listing, within=40
    )


@fault(
    "eight PNGs of 500 MB of pixels each, at the same time; memory for 1400 MiB",
    clear=["png", r"\d.*(B|byte|pixel)"],
    item=9,
    limit=60,
)
def png_bombs(h):
    a, listing = pictures(h, png(13000, 13000))
    for i in range(8):
        (a / f"class0/0{i}.png").write_bytes((a / "class1/evil.png").read_bytes())
    h.client(cgroup=h.memory(1400 << 20)).open(
        a, memory="50MB", transform=CROP, transform_threads=8, within=30
    ).right(listing, within=50)


@fault("a PNG claims 2^31 - 1 pixels squared", clear=["evil.png"])
def png_of_claims(h):
    a, listing = pictures(h, png(2**31 - 1, 2**31 - 1, data=zeros(100)))
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB", transform=CROP).right(listing)


@fault("a PNG's pixels end early; continue for 1 GB after; are noise", clear=["evil.png"])
def png_of_wrong_length(h):
    for i, data in enumerate((zeros(100), zeros(1 << 30), h.random.randbytes(500))):
        evil = png(64, 64, data=data)
        if i == 0:
            a, listing = pictures(h, evil)
            client = h.client(cgroup=h.memory(700 << 20))
        (a / "class1/evil.png").write_bytes(evil)
        if i < 2:
            with expecting("evil.png"):
                client.open(a, memory="50MB", transform=CROP, name=str(i)).right(listing)
        else:
            client.open(a, memory="50MB", transform=CROP, name=str(i)).right(listing)


@fault("a PNG's comment and profile inflate to 1 GB each", clear=["evil.png"])
def png_of_text(h):
    text = chunk(b"zTXt", b"Comment\0\0" + zeros(1 << 30)) + chunk(
        b"iCCP", b"profile\0\0" + zeros(1 << 30)
    )
    a, listing = pictures(h, png(8, 8, extra=text))
    h.client(cgroup=h.memory(700 << 20)).open(a, memory="50MB", transform=CROP).right(listing)


def jpeg(width, height):
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "JPEG")
    return stream.getvalue()


@fault(
    "a JPEG of 600 bytes claims 65500 x 65500 pixels; and one whose pixels end early",
    clear=["evil.png"],
)
def jpeg_of_claims(h):
    data = bytearray(jpeg(64, 64))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, 65500, 65500)
    a, listing = pictures(h, bytes(data))
    client = h.client(cgroup=h.memory(600 << 20))
    with expecting("evil.png"):
        client.open(a, memory="50MB", transform=CROP).right(listing)
    struct.pack_into(">HH", data, at + 5, 13000, 13000)
    (a / "class1/evil.png").write_bytes(data)
    grey = Listing(a)  # libjpeg, and so PIL, makes grey of what is missing
    grey.digests = [
        digest(bytes([128]) * 48) if path.endswith("evil.png") else BLACK
        for path in map(str, grey.paths)
    ]
    client.open(a, memory="50MB", transform=CROP, name="two").right(grey, within=25)


@fault(
    "noise, text, HTML of a download that failed, half an image and a GIF, all called .png, are"
    " left out by on_error=skip"
)
def no_pictures(h):
    a, listing = pictures(h, b"<html>404</html>")
    for i, data in enumerate(
        (
            h.random.randbytes(900),
            b"\x89PNG\r\n\x1a\n",
            png(64, 64, data=zlib.compress(h.random.randbytes(193 * 64)))[:5000],
            b"GIF89a" + bytes(30),
            b"\xff\xd8\xff",
            b"RIFF\xff\xff\xff\xffWEBPVP8 ",
        )
    ):
        (a / f"class0/bad{i}.png").write_bytes(data)
    listing = Listing(a)
    listing.digests = [BLACK] * len(listing)
    h.open(a, transform=CROP, on_error="skip").right(
        listing, [0, 1], skip=["evil.png"] + [f"bad{i}.png" for i in range(6)]
    )


@fault(
    "images through torchvision's ImageFolder and through the daemon, byte by byte: JPEGs, "
    "grey, palette, alpha, 16 bit"
)
def pictures_of_all_kinds(h):
    import numpy as np
    from PIL import Image

    a = h.folder("a")
    rng = np.random.default_rng(1)
    for c in range(2):
        (a / f"class{c}").mkdir()
        for i, (mode, suffix) in enumerate(
            [
                ("RGB", "jpg"),
                ("L", "jpg"),
                ("CMYK", "jpg"),
                ("RGB", "png"),
                ("L", "png"),
                ("P", "png"),
                ("RGBA", "png"),
                ("LA", "png"),
                ("1", "png"),
                ("I;16", "png"),
                ("RGB", "webp"),
            ]
        ):
            pixels = rng.integers(0, 255, (20 + i, 30 + c, 3), dtype=np.uint8)
            picture = Image.fromarray(pixels)
            picture = (
                Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 200)
                if mode == "I;16"
                else picture.convert(mode)
            )
            picture.save(
                a / f"class{c}/{i:02}.{suffix}",
                **(
                    {"quality": 90}
                    if suffix == "jpg"
                    else {"lossless": True}
                    if suffix == "webp"
                    else {}
                ),
            )
    listing = Listing(a)
    for i, path in enumerate(listing.paths):
        with Image.open(path) as picture:
            full = picture.convert("RGB")
        left, top = round((full.width - 8) / 2.0), round((full.height - 8) / 2.0)
        listing.digests[i] = digest(np.asarray(full.crop((left, top, left + 8, top + 8))).tobytes())
    h.open(a, transform="[T.CenterCrop(8)]").right(listing, [0, 1])
