"""HDF5 files for torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch.utils.data

from ..._records import hdf5
from .arrays import OfArrays
from .fields import Step


class HDF5(OfArrays, hdf5.HDF5, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Datasets of HDF5 files, of which a record is a place of the first axis.

    Its numbers must lie in one piece: in a dataset without chunks, or in one chunk without filters.
    h5py finds where, when this object is made; then the files are read with ordinary reads, by any
    number of workers.

    Args:
        path: The file, or a list of files, which follow one another.
        *names: The datasets, such as ``"x", "y"``, which have the same first dimension.
        whole: A record is a file, with all of each dataset, as CosmoFlow's. Default: False.
        labels, classes: One per record: see :class:`Files`. Default: None, there are none.
        images: The datasets that are images: see :class:`Arrays`. Default: none.
        loader, transform, target_transform, transforms: See :class:`Files`.

    An item is the tensor of the only dataset, or a tuple of those of several, in this order. With
    labels: as :class:`Files`.

    Raises:
        ConfigError: There is no such dataset, its samples do not lie in one piece, or h5py is
            missing.
    """

    def __init__(
        self,
        path: object,
        *names: str,
        whole: bool = False,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
        images: bool | str | Sequence[str] = (),
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
    ):
        self._open(path, names, whole, labels, classes)
        self._set_tensors(images)
        self._set_making(loader, transform, target_transform, transforms, False)
