"""Boxes around objects of an image: what a field of them, or a value, means."""

from __future__ import annotations

import json
import math
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
            text = bytes(given).decode("utf-8-sig")  # editors of Windows write a mark before it
            given = json.loads(
                text, parse_constant=_refused, parse_float=_Written, parse_int=_whole
            )
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{_EXAMPLE}: {error}") from None
    if not isinstance(given, Mapping):
        raise ValueError(f"{_EXAMPLE}, not {type(given).__name__}")
    for key in given:
        if key not in ("boxes", "labels", "format"):
            raise ValueError(
                f'the boxes have the key "{key}"; allowed: "boxes", "labels", "format"'
            )
    form = str(given.get("format", "XYXY")).upper()
    if form not in FORMATS:
        shown = _shown(given["format"])
        raise ValueError(f'"format" is {shown}; allowed: {", ".join(FORMATS)}')
    boxes, labels = _listed(given.get("boxes")), _listed(given.get("labels"))
    if boxes is None:
        raise ValueError('"boxes" must be a list of lists of four numbers each')
    for i, box in enumerate(boxes):
        why = _unread(box)
        if why:
            raise ValueError(f'"boxes"[{i}] = {_shown(box)} ({form}) {why}')
    if labels is None:
        raise ValueError(
            '"labels" must be a list with a whole number for each box: the number of its class, or '
            "1 if there is one class"
        )
    for i, label in enumerate(labels):
        if type(label) is not int or not -(2**63) <= label < 2**63:
            raise ValueError(
                f'"labels"[{i}] = {_shown(label)}: must be a whole number of at most 64 bits, that '
                "of the box's class"
            )
    if len(boxes) != len(labels):
        raise ValueError(f"{len(boxes)} boxes and {len(labels)} labels")
    for i, box in enumerate(boxes):
        why = _wrong(box, form, width, height)
        if why:
            raise ValueError(f'"boxes"[{i}] = {_shown(box)} ({form}) {why}')
    return Boxes(boxes, labels, form)


#: The least number that float32 rounds to infinity.
_INFINITE = 2.0**128 - 2.0**103
#: Digits of a whole number that may be an int64, with its sign.
_DIGITS = 20
#: How many characters of a value a message has.
_SHOWN = 80

_FLOAT32 = struct.Struct("<4f")

_EXAMPLE = (
    'boxes are a JSON object such as {"boxes": [[x1, y1, x2, y2]], "labels": [1], "format": "XYXY"}'
)


class _Written(float):
    """A number of a JSON text, which messages have as it is written there."""

    def __new__(cls, text: str) -> _Written:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def _whole(text: str) -> float:
    # Python reads no more than some thousand digits, and no int64 has as many.
    return int(text) if len(text) <= _DIGITS else _Written(text)


def _refused(constant: str) -> float:
    raise ValueError("the boxes have NaN or Infinity, which are no places in an image")


def _shown(value: object) -> str:
    """Returns a value for a message, as JSON has it."""
    if isinstance(value, (list, tuple)):
        made = f"[{', '.join(map(_shown, value))}]"
    elif value is None or isinstance(value, (bool, str)):
        made = json.dumps(value)
    else:
        made = repr(value)
    return made if len(made) <= _SHOWN else f"{made[:_SHOWN]}..."


def _listed(given: Any) -> list[Any] | None:
    """Returns a list, or an array or a tensor as a list; None: it is none."""
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        return None
    return [row.tolist() if hasattr(row, "tolist") else row for row in given]


def _unread(box: object) -> str:
    """Returns why a box is not one of four numbers; empty: it is."""
    if not isinstance(box, (list, tuple)):
        return 'is no list of four numbers: "boxes" has one for each box, also for a single one'
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in box)
    if len(box) != 4 or not numbers:
        return "does not have four numbers"
    if not all(abs(x) < _INFINITE for x in box):
        return "has a number that is not finite in float32"
    return ""


def _wrong(box: Sequence[float], form: str, width: int, height: int) -> str:
    """Returns what is wrong with a box of four numbers, in float32; empty: nothing."""
    left, top, right, bottom = _rounded(*box)
    if form == "CXCYWH":
        left, top, *_ = _rounded(left - right / 2, top - bottom / 2)
    if form != "XYXY":
        _, _, right, bottom = _rounded(0, 0, left + right, top + bottom)
    if right < left or bottom < top:
        return "has a negative width or height"
    if right < 0 or bottom < 0 or left > width or top > height:
        return f"lies outside of its image of {width} x {height} pixels"
    return ""


def _rounded(*numbers: float) -> tuple[float, ...]:
    """Returns up to four numbers as float32 has them."""
    finite = [x if abs(x) < _INFINITE else math.copysign(math.inf, x) for x in numbers]
    return _FLOAT32.unpack(_FLOAT32.pack(*finite, *[0.0] * (4 - len(numbers))))
