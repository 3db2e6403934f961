"""What a file says of its image beside the pixels, as Pillow keeps it: ``info`` and EXIF.

The daemon passes the file's own segments on, in a file of one pixel, and the Pillow that is
installed reads them.
"""

from __future__ import annotations

import copy
import functools
import io
from typing import Any

#: The largest metadata of which what Pillow made is kept: those without EXIF, profiles or texts,
#: which many files have in common.
_COMMON = 128


def info_of(file: bytes, mode: str) -> dict[Any, Any]:
    """Returns the ``info`` that Pillow's ``Image.open(f).convert(mode)`` leaves.

    Args:
        file: A file of one pixel, or of a JPEG the beginning, up to its first scan.
        mode: ``"RGB"`` or ``"L"``.
    """
    return copy.deepcopy(_kept(file, mode)) if len(file) <= _COMMON else _read(file, mode)


def _read(file: bytes, mode: str) -> dict[Any, Any]:
    from PIL import Image

    image: Image.Image = Image.open(io.BytesIO(file))
    if not file.startswith(b"\xff\xd8"):  # a JPEG has no pixel here, and decoding changes nothing
        image = image.convert(mode)
    info: dict[Any, Any] = image.info
    return info


_kept = functools.lru_cache(maxsize=256)(_read)
