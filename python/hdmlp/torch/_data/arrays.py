"""Arrays in files, for torch: tensors, windows of sequences, and images."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch.utils.data

from ..._records import arrays
from ...errors import ConfigError
from .elements import OfPixels, Tensors, pixels_of
from .fields import Step
from .records import Making


class OfArrays(Making, arrays.Typed):
    """What is made of arrays: tensors, or images where a field is named as such."""

    _images: dict[str, OfPixels]

    def _set_tensors(self, images: bool | str | Sequence[str] = ()) -> None:
        """Has fields become tensors, and some of them images.

        Args:
            images: Their names, or one; True: all.

        Raises:
            ConfigError: There is no such field, or it has no images.
        """
        given: Sequence[str] = self.fields if images is True else images or ()
        given = [given] if isinstance(given, str) else given
        for name in given:
            if name not in self.fields:
                raise ConfigError(
                    f"images={name!r}: there is no field of that name; there are "
                    f"{', '.join(self.fields)}"
                )
        self._images = {name: pixels_of(name, self._elements[name]) for name in given}
        self._tensors = {
            name: Tensors(own.dtype, own.shape, own.window) for name, own in self._elements.items()
        }

    def _loader_of(self, name: str) -> Step | None:
        return self._images.get(name) or self._tensors.get(name)


class Arrays(OfArrays, arrays.Arrays, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Arrays in files, of which a record is a place of the first axis: a row, an image, a volume.

    The files are those of ``numpy.save`` (``.npy``), raw numbers (``.bin``, ``.dat``), and idx
    files as MNIST's. A record is read with one read per field, and nothing else of the files is.

    Args:
        paths: A file; or a dict or tuple of them, such as ``{"x": "inputs.npy", "y":
            "targets.npy"}``, which have the same first dimension. In the place of a file, a list of
            files, which follow one another along the first axis.
        dtype: Of raw files: numpy's type of the numbers, such as ``"uint16"``; of several fields, a
            dict by field, which names those that are raw. Default: None: the files say it.
        shape: The same: the shape of the whole array, whose first edge may be -1: as many as there
            are. Default: None: numbers one after another.
        offset: The same: how many bytes come before the numbers. Default: 0.
        labels, classes: One per record: see :class:`Files`. Default: None, there are none.
        window: Records are windows of so many places of the first axis, and an item is (inputs,
            targets), both of this length, from one read; integers become int64. Default: None.
        stride: How many places after one window the next begins. Default: None: ``window``, so
            that windows do not overlap. With 1 there are as many windows as places, and caches
            hold each place ``window`` times.
        shift: How many places after the inputs the targets begin; None: an item is the inputs.
            Default: 1.
        images: The fields that are images, of uint8: transforms get PIL images of them, or the
            daemon carries them out. True: all. Default: none: fields are tensors.
        root: What relative paths are relative to. Default: None, the current directory.
        loader, transform, target_transform, transforms: See :class:`Files`.

    An item has the form of what was given: a file, the tensor of the record; a tuple, a tuple; a
    dict, a dict. With labels: as :class:`Files`.

    Raises:
        ConfigError: A file is none of these, or does not fit the others.
    """

    def __init__(
        self,
        paths: object,
        *,
        dtype: object = None,
        shape: object = None,
        offset: object = 0,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
        window: int | None = None,
        stride: int | None = None,
        shift: int | None = 1,
        images: bool | str | Sequence[str] = (),
        root: str | os.PathLike[str] | None = None,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
    ):
        self._open(paths, dtype, shape, offset, labels, classes, window, stride, shift, root)
        self._set_tensors(images)
        self._set_making(loader, transform, target_transform, transforms, False)
