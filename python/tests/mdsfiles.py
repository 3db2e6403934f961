"""Shards as mosaicml-streaming writes them, by its documented layout, for tests."""

import io
import json
import struct

import numpy
from PIL import Image


def _png(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _pil(image):
    mode = image.mode.encode()
    return struct.pack("<III", *image.size, len(mode)) + mode + image.tobytes()


def _array(array, typed):
    codes = {"uint8": 8, "int16": 17, "float32": 34, "int64": 65}
    head = b"" if typed else bytes([codes[array.dtype.name]])
    wide = max(array.shape) > 255
    shape = numpy.array(array.shape, "u2" if wide else "u1")
    return head + bytes([(array.ndim << 2) | wide]) + shape.tobytes() + array.tobytes()


def _list(parts):
    sizes = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return struct.pack("<I", len(parts)) + sizes + b"".join(parts)


def encoded(encoding, value):
    """The bytes of a value."""
    name, _, form = encoding.partition(":")
    if name == "ndarray" and form.count(":") < 1:
        return _array(value, bool(form))
    plain = {
        "bytes": lambda v: v,
        "str": str.encode,
        "int": lambda v: numpy.int64(v).tobytes(),
        "png": _png,
        "pil": _pil,
        "json": lambda v: json.dumps(v).encode(),
        "list[png]": lambda v: bytes(4) + _list(list(map(_png, v))),
        "jpeg_array": _list,
        "pkl": lambda v: v,
    }
    if name in plain:
        return plain[name](value)
    if name.startswith("str_"):
        return str(value).encode()
    return value.tobytes()  # numpy's arrays and numbers


def write(directory, columns, samples, per_shard=5):
    """Writes shards, and index.json. ``columns``: encodings by name; ``samples``: dicts."""
    directory.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    encodings = [columns[name] for name in names]
    sizes = [_size(columns[name], samples[0][name]) for name in names]
    config = {"column_names": names, "column_encodings": encodings, "column_sizes": sizes}
    config |= {
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    shards = []
    for number, begin in enumerate(range(0, len(samples), per_shard)):
        bodies = []
        for sample in samples[begin : begin + per_shard]:
            data = [encoded(columns[name], sample[name]) for name in names]
            varying = [len(d) for d, size in zip(data, sizes) if size is None]
            bodies.append(struct.pack(f"<{len(varying)}I", *varying) + b"".join(data))
        said = json.dumps(config, sort_keys=True).encode()
        at = 4 + 4 * (len(bodies) + 1) + len(said)
        offsets = [at + sum(map(len, bodies[:i])) for i in range(len(bodies) + 1)]
        head = struct.pack(f"<{len(offsets) + 1}I", len(bodies), *offsets)
        content = head + said + b"".join(bodies)
        file = f"shard.{number:05}.mds"
        (directory / file).write_bytes(content)
        raw = {"basename": file, "bytes": len(content), "hashes": {}}
        shards.append({**config, "raw_data": raw, "zip_data": None, "samples": len(bodies)})
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def _size(encoding, value):
    fixed = encoding.startswith(("int", "uint", "float")) or encoding.count(":") == 2
    return len(encoded(encoding, value)) if fixed else None


def change(directory, edit):
    """Changes what index.json has of the shards."""
    path = directory / "index.json"
    told = json.loads(path.read_text())
    edit(told["shards"])
    path.write_text(json.dumps(told))


def image(number, size=(12, 9)):
    """An image of a few colours."""
    made = Image.new("RGB", size, (number * 9 % 256, 255 - number, 7))
    made.putpixel((number % size[0], 2), (1, 2, 3))
    return made
