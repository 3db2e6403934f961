"""The steps that make a float tensor of an image's levels, in one pass, where they run in Python.

ToTensor, conversions and Normalize make a number of each level of each channel, and of nothing
else. So the steps themselves are applied once to an image with all 256 levels, and what they made
of it is the table by which the levels of other images are looked up: bit by bit the same numbers,
in whatever way the installed libraries compute them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .rows import Row

if TYPE_CHECKING:
    from .rows import Array

_FIRST = ("ToTensor", "MaybeToTensor", "PILToTensor", "ToImage")
_MORE = ("ConvertImageDtype", "ToDtype", "Normalize", "ToPureTensor")
_AFTER = ("RandomErasing",)

#: So many levels are looked up at a time: numpy needs 8 bytes for each, which stay in the cache.
_AT_ONCE = 1 << 16


class Found(NamedTuple):
    """Where a list has steps which :class:`Tail` carries out.

    Attributes:
        begin: The index of the first.
        end: The index after that of the last.
        stacked: What follows keeps no tensor, so that the tail's may lie in the batch's memory.
    """

    begin: int
    end: int
    stacked: bool


def find(names: Sequence[str], steps: Sequence[Any]) -> Found | None:
    """Returns where a list has such steps; None: nowhere.

    Args:
        names: The names of the library's transforms that its entries are; empty for others.
        steps: The entries.
    """
    for begin, name in enumerate(names):
        if name not in _FIRST:
            continue
        end = begin + 1
        while end < len(names) and names[end] in _MORE and _is_plain(steps[end]):
            end += 1
        return Found(begin, end, all(after in _AFTER for after in names[end:]))
    return None


def _is_plain(step: Any) -> bool:
    """Reports whether a step's parameters are numbers and a type, and no tensors."""
    numbers = (getattr(step, "mean", ()), getattr(step, "std", ()))
    if not all(isinstance(given, (list, tuple)) for given in numbers):
        return False
    if not all(isinstance(number, (int, float)) for given in numbers for number in given):
        return False
    torch = sys.modules["torch"]
    return isinstance(getattr(step, "dtype", torch.float32), torch.dtype)


class _Table(NamedTuple):
    """What the steps make of each level.

    Attributes:
        numbers: By channel and level.
        interleaved: The channels of a pixel are adjacent in the result's memory.
        type: The result's class, of torch or torchvision.
    """

    numbers: Array
    interleaved: bool
    type: type


class Tail:
    """Does what some steps do, the first of which makes a tensor of an image.

    Images of PIL with the modes L and RGB, and arrays of uint8, are looked up; for all others the
    steps are called one by one, and so they are if their parameters change.

    Args:
        steps: The steps.
    """

    def __init__(self, steps: Sequence[Callable[[Any], Any]]):
        self._steps = list(steps)
        self._made_with: object = None  # parameters
        self._tables: dict[object, _Table | None] = {}  # by kind of image

    def __getstate__(self) -> dict[str, object]:
        return {"_steps": self._steps, "_made_with": None, "_tables": {}}

    def __call__(self, value: Any, row: Row | None = None) -> Any:
        """Returns what the steps make of a value.

        Args:
            value: What the first of them gets.
            row: Where the result may lie, as a plain tensor; None: in memory of its own.
        """
        kind = _kind(value)
        table = None if kind is None else self._table(kind)
        if kind is None or table is None:
            return self._one_by_one(value)
        return _looked_up(table, kind, value, row)

    def _one_by_one(self, value: Any) -> Any:
        for step in self._steps:
            value = step(value)
        return value

    def _table(self, kind: _Kind) -> _Table | None:
        parameters = [sys.modules["torch"].get_default_dtype()]
        for step in self._steps:
            parameters += [*getattr(step, "mean", ()), *getattr(step, "std", ())]
            parameters.append(getattr(step, "dtype", None))
        if parameters != self._made_with:
            self._made_with, self._tables = parameters, {}
        if kind not in self._tables:
            self._tables[kind] = None
            if all(map(_is_plain, self._steps)):
                with suppress(Exception):  # which the steps raise again for the image at hand
                    made = self._one_by_one(_all_levels(kind))
                    self._tables[kind] = _table_of(made, kind.channels)
        return self._tables[kind]


class Erasing:
    """Applies a RandomErasing, in place if the tensor lies in a batch, where nothing else has it.

    Args:
        step: The transform.
    """

    def __init__(self, step: Any):
        self._step = step

    def __call__(self, value: Any, row: Row | None = None) -> Any:
        """Returns what it makes of a tensor.

        Args:
            value: The tensor.
            row: Where it lies, if ``taken``.
        """
        step = self._step
        if row is not None and row.taken:
            step = object.__new__(type(step))  # it keeps the parameters that it has now
            step.__dict__ = {**self._step.__dict__, "inplace": True}
        return step(value)


class _Kind(NamedTuple):
    """Images for which a table holds.

    Attributes:
        mode: PIL's; empty for an array.
        shape: An array's, after its height and width.
    """

    mode: str
    shape: tuple[int, ...] = ()

    @property
    def channels(self) -> int:
        """The number of channels."""
        return len(self.mode) if self.mode else sum(self.shape) or 1


def _kind(value: Any) -> _Kind | None:
    """Returns what kind of image a value is; None: the steps have to be called."""
    import numpy

    if type(value) is getattr(sys.modules.get("PIL.Image"), "Image", None):
        known = value.mode in ("L", "RGB") and value.width and value.height
        return _Kind(value.mode) if known else None
    if type(value) is not numpy.ndarray or value.dtype != numpy.uint8 or not value.size:
        return None
    if not value.flags.writeable or min(value.strides, default=0) < 0:  # torch warns, or raises
        return None
    if value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3)):
        return _Kind("", value.shape[2:])
    return None


def _all_levels(kind: _Kind) -> object:
    """Returns an image with 2 rows of all levels."""
    import numpy

    levels = numpy.tile(numpy.arange(256, dtype=numpy.uint8), (2, 1))
    if not kind.mode:
        whole = (2, 256, *kind.shape)
        return numpy.broadcast_to(levels.reshape(2, 256, *[1] * len(kind.shape)), whole).copy()
    from PIL import Image

    image = Image.fromarray(levels)
    return image if kind.mode == "L" else Image.merge(kind.mode, [image] * 3)


def _table_of(made: Any, channels: int) -> _Table | None:
    """Returns the table, by what the steps made of all levels; None: looking up is of no use."""
    torch = sys.modules["torch"]
    if made.dtype not in (torch.float32, torch.float16, torch.float64):
        return None
    if made.shape != (channels, 2, 256) or made.device.type != "cpu" or made.requires_grad:
        return None
    numbers = made.as_subclass(torch.Tensor)[:, 0].contiguous().numpy()
    return _Table(numbers, not made.is_contiguous(), type(made))


def _looked_up(table: _Table, kind: _Kind, value: Any, row: Row | None) -> Any:
    import numpy

    torch = sys.modules["torch"]
    numbers = table.numbers
    height, width = value.shape[:2] if not kind.mode else (value.height, value.width)
    shape = (len(numbers), height, width)
    out = None if row is None else row.take(shape, numbers.dtype)
    made = numpy.empty(shape, numbers.dtype) if out is None else out
    for channel, plane in enumerate(made):
        _look_up(numbers[channel], _levels(kind, value, channel), plane.reshape(-1))
    tensor = torch.from_numpy(made)
    if out is not None:
        return tensor
    if table.interleaved:
        tensor = tensor.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    return tensor if table.type is torch.Tensor else tensor.as_subclass(table.type)


def _levels(kind: _Kind, value: Any, channel: int) -> Array:
    """Returns the levels of one channel, row by row."""
    import numpy

    if kind.mode:
        return numpy.frombuffer(value.tobytes("raw", kind.mode[channel]), numpy.uint8)
    plane: Array = value if value.ndim == 2 else value[:, :, channel]
    return plane.reshape(-1)


def _look_up(numbers: Any, levels: Any, out: Any) -> None:
    import numpy

    for begin in range(0, len(levels), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        # "clip" writes to out directly, where "raise" would use memory of its own.
        numpy.take(numbers, levels[part], out=out[part], mode="clip")
