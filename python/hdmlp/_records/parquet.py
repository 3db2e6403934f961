"""Parquet files whose values lie in them as they are, as Hugging Face's ``to_parquet`` writes."""

from __future__ import annotations

import array
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .._lib.arguments import is_url
from ..errors import ConfigError
from .arrays import Indexed, paths_in, unreadable
from .form import Form
from .manifest import located
from .parquet_pages import BYTE_ARRAY, Footer, Leaf, footer_of, places_of
from .runs import Ranges

#: What Hugging Face's images and sounds are: a structure of these.
_MEDIA = ("bytes", "path")


class Column(NamedTuple):
    """A column of the files.

    Attributes:
        name: Its name.
        leaf: The number of the leaf that has its bytes; -1: it has none, or several.
        image: It is an image, as the files say.
        text: Its bytes are texts.
        binary: They are not: images, for example, which may be large.
        why: Why its values do not lie in the files as they are; empty: they do.
    """

    name: str
    leaf: int
    image: bool
    text: bool
    binary: bool
    why: str


class Files(NamedTuple):
    """Parquet files that follow one another.

    Attributes:
        paths: The files.
        footers: What their footers say.
        columns: Their columns.
    """

    paths: list[str]
    footers: list[Footer]
    columns: list[Column]

    @property
    def in_place(self) -> bool:
        """Reports whether all that may be large, and anything, lies in the files as it is."""
        large = any(column.binary and column.why for column in self.columns)
        return not large and any(not column.why for column in self.columns)


def files_at(given: object, columns: Sequence[str] | None) -> Files:
    """Returns what the footers of files say.

    Args:
        given: A path, or a list of them.
        columns: The columns that are wanted; None: all.

    Raises:
        ConfigError: A file is none of Parquet, or has other columns.
    """
    paths = paths_in("paths", given, None)
    if any(map(is_url, paths)):
        raise ConfigError(
            "paths: footers of Parquet files are read where they are files, not at URLs"
        )
    footers = []
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            footers.append(footer_of(path, descriptor))
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            os.close(descriptor)
    for path, footer in zip(paths, footers):
        if footer.leaves != footers[0].leaves:
            differ = set(footer.leaves).symmetric_difference(footers[0].leaves)
            names = sorted({".".join(leaf.path) for leaf in differ})
            raise ConfigError(
                f"{path}: its columns are not those of {paths[0]}: {', '.join(names[:5])}"
            )
    found = _columns(footers)
    if columns is None:
        return Files(paths, footers, found)
    by_name = {column.name: column for column in found}
    for name in columns:
        if name not in by_name:
            raise ConfigError(f"columns: there is no {name!r}; there are {', '.join(by_name)}")
    if not columns:
        raise ConfigError("columns: rows need at least one")
    return Files(paths, footers, [by_name[name] for name in columns])


def _columns(footers: Sequence[Footer]) -> list[Column]:
    leaves, images = footers[0].leaves, _images(footers[0])
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    made = []
    for name in names:
        own = [(i, leaf) for i, leaf in enumerate(leaves) if leaf.path[0] == name]
        inner = [leaf.path[1:] for _, leaf in own]
        media = inner == [(part,) for part in _MEDIA]
        if inner != [()] and not media:
            made.append(Column(name, -1, False, False, False, "it is nested"))
            continue
        number, leaf = own[0]
        why = "it is nested" if leaf.repeated else ""
        why = why or (
            "it is neither of bytes nor of texts" if leaf.other else _why(footers, number)
        )
        binary = leaf.kind == BYTE_ARRAY and not leaf.text and not leaf.other
        image = media and name in images
        made.append(Column(name, number, image, leaf.text, binary, why))
    return made


def _images(footer: Footer) -> set[str]:
    """Returns the columns that are images, as Hugging Face's ``datasets`` notes in files."""
    try:
        features = json.loads(footer.told.get("huggingface", "{}"))["info"]["features"]
        return {name for name, kind in features.items() if kind.get("_type") == "Image"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _why(footers: Sequence[Footer], leaf: int) -> str:
    return next(
        (
            chunks[leaf].why
            for footer in footers
            for rows, chunks in footer.groups
            if rows and chunks[leaf].why
        ),
        "",
    )


class Ordered(Form):
    """Items are dicts in the order of the columns, wherever their values come from.

    Args:
        names: The columns.
        fields: Those of them that the daemon reads.
        columns: The values of the others.
    """

    def __init__(
        self, names: Sequence[str], fields: Sequence[str], columns: Mapping[str, Sequence[object]]
    ):
        super().__init__("dict", fields, columns)
        self.names = list(names)

    def item(self, values: Sequence[object], sample: int, label: object = None) -> object:
        """Returns an item; see :meth:`Form.item`."""
        made: Any = super().item(values, sample)
        return {name: made[name] for name in self.names}

    def batch(
        self,
        values: Sequence[object],
        ids: Sequence[int],
        labels: object = None,
        collate: Callable[[list[object]], object] = list,
    ) -> object:
        """Returns a batch; see :meth:`Form.batch`."""
        made: Any = super().batch(values, ids, collate=collate)
        return {name: made[name] for name in self.names}


class Values(Sequence[object]):
    """The values of a column that pyarrow has read.

    Args:
        column: Its ``ChunkedArray``.
    """

    def __init__(self, column: Any):
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        return self._column[index].as_py()


class InPlace(Indexed):
    """The rows of Parquet files, of which a column at least lies in the files as it is.

    Attributes:
        fields: The names of these columns.
        columns: What each column is.
    """

    def _open(self, files: Files) -> None:
        self._note(files.paths)
        self.columns = files.columns
        where = located(files.paths, None)
        mine = [column for column in files.columns if not column.why]
        ranges = []
        for column in mine:
            objects, offsets = array.array("i"), array.array("q")
            lengths = array.array("q")
            for path, number, footer in zip(files.paths, where.numbers, files.footers):
                for place in _places(path, footer, column.leaf):
                    offset, length = place or (0, 0)
                    objects.append(-1 if place is None else number)
                    offsets.append(offset)
                    lengths.append(length)
            ranges.append(Ranges(objects, offsets, lengths))
        _check_rows(files, mine, ranges)
        others = [column.name for column in files.columns if column.why]
        form = Ordered(
            [column.name for column in files.columns],
            [column.name for column in mine],
            _read(files.paths, others) if others else {},
        )
        self._set(where, form, ranges, None)

    def _lacks(self, field: int) -> bool:
        if self._lacking is None:
            self._lacking = {i for i, r in enumerate(self._ranges) if min(r.objects, default=0) < 0}
        return field in self._lacking

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows below {self._path!r})"


def _places(path: str, footer: Footer, number: int) -> list[tuple[int, int] | None]:
    leaf: Leaf = footer.leaves[number]
    found: list[tuple[int, int] | None] = []
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        for rows, chunks in footer.groups:
            if rows:
                found += places_of(path, descriptor, leaf, chunks[number], rows)
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(descriptor)
    return found


def _check_rows(files: Files, columns: Sequence[Column], ranges: Sequence[Ranges]) -> None:
    """Checks that there are rows, each with a value of one of the columns that are read."""
    names = ", ".join(column.name for column in columns)
    if not ranges[0].objects:
        raise ConfigError(f"{files.paths[0]}: there are no rows")
    for row, objects in enumerate(zip(*(own.objects for own in ranges))):
        if max(objects) < 0:
            raise ConfigError(
                f"row {row} is null in {names}, so that nothing of it would be read: leave such "
                "rows out, or choose other columns="
            )


def _read(paths: Sequence[str], names: Sequence[str]) -> dict[str, Values]:
    """Returns the values of columns that pyarrow reads."""
    module = arrow("columns that do not lie in the files as they are")
    import pyarrow.parquet

    try:
        tables = [pyarrow.parquet.read_table(path, columns=list(names)) for path in paths]
        whole = module.concat_tables(tables).combine_chunks()
    except (OSError, module.lib.ArrowException) as error:
        raise ConfigError(f"{paths[0]}: pyarrow cannot read {', '.join(names)}: {error}") from None
    return {name: Values(whole[name]) for name in names}


def arrow(what: str) -> Any:
    """Returns the module.

    Args:
        what: What it reads, for messages.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(f"{what} are read by pyarrow, which is not installed") from None
    return pyarrow
