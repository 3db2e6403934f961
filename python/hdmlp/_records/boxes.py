"""Boxes around objects of an image: what a field of them, or a value, says."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: The formats of boxes, in the order of their numbers in the daemon's results.
FORMATS = ("XYXY", "XYWH", "CXCYWH")

#: Before the daemon's boxes: their number, their format, the image's height and width.
HEAD = struct.Struct("<IIII")


class Boxes(NamedTuple):
    """Boxes of an image.

    Attributes:
        boxes: Four numbers each.
        labels: The number of each one's class.
        format: One of :data:`FORMATS`.
    """

    boxes: list[list[float]]
    labels: list[int]
    format: str


def boxes_of(given: Any, width: int, height: int) -> Boxes:
    """Returns the boxes that a field's bytes, or a value, say, checked as the daemon checks them.

    Args:
        given: JSON as bytes, or a dict: ``"boxes"``, ``"labels"`` and ``"format"``.
        width: The image's, in pixels.
        height: The same.

    Raises:
        ValueError: They are no boxes of such an image; the message names the key.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        try:
            given = json.loads(bytes(given), parse_constant=_refused)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{_EXAMPLE}: {error}") from None
    if not isinstance(given, Mapping):
        raise ValueError(f"{_EXAMPLE}, not {type(given).__name__}")
    for key in given:
        if key not in ("boxes", "labels", "format"):
            raise ValueError(
                f'the boxes have the key {key!r}; allowed: "boxes", "labels", "format"'
            )
    form = str(given.get("format", "XYXY")).upper()
    if form not in FORMATS:
        raise ValueError(f'"format" is {given["format"]!r}; allowed: {", ".join(FORMATS)}')
    boxes, labels = _listed(given.get("boxes")), _listed(given.get("labels"))
    if boxes is None:
        raise ValueError('"boxes" must be a list of lists of four numbers each')
    if labels is None or any(type(label) is not int for label in labels):
        raise ValueError(
            '"labels" must be a list with a whole number for each box: the number of its class, or '
            "1 if there is one class"
        )
    if len(boxes) != len(labels):
        raise ValueError(f"{len(boxes)} boxes and {len(labels)} labels")
    for i, box in enumerate(boxes):
        why = _wrong(box, form, width, height)
        if why:
            raise ValueError(f'"boxes"[{i}] = {box} ({form}) {why}')
    return Boxes(boxes, labels, form)


#: The largest float32.
_MOST = 3.4028234e38

_EXAMPLE = (
    'boxes are a JSON object such as {"boxes": [[x1, y1, x2, y2]], "labels": [1], "format": "XYXY"}'
)


def _refused(constant: str) -> float:
    raise ValueError(f"the boxes have {constant}, which is no place in an image")


def _listed(given: Any) -> list[Any] | None:
    """Returns a list, or an array or a tensor as a list; None: it is none."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return None
    return [row.tolist() if hasattr(row, "tolist") else row for row in given]


def _wrong(box: object, form: str, width: int, height: int) -> str:
    """Returns what is wrong with a box; empty: nothing."""
    if not isinstance(box, Sequence) or len(box) != 4:
        return "does not have four numbers"
    if not all(isinstance(x, (int, float)) and abs(x) <= _MOST for x in box):
        return "has something other than numbers that are finite in float32"
    left, top, right, bottom = box
    if form == "CXCYWH":
        left, top = left - right / 2, top - bottom / 2
    if form != "XYXY":
        right, bottom = left + right, top + bottom
    if right < left or bottom < top:
        return "has a negative width or height"
    if right < 0 or bottom < 0 or left > width or top > height:
        return f"lies outside of its image of {width} x {height} pixels"
    return ""
