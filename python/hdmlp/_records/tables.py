"""Tables that list files: comma- and tab-separated values, and JSON lines."""

from __future__ import annotations

import csv
import json
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
        """Returns a column as labels: numbers if all its texts are numbers."""
        values = self[name]
        for kind in (int, float):
            try:
                return [kind(v) if isinstance(v, str) else v for v in values]
            except ValueError:
                continue
        return values


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
            rows = _json(path, file) if path.endswith((".json", ".jsonl")) else _csv(path, file)
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
        file, strict=True, delimiter="\t" if path.endswith((".tsv", ".tab")) else ","
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


def _json(path: str, file: Any) -> list[tuple[int, dict[str, object]]]:
    rows: list[tuple[int, dict[str, object]]] = []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
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
