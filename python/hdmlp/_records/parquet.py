"""Parquet files whose values lie in them as they are, as Hugging Face's ``to_parquet`` writes."""

from __future__ import annotations

import array
import bisect
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .._lib.arguments import is_url
from ..errors import ConfigError, HDMLPError, SampleError
from .arrays import Indexed, Stamp, paths_in, stamp_of, unreadable
from .form import Form, check_chosen
from .manifest import located
from .parquet_pages import BYTE_ARRAY, Footer, Leaf, footer_of, places_of
from .runs import Ranges

#: What Hugging Face's images and sounds are: a structure of these.
_MEDIA = ("bytes", "path")


class Column(NamedTuple):
    """A column of the files.

    Attributes:
        name: Its name.
        path: The path of the leaf that has its bytes; empty: none has, or several have.
        image: It is an image, as the files say.
        text: Its bytes are texts.
        binary: They are not: images, for example, which may be large.
        why: Why its values do not lie in the files as they are; empty: they do.
    """

    name: str
    path: tuple[str, ...]
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
        stamps: What identifies the file at each path.
    """

    paths: list[str]
    footers: list[Footer]
    columns: list[Column]
    stamps: dict[str, Stamp]

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
    stamps, footers = {path: stamp_of(path) for path in paths}, []
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
    return Files(paths, footers, _columns(paths, footers, columns), stamps)


def _columns(
    paths: Sequence[str], footers: Sequence[Footer], chosen: Sequence[str] | None
) -> list[Column]:
    """Returns the columns that are wanted, which all files must have, in whatever order."""
    of_files = [_by_name(path, footer) for path, footer in zip(paths, footers)]
    first, images = of_files[0], _images(footers[0])
    if chosen is not None:
        check_chosen("columns", chosen, first)
    for path, own in zip(paths, of_files):
        for name in first if chosen is None else chosen:
            if name not in own:
                raise ConfigError(f"{path}: it has no column {name!r}, which {paths[0]} has")
            if _what(own[name]) != _what(first[name]):
                raise ConfigError(
                    f"{path}: its column {name!r} is {_what(own[name])}, and that of {paths[0]} "
                    f"{_what(first[name])}: write both alike"
                )
        more = [name for name in own if name not in first]
        if chosen is None and more:
            raise ConfigError(
                f"{path}: it has a column {more[0]!r}, which {paths[0]} has not: leave it out with "
                "columns="
            )
    return [
        _column(name, first[name], name in images, footers)
        for name in (first if chosen is None else chosen)
    ]


def _by_name(path: str, footer: Footer) -> dict[str, list[Leaf]]:
    """Returns the leaves of each column of a file."""
    found: dict[str, list[Leaf]] = {}
    for leaf in footer.leaves:
        found.setdefault(leaf.path[0], []).append(leaf)
    for name, leaves in found.items():
        if len({leaf.path for leaf in leaves}) < len(leaves):
            raise ConfigError(
                f"{path}: it has two columns of the name {name!r}, and rows are dicts: rename one"
            )
    return found


def _is_media(leaves: Sequence[Leaf]) -> bool:
    return {leaf.path[1:] for leaf in leaves} == {(part,) for part in _MEDIA}


def _what(leaves: Sequence[Leaf]) -> str:
    """Returns what a column is; of nested ones, pyarrow describes more."""
    if len(leaves) == 1 and len(leaves[0].path) == 1 and not leaves[0].repeated:
        return leaves[0].shown
    if _is_media(leaves) and not any(leaf.repeated for leaf in leaves):
        kinds = sorted(f"{leaf.path[1]}: {leaf.shown}" for leaf in leaves)
        return f"a structure of {', '.join(kinds)}"
    return "nested"


def _column(name: str, leaves: Sequence[Leaf], image: bool, footers: Sequence[Footer]) -> Column:
    if _what(leaves) == "nested":
        return Column(name, (), False, False, False, "it is nested")
    leaf = next(leaf for leaf in leaves if leaf.path[1:] in ((), _MEDIA[:1]))
    why = "it is neither of bytes nor of texts" if leaf.other else _why(footers, leaf.path)
    binary = leaf.kind == BYTE_ARRAY and not leaf.text and not leaf.other
    return Column(name, leaf.path, image and _is_media(leaves), leaf.text, binary, why)


def _images(footer: Footer) -> set[str]:
    """Returns the columns that are images, as Hugging Face's ``datasets`` notes in files."""
    try:
        features = json.loads(footer.told.get("huggingface", "{}"))["info"]["features"]
        return {name for name, kind in features.items() if kind.get("_type") == "Image"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _why(footers: Sequence[Footer], path: tuple[str, ...]) -> str:
    for footer in footers:
        number = footer.number(path)
        for rows, chunks in footer.groups:
            if rows and chunks[number].why:
                return chunks[number].why
    return ""


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
        name: The column's name.
        parts: Of each file that has some: its path, and their ``ChunkedArray``.
    """

    def __init__(self, name: str, parts: Sequence[tuple[str, Any]]):
        self.name, self._parts = name, list(parts)
        self._ends = list(itertools.accumulate(len(column) for _, column in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        number = bisect.bisect_right(self._ends, index)
        path, column = self._parts[number]
        return value_at(path, self.name, column, index - self._ends[number] + len(column))


def value_at(path: str, name: str, column: Any, row: int) -> Any:
    """Returns a value that pyarrow has read.

    Args:
        path: The file, for messages.
        name: The column, for messages.
        column: Its ``ChunkedArray``.
        row: The value's place in it.

    Raises:
        SampleError: It is a text that is not UTF-8.
    """
    try:
        return column[row].as_py()
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        raise SampleError(
            f"{path}: column {name!r}: row {row} of what was read has a value that Python cannot "
            f"have ({error}): write the file again, or leave the column out with columns="
        ) from None


class InPlace(Indexed):
    """The rows of Parquet files, of which a column at least lies in the files as it is.

    Attributes:
        fields: The names of these columns.
        columns: What each column is.
    """

    def _open(self, files: Files) -> None:
        self._stamps = files.stamps
        self.columns = files.columns
        where = located(files.paths, None)
        mine = [column for column in files.columns if not column.why]
        ranges = []
        for column in mine:
            objects, offsets = array.array("i"), array.array("q")
            lengths = array.array("q")
            for path, number, footer in zip(files.paths, where.numbers, files.footers):
                for place in _places(path, footer, column.path):
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
            _read(files, others) if others else {},
        )
        self._set(where, form, ranges, None)

    def _lacks(self, field: int) -> bool:
        if self._lacking is None:
            self._lacking = {i for i, r in enumerate(self._ranges) if min(r.objects, default=0) < 0}
        return field in self._lacking

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows below {self._path!r})"


def _places(path: str, footer: Footer, of: tuple[str, ...]) -> list[tuple[int, int] | None]:
    number = footer.number(of)
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
            ends = list(itertools.accumulate(footer.rows for footer in files.footers))
            number = bisect.bisect_right(ends, row)
            row += files.footers[number].rows - ends[number]
            raise ConfigError(
                f"{files.paths[number]}: row {row} is null in {names}, so that nothing "
                "of it would be read: leave such rows out, or choose other columns="
            )


def _read(files: Files, names: Sequence[str]) -> dict[str, Values]:
    """Returns the values of columns that pyarrow reads."""
    check_types(files.paths, names)
    import pyarrow.parquet

    parts: dict[str, list[tuple[str, Any]]] = {name: [] for name in names}
    for path, footer in zip(files.paths, files.footers):
        with pyarrow_errors(path, ConfigError):
            table = pyarrow.parquet.ParquetFile(path).read(columns=list(names)).combine_chunks()
        if table.num_rows != footer.rows:
            raise ConfigError(
                f"{path}: pyarrow reads {table.num_rows} rows of it, and its row groups have "
                f"{footer.rows}: it is damaged; write it again"
            )
        for name in names:
            if table.num_rows:
                parts[name].append((path, table[name]))
    return {name: Values(name, own) for name, own in parts.items()}


def check_types(paths: Sequence[str], names: Sequence[str]) -> None:
    """Checks that columns that pyarrow reads have the same types in all files.

    Args:
        paths: The files.
        names: The columns.

    Raises:
        ConfigError: They have not, a file is damaged, or pyarrow is missing.
    """
    arrow("columns that do not lie in the files as they are")
    import pyarrow.parquet

    first: dict[str, Any] = {}
    for path in paths:
        with pyarrow_errors(path, ConfigError):
            schema = pyarrow.parquet.read_schema(path)
            own = {name: schema.field(name).type for name in names}
        for name, kind in own.items():
            other = first.setdefault(name, kind)
            if _as_python(kind) != _as_python(other):
                raise ConfigError(
                    f"{path}: its column {name!r} is {kind}, and that of {paths[0]} {other}: write "
                    "both alike"
                )


def _as_python(kind: Any) -> Any:
    """Returns the type of Arrow for those whose values are alike in Python."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(kind):
        return _as_python(kind.value_type)
    for check, plain in (
        (types.is_large_string, pyarrow.string()),
        (types.is_string_view, pyarrow.string()),
        (types.is_large_binary, pyarrow.binary()),
        (types.is_binary_view, pyarrow.binary()),
    ):
        if check(kind):
            return plain
    return kind


@contextlib.contextmanager
def pyarrow_errors(path: str, kind: type[HDMLPError]) -> Iterator[None]:
    """Has errors of pyarrow name the file, and say what to do.

    Args:
        path: The file.
        kind: The exception that is raised in their place.
    """
    import pyarrow

    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise unreadable(path, error) from error
        raise _damaged(path, kind, error) from None
    except (pyarrow.ArrowException, ValueError, KeyError, TypeError, OverflowError) as error:
        raise _damaged(path, kind, error) from None


def _damaged(path: str, kind: type[HDMLPError], error: Exception) -> HDMLPError:
    return kind(
        f"{path}: pyarrow cannot read it: {error}: it is damaged; copy it once more from where it "
        "is whole, or write it again"
    )


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
