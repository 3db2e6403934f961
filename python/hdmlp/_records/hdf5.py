"""HDF5 files: where the samples of their datasets lie, as h5py reports."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .._lib.arguments import is_url, switch
from ..errors import ConfigError
from .array_files import ArrayFile, check_samples, checked
from .arrays import Typed, paths_in, unreadable
from .elements import Elements
from .form import Form
from .labels import Labels
from .manifest import located
from .records import read_file
from .runs import Ranges, Run, in_runs

#: What to do with a dataset whose samples do not lie in one piece.
_REWRITE = "write it without compression, with chunks=(1, *sample) or chunks=None"


#: What h5py raises for files that are damaged, or none of its own.
_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)


class _Found(NamedTuple):
    """A dataset.

    Attributes:
        array: It, as an array whose first axis is that of records.
        runs: Where these are.
    """

    array: ArrayFile
    runs: list[Run]


class HDF5(Typed):
    """Datasets of HDF5 files, of which a record is a place of the first axis.

    Its numbers must lie in one piece: in a dataset without chunks, or in one chunk without filters.
    h5py finds where, when this object is made; then the files are read with ordinary reads.

    Args:
        path: The file, or a list of files, which follow one another.
        *names: The datasets, such as ``"x", "y"``, which have the same first dimension.
        whole: A record is a file, with all of each dataset, as CosmoFlow's. Default: False.
        labels: One per record: see :class:`Files`. Default: None, there are none.
        classes: See :class:`Files`. Default: None.

    An item is the array of the only dataset, or a tuple of those of several, in this order. With
    labels: as :class:`Files`.

    Attributes:
        fields: The names of the datasets.

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
    ):
        self._open(path, names, whole, labels, classes)

    def _open(
        self,
        path: object,
        names: Sequence[str],
        whole: bool,
        labels: Sequence[object] | None,
        classes: Sequence[str] | None,
    ) -> None:
        paths = paths_in("path", path, None)
        if any(map(is_url, paths)):
            raise ConfigError("path: HDF5 files are indexed where they are files, not at URLs")
        if len(set(names)) < len(names):
            raise ConfigError(f"names: {', '.join(names)}: a dataset is there twice")
        whole = switch("whole", whole)
        self._note(paths)
        files = located(paths, None)
        found: list[list[_Found]] = [[] for _ in names]
        for path_, number in zip(paths, files.numbers):
            for column, one in zip(found, list(_indexed(path_, number, names, whole))):
                column.append(one)
        self._elements: dict[str, Elements] = {}
        ranges: list[Ranges] = []
        for name, column in zip(names, found):
            first = column[0].array
            for array in [one.array for one in column]:
                if (array.dtype, array.shape[1:]) != (first.dtype, first.shape[1:]):
                    raise ConfigError(
                        f"dataset {name}: {array.path} has samples of shape {array.shape[1:]} and "
                        f"type {array.dtype}, and {first.path} of {first.shape[1:]} and "
                        f"{first.dtype}"
                    )
            self._elements[name] = Elements(first.dtype, first.shape[1:])
            ranges.append(in_runs([run for one in column for run in one.runs]))
        made = None if labels is None else Labels(labels, classes)
        form = Form("one" if len(names) == 1 else "tuple", list(names))
        self._set_ranges(files, form, ranges, made)
        self._compare(found, whole)

    def _compare(self, found: Sequence[Sequence[_Found]], whole: bool) -> None:
        """Compares the last sample of each dataset with what h5py reads of it.

        Raises:
            ConfigError: They differ: HDMLP would read something else.
        """
        import h5py
        import numpy

        for name, column in zip(self.fields, found):
            array, run = column[0].array, column[0].runs[-1]
            begin = run.offset + (run.samples - 1) * run.stride
            try:
                data = read_file(array.path, begin, run.length)
            except OSError as error:
                raise ConfigError(
                    f"{array.path}, dataset {name}: {error.strerror or error}: it is damaged; copy "
                    "it once more from where it is whole, or write it again"
                ) from error
            try:
                with h5py.File(array.path, "r") as file:
                    last = file[name][...] if whole else file[name][array.shape[0] - 1]
            except _ERRORS as error:
                raise _unreadable(f"{array.path}, dataset {name}", error) from error
            wanted = numpy.asarray(last).astype(array.dtype)
            if data != wanted.tobytes():
                raise ConfigError(
                    f"{array.path}: the bytes of {name} are not where the file says: copy it with "
                    "h5repack"
                )


def _indexed(path: str, number: int, names: Sequence[str], whole: bool) -> Iterator[_Found]:
    """Yields what each dataset of a file is."""
    try:
        import h5py
    except ImportError:
        raise ConfigError("HDF5: its files are indexed by h5py, which is not installed") from None
    where = path
    try:
        with h5py.File(path, "r") as file:
            if not names:
                raise ConfigError(f"{path}: name its datasets: there are {_listed(file)}")
            for name in names:
                where = f"{path}, dataset {name}"
                dataset = file.get(name)
                if not isinstance(dataset, h5py.Dataset):
                    raise ConfigError(
                        f"{path}: there is no dataset {name!r}; there are {_listed(file)}"
                    )
                yield _located(path, number, dataset, whole)
    except ConfigError:
        raise
    except _ERRORS as error:
        raise _unreadable(where, error) from error


def _unreadable(where: str, error: Exception) -> ConfigError:
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(where, error)
    return ConfigError(
        f"{where}: h5py cannot read it ({error}): it is no HDF5 file, or is damaged, or of a type "
        "that h5py does not have; take it once more from where it is whole, or write it again"
    )


def _listed(file: Any) -> str:
    """Returns the names of the first datasets of a file."""
    import h5py

    names: list[str] = []

    def visit(name: str, found: object) -> bool | None:
        if isinstance(found, h5py.Dataset):
            names.append(name)
        return True if len(names) > 20 else None

    file.visititems(visit)
    return ", ".join(names[:20]) + (" and others" if len(names) > 20 else "") or "none"


def _located(path: str, number: int, dataset: Any, whole: bool) -> _Found:
    import h5py

    where = f"{path}, dataset {dataset.name}"
    plist = dataset.id.get_create_plist()
    if os.path.realpath(dataset.file.filename) != os.path.realpath(path):
        raise ConfigError(f"{where}: it lies in {dataset.file.filename}: give that file")
    if dataset.is_virtual or dataset.external:
        raise ConfigError(f"{where}: its numbers lie in other files: give these, or copy them")
    if plist.get_nfilters():
        filters = [plist.get_filter(i)[3].decode() for i in range(plist.get_nfilters())]
        raise ConfigError(
            f"{where}: it is stored through filters ({', '.join(filters)}), so that no part of it "
            f"can be read alone: {_REWRITE}"
        )
    if dataset.shape is None:
        raise ConfigError(f"{where}: it is empty, without even a shape")
    if h5py.check_string_dtype(dataset.dtype) is not None:
        raise ConfigError(
            f"{where}: it has texts, of which there are no tensors: give them as labels=, or save "
            "numbers"
        )
    if dataset.dtype.hasobject:
        raise ConfigError(
            f"{where}: its samples are lists of other lengths, or references: write numbers of one "
            "shape"
        )
    shape = (1, *dataset.shape) if whole else dataset.shape
    check_samples(where, dataset.dtype, shape)
    array = checked(ArrayFile(path, 0, dataset.dtype, shape))
    if dataset.id.get_type().get_size() != dataset.dtype.itemsize:
        raise ConfigError(f"{where}: its numbers are of a type that numpy does not have")
    if dataset.chunks is not None:
        return _Found(array, list(_chunks(where, number, dataset, array, whole)))
    begin = dataset.id.get_offset()
    if begin is None:
        if plist.get_layout() == h5py.h5d.COMPACT:
            raise ConfigError(f"{where}: its numbers lie in its header: write it with chunks=None")
        raise ConfigError(
            f"{where}: its numbers have never been written: write them, or leave it out"
        )
    return _Found(array, [Run(array.shape[0], number, begin, array.stride, array.stride)])


def _chunks(where: str, number: int, dataset: Any, array: ArrayFile, whole: bool) -> Iterator[Run]:
    """Yields where records are in chunks, each of which has one or several of them whole."""
    shape, chunks = dataset.shape, dataset.chunks
    if (whole and chunks[0] < shape[0]) or chunks[1:] != shape[1:]:
        raise ConfigError(
            f"{where}: its chunks are {chunks}, and its shape {shape}, so that the numbers of a "
            f"sample lie in several chunks: {_REWRITE}"
        )
    places: dict[int, int] = {}
    need = math.prod(chunks) * array.dtype.itemsize
    for info in _infos(dataset.id):
        if info.size != need:
            raise ConfigError(
                f"{where}: a chunk of it has {info.size} bytes, and others {need}: it is damaged; "
                "copy it once more from where it is whole"
            )
        if info.byte_offset is not None:
            places[info.chunk_offset[0]] = info.byte_offset
    last: Run | None = None
    for begin in range(0, shape[0], chunks[0]):
        if begin not in places:
            raise ConfigError(
                f"{where}: the chunk of place {begin} has never been written: write all of it"
            )
        count = 1 if whole else min(chunks[0], shape[0] - begin)
        if last is not None and places[begin] == last.offset + last.samples * last.stride:
            last = last._replace(samples=last.samples + count)
            continue
        if last is not None:
            yield last
        last = Run(count, number, places[begin], array.stride, array.stride)
    if last is not None:
        yield last


def _infos(found: Any) -> list[Any]:
    """Returns what h5py reports of each chunk."""
    if hasattr(found, "chunk_iter"):
        infos: list[Any] = []
        found.chunk_iter(infos.append)
        return infos
    return [found.get_chunk_info(i) for i in range(found.get_num_chunks())]
