"""What Hugging Face's features decode, as they do it."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

from ..._records.arrow import Array
from ..._transforms.recipe import Undecodable
from .fields import OfRecord
from .folder import Decoder
from .hf_rows import Feature


def mode_of(data: bytes | None) -> str:
    """Returns the mode of an image; of one that is none, ``"RGB"``: decoding it is an error."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data or b"")) as image:
            return str(image.mode)
    except (OSError, SyntaxError, ValueError):
        return "RGB"


class DecodedByFeature:
    """Decodes as a feature of ``datasets`` does, which is made anew in each process.

    Args:
        feature: The feature.
    """

    def __init__(self, feature: Feature):
        self._name = type(feature).__name__
        given = [f.name for f in fields(feature) if f.init]  # type: ignore[arg-type]
        self._arguments = {name: getattr(feature, name) for name in given}

    def __call__(self, data: object, path: object = None) -> object:
        """Decodes a file.

        Args:
            data: Its bytes.
            path: Its path.
        """
        import datasets

        feature = getattr(datasets, self._name)(**self._arguments)
        made: object = feature.decode_example({"path": path, "bytes": data})
        return made


class ImageOfFeature(Decoder):
    """Decodes as ``datasets`` does.

    Args:
        feature: The column's.
        mode: As for :class:`Decoder`.
        only: The same.
    """

    def __init__(self, feature: Feature, mode: str, only: bool):
        self.feature, self.mode, self.only = DecodedByFeature(feature), mode, only
        self.arguments = {"orient": _turns(type(feature))}

    def __call__(self, data: object) -> object:
        """Decodes an image; see :class:`Decoder`."""
        return self.feature(data)


class SoundOfFeature(OfRecord):
    """Makes of a row's bytes what ``datasets`` makes of them.

    Args:
        feature: The column's.
        paths: The rows' paths.
    """

    def __init__(self, feature: Feature, paths: Array):
        self.feature, self.paths = DecodedByFeature(feature), paths

    def of_record(self, data: Any, sample: int) -> object:
        """Returns a decoder of a row's sound."""
        try:
            return self.feature(bytes(data), self.paths[sample].as_py())
        except (MemoryError, ImportError):
            raise
        except Exception as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error


#: Whether the installed ``datasets`` turns images as EXIF says, by the class of the feature.
_TURNING: dict[type, bool] = {}


def _turns(feature: type) -> bool:
    """Reports whether ``datasets`` turns images as EXIF says: releases before 2.18 do not."""
    if feature not in _TURNING:
        from PIL import Image

        exif = Image.Exif()
        exif[0x0112] = 6  # orientation: turned by a quarter
        file = io.BytesIO()
        Image.new("RGB", (2, 1)).save(file, "JPEG", exif=exif)
        made = feature().decode_example({"path": None, "bytes": file.getvalue()})
        _TURNING[feature] = made.size == (1, 2)
    return _TURNING[feature]
