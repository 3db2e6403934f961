"""What an image is after each transform of a list, and so which one the daemon can do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from .. import _transforms as ours
from .described import Erasing
from .nested import Nested


class Unknown(Exception):
    """The daemon cannot carry out a transform, or not at its place; the message says why."""


class Convert(NamedTuple):
    """A conversion to another type.

    Attributes:
        dtype: The type.
        scale: How levels are scaled: ``"divide"``, ``"multiply"`` or ``"none"``.
    """

    dtype: str
    scale: str


class RGB(NamedTuple):
    """v2's RGB, or another conversion, which does nothing to images of 3 channels.

    Attributes:
        of_image: Only PIL images can be converted.
    """

    of_image: bool = False


#: What a :class:`State` takes.
Step = Union[ours.Transform, Convert, RGB]


class State:
    """What is known of a sample after the transforms so far, and what the daemon is to do.

    A list that is carried out has three parts, in this order: transforms of the encoded array,
    of the image, and of the tensor. Transforms of images that come after ToTensor are moved
    before it where that changes nothing.

    Attributes:
        array: Reshape, and what follows it.
        image: The daemon's transforms of images.
        tensor: ToTensor, and what follows it.
        views: Views, which nothing follows.
        size: (height, width) in pixels if all images have the same; None: they may differ.
        channels: Number of channels.
        dtype: Name of the elements' type.
        normalized: Whether Normalize has been applied.
        erased: Whether a part of the tensor has been erased.
        scaled: Whether numbers of floating point are from 0 to 1, and not levels.
        arithmetic: The type to which numbers were rounded before they got the current one, and in
            which they were normalized; empty: float32.
    """

    def __init__(self) -> None:
        self.array: list[ours.Transform] = []
        self.image: list[ours.Transform] = []
        self.tensor: list[ours.Transform] = []
        self.views: list[ours.Transform] = []
        self._of_view = False
        self.size: tuple[int, int] | None = None
        self.channels = 3
        self.dtype = "uint8"
        self.normalized = False
        self.erased = False
        self.scaled = True
        self.arithmetic = ""

    def described(self) -> list[ours.Transform]:
        """The transforms so far, in the order in which the daemon carries them out."""
        return self.array + self.image + self.tensor + self.views

    def of_view(self) -> State:
        """Returns what is known at the beginning of a view's list.

        Raises:
            Unknown: There cannot be views here.
        """
        if self.tensor or self.array:
            raise Unknown("it is for images; put it before ToTensor")
        of = State()
        of.size, of.channels, of._of_view = self.size, self.channels, True
        return of

    def take(self, step: Step) -> None:
        """Adds a transform.

        Raises:
            Unknown: The daemon cannot carry it out here.
        """
        if self.views:
            raise Unknown("it gets the list of views")
        if self._of_view and isinstance(
            step, (ours.Reshape, ours.ImgDecode, ours.Pixels, ours.Views)
        ):
            raise Unknown("it cannot be within a view")
        if (isinstance(step, ours.Reshape) and not self.described()) or (
            isinstance(step, ours.ScaleShift16) and len(self.array) == 1
        ):
            self.array.append(step)
        elif self.array:
            raise Unknown("it cannot follow Reshape")
        elif isinstance(step, ours.Views):
            self.views = [step]
        elif isinstance(step, ours.ToTensor):
            self._take_to_tensor(step)
        elif isinstance(step, (Convert, ours.ConvertImageDtype)):
            self._take_conversion(step)
        elif isinstance(step, ours.Normalize):
            self._take_normalize(step)
        elif isinstance(step, (ours.RandomErasing, Erasing)):
            self._take_erasing(step)
        elif isinstance(step, RGB):
            if self.channels != 3:
                raise Unknown("it needs an image of 3 channels here")
            if step.of_image and self.tensor:
                raise Unknown("it converts images, and gets a tensor here")
        else:
            self._take_of_image(step)

    def _take_to_tensor(self, step: ours.ToTensor) -> None:
        if self.tensor:
            raise Unknown("there is a tensor already")
        self.tensor, self.dtype = [step], step.dtype

    def _take_normalize(self, step: ours.Normalize) -> None:
        if not self.tensor or self.dtype == "uint8":
            raise Unknown("it needs a tensor of floating point")
        if self.normalized:
            raise Unknown("there is one Normalize before it already")
        if max(len(step.describe()[k]) for k in ("mean", "std")) > self.channels:
            raise Unknown("it is for 3 channels, and images have 1")
        if self.arithmetic:
            raise Unknown("the tensor is converted twice before it")
        self.normalized = True
        self.arithmetic = "" if self.dtype == "float32" else self.dtype
        self.tensor = [*self.tensor, step]

    def _take_conversion(self, step: Convert | ours.ConvertImageDtype) -> None:
        if not self.tensor:
            raise Unknown("it needs a tensor")
        if isinstance(step, ours.ConvertImageDtype):
            step = Convert(step.dtype, step._scale)
        was, self.dtype = self.dtype, step.dtype
        if step.dtype == was:
            return
        if was == "uint8":
            self.scaled = step.scale != "none"
        elif step.dtype == "uint8":
            self._check_levels(was, step)
        elif was != "float32":
            if self.arithmetic != was and (self.arithmetic or self.normalized):
                raise Unknown(f"the tensor was rounded to {was} before it")
            self.arithmetic = was
        self.tensor = [*self.tensor, ours.ConvertImageDtype(step.dtype).scaling(step.scale)]

    def _check_levels(self, was: str, step: Convert) -> None:
        """Raises Unknown if a conversion to uint8 makes something other than the image's levels."""
        if self.normalized:
            raise Unknown("normalized numbers cannot become uint8")
        if self.erased:
            raise Unknown("what was erased cannot become uint8")
        if was != "float32" or self.arithmetic or not self.scaled or step.scale == "none":
            raise Unknown("what it makes are not the levels of the image")

    def _take_erasing(self, step: ours.Transform) -> None:
        described = step.describe()
        value = described.get("value", [0.0])
        if not self.tensor:
            raise Unknown("it needs a tensor")
        if self.dtype == "uint8" and (
            described.get("mode", "const") != "const"
            or value == "random"
            or any(not 0 <= v <= 255 for v in value)
        ):
            raise Unknown("its values are not levels from 0 to 255")
        if value != "random" and len(value) > self.channels:
            raise Unknown("its value is for 3 channels, and images have 1")
        self.erased = True
        self.tensor = [*self.tensor, step]

    def _take_of_image(self, step: ours.Transform) -> None:
        if isinstance(step, ours.ImgDecode):
            if self.described():
                raise Unknown("it must be the first of the list")
            self.channels = 1 if step.mode == "L" else 3
        elif isinstance(step, ours.Pixels):
            if self.described():
                raise Unknown("it must be the first of the list")
            self.channels, self.size = step.channels, (step.height, step.width)
        elif isinstance(step, (ours.Reshape, ours.ScaleShift16)):
            raise Unknown("HDMLP cannot do it here")
        if self.tensor:
            self._check_movable(step)
        fill = getattr(step, "fill", 0)
        if self.channels == 1 and isinstance(fill, (tuple, list)) and len(fill) == 3:
            raise Unknown("fill has 3 numbers, and images have 1 channel")
        self._note_size(step)
        self.image = [*self.image, step]

    def _check_movable(self, step: ours.Transform) -> None:
        """Raise Unknown if the transform's result differs between the image and the tensor."""
        if self.erased:
            raise Unknown("a part of the tensor has been erased before it")
        if step._same_on_levels and self.dtype == "uint8" and not self.normalized:
            return
        if not step._same_on_tensor:
            raise Unknown(
                "torchvision's result on a tensor differs from that on an image; "
                "put it before ToTensor"
            )
        if isinstance(step, (ours.Resize, ours.RandomResizedCrop)):
            modes = step.interpolation
            several = modes if isinstance(modes, tuple) else (modes,)
            if (
                self.dtype != "uint8"
                or step.antialias is not True
                or not {mode.value for mode in several} <= {"bilinear", "bicubic"}
            ):
                raise Unknown(
                    "torchvision resizes tensors differently from images; put it before ToTensor, "
                    "or on uint8 with antialias=True"
                )
        elif isinstance(step, ours.CenterCrop):
            if self.normalized and (
                self.size is None or step.size[0] > self.size[0] or step.size[1] > self.size[1]
            ):
                raise Unknown("its border would not be normalized; put it before ToTensor")
        elif isinstance(step, (ours.Pad, ours.RandomCrop)):
            pads = isinstance(step, ours.Pad) or step.padding is not None or step.pad_if_needed
            levels = step.fill if isinstance(step.fill, (tuple, list)) else [step.fill]
            is_level = not self.normalized and (self.dtype == "uint8" or not any(levels))
            if pads and step.padding_mode == "constant" and not is_level:
                raise Unknown("its fill is not a level from 0 to 255; put it before ToTensor")

    def _note_size(self, step: ours.Transform) -> None:
        """Notes the size and channels of the transform's result."""
        if isinstance(step, ours.Grayscale):
            self.channels = step.num_output_channels
        elif isinstance(step, Nested):
            self._note_nested(step)
        elif isinstance(step, ours.RandomRotation) and step.expand:
            self.size = None
        elif isinstance(step, ours.Resize):
            if not isinstance(step.size, int) and len(step.size) == 2:
                self.size = (step.size[0], step.size[1])
            elif self.size is not None:
                self.size = _resized(step, *self.size)
        elif isinstance(step, ours.RandomCrop):
            if self.size is not None and not step.pad_if_needed:
                padded = self.size if step.padding is None else _padded(step.padding, *self.size)
                if padded[0] < step.size[0] or padded[1] < step.size[1]:
                    raise Unknown("images are smaller than that")
            self.size = step.size
        elif isinstance(step, (ours.CenterCrop, ours.RandomResizedCrop)):
            self.size = step.size
        elif isinstance(step, ours.Pad) and self.size is not None:
            self.size = _padded(step.padding, *self.size)
            if min(self.size) < 1:
                raise Unknown("nothing would be left of the image")

    def _note_nested(self, step: Nested) -> None:
        """Notes the size and channels, if they are those of each way that may be taken."""
        ends = [self._after(part) for part in step.parts]
        if isinstance(step, ours.RandomApply):
            ends = [(self.size, self.channels), self._after([t for p in step.parts for t in p])]
        elif isinstance(step, ours.RandomOrder) and len(set(ends)) > 1:
            raise Unknown("the size or the channels depend on the order")
        if len({channels for _, channels in ends}) > 1:
            raise Unknown("some images would have 1 channel and others 3")
        sizes = {size for size, _ in ends}
        self.size, self.channels = sizes.pop() if len(sizes) == 1 else None, ends[0][1]

    def _after(self, part: Sequence[ours.Transform]) -> tuple[tuple[int, int] | None, int]:
        """Returns the size and channels after some transforms of the image."""
        state = State()
        state.size, state.channels = self.size, self.channels
        for t in part:
            state.take(t)
        if state.tensor or state.array:
            raise Unknown("only transforms of images may be within it")
        return state.size, state.channels


def _resized(step: ours.Resize, height: int, width: int) -> tuple[int, int]:
    """The size of an image which is resized by its shorter edge."""
    edge = step.size if isinstance(step.size, int) else step.size[0]
    short, long = min(height, width), max(height, width)
    short, long = edge, int(edge * long / short)
    if step.max_size is not None and long > step.max_size:
        short, long = int(step.max_size * short / long), step.max_size
    if short < 1:
        raise Unknown("nothing would be left of the shorter edge")
    return (short, long) if height <= width else (long, short)


def _padded(padding: Any, height: int, width: int) -> tuple[int, int]:
    """The size of an image after padding, which is that of :class:`~hdmlp.transforms.Pad`."""
    sides = list(padding) if isinstance(padding, (tuple, list)) else [padding]
    left, top, right, bottom = (sides * 4)[:4] if len(sides) < 4 else sides
    return height + top + bottom, width + left + right
