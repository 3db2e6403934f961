"""What a field's bytes are, by the suffix of its name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError

IMAGES = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "bmp", "tif", "tiff", "webp", "gif"))
_PICKLES = frozenset(("pickle", "pkl", "pyd", "pt", "pth"))


def suffix_of(name: str) -> str:
    """Returns what follows the last dot of a name, in lower case; the name, if it has none."""
    return name.rpartition(".")[2].lower()


def decoder(name: str) -> Callable[[object], object] | None:
    """Returns what decodes a field's bytes, by its name; None: they stay bytes.

    Args:
        name: The field's name, or that of a file.

    Raises:
        ConfigError: It is a pickle, whose loading runs code that it names.
    """
    suffix = suffix_of(name)
    if suffix in IMAGES:
        return image
    if suffix in _PICKLES:
        raise ConfigError(
            f"decode: {name} is a pickle, and loading one runs whatever code it names: leave "
            "decode out and load it in a collate_fn, or convert it to npy or json"
        )
    return _DECODERS.get(suffix)


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


def _json(data: Any) -> Any:
    return json.loads(bytes(data))


def _text(data: Any) -> str:
    return bytes(data).decode()


def number(data: Any) -> int:
    """Returns the integer that a text says."""
    return int(bytes(data))


_DECODERS: dict[str, Callable[[object], object]] = {
    "json": _json,
    "jsn": _json,
    "txt": _text,
    "text": _text,
    "transcript": _text,
    "cls": number,
    "cls2": number,
    "class": number,
    "index": number,
    "inx": number,
    "id": number,
    "count": number,
    "npy": array_of,
}
