"""Arrays in files: each place of the first axis is a record, and so is each window of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .._lib.arguments import check_path, is_url, whole_number
from ..errors import ConfigError, MismatchError
from .array_files import ArrayFile
from .array_files import located as array_at
from .elements import Elements, Window
from .form import Form
from .labels import Labels
from .manifest import Located, located
from .records import _REASONS, Listed, check_count, check_regular
from .runs import Ranges, Run, in_runs

#: What identifies a file: its size, its time and its inode.
Stamp = tuple[int, int, int]


class Indexed(Listed):
    """Records whose places this process has read in the files themselves.

    A file that is written after that is an error, as its records may be elsewhere.
    """

    def _note(self, paths: Sequence[str]) -> None:
        """Remembers what files are, before their places are read."""
        self._stamps: dict[str, Stamp] = {
            path: stamp_of(path) for path in paths if not is_url(path)
        }

    def _manifest(self) -> int | None:
        check_stamps(self._stamps, type(self).__name__)
        return super()._manifest()

    # Nothing is missing, which the base would look up one by one.

    def _lacks(self, field: int) -> bool:
        return False


def stamp_of(path: str) -> Stamp:
    """Returns what identifies the file at a path.

    Raises:
        ConfigError: There is none, or it is not a regular file: to open a FIFO would block.
    """
    try:
        found = os.stat(path)
        check_regular(path, found)
    except OSError as error:
        raise unreadable(path, error) from error
    return found.st_size, found.st_mtime_ns, found.st_ino


def check_stamps(stamps: Mapping[str, Stamp], made: str) -> None:
    """Checks that files are those whose records were found.

    Args:
        stamps: What each was then, by its path.
        made: What was made of them, for the message.

    Raises:
        MismatchError: One was written since.
    """
    for path, stamp in stamps.items():
        now = stamp_of(path)
        if now != stamp:
            raise MismatchError(
                f"{path} was written since this {made} was made: make a new one",
                {"key": "fingerprint", "mine": str(stamp), "theirs": str(now)},
            )


def unreadable(path: str, error: OSError) -> ConfigError:
    """Returns the error for a file that cannot be read."""
    return ConfigError(f"{path}: {_REASONS.get(error.errno or 0) or error.strerror or error}")


def paths_in(what: str, given: object, root: str | None) -> list[str]:
    """Returns the paths of one field's files: one, or a list of them, which follow one another.

    Args:
        what: The argument's name, for messages.
        given: The path, or the paths.
        root: What relative ones are relative to; None: the current directory.

    Raises:
        ConfigError: They are no paths.
    """
    listed: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    if not listed:
        raise ConfigError(f"{what}: there are no files")
    paths = []
    for path in listed:
        check_path(what, path)
        text = os.fsdecode(path)
        if root is not None and not is_url(text):
            text = os.path.join(root, text)
        paths.append(text if is_url(text) else os.path.abspath(os.path.expanduser(text)))
    return paths


class Typed(Indexed):
    """Records each field of which is an array of one type and shape.

    Attributes:
        fields: The names of the fields.
    """

    def _set_arrays(
        self,
        form: Form,
        columns: Sequence[Sequence[ArrayFile]],
        labels: Labels | None,
        window: Window | None = None,
        stride: int = 1,
    ) -> None:
        """Sets what the dataset is.

        Args:
            form: What items look like.
            columns: The arrays of each field, which follow one another along their first axis.
            labels: The records' labels; None: there are none.
            window: Records are windows of the first axis; None: they are its places.
            stride: How many places lie between the beginnings of two windows.
        """
        files = located([file.path for column in columns for file in column], None)
        numbers, ranges = iter(files.numbers), []
        self._elements: dict[str, Elements] = {}
        for name, column in zip(form.fields, columns):
            shape = _agreed(name, column)[1:]
            if window is not None:
                shape = (window.length + (window.shift or 0), *shape)
            self._elements[name] = Elements(column[0].dtype, shape, window)
            runs = [_run(file, next(numbers), window, stride) for file in column]
            ranges.append(in_runs(runs))
        self._set_ranges(files, form, ranges, labels)

    def _set_ranges(
        self, files: Located, form: Form, ranges: Sequence[Ranges], labels: Labels | None
    ) -> None:
        """Sets what the dataset is, where ``_elements`` has what the fields' bytes are.

        Raises:
            ConfigError: The fields have other numbers of records.
        """
        counts = [len(own.objects) for own in ranges]
        for name, count in zip(form.fields, counts):
            if count != counts[0]:
                raise ConfigError(
                    f"{form.fields[0]} has {counts[0]} samples, and {name} has {count}: they must "
                    "have the same first dimension"
                )
        if labels is not None:
            check_count("labels", len(labels), counts[0])
        self._set(files, form, ranges, labels)

    def __getitem__(self, index: int) -> object:
        """Returns one item, of numpy arrays that are read from the files, without the daemon.

        Raises:
            IndexError: There is no such record.
            SampleError: A file cannot be read.
        """
        index = self._index(index)
        return self._form.item(self._values_of(self._fields_of(index)), index, self._label(index))

    def _values_of(self, contents: Sequence[object]) -> list[object]:
        return [
            self._elements[name].of_one(data) if name in self._elements else data
            for name, data in zip(self.fields, contents)
        ]

    def _batch(self, contents: Sequence[object]) -> list[object]:
        """Returns the arrays of a batch whose fields are lists of bytes."""
        return [
            self._elements[name].stacked(own)
            if name in self._elements and isinstance(own, list) and own
            else own
            for name, own in zip(self.fields, contents)
        ]


def _agreed(name: str, column: Sequence[ArrayFile]) -> tuple[int, ...]:
    """Returns the shape of the first of a field's arrays, if the samples of all are alike."""
    first = column[0]
    for file in column[1:]:
        if (file.dtype, file.shape[1:]) != (first.dtype, first.shape[1:]):
            raise ConfigError(
                f"field {name}: {file.path} has samples of shape {file.shape[1:]} and type "
                f"{file.dtype}, and {first.path} of {first.shape[1:]} and {first.dtype}"
            )
    return first.shape


def _run(file: ArrayFile, number: int, window: Window | None, stride: int) -> Run:
    if window is None:
        return Run(file.shape[0], number, file.offset, file.stride, file.stride)
    length = window.length + (window.shift or 0)
    count = max((file.shape[0] - length) // stride + 1, 0)
    return Run(count, number, file.offset, stride * file.stride, length * file.stride)


class Arrays(Typed):
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
        labels: One per record: see :class:`Files`. Default: None, there are none.
        classes: See :class:`Files`. Default: None.
        window: Records are windows of so many places of the first axis, and an item is (inputs,
            targets), both of this length, from one read; integers become int64. Default: None.
        stride: How many places after one window the next begins. Default: None: ``window``, so
            that windows do not overlap. With 1 there are as many windows as places, and caches
            hold each place ``window`` times.
        shift: How many places after the inputs the targets begin; None: an item is the inputs.
            Default: 1.
        root: What relative paths are relative to. Default: None, the current directory.

    An item has the form of what was given: a file, the array of the record; a tuple, a tuple; a
    dict, a dict. With labels: as :class:`Files`.

    Attributes:
        fields: The names of the fields.

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
        root: str | os.PathLike[str] | None = None,
    ):
        self._open(paths, dtype, shape, offset, labels, classes, window, stride, shift, root)

    def _open(
        self,
        paths: object,
        dtype: object,
        shape: object,
        offset: object,
        labels: Sequence[object] | None,
        classes: Sequence[str] | None,
        window: int | None,
        stride: int | None,
        shift: int | None,
        root: str | os.PathLike[str] | None,
    ) -> None:
        check_numpy(type(self).__name__)
        base = None if root is None else os.fsdecode(root)
        kind, given = _by_field(paths)
        if window is None and (stride is not None or shift != 1):
            raise ConfigError("stride and shift are those of windows: give window as well")
        windows = None
        if window is not None:
            if len(given) > 1 or labels is not None:
                raise ConfigError("window: windows are those of one array, without labels")
            windows = Window(
                whole_number("window", window, 1),
                None if shift is None else whole_number("shift", shift, 0),
            )
            stride = windows.length if stride is None else whole_number("stride", stride, 1)
        columns = []
        arguments = [
            _of_fields(name, value, list(given))
            for name, value in (("dtype", dtype), ("shape", shape), ("offset", offset or None))
        ]
        listed = {n: paths_in(f"paths[{n!r}]", p, base) for n, p in given.items()}
        self._note([path for own in listed.values() for path in own])
        for name, files in listed.items():
            of_field: list[Any] = [argument.get(name) for argument in arguments]
            columns.append([_located(path, *of_field) for path in files])
        made = None if labels is None else Labels(labels, classes)
        if made is None and classes is not None:
            raise ConfigError("classes without labels: give labels=")
        self._set_arrays(Form(kind, list(given)), columns, made, windows, stride or 1)
        if not len(self):
            raise ConfigError(
                f"window={window}: no file has as many as {window} places and {shift or 0} more"
            )

    def __repr__(self) -> str:
        first = next(iter(self._elements.values()))
        return (
            f"{type(self).__name__}({len(self)} records below {self._path!r}, the first field "
            f"{first.dtype} of shape {first.shape})"
        )


def check_numpy(name: str) -> None:
    """Checks that there is numpy.

    Raises:
        ConfigError: There is not.
    """
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise ConfigError(f"{name}: arrays need numpy, which is not installed") from None


def _by_field(paths: object) -> tuple[str, dict[str, object]]:
    """Returns the form of items, and the files of each field."""
    if isinstance(paths, Mapping):
        if not paths or not all(isinstance(name, str) for name in paths):
            raise ConfigError(
                "paths: a dict must have files by the names of fields, which are texts"
            )
        return "dict", dict(paths)
    if isinstance(paths, tuple):
        if not paths:
            raise ConfigError("paths: the tuple is empty")
        return "tuple", {str(i): path for i, path in enumerate(paths)}
    return "one", {"0": paths}


def _of_fields(what: str, given: object, fields: Sequence[str]) -> dict[str, Any]:
    """Returns an argument by field: one for all, or a dict for some of them."""
    if isinstance(given, Mapping):
        for name in given:
            if name not in fields:
                raise ConfigError(
                    f"{what}[{name!r}]: there is no field of that name; there are "
                    f"{', '.join(fields)}"
                )
        return dict(given)
    return {} if given is None else dict.fromkeys(fields, given)


def _located(path: str, dtype: object, shape: Any, offset: Any) -> ArrayFile:
    edges: list[int] | None = None
    if shape is not None:
        edges = [whole_number("shape", edge, -1) for edge in _sequence(shape)]
    begin = whole_number("offset", 0 if offset is None else offset, 0)
    try:
        return array_at(path, dtype, edges, begin)
    except OSError as error:
        raise unreadable(path, error) from error


def _sequence(shape: Any) -> Sequence[Any]:
    return shape if isinstance(shape, (tuple, list)) else (shape,)
