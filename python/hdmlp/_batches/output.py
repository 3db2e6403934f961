"""What the daemon's transforms make of samples: arrays of one type, in shared memory.

All have one shape and are adjacent; or they are images which each have a size of their own
("ragged"). Of several views of an image each has arrays of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from .._lib.typing import OutputAnswer
from ..errors import ConfigError
from .metadata import info_of
from .segments import Block
from .source import LeftBytes

#: Before a ragged image's levels: its height and width, or 0 and 0 if it is still encoded. After
#: them: what its file says beside its pixels, if anything.
_SIZE = struct.Struct("<II")
_SIZES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
_SIZES.update({"bool": 1, "uint16": 2, "int32": 4, "int64": 8})  # of masks


def arrays_for(torch: ModuleType) -> ModuleType | None:
    """Returns :mod:`hdmlp._batches.arrays`; None: no numpy which this torch works with."""
    try:
        import numpy

        from . import arrays as _arrays

        torch.from_numpy(numpy.empty(0))
    except (ImportError, RuntimeError):
        return None
    return _arrays


class Output:
    """What every sample becomes.

    Args:
        answer: One of the ``outputs`` of the daemon's OPENED (docs/FORMATS.md), with a shape.

    Attributes:
        shape: The shape of a sample, without the batch's dimension.
        ragged: Height and width, the first two of ``shape``, differ between samples; both are 0
            there.
        type: The elements' type: ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"``; of
            masks also ``"bool"``, ``"uint16"``, ``"int32"`` or ``"int64"``.
        count: Number of elements of a sample.
        nbytes: Number of bytes of a sample.
        views: What each of several views of a sample becomes; empty: there is one array.
    """

    views: Sequence[Output] = ()

    def __init__(self, answer: OutputAnswer):
        assert answer["shape"] is not None
        self.shape: tuple[int, ...] = tuple(answer["shape"])
        # As it lies in memory: with the channels last, if they are.
        self._stored: tuple[int, ...] = self.shape
        self._order: tuple[int, ...] | None = None
        if answer.get("channels_last"):
            self._stored, self._order = (*self.shape[1:], self.shape[0]), (0, 3, 1, 2)
        self.ragged = 0 in self.shape
        # Each sample's elements follow its height and width.
        self._sized: bool = answer.get("sized", False)
        self.type: str = answer["type"]
        self.count = 1
        for edge in self.shape:
            self.count *= edge
        self.nbytes = self.count * _SIZES[self.type]
        # Imported when they are needed.
        self._torch: ModuleType | None = None
        self._dtype: object = None
        # None: there is no numpy, or it does not have the type.
        self._leased: Callable[[Block, object, tuple[int, ...]], object] | None = None
        self._element: object = None  # numpy's type

    def array(self, block: Block | None, n: int) -> object:
        """Returns a batch as a numpy array of shape (n, ...), without copying it.

        Args:
            block: Where the batch is; None: it is empty.
            n: Its number of samples.

        Raises:
            ConfigError: numpy is missing, or has no such type.
        """
        try:
            import numpy

            from .arrays import leased
        except ImportError:
            raise ConfigError(
                "transforms: their results are numpy arrays, and numpy is missing; install it, or "
                "use hdmlp.torch"
            ) from None
        if self.type == "bfloat16":
            raise ConfigError(
                "transforms: numpy has no bfloat16; use float16 or float32, or hdmlp.torch"
            )
        if block is None or not n:
            return numpy.empty((0, *self.shape), self.type)
        whole = leased(block, numpy.dtype(self.type), (n, *self._stored)).view(numpy.ndarray)
        return whole if self._order is None else whole.transpose(self._order)

    def tensor(self, block: Block | None, n: int) -> object:
        """Returns a batch as a tensor of shape (n, ...), without copying it.

        Args:
            block: Where the batch is; None: it is empty.
            n: Its number of samples.
        """
        torch = self._torch or self._import()
        if block is None or not n:
            return torch.empty((0, *self.shape), dtype=self._dtype)
        if self._leased is None:
            whole = torch.frombuffer(block.view(), dtype=self._dtype).view(n, *self._stored)
        else:
            whole = torch.from_numpy(self._leased(block, self._element, (n, *self._stored)))
        return whole if self._order is None else whole.permute(self._order)

    def sample(self, view: memoryview) -> object:
        """Returns a copy of one sample as a tensor."""
        torch = self._torch or self._import()
        stored = self._stored
        if self._sized:
            size = iter(_SIZE.unpack_from(view))
            stored, view = tuple(edge or next(size) for edge in stored), view[_SIZE.size :]
        whole = torch.frombuffer(bytearray(view), dtype=self._dtype).view(1, *stored)
        return (whole if self._order is None else whole.permute(self._order))[0]

    def _import(self) -> ModuleType:
        import torch

        self._dtype = getattr(torch, self.type)
        arrays = arrays_for(torch)
        if arrays is not None and self.type != "bfloat16":
            import numpy

            self._leased, self._element = arrays.leased, numpy.dtype(self.type)
        self._torch = torch
        return torch

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_torch": None, "_dtype": None, "_leased": None, "_element": None}

    def put(self, batch: Any, place: int, value: Any) -> None:
        """Puts what Python made of a sample that was left to it in its place of a batch.

        Args:
            batch: What :meth:`tensor` returned.
            place: The place.
            value: A PIL image, or a tensor.

        Raises:
            ValueError: It does not have the output's shape.
        """
        batch[place] = self._in_form(value)

    def _in_form(self, value: Any) -> object:
        """Returns a PIL image, or a tensor, in the form of the output; see :meth:`put`."""
        torch = self._torch or self._import()
        if not isinstance(value, torch.Tensor):
            levels = torch.frombuffer(bytearray(value.tobytes()), dtype=torch.uint8)
            value = levels.view(value.height, value.width, -1)
        if tuple(value.shape) != self.shape:
            raise ValueError(
                f"its transforms made an array of shape {tuple(value.shape)} in Python, and "
                f"{self.shape} of the others': if images have several modes, convert them first "
                "(RGB())"
            )
        return value

    def split(self, block: Any, n: int) -> list[memoryview | LeftBytes]:
        """Returns the samples of a batch, one by one.

        Args:
            block: Where the batch is; if ragged, views of its samples, which are returned.
            n: Its number of samples.
        """
        if not n or self.ragged:
            return block or []
        view = block.view()
        return [view[i * self.nbytes : (i + 1) * self.nbytes] for i in range(n)]

    def items(self, batch: Any) -> Sequence[Any]:
        """Returns the samples of what :meth:`array` or :meth:`tensor` returned."""
        return batch  # type: ignore[no-any-return]


class Views(Output):
    """What every sample becomes of which there are several views: a list of one array of each.

    So is a batch, and the memory in which it is.

    Args:
        views: What each view becomes.
    """

    def __init__(self, views: Sequence[Output]):
        self.views = list(views)
        self.ragged = False
        self.nbytes = sum(view.nbytes for view in views)

    def array(self, block: Any, n: int) -> object:
        """Returns a batch as a list of numpy arrays; see :meth:`Output.array`."""
        return [view.array(part, n) for view, part in self._parts(block)]

    def tensor(self, block: Any, n: int) -> object:
        """Returns a batch as a list of tensors; see :meth:`Output.tensor`."""
        return [view.tensor(part, n) for view, part in self._parts(block)]

    def _parts(self, block: Any) -> Iterable[tuple[Output, Any]]:
        return zip(self.views, block or [None] * len(self.views))

    def sample(self, view: Any) -> object:
        """Returns copies of one sample's views as tensors."""
        return [output.sample(part) for output, part in zip(self.views, view)]

    def put(self, batch: Any, place: int, value: Any) -> None:
        """Puts a sample's list of views in its place of a batch; see :meth:`Output.put`."""
        for output, tensor, part in zip(self.views, batch, value):
            output.put(tensor, place, part)

    def split(self, block: Any, n: int) -> list[Any]:
        """Returns the samples of a batch: tuples of their views."""
        return list(zip(*(view.split(part, n) for view, part in self._parts(block))))

    def items(self, batch: Any) -> Sequence[Any]:
        """Returns the samples of a batch: lists of their views."""
        return list(map(list, zip(*batch)))

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__


def outputs_of(answers: Sequence[OutputAnswer]) -> list[Output | None]:
    """Returns what the daemon delivers of each field of a sample; None: the field as it is.

    Args:
        answers: The ``outputs`` of its OPENED. Views of one field follow one another.
    """
    outputs: list[Output | None] = []
    views: list[Output] = []
    for answer in answers:
        made = Output(answer) if answer["shape"] else None
        view = answer.get("view")
        if made is None or view is None:
            outputs.append(made)
            continue
        views = [made] if view == 0 else [*views, made]
        if view > 0:
            outputs.pop()
        outputs.append(Views(views))
    return outputs


def places_of(output: Output | None) -> int:
    """Returns of how many results a BATCH has the places, for what is delivered of a field."""
    return 1 if output is None else max(len(output.views), 1)


def grouped(outputs: Sequence[Output | None], columns: Sequence[Any]) -> list[Any]:
    """Returns what there is of each field: a list with that of each view, where it has views.

    Args:
        outputs: What is delivered of each field.
        columns: What there is of each result, in the order of a BATCH.
    """
    found: list[Any] = []
    at = 0
    for output in outputs:
        count = places_of(output)
        views = output is not None and output.views
        found.append(list(columns[at : at + count]) if views else columns[at])
        at += count
    return found


class Keyed:
    """A loader that applies random transforms: what it returns depends on the sample's key."""

    def __call__(self, view: memoryview | LeftBytes, key: int | None) -> object:
        """Returns what the file, or what the daemon made of it, becomes.

        Args:
            view: The bytes.
            key: The key of the sample's random numbers; None: the generators are left as they are.
        """
        raise NotImplementedError


class Handed(Keyed):
    """Adapts the daemon's output to the input of the remaining transforms, in Python.

    Args:
        hands: ``"tensor"``, or ``"image"`` or ``"ragged"`` for a PIL image, which has the ``info``
            that Pillow leaves if the output is ragged; see :class:`hdmlp.transforms.Split`.
        instead: From a file's bytes to the same, for those which the daemon leaves to Python.

    Attributes:
        output: The daemon's output; set once the job is open.
    """

    def __init__(self, hands: str, instead: Keyed | None = None):
        self.hands, self.instead = hands, instead
        self.output: Output | None = None

    def __call__(self, view: memoryview | LeftBytes, key: int | None) -> object:
        """Returns the input of the remaining transforms, for one sample; see :class:`Keyed`."""
        output = self.output
        assert output is not None
        if isinstance(view, LeftBytes):
            assert self.instead is not None
            return self.instead(view, key)
        if self.hands == "tensor":
            return output.sample(view)  # a copy, as the transforms may write to it
        from PIL import Image

        height, width, channels = output.shape
        if output.ragged:
            height, width = _SIZE.unpack_from(view)
            view = view[_SIZE.size :]
            if not height:
                assert self.instead is not None
                return self.instead(view, key)
        mode, count = "L" if channels == 1 else "RGB", height * width * channels
        # bytes() copies: PIL stores three channels in a layout of its own, and an image which the
        # program keeps must not keep the whole batch.
        image = Image.frombytes(mode, (width, height), bytes(view[:count]))
        if len(view) > count:
            image.info = info_of(bytes(view[count:]), mode)
        return image
