"""What a field's bytes are, by the suffix of its name."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError

#: Those that webdataset gives to Pillow, and Pillow opens without other programs.
IMAGES = frozenset(
    (
        *("jpg", "jpeg", "jpe", "jfif", "png", "apng", "ppm", "pgm", "pbm", "pnm", "bmp", "dib"),
        *("tif", "tiff", "webp", "gif", "jp2", "j2k", "jpx", "jpc", "jpf", "j2c", "tga", "icb"),
        *("vda", "vst", "ico", "icns", "cur", "pcx", "dcx", "dds", "psd", "blp", "fit", "fits"),
        *("fli", "flc", "ftc", "ftu", "gbr", "im", "iim", "msp", "pcd", "pxr", "ras", "bw"),
        *("rgb", "rgba", "sgi", "xbm", "xpm"),
    )
)
_PICKLES = frozenset(("pickle", "pkl", "pyd", "pt", "pth"))
#: What webdataset decodes, and HDMLP does not.
_OTHERS = {"ten": "a tenbin file", "tb": "a tenbin file", "mp": "MessagePack"}
_OTHERS.update({"msg": "MessagePack", "cbor": "CBOR"})


def suffix_of(name: str) -> str:
    """Returns what follows the last dot of a name, in lower case; the name, if it has none."""
    return name.rpartition(".")[2].lower()


def kind_of(name: str) -> str:
    """Returns the end of a name that decides what decodes it: ``"json"``, ``"json.gz"``."""
    head, _, suffix = name.lower().rpartition(".")
    return f"{suffix_of(head)}.gz" if suffix == "gz" and head else suffix


def decoder(name: str) -> Callable[[object], object] | None:
    """Returns what decodes a field's bytes, by its name; None: they stay bytes.

    Args:
        name: The field's name, or that of a file.

    Raises:
        ConfigError: It is a pickle, whose loading runs code that it names, or of a format that
            webdataset decodes, and HDMLP does not.
    """
    suffix = suffix_of(name)
    if suffix in IMAGES:
        return image
    if suffix == "gz":
        return Gunzipped(decoder(name.rpartition(".")[0]))
    if suffix in _PICKLES:
        raise ConfigError(
            f"decode: {name} is a pickle, and loading one runs whatever code it names: leave "
            "decode out and load it in a collate_fn, or convert it to npy or json"
        )
    if suffix in _OTHERS:
        raise ConfigError(
            f"decode: {name} is {_OTHERS[suffix]}, which HDMLP does not decode: give "
            f"loader={{{name!r}: function}}, which is given the bytes"
        )
    return _DECODERS.get(suffix)


def decodes(name: str) -> bool:
    """Reports whether the suffix of a name determines what decodes it."""
    return kind_of(name).partition(".")[0] in {*IMAGES, *_PICKLES, *_OTHERS, *_DECODERS}


class Gunzipped:
    """Decompresses what gzip has compressed, and decodes that.

    Args:
        then: Decodes it; None: it stays bytes.
    """

    def __init__(self, then: Callable[[object], object] | None):
        self.then = then

    def __call__(self, data: Any) -> object:
        content = gzip.decompress(data)
        return content if self.then is None else self.then(content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gunzipped) and self.then == other.then

    def __hash__(self) -> int:
        return hash(self.then)


def image(data: Any) -> object:
    """Decodes an image to RGB, as torchvision's loader does."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def array_of(data: Any) -> object:
    """Returns the array of an npy file, as a view of its bytes.

    Raises:
        ValueError: It is none, or has Python objects.
    """
    import numpy

    view = memoryview(data)
    file = io.BytesIO(view[: min(len(view), 1 << 16)])
    form: Any = numpy.lib.format
    version = form.read_magic(file)
    read = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an npy file of version {version}")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an npy file with Python objects, which are pickled; convert it")
    count = 1
    for edge in shape:
        count *= edge
    flat = numpy.frombuffer(view, dtype, count, file.tell())
    return flat.reshape(shape[::-1]).transpose() if fortran else flat.reshape(shape)


def arrays_of(data: Any) -> dict[str, object]:
    """Returns the arrays of an npz file, by name.

    Raises:
        ValueError: It is none, or one of them has Python objects.
    """
    import numpy

    with numpy.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _json(data: Any) -> Any:
    return json.loads(bytes(data))


def text(data: Any) -> str:
    """Returns the text whose UTF-8 the bytes are."""
    return bytes(data).decode()


def number(data: Any) -> int:
    """Returns the integer that a text says."""
    return int(bytes(data))


_DECODERS: dict[str, Callable[[object], object]] = {
    "json": _json,
    "jsn": _json,
    "txt": text,
    "text": text,
    "transcript": text,
    "cls": number,
    "cls2": number,
    "index": number,
    "inx": number,
    "id": number,
    "npy": array_of,
    "npz": arrays_of,
}

#: Those which take next to no time: what they return is a number, or lies where its bytes do.
INSTANT = frozenset((array_of, number))
