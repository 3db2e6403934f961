"""The transform that decodes images."""

from __future__ import annotations

import sys

from .arguments import as_edge
from .base import Description, Transform

#: PIL's limit on an image's pixels, by default: twice its MAX_IMAGE_PIXELS.
_PIXELS = 178956970
#: Those which say what a sample's bytes are, so that no decoding is implied.
_FIRST = ("ImgDecode", "Pixels", "Reshape")
#: The largest limit that the daemon takes.
_NO_LIMIT = (1 << 31) - 1


def pil_limit() -> int:
    """Returns above how many pixels the installed PIL refuses an image, as it is set now."""
    module: object = sys.modules.get("PIL.Image")
    most = getattr(module, "MAX_IMAGE_PIXELS", _PIXELS // 2)
    return _NO_LIMIT if most is None else max(min(int(2 * most), _NO_LIMIT), 1)


def within_pil_limit(described: list[Description]) -> list[Description]:
    """Returns descriptions of transforms with PIL's limit, if the program has changed it."""
    first = described[0]
    if pil_limit() == _PIXELS or first["name"] in _FIRST:
        return described
    decode = {**first.get("decode", {}), "max_pixels": pil_limit()}
    return [{**first, "decode": decode}, *described[1:]]


class ImgDecode(Transform):
    """Decodes an image, as PIL's ``Image.open(f).convert(mode)`` does.

    A list that begins with another transform of images decodes to RGB first, so this one is only
    needed for other arguments.

    Args:
        mode: ``"RGB"`` for 3 channels or ``"L"`` for 1; ``"raw"``, in the list of a field of
            records, for the numbers of a mask: gray levels, indices of a palette, 16 bits.
            Default: ``"RGB"``.
        fast: If True, decode a JPEG at a half, a quarter or an eighth of its size if that is still
            more than twice the size to which it is resized. Faster for large images, but no longer
            bit-identical with PIL: 45 dB PSNR or better (44 dB with bicubic and Lanczos).
            Default: False.
        orient: If True, rotate and flip the image as its EXIF orientation says, which torchvision's
            loader does not do. Default: False.
        max_pixels: Refuse an image with more pixels than this, before memory is allocated for it.
            Default: None, PIL's own limit, twice its ``Image.MAX_IMAGE_PIXELS``.

    Raises:
        TypeError: ``max_pixels`` is not an integer.
        ValueError: ``mode`` is unknown, or ``max_pixels`` is below 1.
    """

    _in_torchvision = False

    def __init__(
        self,
        mode: str = "RGB",
        fast: bool = False,
        orient: bool = False,
        max_pixels: int | None = None,
    ):
        if mode not in ("RGB", "L", "raw"):
            raise ValueError(f"mode should be 'RGB', 'L' or 'raw'. Got {mode!r}")
        if mode == "raw" and (fast or orient or max_pixels is not None):
            raise ValueError("mode='raw' takes no other arguments")
        self.mode, self.fast, self.orient = mode, bool(fast), bool(orient)
        self.max_pixels = None if max_pixels is None else as_edge("max_pixels", max_pixels)

    def describe(self) -> Description:
        if self.mode == "raw":
            raise ValueError(
                "ImgDecode(mode='raw') is for masks: it is the first of the list of a field of "
                "hdmlp.torch's Files, Records or WebDataset, as transform={'png': [...]}"
            )
        return {
            "name": "ImgDecode",
            "mode": self.mode,
            "fast": self.fast,
            "orient": self.orient,
            "max_pixels": pil_limit() if self.max_pixels is None else self.max_pixels,
        }

    def __repr__(self) -> str:
        return (
            f"ImgDecode(mode={self.mode!r}, fast={self.fast}, orient={self.orient}, "
            f"max_pixels={self.max_pixels})"
        )
