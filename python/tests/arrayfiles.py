"""Files of arrays for tests, as other programs write them."""

import io
import pickle
import struct

import numpy


def idx(array):
    """An idx file, as MNIST's."""
    code = {"u1": 8, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[array.dtype.str[1:]]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def _text(text):
    data = text.encode()
    return b"U" + bytes([len(data)]) + data


def _int(number):
    return b"J" + struct.pack("<i", number)


def python2_pickle(values, protocol=2):
    """A pickle of a dict as Python 2 wrote CIFAR's: its texts and the array's bytes are strings."""
    out = io.BytesIO()
    out.write(b"\x80" + bytes([protocol]) + b"}(")
    for name, value in values.items():
        out.write(_text(name))
        if isinstance(value, numpy.ndarray):
            out.write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n")
            out.write(_int(0) + b"\x85" + _text("b") + b"\x87R(" + _int(1) + b"(")
            out.write(b"".join(map(_int, value.shape)) + b"tcnumpy\ndtype\n")
            out.write(_text(value.dtype.str[1:]) + _int(0) + _int(1) + b"\x87R(" + _int(3))
            out.write(_text("|") + b"NNN" + _int(-1) + _int(-1) + _int(0) + b"tb\x89T")
            data = value.tobytes()
            out.write(struct.pack("<I", len(data)) + data + b"tb")
        elif value and isinstance(value[0], int):
            out.write(b"](" + b"".join(map(_int, value)) + b"e")
        else:
            out.write(b"](" + b"".join(map(_text, value)) + b"e")
    out.write(b"u.")
    return out.getvalue()


def cifar(root, hundred=False, count=7, dump=python2_pickle):
    """The files of CIFAR-10, or 100, below a directory."""
    random = numpy.random.default_rng(3)
    base = root / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    base.mkdir(parents=True)
    classes = 100 if hundred else 10
    label = "fine_labels" if hundred else "labels"
    names = (
        ["train", "test"] if hundred else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    )
    for name in names:
        data = random.integers(0, 256, (count, 3072), "u1")
        labels = [int(x) for x in random.integers(0, classes, count)]
        (base / name).write_bytes(dump({"data": data, label: labels}))
    named = {"fine_label_names" if hundred else "label_names": [f"c{i}" for i in range(classes)]}
    (base / ("meta" if hundred else "batches.meta")).write_bytes(dump(named))
    return base


def newer_pickle(values):
    """The same as Python 3 writes it."""
    return pickle.dumps(values, protocol=4)


def mnist(raw, prefixes, count=11, classes=10, size=28):
    """The unpacked files of MNIST and its kin."""
    raw.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(4)
    for prefix in prefixes:
        images = random.integers(0, 256, (count, size, size), "u1")
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        labels = random.integers(0, classes, count, "u1")
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
