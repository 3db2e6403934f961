"""What attributes of a dataset say of an item, with the expression of each value."""

from __future__ import annotations

import array
import operator
import os
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

#: Attributes of attributes are looked at so deep, and so many values of an item.
_DEPTH, _MOST = 3, 1500
#: Lists and dicts that are longer are no row of a table.
_ROW = 64


class Value(NamedTuple):
    """A value that an expression has.

    Attributes:
        text: The expression, of ``dataset`` and ``i``.
        value: A path or a part of one, a number, or a list of paths of which an item may read one.
    """

    text: str
    value: str | int | list[str]


class Values(NamedTuple):
    """What a dataset's attributes say.

    Attributes:
        roots: Texts that are the same for all items, such as a directory.
        of_item: Values that depend on the item.
    """

    roots: list[Value]
    of_item: list[Value]


def values_of(dataset: Any, text: str, index: int, index_text: str) -> Values:
    """Returns the values of an item that a dataset's attributes have.

    Only attributes of instances are read, lists, tuples, dicts, and arrays and tables of numpy and
    pandas: nothing of the program's own is called.

    Args:
        dataset: The dataset.
        text: Its expression.
        index: The item's index.
        index_text: Its expression.
    """
    search = _Search(index, index_text)
    search.attributes(dataset, text, 0)
    search.follow()
    return Values(search.roots, [Value(index_text, index), *search.found])


class _Search:
    def __init__(self, index: int, index_text: str):
        self._index, self._index_text = index, index_text
        self.roots: list[Value] = []
        self.found: list[Value] = []
        self._tables: list[tuple[str, Any]] = []
        self._seen: set[int] = set()

    def attributes(self, owner: Any, text: str, depth: int) -> None:
        """Looks at the attributes of an object."""
        for name, value in _attributes(owner):
            self._attribute(value, f"{text}.{name}", depth)

    def _attribute(self, value: Any, text: str, depth: int) -> None:
        if len(self.found) > _MOST:
            return
        if isinstance(value, (str, bytes, os.PathLike)):
            self._path(value, text, self.roots)
        elif _is_table(value):
            for column in list(value.columns)[:_ROW]:
                if isinstance(column, (str, int)):
                    self._attribute(value[column], f"{text}[{column!r}]", depth)
        elif _is_column(value):
            self._column(value, text, depth)
        elif isinstance(value, Mapping):
            self._dict(value, text, depth)
        elif depth < _DEPTH and _has_parts(value) and id(value) not in self._seen:
            self._seen.add(id(value))
            self.attributes(value, text, depth + 1)

    def _column(self, value: Any, text: str, depth: int) -> None:
        self._tables.append((text, value))
        found = _element(value, self._index)
        if found is not None:
            self._inside(found, _element_text(value, text, self._index_text), 0)
        if depth < _DEPTH and isinstance(value, (list, tuple)) and len(value) <= 8:
            for place, member in enumerate(value):  # columns in a list
                if _is_column(member) and len(member) > 8:
                    self._column(member, f"{text}[{place}]", _DEPTH)

    def _dict(self, value: Mapping[Any, Any], text: str, depth: int) -> None:
        self._tables.append((text, value))
        if self._index in value:
            self._inside(value[self._index], f"{text}[{self._index_text}]", 0)
        if depth < _DEPTH and len(value) <= _ROW:
            for key, member in list(value.items()):
                if isinstance(key, str):
                    self._attribute(member, f"{text}[{key!r}]", depth + 1)

    def _inside(self, value: Any, text: str, depth: int) -> None:
        """Looks at an element of a column, and at what is in it."""
        if len(self.found) > _MOST or isinstance(value, bool):
            return
        if isinstance(value, (str, bytes, os.PathLike)):
            self._path(value, text, self.found)
            return
        number = _number(value)
        if number is not None:
            self.found.append(Value(text, number))
        elif depth >= _DEPTH:
            return
        elif isinstance(value, Mapping):
            for key, member in list(value.items())[:_ROW]:
                if isinstance(key, (str, int)):
                    self._inside(member, f"{text}[{key!r}]", depth + 1)
        elif isinstance(value, (list, tuple)) or _is_array(value):
            if len(value) <= _ROW:
                self._row(value, text, depth)
        elif _has_parts(value):
            for name, member in _attributes(value):
                self._inside(member, f"{text}.{name}", depth + 1)

    def _row(self, value: Any, text: str, depth: int) -> None:
        if len(value) > 1 and all(isinstance(v, (str, os.PathLike)) for v in value):
            self.found.append(Value(text, [os.fspath(v) for v in value]))
        names = getattr(value, "_fields", None)
        for place, member in enumerate(value):
            name = f"{text}.{names[place]}" if isinstance(names, tuple) else f"{text}[{place}]"
            self._inside(member, name, depth + 1)

    def follow(self) -> None:
        """Looks up what is found in the dicts and columns of the dataset."""
        for text, value in list(self.found):
            if isinstance(value, list):
                continue
            for table_text, table in self._tables:
                if isinstance(table, Mapping):
                    if value in table and not text.startswith(table_text):
                        self._inside(table[value], f"{table_text}[{text}]", 1)
                elif isinstance(value, int) and not text.startswith(table_text):
                    member = _element(table, value)
                    if member is not None:
                        self._inside(member, _element_text(table, table_text, text), 1)

    def _path(self, value: Any, text: str, to: list[Value]) -> None:
        try:
            path = os.fsdecode(value)
        except (TypeError, ValueError):
            return
        if path:
            to.append(Value(f"os.fsdecode({text})" if isinstance(value, bytes) else text, path))


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    try:
        yield from [(n, v) for n, v in vars(owner).items() if not n.startswith("__")]
    except TypeError:  # it has no dict
        return


def _has_parts(value: Any) -> bool:
    kinds = (type, ModuleType, FunctionType, MethodType, set, frozenset)
    module = type(value).__module__
    if module.startswith("torch.utils.data"):
        return True
    others = module.startswith(("torch.", "numpy", "builtins"))
    return hasattr(value, "__dict__") and not isinstance(value, kinds) and not others


def _is_table(value: Any) -> bool:
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _is_series(value: Any) -> bool:
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.ndim > 0


def _is_column(value: Any) -> bool:
    return isinstance(value, (list, tuple, array.array)) or _is_array(value) or _is_series(value)


def _element(column: Any, index: int) -> Any:
    if not 0 <= index < len(column):
        return None
    return column.iloc[index] if _is_series(column) else column[index]


def _element_text(column: Any, text: str, index_text: str) -> str:
    return f"{text}.iloc[{index_text}]" if _is_series(column) else f"{text}[{index_text}]"


def _number(value: Any) -> int | None:
    """Returns a whole number; None: it is none, or negative."""
    numpy: Any = sys.modules.get("numpy")
    if isinstance(value, int) or (numpy is not None and isinstance(value, numpy.integer)):
        number = operator.index(value)
        return number if number >= 0 else None
    return None
