"""Rows of Hugging Face's datasets, beside the bytes that the daemon reads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..._lib import originals
from ..._records.arrow import Array, Chunks, Maps, check_column, of_file
from ..._records.form import NONE, Form
from ..._transforms.generators import seed_generators
from ..._transforms.keys import entry_key
from ...errors import DatasetError, SampleError
from .fields import Fields, FieldsRecipe, Step
from .reasons import ITEMS, overrides, own_methods, revealed_by_calling

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class Feature(Protocol):
    """A feature of ``datasets`` for images or sounds, as far as it is used."""

    mode: str | None
    decode: bool
    dtype: str
    names: Sequence[str]


class Features(Protocol):
    """``datasets.Features``, as far as it is used."""

    def __getitem__(self, name: str) -> Feature: ...

    def decode_batch(self, batch: object) -> dict[str, list[object]]:
        """Decodes values by column."""


class Found(Protocol):
    """A ``pyarrow.Table``, as far as it is used."""

    column_names: list[str]

    def column(self, name: str) -> Chunks:
        """Returns a column."""

    def to_pydict(self) -> object:
        """Returns the values by column."""


class Schema(Protocol):
    """A ``pyarrow.Schema``, as far as it is used."""

    def field(self, name: str) -> Chunks:
        """Returns a column's field, of which the type is used."""


class Table(Protocol):
    """A table of ``datasets``, as far as it is used."""

    num_rows: int
    schema: Schema

    def column(self, name: str | int) -> Chunks:
        """Returns a column."""

    def fast_gather(self, rows: NDArray[numpy.int64]) -> Found:
        """Returns some rows."""


class HF(Protocol):
    """A ``datasets.Dataset``, as far as it is used."""

    data: Table
    features: Features
    column_names: list[str]
    format: Mapping[str, Any]
    cache_files: list[dict[str, str]]
    _indices: Table | None

    def __len__(self) -> int: ...

    def __getitem__(self, key: int | str | list[int]) -> Any: ...

    def __getitems__(self, keys: list[int]) -> list[object]: ...

    def select_columns(self, names: list[str]) -> HF:
        """Returns the dataset with some columns."""

    def with_format(self, kind: str | None) -> HF:
        """Returns the dataset with a format."""


def rows_of(dataset: HF) -> NDArray[numpy.int64]:
    """Returns which rows of its table a dataset's rows are."""
    import numpy

    indices = dataset._indices
    if indices is None:
        return numpy.arange(dataset.data.num_rows)
    return indices.column(0).to_numpy().astype("i8")


def check_rows(dataset: HF, maps: Maps) -> None:
    """Checks that a dataset's rows are rows of its table.

    Raises:
        DatasetError: The file that lists them is damaged, or changed since it was mapped.
    """
    if dataset._indices is None:
        return
    column, count = dataset._indices.column(0), dataset.data.num_rows
    check_column("indices", column, maps, ())
    rows = rows_of(dataset)
    outside = ((rows < 0) | (rows >= count)).nonzero()[0]
    if len(outside):
        raise DatasetError(
            f"row {outside[0]}: {of_file(column.chunks[0], maps)} has which rows were selected or "
            f"shuffled, and says row {rows[outside[0]]} of {count}: it is damaged; make the "
            "selection again"
        )


class Columns:
    """Columns whose values are read in Python, from the dataset's table.

    Numbers are kept in memory, 8 bytes each; others are read when they are needed.

    Args:
        dataset: The dataset, without a format.
        names: The columns' names.
        rows: Which rows of its table the dataset's are.
    """

    def __init__(self, dataset: HF, names: Sequence[str], rows: NDArray[numpy.int64]):
        found = {name: _numbers(dataset.data.column(name), rows) for name in names}
        self.names = list(names)
        self._numbers = {name: kept for name, kept in found.items() if kept is not None}
        others = [name for name in names if name not in self._numbers]
        self._others = dataset.select_columns(others) if others else None
        self._rows = rows if others else rows[:0]

    def row(self, sample: int) -> dict[str, object]:
        """Returns the values of a row, by column."""
        values = {name: kept[sample].item() for name, kept in self._numbers.items()}
        values.update((name, column[0]) for name, column in self._read([sample]).items())
        return values

    def batch(
        self, ids: Sequence[int], collate: Callable[[list[object]], object]
    ) -> dict[str, object]:
        """Returns the values of several rows, collated by column."""
        at = torch.tensor(ids, dtype=torch.int64)
        values: dict[str, object] = {name: kept[at] for name, kept in self._numbers.items()}
        values.update((name, collate(column)) for name, column in self._read(ids).items())
        return values

    def _read(self, ids: Sequence[int]) -> dict[str, list[object]]:
        if self._others is None or not len(ids):
            return {}
        with damage_named(self._others, ids):
            found = self._others.data.fast_gather(self._rows[list(ids)]).to_pydict()
        return self._others.features.decode_batch(found)


@contextlib.contextmanager
def damage_named(dataset: HF, ids: Sequence[int]) -> Iterator[None]:
    """Has errors of texts that are not UTF-8 name the column, the row and the file.

    Args:
        dataset: The dataset whose texts are read.
        ids: Its rows that are.

    Raises:
        SampleError: A text is not.
    """
    import pyarrow

    try:
        yield
    except (UnicodeDecodeError, pyarrow.ArrowException):
        rows = rows_of(dataset)[list(ids)].tolist()
        for name in dataset.column_names:
            first = 0
            for chunk in dataset.data.column(name).chunks:
                for row in rows:
                    if 0 <= row - first < len(chunk):
                        _check_text(name, row, chunk, row - first)
                first += len(chunk)
        raise  # of a function of the user's, for example


def _check_text(name: str, row: int, chunk: Array, at: int) -> None:
    try:
        chunk[at].as_py()
    except UnicodeDecodeError as error:
        raise SampleError(
            f"column {name!r}, row {row} of the table: {of_file(chunk, Maps())} is damaged "
            f"({error}): copy it once more from where it is whole, or make the dataset again"
        ) from None


def _numbers(column: Chunks, rows: NDArray[numpy.int64]) -> torch.Tensor | None:
    """Returns a column as ``default_collate`` makes it of its values; None: it has other ones."""
    import pyarrow

    kind = column.type
    number = pyarrow.types.is_integer(kind) and kind != pyarrow.uint64()
    real = pyarrow.types.is_float32(kind) or pyarrow.types.is_float64(kind)
    if column.null_count or not (number or real or pyarrow.types.is_boolean(kind)):
        return None
    values = column.to_numpy()[rows]
    return torch.from_numpy(values.astype("i8" if number else "f8" if real else "?"))


class Column(Sequence[object]):
    """One column of :class:`Columns`, by row."""

    def __init__(self, of: Columns, name: str):
        self._of, self._name = of, name

    def __len__(self) -> int:
        return len(self._of._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._of.row(index)[self._name]


class Struct:
    """A column of bytes with their paths, which are delivered as they are.

    Args:
        paths: The rows' paths, an array of Arrow.
        null: Which rows have neither.
    """

    def __init__(self, paths: Array, null: NDArray[numpy.bool_]):
        self.paths, self.null = paths, null

    def value(self, data: object, sample: int) -> object:
        """Returns the value of a row whose bytes are these; None: it has none."""
        if self.null[sample]:
            return None
        return {"bytes": data, "path": self.paths[sample].as_py()}

    def batch(self, data: Sequence[object], ids: Sequence[int]) -> object:
        """Returns the values of several rows, collated."""
        if self.null[list(ids)].any():
            return [self.value(one, sample) for one, sample in zip(data, ids)]
        return {"bytes": list(data), "path": self.paths.take(_array(ids)).to_pylist()}


def _array(ids: Sequence[int]) -> object:
    import pyarrow

    return pyarrow.array(list(ids), pyarrow.int64())


class Row(Form):
    """An item: a row, as a dict by column.

    Args:
        names: The columns, in order.
        fields: Those whose bytes the daemon reads.
        columns: The others.
        structs: Those of the fields that are delivered as bytes with a path.
        absent: By field, which rows have no bytes; fields of which all have some are left out.
    """

    def __init__(
        self,
        names: Sequence[str],
        fields: Sequence[str],
        columns: Columns,
        structs: dict[str, Struct],
        absent: dict[str, NDArray[numpy.bool_]],
    ):
        self.absent = absent
        super().__init__("dict", fields)
        self.columns = {name: Column(columns, name) for name in columns.names}
        self.names, self.beside, self.structs = list(names), columns, structs

    def item(self, values: Sequence[object], sample: int, label: object = NONE) -> object:
        """Returns an item; see :class:`Form`."""
        found = self.beside.row(sample)
        for name, value in zip(self.fields, values):
            struct = self.structs.get(name)
            found[name] = value if struct is None else struct.value(value, sample)
        return {name: found[name] for name in self.names}

    def batch(
        self,
        values: Sequence[Any],
        ids: Sequence[int],
        labels: object = NONE,
        collate: Callable[[list[object]], object] = list,
    ) -> object:
        """Returns a batch; see :class:`Form`."""
        found = self.beside.batch(ids, collate)
        for name, value in zip(self.fields, values):
            struct, absent = self.structs.get(name), self.absent.get(name)
            if absent is not None and absent[list(ids)].any():
                value = [None if absent[i] else one for one, i in zip(value, ids)]
            found[name] = value if struct is None else struct.batch(value, ids)
        return {name: found[name] for name in self.names}


class Formatted:
    """Rows in the format of their dataset, made by ``datasets`` of bytes that the daemon has read.

    Args:
        dataset: The dataset, whose format it is.
        fields: The columns whose bytes the daemon reads.
        structs: By field: the paths, and which rows are null; None: it is a column of bytes.
        rows: Which rows of its table the dataset's are.
    """

    def __init__(
        self,
        dataset: HF,
        fields: Sequence[str],
        structs: dict[str, Struct | None],
        rows: NDArray[numpy.int64],
    ):
        self.dataset, self.fields, self.structs, self.rows = dataset, fields, structs, rows
        others = [name for name in dataset.column_names if name not in fields]
        self._others = dataset.select_columns(others) if others else None

    def __call__(
        self, ids: Sequence[int], contents: Sequence[Sequence[memoryview | None]]
    ) -> list[object]:
        """Returns items, as ``__getitems__`` of the dataset does.

        Args:
            ids: The rows.
            contents: The bytes of the fields of each; None: there are none.
        """
        import pyarrow
        from datasets.formatting import format_table, get_formatter

        read = {}
        if self._others is not None:
            table = self._others.data.fast_gather(self.rows[list(ids)])
            read = {name: table.column(name) for name in table.column_names}
        schema = self.dataset.data.schema
        for name, data in zip(self.fields, zip(*contents)):
            struct = self.structs[name]
            given = [None if one is None else bytes(one) for one in data]
            values = given if struct is None else map(struct.value, given, ids)
            read[name] = pyarrow.array(list(values), schema.field(name).type)
        names = self.dataset.column_names
        known = self.dataset.format
        formatter = get_formatter(
            known["type"], features=self.dataset.features, **(known["format_kwargs"] or {})
        )
        with damage_named(self.dataset, ids):
            made = format_table(
                pyarrow.table({name: read[name] for name in names}),
                list(range(len(ids))),
                formatter,
                known["columns"],
                known["output_all_columns"],
            )
        count = len(made[next(iter(made))])
        return [{name: column[i] for name, column in made.items()} for i in range(count)]


class FormattedFields(Fields):
    """What is made of rows that have a format."""

    rows: Formatted
    native = instant = False

    def recipe(self, collate: Step) -> FieldsRecipe:
        """Returns how items are made; see :class:`Fields`."""
        return FormattedRecipe(self, collate)


class FormattedRecipe(FieldsRecipe):
    """How items of a dataset with a format are made: a batch at a time, as by its own loader."""

    def __init__(self, fields: FormattedFields, collate: Step):
        super().__init__(fields, collate)
        self._rows = fields.rows

    def samples(
        self,
        views: Sequence[Sequence[memoryview | None]],
        labels: Sequence[int],
        ids: Sequence[int],
        keys: Sequence[int],
    ) -> list[object]:
        """Makes the batch's items; see :meth:`Recipe.samples`."""
        if not len(ids):
            return []
        seed_generators(entry_key(keys[0], 0))
        return self._rows(ids, self._there(views, ids))


def names_within(feature: object) -> Iterator[str]:
    """Yields the names of the kinds of files that a feature has within lists and dicts."""
    parts: list[object]
    if isinstance(feature, dict):
        parts = list(feature.values())
    elif isinstance(feature, (list, tuple)):
        parts = list(feature)
    else:
        parts = [getattr(feature, "feature", None)]
    for part in parts:
        if hasattr(part, "decode_example"):
            yield type(part).__name__
        elif part is not None:
            yield from names_within(part)


def own_rows(dataset: object) -> str:
    """Returns why only calling the methods of a ``datasets.Dataset`` reveals its rows, or empty."""
    library: Any = sys.modules["datasets"]
    own = own_methods(library.Dataset, dataset, *ITEMS, "_getitem")
    if own:
        return overrides(dataset, own)
    return revealed_by_calling(originals.replaced("Hugging Face's datasets"))


def kind_of(feature: Feature) -> str | None:
    """Returns what a column holds: ``"image"``, ``"audio"``, ``"bytes"``; None: another value."""
    library: Any = sys.modules["datasets"]
    if type(feature) is library.Image:
        return "image"
    if type(feature) is library.Audio:
        return "audio"
    if type(feature) is library.Value and feature.dtype in ("binary", "large_binary"):
        return "bytes"
    return None
