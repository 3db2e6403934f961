"""LMDB environments for torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.data

from ..._records import lmdb
from ..._transforms.recipe import Undecodable
from ...errors import ConfigError
from .fields import Fields, OfRecord, Step
from .folder import pil_loader
from .records import Making

#: The field of a Datum's floats.
_FLOATS = "float_data"


class _Shaped(OfRecord):
    """Makes arrays of a ``Datum``'s data that is no encoded image.

    Args:
        shapes: The records' channels, height and width.
        kind: The type of the arrays.
    """

    def __init__(self, shapes: Sequence[tuple[int, int, int]], kind: str):
        self.shapes, self.kind = shapes, kind

    def of_record(self, data: Any, sample: int) -> object:
        """Returns a record's array, uint8 of (channels, height, width), or float32 of floats."""
        import numpy

        shape = self.shapes[sample]
        need = numpy.dtype(self.kind).itemsize * shape[0] * shape[1] * shape[2]
        if len(data) != need:
            raise Undecodable(
                f"a Datum of {len(data)} bytes, whose shape {shape} is that of {need} ({self.kind})"
            )
        return numpy.frombuffer(data, self.kind).reshape(shape)


class _Labelled:
    """Makes a label of a record's key and value.

    Args:
        function: Of both.
        keys: The records' keys.
    """

    def __init__(self, function: Callable[[bytes, object], object], keys: Sequence[str]):
        self.function, self.keys = function, keys

    def __call__(self, sample: int, value: object) -> object:
        return self.function(os.fsencode(self.keys[sample]), value)


class LMDB(Making, lmdb.LMDB, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The records of an LMDB environment, in the order of their keys.

    Pages are read with ordinary reads, never mapped; the index comes from branches and leaves
    alone. A writer that commits while the environment is open is noticed with the next read, which
    is an error then.

    Args:
        path: The environment: a directory with a ``data.mdb``, or a data file.
        database: The name of a database in it. Default: ``""``, the main one, or the only named
            one.
        decoder: ``"raw"``: a sample is the value; ``"datum"``: the value is Caffe's ``Datum``, of
            which a sample is the image, with its label: bytes if it is encoded, else an array of
            (channels, height, width). Default: ``"raw"``.
        label: ``"prefix"``: what precedes the first ``_`` or ``/`` of a key is the name of a class;
            or a function of (key, value) to a label, which runs in Python, and the transforms with
            it. Default: None, there are no labels but those of ``"datum"``.
        loader, transform, target_transform, transforms: See :class:`Files`.

    Without options an item is the value, and a batch a list of memoryviews; keys are
    ``dataset.key(i)``.

    Raises:
        ConfigError: An argument is wrong.
        DatasetNotFoundError: There is no such environment.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        database: str = "",
        decoder: str = "raw",
        label: str | Callable[[bytes, object], object] | None = None,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
    ):
        super().__init__(path, database=database, decoder=decoder, label=label)
        self._set_making(loader, transform, target_transform, transforms, False)

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        # A function of the value needs its bytes.
        plan = super()._plan(wanted and self._labels_by is None, say, raw)
        if not raw and any(part.load is pil_loader or part.described for part in plan.parts):
            self._refuse_pickles()
        return plan

    def _refuse_pickles(self) -> None:
        """Checks that the first value is no pickle, which no decoder of images can read.

        Raises:
            ConfigError: It is one.
        """
        first = self._bytes_of(0, 0) or b""
        if first[:1] == b"\x80" and first[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            raise ConfigError(
                f"the value of key {self.key(0)!r} is a pickle, and loading one runs whatever code "
                "it names: leave transform out, and load the values in a collate_fn"
            )

    def _names_of(self, field: int) -> list[str]:
        return ["jpg" if self._shapes is None else "data"]

    def _loader_of(self, name: str) -> Step | None:
        kind = "float32" if name == _FLOATS else "uint8"
        return None if self._shapes is None else _Shaped(self._shapes, kind)

    def _labeller(self) -> Step | None:
        if self._labels_by is None:
            return None
        return _Labelled(self._labels_by, self.__dict__["_keys"])
