"""Image files that say something beside their pixels, in every place where Pillow reads it."""

import io
import struct
import zlib

import numpy
from PIL import Image, ImageCms

WIDTH, HEIGHT = 40, 28

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><rdf:Description tiff:Orientation="{}" '
    'xmp:Rating="3"/></rdf:RDF></x:xmpmeta>'
)


def image(mode="RGB"):
    """An image whose parts differ, whichever way it is turned."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [x * 6, y * 9, 255 - x * 3 - y * 4]
    rgb = Image.fromarray(numpy.stack(planes, -1).clip(0, 255).astype(numpy.uint8))
    return rgb.convert(mode) if mode != "P" else rgb.quantize(200)


def saved(kind, mode="RGB", **how):
    file = io.BytesIO()
    image(mode).save(file, kind, **how)
    return file.getvalue()


def exif(orientation=None, big=False, **more):
    """EXIF data: TIFF, without a mark before it."""
    data = Image.Exif()
    data.endian = ">" if big else "<"
    if orientation is not None:
        data[0x0112] = orientation
    data[0x010F] = more.get("maker", "a maker of cameras")
    data[0x011A], data[0x0128] = 300.0, 2
    return data.tobytes().removeprefix(b"Exif\0\0")


def directory(*entries, tail=b"", big=False):
    """TIFF with a directory of these entries: (tag, type, count, four bytes of value)."""
    end = ">" if big else "<"
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(end + "LH", 8, len(entries))
    body = b"".join(struct.pack(end + "HHL4s", *entry) for entry in entries)
    return head + body + bytes(4) + tail


def icc(size=0):
    """A colour profile which is not sRGB; ``size``: at least of so many bytes."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    return profile + bytes(max(0, size - len(profile)))


# JPEG.


def segment(marker, body):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def app1(data):
    return segment(0xE1, b"Exif\0\0" + data)


def xmp1(orientation):
    return segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP.format(orientation).encode())


def icc2(number, of, body):
    return segment(0xE2, b"ICC_PROFILE\0" + bytes([number, of]) + body)


def placed(file, at, *segments):
    """A JPEG with segments before its marker ``at``, or after its first one (``None``)."""
    i = 2
    while at is not None and file[i + 1] != at:
        i += 2 + int.from_bytes(file[i + 2 : i + 4], "big")
    return file[:i] + b"".join(segments) + file[i:]


SOF, DHT, SOS = 0xC0, 0xC4, 0xDA


def bare_jpeg(**how):
    """A JPEG of which Pillow has nothing to say."""
    file = saved("JPEG", **how)
    assert file[2:4] == b"\xff\xe0"
    return file[:2] + file[4 + int.from_bytes(file[4:6], "big") :]


def jpegs():
    plain, bare = saved("JPEG", quality=92), bare_jpeg(quality=92)
    profile = icc()
    halves = profile[:200], profile[200:]
    files = {
        "nothing": bare,
        "jfif": plain,
        "density": saved("JPEG", dpi=(300, 150)),
        "density in cm": plain[:13] + b"\x02\0\x64\0\x32" + plain[18:],
        "comment": saved("JPEG", comment=b"a comment"),
        "two comments": placed(plain, SOF, segment(0xFE, b"one"), segment(0xFE, b"two")),
        "progressive": bare_jpeg(progressive=True),
        "gray": saved("JPEG", "L", exif=b"Exif\0\0" + exif(6)),
        "cmyk": saved("JPEG", "CMYK", exif=b"Exif\0\0" + exif(6)),
        "exif without jfif": placed(bare, None, app1(exif(6))),
        "exif before the tables": placed(plain, 0xDB, app1(exif(5))),
        "exif before the frame header": placed(plain, SOF, app1(exif(6))),
        "exif after the frame header": placed(plain, DHT, app1(exif(6))),
        "exif before the scan": placed(plain, SOS, app1(exif(8))),
        "exif after fill bytes": placed(plain, DHT, b"\xff\xff\xff" + app1(exif(7))),
        "exif without orientation": placed(plain, None, app1(exif())),
        "exif without orientation, xmp": placed(plain, None, app1(exif()), xmp1(6)),
        "exif of orientation 1, xmp": placed(plain, None, app1(exif(1)), xmp1(6)),
        "two exif segments": placed(plain, None, app1(exif(6)), app1(exif(3))),
        "exif in two segments": placed(plain, None, app1(exif(6)[:20]), app1(exif(6)[20:])),
        "exif marked twice": placed(plain, None, app1(b"Exif\0\0" + exif(6))),
        "empty exif, xmp": placed(plain, None, app1(b""), xmp1(6)),
        "xmp": placed(plain, None, xmp1(6)),
        "xmp after the frame header": placed(plain, DHT, xmp1(8)),
        "two xmp segments": placed(plain, None, xmp1(6), xmp1(3)),
        "xmp of orientation 9": placed(plain, None, xmp1(9)),
        "icc": placed(plain, SOF, icc2(1, 1, profile)),
        "icc in two segments": placed(plain, SOF, icc2(1, 2, halves[0]), icc2(2, 2, halves[1])),
        "icc in two, turned round": placed(
            plain, SOF, icc2(2, 2, halves[1]), icc2(1, 2, halves[0])
        ),
        "icc of which a part is missing": placed(plain, SOF, icc2(1, 3, halves[0])),
        "icc after the frame header": placed(plain, DHT, icc2(1, 1, profile)),
        "a large icc": saved("JPEG", icc_profile=icc(150000)),
        "photoshop": placed(
            plain,
            SOF,
            segment(0xED, b"Photoshop 3.0\x008BIM\x04\x04\0\0" + struct.pack(">L", 4) + b"iptc"),
        ),
        "adobe": placed(plain, SOF, segment(0xEE, b"Adobe\0\x64\0\0\0\0\x01")),
        "flashpix": placed(plain, SOF, segment(0xE2, b"FPXR\0" + bytes(30))),
        "an unknown segment": placed(bare, SOF, segment(0xE7, b"who knows")),
        "two images": two_images(),
        "one image of several": placed(
            plain, SOF, segment(0xE2, b"MPF\0" + directory((0xB001, 4, 1, b"\x01\0\0\0")))
        ),
    }
    for value in range(10):
        files[f"exif {value}"] = placed(plain, None, app1(exif(value, big=value % 2 == 1)))
    typed = {
        "byte": (1, 1, b"\x06\0\0\0"),
        "text": (2, 2, b"6\0\0\0"),
        "short": (3, 1, b"\x06\0\0\0"),
        "two shorts": (3, 2, b"\x06\0\x03\0"),
        "long": (4, 1, b"\x06\0\0\0"),
        "signed byte": (6, 1, b"\x06\0\0\0"),
        "undefined": (7, 1, b"\x06\0\0\0"),
        "signed short": (8, 1, b"\x06\0\0\0"),
        "signed long": (9, 1, b"\x06\0\0\0"),
        "float": (11, 1, struct.pack("<f", 6.0)),
        "half a float": (11, 1, struct.pack("<f", 6.5)),
        "nothing": (3, 0, b"\x06\0\0\0"),
        "an unknown type": (14, 1, b"\x06\0\0\0"),
    }
    for name, entry in typed.items():
        data = directory((0x0112, *entry), (0x0131, 2, 2, b"x\0\0\0"))
        files[f"exif's orientation as {name}"] = placed(plain, None, app1(data))
    for name, kind, tail in [
        ("a rational", 5, struct.pack("<LL", 12, 2)),
        ("a signed rational", 10, struct.pack("<ll", 6, 1)),
        ("a double", 12, struct.pack("<d", 6.0)),
        ("8 bytes", 16, struct.pack("<Q", 6)),
    ]:
        data = directory((0x0112, kind, 1, struct.pack("<L", 26)), tail=tail)
        files[f"exif's orientation as {name}"] = placed(plain, None, app1(data))
    entry = (0x0112, 3, 1, b"\x06\0\0\0")
    for name, data in {
        "twice": directory(entry, (0x0112, 3, 1, b"\x03\0\0\0")),
        "after a tag beyond the data": directory((0x010F, 2, 9, b"\xff\0\0\0"), entry),
        "after a tag that is too long": directory((0x010F, 2, 9999, b"\xff\0\0\0"), entry),
        "before a tag beyond the data": directory(entry, (0x0131, 2, 9, b"\xff\0\0\0")),
        "in a directory that is cut": directory(entry, entry)[: 10 + 12 + 3],
        "with the mark turned round": b"II\0*" + directory(entry)[4:],
    }.items():
        files[f"orientation {name}"] = placed(plain, None, app1(data))
    return files


def two_images():
    file = io.BytesIO()
    image().save(file, "MPO", save_all=True, append_images=[image()])
    return file.getvalue()


# PNG.


def chunk(kind, body):
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))


def with_chunks(file, before=(), after=(), between=()):
    """A PNG with chunks before its pixels, after them, or between two of their chunks."""
    at, end = file.index(b"IDAT") - 4, file.index(b"IEND") - 4
    pixels = file[at:end]
    if between:
        body = pixels[8:-4]
        pixels = chunk(b"IDAT", body[:40]) + b"".join(between) + chunk(b"IDAT", body[40:])
    return file[:at] + b"".join(before) + pixels + b"".join(after) + file[end:]


def raw_profile(data):
    digits = data.hex()
    lines = [digits[i : i + 72] for i in range(0, len(digits), 72)]
    return "\n".join(["", "exif", f"{len(data):8}", *lines, ""]).encode()


def ztxt(key, text):
    return chunk(b"zTXt", key + b"\0\0" + zlib.compress(text))


def itxt(key, text, packed=False):
    body = zlib.compress(text) if packed else text
    return chunk(b"iTXt", key + (b"\0\x01\0\0\0" if packed else b"\0\0\0\0\0") + body)


XMP_KEY, RAW_KEY = b"XML:com.adobe.xmp", b"Raw profile type exif"


def pngs():
    plain = saved("PNG")
    eight = chunk(b"eXIf", exif(6))
    xmp = XMP.format(6).encode()
    several = {"save_all": True, "append_images": [image().transpose(0)], "loop": 3}
    return {
        "nothing": plain,
        "exif": with_chunks(plain, [eight]),
        "exif after the pixels": with_chunks(plain, after=[eight]),
        "exif marked": with_chunks(plain, [chunk(b"eXIf", b"Exif\0\0" + exif(6))]),
        "exif before and after": with_chunks(plain, [eight], [chunk(b"eXIf", exif(3))]),
        "exif after a chunk of no type": with_chunks(plain, after=[chunk(b"a\0bc", b""), eight]),
        "raw profile": with_chunks(plain, [ztxt(RAW_KEY, raw_profile(exif(6)))]),
        "raw profile, not compressed": with_chunks(
            plain, [chunk(b"tEXt", RAW_KEY + b"\0" + raw_profile(exif(6)))]
        ),
        "raw profile after the pixels": with_chunks(
            plain, after=[ztxt(RAW_KEY, raw_profile(exif(8)))]
        ),
        "raw profile, marked": with_chunks(
            plain, [ztxt(RAW_KEY, raw_profile(b"Exif\0\0" + exif(6)))]
        ),
        "raw profile in international text": with_chunks(
            plain, [itxt(RAW_KEY, raw_profile(exif(5)), True)]
        ),
        "raw profile and exif": with_chunks(
            plain, [ztxt(RAW_KEY, raw_profile(exif(6))), chunk(b"eXIf", exif(3))]
        ),
        "text of key exif": with_chunks(plain, [chunk(b"tEXt", b"exif\0" + exif(6))]),
        "xmp": with_chunks(plain, [itxt(XMP_KEY, xmp)]),
        "xmp, compressed": with_chunks(plain, [itxt(XMP_KEY, xmp, True)]),
        "xmp after the pixels": with_chunks(plain, after=[itxt(XMP_KEY, xmp)]),
        "xmp and exif without orientation": with_chunks(
            plain, [itxt(XMP_KEY, xmp), chunk(b"eXIf", exif())]
        ),
        "icc": saved("PNG", icc_profile=icc()),
        "density": saved("PNG", dpi=(300, 200)),
        "aspect": with_chunks(plain, [chunk(b"pHYs", struct.pack(">LLB", 3, 2, 0))]),
        "gamma": with_chunks(plain, [chunk(b"gAMA", struct.pack(">L", 45455))]),
        "chromaticity": with_chunks(plain, [chunk(b"cHRM", struct.pack(">8L", *range(1, 9)))]),
        "srgb": with_chunks(plain, [chunk(b"sRGB", b"\x01")]),
        "text": with_chunks(plain, [chunk(b"tEXt", b"Title\0a title")], [ztxt(b"Author", b"me")]),
        "time": with_chunks(plain, after=[chunk(b"tIME", bytes(7))]),
        "private": with_chunks(plain, [chunk(b"prIv", b"own")]),
        "interlaced": interlaced(),
        "transparent colour": saved("PNG", transparency=(6, 9, 1)),
        "transparent gray": saved("PNG", "L", transparency=9),
        "transparent entry": saved("PNG", "P", transparency=3),
        "alpha of entries": saved("PNG", "P", transparency=bytes(range(200))),
        "black and white, transparent": saved("PNG", "1", transparency=0),
        "alpha": saved("PNG", "RGBA", dpi=(72, 72)),
        "gray and alpha": saved("PNG", "LA", dpi=(72, 72)),
        "palette": saved("PNG", "P", dpi=(72, 72)),
        "16 bits": sixteen_bits(),
        "several images": saved("PNG", **several),
        "several images, and another by default": saved("PNG", **several, default_image=True),
    }


def sixteen_bits():
    """A gray PNG of 16 bits, whose levels 8 bits can hold."""
    file = io.BytesIO()
    Image.fromarray(numpy.array(image("L")).astype(numpy.uint16)).save(file, "PNG", dpi=(72, 72))
    return file.getvalue()


def interlaced():
    """A PNG whose pixels come in Adam7's seven passes."""
    header = chunk(b"IHDR", struct.pack(">LLBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 1))
    pixels = numpy.array(image())
    passes = [
        (0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2),
        (0, 1, 1, 2),
    ]  # fmt: skip
    rows = [row for x, dx, y, dy in passes for row in pixels[y::dy, x::dx]]
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    end = chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + end


# WebP.


def webps():
    made = {
        "nothing": {},
        "exif": {"exif": exif(6)},
        "exif marked": {"exif": b"Exif\0\0" + exif(6)},
        "xmp": {"xmp": XMP.format(6).encode()},
        "exif without orientation, xmp": {"exif": exif(), "xmp": XMP.format(8).encode()},
        "icc": {"icc_profile": icc()},
        "everything": {"exif": exif(5), "xmp": b"<x/>", "icc_profile": icc()},
    }
    files = {}
    for name, how in made.items():
        files[name] = saved("WEBP", quality=90, **how)
        files[name + ", lossless"] = saved("WEBP", lossless=True, **how)
        files[name + ", alpha"] = saved("WEBP", "RGBA", quality=90, **how)
    whole = files["exif"]
    flags = whole.index(b"VP8X") + 8
    files["exif that no flag announces"] = (
        whole[:flags] + bytes([whole[flags] & ~8]) + whole[flags + 1 :]
    )
    files["exif beyond the file's length"] = (
        files["nothing"] + b"EXIF" + struct.pack("<L", len(exif(6))) + exif(6)
    )
    return files


def all_files():
    """Files by name, each name with its suffix."""
    return {
        f"{name}.{suffix}": file
        for suffix, files in (("jpg", jpegs()), ("png", pngs()), ("webp", webps()))
        for name, file in files.items()
    }
