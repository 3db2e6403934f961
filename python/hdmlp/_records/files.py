"""Datasets of files that are given as a list of paths."""

from __future__ import annotations

import array
import numbers
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._lib.arguments import by_position, is_url
from ..errors import ConfigError
from .form import Form
from .labels import Labels
from .manifest import located
from .records import Listed, check_count
from .runs import Ranges
from .tables import Table, read

#: Suffixes of images, as torchvision's IMG_EXTENSIONS.
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class Paths(NamedTuple):
    """Paths that were given, by field.

    Attributes:
        form: ``"one"``, ``"tuple"`` or ``"dict"``.
        fields: The names of the fields.
        columns: The paths of each field; None: a record does not have it.
    """

    form: str
    fields: list[str]
    columns: list[list[str | None]]


def by_field(paths: Sequence[object]) -> Paths:
    """Returns the paths of a list by field.

    Raises:
        ConfigError: An entry is neither a path, nor a tuple or dict of paths as the first one is.
    """
    paths = list(by_position("paths", paths))
    if not paths:
        raise ConfigError("paths: the list is empty")
    first = paths[0]
    if isinstance(first, Mapping):
        fields, form = list(first), "dict"
        for name in fields:
            if not isinstance(name, str):
                raise ConfigError(f"paths[0] has the key {name!r}: keys must be texts")
    elif isinstance(first, (tuple, list)):
        fields, form = [str(i) for i in range(len(first))], "tuple"
    else:
        return Paths("one", ["0"], [[_path(p, f"paths[{i}]") for i, p in enumerate(paths)]])
    if not fields:
        raise ConfigError("paths[0] is empty")
    columns: list[list[str | None]] = [[] for _ in fields]
    for i, entry in enumerate(paths):
        values = _values(entry, first, i)
        if all(value is None for value in values):
            raise ConfigError(f"paths[{i}] names no file")
        for column, name, value in zip(columns, fields, values):
            column.append(None if value is None else _path(value, f"paths[{i}][{name}]"))
    return Paths(form, fields, columns)


def _values(entry: object, first: Any, i: int) -> Sequence[Any]:
    if isinstance(first, Mapping):
        if not isinstance(entry, Mapping) or list(entry) != list(first):
            has = list(entry) if isinstance(entry, Mapping) else type(entry).__name__
            raise ConfigError(f"paths[{i}] has {has}, and paths[0] has {list(first)}")
        return list(entry.values())
    if not isinstance(entry, (tuple, list)) or len(entry) != len(first):
        raise ConfigError(f"paths[{i}]={entry!r}: must have {len(first)} paths, as paths[0] has")
    return entry


def _path(value: object, where: str) -> str:
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise ConfigError(f"{where}={value!r}: must be a path")
    return os.fsdecode(value)


def below(directory: str, suffixes: Sequence[str]) -> list[str]:
    """Returns the paths of the files below a directory that have one of the suffixes, sorted."""
    found = []
    for root, directories, names in os.walk(directory, followlinks=True, onerror=_fail):
        directories.sort()
        found += [
            os.path.join(root, name) for name in names if name.lower().endswith(tuple(suffixes))
        ]
    return sorted(found)


def _fail(error: OSError) -> None:
    raise error


class Files(Listed):
    """Files by a list of paths, in the order of the list.

    Args:
        paths: A path per record; or a tuple or a dict of paths, such as (image, mask) or
            ``{"image": ..., "json": ...}``, in which None stands for a file that a record does not
            have. Or a directory: the images below it, by their paths.
        labels: One per record. Numbers and truth values stay as they are, texts become numbers of
            ``classes``, rows of an array become rows, other objects stay objects. Default: None,
            there are none.
        classes: The names of the classes. Default: None: of texts, those that there are, sorted.
        root: What relative paths are relative to. Default: None, the current directory.
        suffixes: Of a directory, how the names of files end, in lower case. Default: those of
            images.

    An item has the form of what was given: a path, the file's bytes; a tuple, a tuple; a dict, a
    dict. With labels: (bytes, label); a tuple has the label as its last member, a dict as
    ``"label"``.

    Raises:
        ConfigError: The lists do not fit together.
    """

    def __init__(
        self,
        paths: Sequence[object] | str | os.PathLike[str],
        labels: Sequence[object] | None = None,
        *,
        classes: Sequence[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        suffixes: Sequence[str] = IMAGES,
    ):
        base = None if root is None else os.fsdecode(root)
        if isinstance(paths, (str, bytes, os.PathLike)):
            if is_url(os.fsdecode(paths)):
                raise ConfigError(
                    f"paths={paths!r}: a URL is not listed: give the list of names with "
                    f"root={paths!r}, or a table of them (from_csv)"
                )
            directory = os.path.join(base or "", os.path.expanduser(os.fsdecode(paths)))
            if not os.path.isdir(directory):
                raise ConfigError(
                    f"paths={directory!r}: must be a list of paths, or a directory, and there is "
                    "no directory of that name"
                )
            if isinstance(suffixes, str):
                suffixes = (suffixes,)
            if not all(isinstance(suffix, str) and suffix for suffix in suffixes):
                raise ConfigError(f"suffixes={suffixes!r}: must be a list such as ['.png']")
            suffixes = [suffix.lower() for suffix in suffixes]
            paths = below(directory, suffixes)
            if not paths:
                raise ConfigError(
                    f"paths={directory!r}: no file below it ends with {', '.join(suffixes)}"
                )
            base = None
        given = by_field(paths)
        files = located([path for column in given.columns for path in entries(column)], base)
        numbers = iter(files.numbers)
        ranges = [
            Ranges(array.array("i", (-1 if path is None else next(numbers) for path in column)))
            for column in given.columns
        ]
        made = None if labels is None else Labels(labels, classes)
        if made is not None:
            check_count("labels", len(made), len(ranges[0].objects))
        elif classes is not None:
            raise ConfigError("classes without labels: give labels=")
        self._set(files, Form(given.form, given.fields), ranges, made)

    @classmethod
    def from_csv(
        cls,
        table: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        columns: str | Mapping[str, str] = "path",
        label: str | Sequence[str] | None = None,
        *,
        where: Any = None,
        suffix: str = "",
        **options: Any,
    ) -> object:
        """Returns the files that a table lists.

        Args:
            table: A file of comma- or tab-separated values (``.csv``, ``.tsv``) with a line of
                names, or of JSON objects, one per line (``.jsonl``, ``.json``).
            root: What its paths are relative to. Default: None, the table's directory.
            columns: The column with the paths, or, by field, the columns of several.
            label: The column with the labels, or the columns of several labels, which then are
                rows. Default: None, there are none.
            where: Called with each row, a dict of texts (of JSON, of values); keeps those for which
                it returns true. Default: None, all.
            suffix: What follows each path, such as ``".jpg"``. Default: nothing.
            **options: As for the class.

        Attributes:
            table: The rows that were kept, by column: for weights, for instance.

        Raises:
            ConfigError: A column is missing, a row has too many or too few values, or two columns
                have one name.
        """
        if is_url(os.fsdecode(table)):
            raise ConfigError(
                f"table={table!r}: a table is a file of this machine: copy it, and give root= the "
                "URL that its paths are relative to"
            )
        rows: Table = read(os.fsdecode(table), where)
        names = {"0": columns} if isinstance(columns, str) else dict(columns)
        base = os.path.dirname(os.path.abspath(os.fsdecode(table))) if root is None else root
        files = {
            field: [_cell(rows, name, i, value) + suffix for i, value in enumerate(rows[name])]
            for field, name in names.items()
        }
        paths: list[Any]
        if isinstance(columns, str):
            paths = files["0"]
        else:
            paths = [dict(zip(files, entry)) for entry in zip(*files.values())]
        labels: list[Any] | None = None
        if isinstance(label, str):
            labels = rows.labels(label)
        elif label is not None:
            labels = _as_rows(list(zip(*(rows.labels(name) for name in label))))
        made = cls(paths, labels, root=base, **options)
        made.table = rows.columns
        return made


def _cell(rows: Table, name: str, i: int, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{rows.where(i)}: {name}={value!r}, which is no path")
    return value


def _as_rows(labels: list[tuple[object, ...]]) -> Any:
    """Returns labels as the rows of an array, if all of them are numbers."""
    try:
        import numpy
    except ImportError:
        return labels
    if all(isinstance(value, numbers.Real) for label in labels for value in label):
        return numpy.array(labels)
    return labels


def entries(column: Sequence[str | None]) -> Iterator[str]:
    """Yields the paths of a column that there are."""
    return (path for path in column if path is not None)
