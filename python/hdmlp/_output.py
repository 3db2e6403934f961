"""What the daemon's transforms make of samples: arrays of one type, in shared memory; of one shape and one after the other, or images that each have their own size."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Callable

from ._segments import Block
from .errors import ConfigError

_SIZE = struct.Struct(
    "<II"
)  # before a ragged image's levels: height and width; both 0 before what is still encoded
_SIZES = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}


def arrays_for(torch: Any) -> Any:
    """:mod:`hdmlp._arrays`; None if numpy is missing, or is none that this torch works with."""
    try:
        from . import _arrays

        torch.from_numpy(_arrays.numpy.empty(0))
    except (ImportError, RuntimeError):
        return None
    return _arrays


class Output:
    """What every sample becomes.

    Args:
        answer: the ``output`` of the daemon's OPENED (docs/FORMATS.md).

    Attributes:
        shape: of a sample, without the batch's dimension.
        ragged: the first two of these, height and width, differ, and are 0 here.
        type: the elements' type: ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"``.
        count, nbytes: elements and bytes of a sample.
    """

    def __init__(self, answer: dict[str, Any]):
        self.shape: tuple[int, ...] = tuple(answer["shape"])
        self.ragged = 0 in self.shape
        self.type: str = answer["type"]
        self.count = 1
        for edge in self.shape:
            self.count *= edge
        self.nbytes = self.count * _SIZES[self.type]
        self._torch: Any = None  # once it is needed
        self._dtype: Any = None
        self._leased: Any = None  # None: there is no numpy, or it does not have the type
        self._element: Any = None  # the type as numpy has it

    def array(self, block: Block | None, n: int) -> Any:
        """A batch of n as a numpy array of shape (n, ...), where it lies.

        Raises:
            ConfigError: numpy is missing, or has no such type.
        """
        try:
            import numpy

            from ._arrays import leased
        except ImportError:
            raise ConfigError(
                "transforms: numpy is needed for what they make; install it, or use hdmlp.torch"
            ) from None
        if self.type == "bfloat16":
            raise ConfigError(
                "transforms: numpy has no bfloat16; use float16 or float32, or hdmlp.torch"
            )
        if not n:
            return numpy.empty((0, *self.shape), self.type)
        return leased(block, numpy.dtype(self.type), (n, *self.shape)).view(numpy.ndarray)

    def tensor(self, block: Block | None, n: int) -> Any:
        """A batch of n as a tensor of shape (n, ...), where it lies."""
        if self._torch is None:
            self._import()
        if not n:
            return self._torch.empty((0, *self.shape), dtype=self._dtype)
        if self._leased is None:
            return self._torch.frombuffer(block.view(), dtype=self._dtype).view(n, *self.shape)
        return self._torch.from_numpy(self._leased(block, self._element, (n, *self.shape)))

    def sample(self, view: Sequence[int]) -> Any:
        """A copy of one sample as a tensor."""
        if self._torch is None:
            self._import()
        return self._torch.frombuffer(bytearray(view), dtype=self._dtype).view(*self.shape)

    def _import(self) -> None:
        import torch

        self._dtype = getattr(torch, self.type)
        arrays = arrays_for(torch)
        if arrays is not None and self.type != "bfloat16":
            self._leased, self._element = arrays.leased, arrays.numpy.dtype(self.type)
        self._torch = torch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_torch": None, "_dtype": None, "_leased": None, "_element": None}

    def split(self, block: Any, n: int) -> list[memoryview]:
        """The samples of a batch of n, one by one. ``block``: where they lie in one piece; ragged ones are views already."""
        if not n or self.ragged:
            return block or []
        view = block.view()
        return [view[i * self.nbytes : (i + 1) * self.nbytes] for i in range(n)]


class Handed:
    """Makes of what the daemon made what the rest of the transforms, in Python, are to be given.

    Args:
        hands: ``"tensor"``, or ``"image"`` or ``"ragged"`` for a PIL image; see :class:`hdmlp._torchvision.Split`.
        instead: from a file's bytes to what ragged images are, for those that the daemon leaves as they are in their files.

    Attributes:
        output: set once the job is open.
    """

    def __init__(self, hands: str, instead: Callable | None = None):
        self.hands, self.instead = hands, instead
        self.output: Output | None = None

    def __call__(self, view: Sequence[int]) -> Any:
        output = self.output
        if self.hands == "tensor":
            return output.sample(view)  # a copy: what follows may write to it
        from PIL import Image

        height, width, channels = output.shape
        if self.hands == "ragged":
            height, width = _SIZE.unpack_from(view)
            view = view[_SIZE.size :]
            if not height:
                return self.instead(view)
        # The bytes are a copy: PIL keeps three channels in its own way, and who keeps an image must not keep the batch.
        return Image.frombytes("L" if channels == 1 else "RGB", (width, height), bytes(view))
