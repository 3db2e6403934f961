"""Writes images and what PIL makes of them, for reference_test.go: DIR/cases.json, files, and raw samples.

usage: reference.py DIR
"""

import io
import json
import random
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, ImageOps, features

warnings.simplefilter("ignore")
ImageFile.MAXBLOCK = 1 << 22  # or small noisy images do not fit into what the encoder gets


def picture(rng, width, height, channels=3):
    """Smooth shapes, edges and some noise: what photographs have, and all coefficients in use."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        a, b, c, d = rng.uniform(-0.2, 0.2, 4)
        plane = 120 + 60 * np.sin(a * x + b * y) + 50 * np.sign(np.sin(c * x - d * y))
        planes.append(plane + rng.normal(0, rng.choice([1, 8, 40]), (height, width)))
    pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


class Cases:
    def __init__(self, out):
        self.out, self.cases = out, []

    def add(self, name, data, exact=True):
        n = len(self.cases)
        (self.out / f"{n}.in").write_bytes(data)
        case = dict(Name=name, File=f"{n}.in", Exact=exact)
        try:
            for mode, key in (("RGB", "RGB"), ("L", "Gray")):
                image = Image.open(io.BytesIO(data))
                image.load()
                case["Mode"] = image.mode
                image = image.convert(mode)
                (self.out / f"{n}.{key}").write_bytes(image.tobytes())
                case.update({key: f"{n}.{key}", "W": image.width, "H": image.height})
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            (self.out / f"{n}.o").write_bytes(image.tobytes())
            case["Oriented"] = f"{n}.o"
        except Exception as e:
            case["Error"] = f"{type(e).__name__}: {e}"
        self.cases.append(case)


def save(image, kind, **options):
    b = io.BytesIO()
    image.save(b, kind, **options)
    return b.getvalue()


SAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def sampled(data, luma):
    """Claims another sampling: the pixels are rubbish then, and the same rubbish for every decoder. It finds samplings
    that PIL does not write; only the sizes must fit what was coded, so one component's factors are moved, not the data."""
    at = data.index(b"\xff\xc0")
    return data[: at + 11] + bytes([luma]) + data[at + 12 :]


def jpegs(cases, rng, choose):
    sizes = [
        (1, 1),
        (2, 2),
        (3, 5),
        (7, 9),
        (8, 8),
        (15, 17),
        (16, 16),
        (17, 33),
        (40, 24),
        (63, 65),
        (100, 75),
        (129, 31),
        (200, 150),
        (333, 257),
        (500, 375),
    ]
    for width, height in sizes:
        for sampling, s in SAMPLINGS.items():
            image = Image.fromarray(picture(rng, width, height))
            for quality in (
                choose.choice([5, 30, 50]),
                choose.choice([75, 90]),
                choose.choice([95, 98, 100]),
            ):
                options = dict(quality=quality, subsampling=s, optimize=choose.random() < 0.3)
                name = f"jpeg {width}x{height} {sampling} q{quality}"
                cases.add(name, save(image, "JPEG", **options))
            cases.add(name + " progressive", save(image, "JPEG", **options, progressive=True))
        gray = Image.fromarray(picture(rng, width, height, 1))
        cases.add(
            f"jpeg {width}x{height} gray", save(gray, "JPEG", quality=choose.choice([50, 90, 97]))
        )
        cases.add(f"jpeg {width}x{height} gray progressive", save(gray, "JPEG", progressive=True))
        cmyk = Image.fromarray(picture(rng, width, height, 4), "CMYK")
        cases.add(f"jpeg {width}x{height} cmyk", save(cmyk, "JPEG", quality=90))
    for luma in (0x12, 0x41, 0x14, 0x42, 0x24, 0x44, 0x31, 0x13):
        image = Image.fromarray(picture(rng, 203, 149))
        cases.add(
            f"jpeg luma {luma:#x}", sampled(save(image, "JPEG", quality=80, subsampling=0), luma)
        )
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        image = Image.fromarray(picture(rng, 61, 40))
        cases.add(f"jpeg orientation {orientation}", save(image, "JPEG", exif=exif))
        cases.add(f"png orientation {orientation}", save(image, "PNG", exif=exif))
        cases.add(f"webp orientation {orientation}", save(image, "WEBP", lossless=True, exif=exif))
    for mode, sampling in (("RGB", "4:2:0"), ("RGB", "4:4:4"), ("L", "4:4:4"), ("CMYK", "4:4:4")):
        for width, height in ((61, 47), (9, 7)):
            pixels = picture(rng, width, height, {"RGB": 3, "L": 1, "CMYK": 4}[mode])
            data = save(
                Image.fromarray(pixels, mode),
                "JPEG",
                progressive=True,
                subsampling=SAMPLINGS[sampling],
            )
            ends = scan_ends(data)
            for n, end in enumerate(ends, 1):
                state = "complete" if n == len(ends) else "incomplete"
                name = f"jpeg {width}x{height}, {n} of {len(ends)} scans of {mode} {sampling}"
                cases.add(f"{name}, {state}", data[:end] + b"\xff\xd9")
    whole = save(Image.fromarray(picture(rng, 97, 83)), "JPEG", quality=85)
    progressive = save(Image.fromarray(picture(rng, 97, 83)), "JPEG", quality=85, progressive=True)
    for name, data in (("jpeg", whole), ("progressive", progressive)):
        for cut in (
            3,
            20,
            100,
            len(data) // 3,
            len(data) // 2,
            len(data) - 30,
            len(data) - 3,
            len(data) - 2,
            len(data) - 1,
        ):
            cases.add(f"{name} cut at {cut} of {len(data)}", data[:cut])
            cases.add(f"{name} cut at {cut} of {len(data)}, and ended", data[:cut] + b"\xff\xd9")
        cases.add(f"{name} followed by rubbish", data + b"rubbish" * 100)
        for n in range(60):
            at = choose.randrange(2, len(data))
            hurt = data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :]
            cases.add(f"{name} with byte {at} changed", hurt)


def scan_ends(data):
    """Where the scans of a progressive JPEG end."""
    ends, at = [], 2
    while data[at : at + 2] != b"\xff\xd9":
        scan = data[at + 1] == 0xDA
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        while scan and (data[at] != 0xFF or data[at + 1] == 0):
            at += 1
        if scan:
            ends.append(at)
    return ends


def pngs(cases, rng, choose):
    width, height = 53, 37
    rgb, gray = picture(rng, width, height), picture(rng, width, height, 1)
    rgba = picture(rng, width, height, 4)
    for mode, pixels in (("RGB", rgb), ("L", gray), ("RGBA", rgba), ("LA", rgba[:, :, :2])):
        cases.add(f"png {mode}", save(Image.fromarray(pixels, mode), "PNG"))
    cases.add("png 1", save(Image.fromarray(gray).convert("1"), "PNG"))
    for colours in (2, 3, 10, 200, 256):
        image = Image.fromarray(rgb).quantize(colours)
        cases.add(f"png palette of {colours}", save(image, "PNG"))
        cases.add(f"png palette of {colours}, transparent", save(image, "PNG", transparency=1))
        cases.add(
            f"png palette of {colours}, alpha",
            save(image, "PNG", transparency=bytes(range(0, colours))),
        )
    cases.add(
        "png RGB with a transparent colour",
        save(Image.fromarray(rgb), "PNG", transparency=tuple(map(int, rgb[3, 3]))),
    )
    cases.add(
        "png L with a transparent colour",
        save(Image.fromarray(gray), "PNG", transparency=int(gray[3, 3])),
    )
    for top in (200, 70000):
        deep = np.minimum(rng.integers(0, top, (height, width)), 65535).astype(np.uint16)
        cases.add(f"png 16-bit gray below {top}", save(Image.fromarray(deep), "PNG"))
    for sizes in ((width, height), (1, 1), (2, 5), (9, 1)):
        for colour, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
            for bits in (8, 16):
                cases.add(
                    f"png {sizes}, type {colour}, {bits}-bit",
                    raw_png(rng, *sizes, colour, channels, bits),
                )
        for bits in (1, 2, 4):
            cases.add(f"png {sizes}, {bits}-bit gray", raw_png(rng, *sizes, 0, 1, bits))
        for bits in (1, 2, 4, 8):
            palette = rng.integers(0, 256, 3 * 2**bits, dtype=np.uint8).tobytes()
            for kept in (1, 2**bits):
                beyond = (
                    "" if kept == 2**bits else "pixels beyond "
                )  # which versions of PIL show differently
                cases.add(
                    f"png {sizes}, {bits}-bit, {beyond}{kept} colours",
                    raw_png(rng, *sizes, 3, 1, bits, palette=palette[: 3 * kept]),
                )
    for size in ((1, 1), (7, 5), (33, 17)):
        for colour, channels, depths in (
            (0, 1, (1, 2, 4, 8, 16)),
            (2, 3, (8, 16)),
            (3, 1, (1, 2, 4, 8)),
            (4, 2, (8, 16)),
            (6, 4, (8, 16)),
        ):
            for bits in depths:
                palette = rng.bytes(3 * 2**bits) if colour == 3 else b""
                for interlaced in (False, True):
                    for clear in (b"", transparent(rng, colour, bits))[: 1 + (colour < 4)]:
                        cases.add(
                            f"png {size}, type {colour}, {bits}-bit, interlaced {interlaced}, "
                            f"transparent {bool(clear)}",
                            raw_png(
                                rng,
                                *size,
                                colour,
                                channels,
                                bits,
                                palette=palette,
                                clear=clear,
                                interlaced=interlaced,
                            ),
                        )
    cases.add("png in chunks of 100", raw_png(rng, width, height, 2, 3, chunk=100))
    cases.add("png in chunks of 1", raw_png(rng, 5, 4, 2, 3, chunk=1))
    cases.add("png that goes on behind its pixels", raw_png(rng, width, height, 2, 3, more=b"more"))
    cases.add("png with another filter", raw_png(rng, width, height, 2, 3, filters=6))
    cases.add("png without its checksum, cut", raw_png(rng, width, height, 2, 3, checksum=b""))
    cases.add("png with its checksum changed", raw_png(rng, width, height, 2, 3, checksum=b"none"))
    animated = [Image.fromarray(picture(rng, width, height)) for _ in range(3)]
    cases.add("png animated", save(animated[0], "PNG", save_all=True, append_images=animated[1:]))
    whole = save(Image.fromarray(rgb), "PNG")
    for cut in [
        4,
        20,
        33,
        100,
        len(whole) // 2,
        len(whole) - 30,
        *range(len(whole) - 20, len(whole)),
    ]:
        cases.add(f"png cut at {cut} of {len(whole)}", whole[:cut])
    at = whole.index(b"IEND") - 8
    cases.add(
        "png with the checksum of its pixels' chunk changed", whole[:at] + b"none" + whole[at + 4 :]
    )
    for name, data in (
        ("colours", whole),
        ("palette", save(Image.fromarray(rgb).quantize(200), "PNG")),
    ):
        for _ in range(60):
            at = choose.randrange(8, len(data))
            hurt = data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :]
            cases.add(f"png: {name} with byte {at} changed", hurt)


# Where the passes of an interlaced PNG begin, and their steps: columns, rows.
ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def transparent(rng, colour, bits):
    """A tRNS chunk: a gray level or a colour, or the alpha of a palette."""
    if colour == 3:
        return rng.bytes(2**bits)
    levels = rng.integers(0, 2**bits, 1 if colour == 0 else 3)
    return struct.pack(f">{len(levels)}H", *levels)


def raw_png(
    rng,
    width,
    height,
    colour,
    channels,
    bits=8,
    palette=b"",
    filters=5,
    chunk=1 << 30,
    more=b"",
    checksum=None,
    clear=b"",
    interlaced=False,
):
    """A PNG of a kind that PIL does not write: noise, many of whose samples are below 256, and
    filters at random."""
    sizes = [(width, height)]
    if interlaced:
        sizes = [
            ((width - x + dx - 1) // dx, (height - y + dy - 1) // dy) for x, y, dx, dy in ADAM7
        ]
    rows = b""
    for across, down in sizes:
        if across > 0 and down > 0:
            row = (across * channels * bits + 7) // 8
            part = rng.integers(0, 256, (down, 1 + row), dtype=np.uint8)
            if bits == 16:
                part[rng.random(part.shape) < 0.5] = 0
            part[:, 0] %= filters
            rows += part.tobytes()
    packed = zlib.compress(rows)
    packed = packed[:-4] + (packed[-4:] if checksum is None else checksum) + more
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    parts = [(b"IHDR", head)]
    if palette:
        parts.append((b"PLTE", palette))
    if clear:
        parts.append((b"tRNS", clear))
    parts += [(b"IDAT", packed[at : at + chunk]) for at in range(0, len(packed), chunk)] + [
        (b"IEND", b"")
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def webps(cases, rng, choose):
    for width, height in ((1, 1), (2, 3), (17, 16), (53, 37), (128, 100)):
        rgb, rgba = (Image.fromarray(picture(rng, width, height, c)) for c in (3, 4))
        cases.add(f"webp {width}x{height} lossless", save(rgb, "WEBP", lossless=True))
        cases.add(
            f"webp {width}x{height} lossless alpha", save(rgba, "WEBP", lossless=True, exact=True)
        )
        for quality in (20, 80, 100):
            cases.add(f"webp {width}x{height} q{quality}", save(rgb, "WEBP", quality=quality))
        cases.add(f"webp {width}x{height} alpha", save(rgba, "WEBP", quality=90))
    exif = Image.Exif()
    exif[0x0112] = 3
    for name, image, options in (
        ("lossy", rgb, {"quality": 80}),
        ("lossless", rgb, {"lossless": True}),
        ("alpha", rgba, {"quality": 80}),
        ("more", rgb, {"quality": 80, "exif": exif, "icc_profile": bytes(300)}),
    ):
        whole = save(image, "WEBP", **options)
        cases.add(f"webp {name} cut", whole[: len(whole) // 2])
        for _ in range(16):
            at = choose.randrange(12, len(whole) - 40)
            noise = bytes(choose.randrange(256) for _ in range(choose.choice([1, 40])))
            cases.add(
                f"webp {name} with noise at {at}", whole[:at] + noise + whole[at + len(noise) :]
            )


def kept(cases, choose):
    """Files that PIL does not write: JPEGs with restart markers, arithmetic coding, all samplings, several scans. And WebPs."""
    for path in sorted(p for p in Path(__file__).parent.iterdir() if p.suffix in (".jpg", ".webp")):
        data, kind = path.read_bytes(), "jpeg" if path.suffix == ".jpg" else "webp"
        cases.add(f"{kind} {path.name}", data)
        cases.add(f"{kind} {path.name}, cut", data[: len(data) * 2 // 3])
        for _ in range(8):
            at = choose.randrange(len(data) // 2, len(data))
            cases.add(
                f"{kind} {path.name} with byte {at} changed",
                data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :],
            )


def main():
    out = Path(sys.argv[1])
    cases, rng, choose = Cases(out), np.random.default_rng(11), random.Random(11)
    jpegs(cases, rng, choose)
    kept(cases, choose)
    pngs(cases, rng, choose)
    if features.check("webp"):
        webps(cases, rng, choose)
    (out / "cases.json").write_text(
        json.dumps(dict(Turbo=bool(features.check("libjpeg_turbo")), Cases=cases.cases))
    )


main()
