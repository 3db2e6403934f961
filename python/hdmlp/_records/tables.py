"""Tables that list files: comma- and tab-separated values, and JSON lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError


class Table:
    """The rows of a table, by column.

    Attributes:
        path: The table's file.
        columns: The values by column, texts unless the table has JSON.
        lines: The number of each row's line.
    """

    def __init__(self, path: str, columns: dict[str, list[object]], lines: list[int]):
        self.path, self.columns, self.lines = path, columns, lines

    def __getitem__(self, name: str) -> list[object]:
        if name not in self.columns:
            raise ConfigError(
                f"{self.path}: there is no column {name!r}; there are {', '.join(self.columns)}"
            )
        return self.columns[name]

    def where(self, row: int) -> str:
        """Returns the place of a row, for a message."""
        return f"{self.path}, line {self.lines[row]}"

    def labels(self, name: str) -> list[object]:
        """Returns a column as labels: numbers if all its texts are numbers.

        Raises:
            ConfigError: A cell is empty.
        """
        values = self[name]
        texts = [value for value in values if isinstance(value, str)]
        if "" in texts:
            raise ConfigError(
                f"{self.where(values.index(''))}: {name} is empty, and is a label: fill it in, or "
                f"leave such rows out with where=lambda row: row[{name!r}]"
            )
        kind = _kind(texts)
        return [kind(value) if isinstance(value, str) else value for value in values]


def _kind(texts: list[str]) -> Callable[[str], object]:
    """Returns what makes labels of texts: ``int`` or ``float`` if all are numbers, else ``str``.

    Python reads 1_11 as a number, too, and digits of other scripts; here they are texts.
    """
    if all(map(_INTEGER.fullmatch, texts)):
        return int
    numbers = list(map(_NUMBER.fullmatch, texts))
    if all(numbers) and any(found[1] for found in numbers if found):
        return float
    return str


_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
#: The first group is there if the text is a number, and not the name of one.
_NUMBER = re.compile(
    r"\s*[+-]?(?:((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)|nan|inf|infinity)\s*", re.I
)
_LINES = (".json", ".jsonl", ".ndjson")


def read(path: str, where: Callable[[Mapping[str, object]], object] | None = None) -> Table:
    """Reads a table.

    Args:
        path: Its file.
        where: Keeps the rows for which it returns true; None: all.

    Raises:
        ConfigError: It cannot be read, or a row does not have one value per column.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = _json(path, file) if path.lower().endswith(_LINES) else _csv(path, file)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: the table cannot be read: {error.strerror}") from None
    if not rows:
        raise ConfigError(f"{path}: the table has no rows")
    names = list(rows[0][1])
    kept = [(line, row) for line, row in rows if where is None or where(row)]
    if not kept:
        raise ConfigError(f"{path}: where= keeps none of its {len(rows)} rows")
    columns = {name: [row.get(name) for _, row in kept] for name in names}
    return Table(path, columns, [line for line, _ in kept])


def _csv(path: str, file: Any) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.reader(
        file, strict=True, delimiter="\t" if path.lower().endswith((".tsv", ".tab")) else ","
    )
    names: list[str] | None = None
    rows = []
    try:
        for values in reader:
            if not values:
                continue
            if names is None:
                names = values
                twice = [name for name in names if names.count(name) > 1]
                if twice:
                    raise ConfigError(f"{path}: two columns have the name {twice[0]!r}")
                continue
            if len(values) != len(names):
                raise ConfigError(
                    f"{path}, line {reader.line_num}: {len(values)} values, and there are "
                    f"{len(names)} columns ({', '.join(names)})"
                )
            rows.append((reader.line_num, dict(zip(names, values))))
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}") from None
    return rows


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns an object of JSON.

    Raises:
        ValueError: A key is in it twice.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return made


def _json(path: str, file: Any) -> list[tuple[int, dict[str, object]]]:
    rows: list[tuple[int, dict[str, object]]] = []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique)
        except ValueError as error:
            raise ConfigError(
                f"{path}, line {number}: {error}; the table must have one JSON object per line"
            ) from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number}: {type(row).__name__}, and not an object")
        if rows and set(row) != set(rows[0][1]):
            raise ConfigError(
                f"{path}, line {number}: it has {', '.join(row)}; the first line has "
                f"{', '.join(rows[0][1])}"
            )
        rows.append((number, row))
    return rows
