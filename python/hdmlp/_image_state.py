"""What an image is after each of a list of transforms: whether the daemon can carry out the next one."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _transforms as ours

_FLOATS = ("float16", "bfloat16", "float32")
_NO_SIZE = "images have no fixed size {} it; add CenterCrop or RandomCrop, or resize to a height and a width"


class Unknown(Exception):
    """A transform that the daemon can not carry out, or not here; the message says why."""


class Convert(NamedTuple):
    """v2's ToDtype, which may change a type without scaling."""

    dtype: str
    scale: bool


class State:
    """What is known about a sample after the transforms so far, and what the daemon is to do."""

    def __init__(self) -> None:
        self.image: list[Any] = []  # the daemon's transforms of images
        self.tensor: list[Any] = []  # ToTensor, and what follows it
        self.array: list[Any] = []  # Reshape, and what follows it
        self.size: tuple[int, int] | None = None  # height, width, where all images have the same
        self.channels = 3
        self.dtype = "uint8"
        self.normalized = False

    def described(self) -> list[Any]:
        return self.array + self.image + self.tensor

    def take(self, step: Any) -> None:
        """Adds a transform, or raises Unknown where the daemon can not have it here."""
        if (isinstance(step, ours.Reshape) and not self.described()) or (
            isinstance(step, ours.ScaleShift16) and len(self.array) == 1
        ):
            self.array.append(step)
        elif self.array:
            raise Unknown("it can not follow Reshape")
        elif isinstance(step, ours.ToTensor):
            self.to_tensor(step)
        elif isinstance(step, (Convert, ours.ConvertImageDtype, ours.Normalize)):
            self.of_tensor(step)
        else:
            self.of_image(step)

    def to_tensor(self, step: Any) -> None:
        if self.tensor:
            raise Unknown("there is a tensor already")
        self.tensor, self.dtype = [step], step.dtype

    def of_tensor(self, step: Any) -> None:
        if isinstance(step, ours.Normalize):
            if not self.tensor or self.dtype == "uint8":
                raise Unknown("it needs a tensor of floating point")
            if self.normalized:
                raise Unknown("there is one Normalize before it already")
            if max(len(step.describe()[k]) for k in ("mean", "std")) > self.channels:
                raise Unknown("it is for three channels, and images have one")
            self.normalized = True
        else:
            if not self.tensor:
                raise Unknown("it needs a tensor")
            if not getattr(step, "scale", True):
                if (self.dtype in _FLOATS) != (step.dtype in _FLOATS):
                    raise Unknown("it changes the type and leaves the numbers as they are")
            if self.normalized and step.dtype == "uint8":
                raise Unknown("what Normalize made can not become uint8")
            if step.dtype == self.dtype:
                return
            self.dtype = step.dtype
            step = ours.ConvertImageDtype(step.dtype)
        self.tensor = [*self.tensor, step]

    def of_image(self, step: Any) -> None:
        """A transform of images: added before the tensor, where it would give the same on one."""
        if isinstance(step, ours.ImgDecode):
            if self.described():
                raise Unknown("it must be the first of the list")
            self.channels = 1 if step.mode == "L" else 3
        elif isinstance(step, (ours.Reshape, ours.ScaleShift16)):
            raise Unknown("HDMLP can not do it here")
        if self.tensor:
            self.movable(step)
        if (
            self.channels == 1
            and isinstance(getattr(step, "fill", 0), (tuple, list))
            and len(step.fill) == 3
        ):
            raise Unknown("fill has three numbers, and images have one channel")
        self.follow(step)
        self.image = [*self.image, step]

    def movable(self, step: Any) -> None:
        """Raises Unknown where a transform would make something else of the image than of the tensor."""
        if isinstance(step, (ours.Resize, ours.RandomResizedCrop)):
            if (
                self.dtype != "uint8"
                or step.antialias is not True
                or step.interpolation.value not in ("bilinear", "bicubic")
            ):
                raise Unknown(
                    "on tensors torchvision resizes otherwise than on images; put it before ToTensor, or on uint8 "
                    "with antialias=True"
                )
        elif isinstance(step, ours.CenterCrop):
            if self.normalized and (
                self.size is None or step.size[0] > self.size[0] or step.size[1] > self.size[1]
            ):
                raise Unknown(
                    "what it puts around images is not normalised; put it before ToTensor"
                )
        elif isinstance(step, (ours.Pad, ours.RandomCrop)):
            pads = isinstance(step, ours.Pad) or step.padding is not None or step.pad_if_needed
            levels = step.fill if isinstance(step.fill, (tuple, list)) else [step.fill]
            if (
                pads
                and step.padding_mode == "constant"
                and (self.normalized or (self.dtype != "uint8" and any(levels)))
            ):
                raise Unknown("what it puts around images is no grey level; put it before ToTensor")
        elif isinstance(step, (ours.ColorJitter, ours.Grayscale)):
            raise Unknown(
                "on tensors torchvision computes colours otherwise than on images; put it before ToTensor"
            )

    def follow(self, step: Any) -> None:
        """Notes the size of what comes out."""
        if isinstance(step, ours.Grayscale):
            self.channels = step.num_output_channels
        elif isinstance(step, ours.Resize):
            if not isinstance(step.size, int) and len(step.size) == 2:
                self.size = tuple(step.size)
            elif self.size is not None:
                self.size = _shorter(step, *self.size)
        elif isinstance(step, ours.RandomCrop):
            if self.size is not None and not step.pad_if_needed:
                around = self.size if step.padding is None else _around(step, *self.size)
                if around[0] < step.size[0] or around[1] < step.size[1]:
                    raise Unknown("images are smaller than that")
            self.size = step.size
        elif isinstance(step, (ours.CenterCrop, ours.RandomResizedCrop)):
            self.size = step.size
        elif isinstance(step, ours.Pad) and self.size is not None:
            self.size = _around(step, *self.size)
            if min(self.size) < 1:
                raise Unknown("it leaves nothing")


def _shorter(step: Any, height: int, width: int) -> tuple[int, int]:
    """The size of an image that is resized by its shorter edge."""
    edge = step.size if isinstance(step.size, int) else step.size[0]
    short, long = min(height, width), max(height, width)
    short, long = edge, int(edge * long / short)
    if step.max_size is not None and long > step.max_size:
        short, long = int(step.max_size * short / long), step.max_size
    if short < 1:
        raise Unknown("nothing would be left of the shorter edge")
    return (short, long) if height <= width else (long, short)


def _around(step: Any, height: int, width: int) -> tuple[int, int]:
    """The size of an image with padding around it."""
    p = step.padding if isinstance(step.padding, (tuple, list)) else [step.padding]
    left, top, right, bottom = [*p, *p, *p, *p][:4] if len(p) < 4 else p
    return height + top + bottom, width + left + right
