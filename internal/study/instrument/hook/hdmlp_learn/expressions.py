"""Expressions for the path of a file, of a dataset and an item's index."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

from .looking import is_data
from .values import Value, Values, values_of

#: So many expressions of a file are kept: the shortest.
_MOST = 16


class Found(NamedTuple):
    """An expression for a path.

    Attributes:
        text: The expression.
        names: How many files it names.
    """

    text: str
    names: int = 1


class Item(NamedTuple):
    """An item of a dataset.

    Attributes:
        dataset: The dataset.
        name: What expressions call it.
        number: The item's index, which expressions call ``i``.
    """

    dataset: Any
    name: str
    number: int

    def paths(self, code: CodeType) -> list[str]:
        """Returns the paths that an expression names; raises what evaluating it raises."""
        named = eval(code, {"os": os, self.name: self.dataset, "i": self.number})
        return [os.path.abspath(os.fsdecode(p)) for p in ([named] if _is_path(named) else named)]

    def values(self) -> Values:
        """Returns what the dataset has of the item, or that of which torch's subsets are."""
        dataset, text, index, index_text = self.dataset, self.name, self.number, "i"
        while _is_torchs(dataset, "Subset"):
            index, index_text = int(dataset.indices[index]), f"{text}.indices[{index_text}]"
            dataset, text = dataset.dataset, f"{text}.dataset"
        return values_of(dataset, text, index, index_text)


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> CodeType:
    """Compiles an expression."""
    return compile(text, "<proposed>", "eval")


def _is_path(named: Any) -> bool:
    return isinstance(named, (str, bytes, os.PathLike))


def _is_torchs(dataset: Any, name: str) -> bool:
    """Reports whether a dataset is an instance of a class of torch's, with its ``__getitem__``."""
    for cls in type(dataset).__mro__:
        if cls.__name__ == name and cls.__module__ == "torch.utils.data.dataset":
            return type(dataset).__getitem__ is vars(cls)["__getitem__"]
    return False


def is_concatenation(dataset: Any) -> bool:
    """Reports whether a dataset is torch's ``ConcatDataset``."""
    return _is_torchs(dataset, "ConcatDataset")


def item_of(dataset: Any, index: int) -> Item:
    """Returns an item: of a dataset, or of a part of torch's ``ConcatDataset``.

    Each part is like a dataset, of which expressions are.
    """
    if not is_concatenation(dataset):
        return Item(dataset, "dataset", index)
    number = 0
    while index >= dataset.cumulative_sizes[number]:
        number += 1
    first = dataset.cumulative_sizes[number - 1] if number else 0
    return Item(dataset.datasets[number], "part", index - first)


class Paths:
    """The expressions for the paths of an item's files.

    Args:
        item: The item.
    """

    def __init__(self, item: Item):
        self._item = item
        values = item.values()
        self._of_item = values.of_item
        self._roots = sorted(
            (
                (os.path.abspath(root.value), root.text)
                for root in values.roots
                if isinstance(root.value, str) and os.path.isdir(root.value)
            ),
            key=lambda root: (-len(root[0]), len(root[1])),
        )

    def of(self, path: str) -> list[Found]:
        """Returns expressions for an absolute path, the shortest first."""
        found: dict[str, Found] = {}
        for value in self._of_item:
            for each in self._by(value, path):
                if each.text not in found and self._holds(each.text, path):
                    found[each.text] = each
        return sorted(found.values(), key=lambda each: (each.names, len(each.text)))[:_MOST]

    def _holds(self, text: str, path: str) -> bool:
        try:
            return path in self._item.paths(compiled(text))
        except Exception:
            return False

    def likely(self) -> list[str]:
        """Returns the files that values of the item name, opened or not."""
        found: dict[str, None] = {}
        for value in self._of_item:
            for name in value.value if isinstance(value.value, list) else [value.value]:
                if isinstance(name, str):
                    for path in (name, *(os.path.join(root, name) for root, _ in self._roots)):
                        if is_data(os.path.abspath(path)):
                            found[os.path.abspath(path)] = None
                            break
        return list(found)

    def _by(self, value: Value, path: str) -> Iterator[Found]:
        if isinstance(value.value, list):
            yield from self._one_of(value, path)
        elif isinstance(value.value, int):
            yield from self._numbered(value, path)
        else:
            yield from self._named(value.text, value.value, path)

    def _one_of(self, value: Value, path: str) -> Iterator[Found]:
        """Yields an expression for all paths of a list, of which one may have been drawn."""
        names = value.value
        assert isinstance(names, list)
        for root, text in [("", ""), *self._roots]:
            paths = [os.path.abspath(os.path.join(root, name)) for name in names]
            if path in paths and all(os.path.isfile(each) for each in paths):
                joined = f"[os.path.join({text}, name) for name in {value.text}]"
                yield Found(joined if root else value.text, len(paths))
                return

    def _named(self, text: str, value: str, path: str) -> Iterator[Found]:
        if os.path.abspath(value) == path:
            yield Found(text)
            return
        base = os.path.basename(value)
        forms = {value: text}
        forms.setdefault(base, f"os.path.basename({text})")
        forms.setdefault(os.path.splitext(value)[0], f"os.path.splitext({text})[0]")
        forms.setdefault(
            os.path.splitext(base)[0], f"os.path.splitext(os.path.basename({text}))[0]"
        )
        for form, form_text in forms.items():
            at = _whole(path, form[2:] if form[:2] == "./" else form)
            if at is not None:
                yield from self._around(path, at, form_text, form_text)
        yield from _replaced(text, os.path.abspath(value), path)

    def _numbered(self, value: Value, path: str) -> Iterator[Found]:
        if '"' in value.text:
            return
        # A number in the path of a root is no item's.
        begin = next((len(root) for root, _ in self._roots if path.startswith(f"{root}/")), 0)
        for digits in re.compile(r"\d+").finditer(path, begin):
            if int(digits[0]) != value.value:
                continue
            # With leading zeros of others, too: one expression is to name the files of all items.
            widths = [f":0{len(digits[0])}d"] if len(digits[0]) > 1 else []
            for width in [*widths, *([""] if digits[0] == str(value.value) else [])]:
                number = f"{{{value.text}{width}}}"
                yield from self._around(path, digits.span(), f'f"{number}"', number)

    def _around(self, path: str, at: tuple[int, int], text: str, inner: str) -> Iterator[Found]:
        """Yields expressions for a path of which a part is known.

        Args:
            path: The path.
            at: Where the part is.
            text: The part's expression.
            inner: The same within a string, if it is a formatted number.
        """
        before, after = path[: at[0]], path[at[1] :]
        cut = before.rfind("/") + 1
        directory, prefix = before[:cut].rstrip("/"), before[cut:]
        if inner is not text:
            name = 'f"' + _in_format(prefix) + inner + _in_format(after) + '"'
        else:
            name = " + ".join(
                [*([_quoted(prefix)] if prefix else []), text, *([_quoted(after)] if after else [])]
            )
        for root, root_text in self._roots:
            if directory == root or directory.startswith(root.rstrip("/") + "/"):
                rest = directory[len(root.rstrip("/")) + 1 :]
                yield from self._joined(root_text, rest, name)
                return
        yield from self._joined("", directory, name)

    def _joined(self, root_text: str, rest: str, name: str) -> Iterator[Found]:
        parts = [root_text] if root_text else []
        if not rest:
            yield Found(f"os.path.join({', '.join([*parts, name])})" if parts else name)
            return
        yield Found(f"os.path.join({', '.join([*parts, _quoted(rest), name])})")
        for value in self._of_item:  # a directory that is a value too, such as a class
            if isinstance(value.value, str) and value.value.strip("/") == rest and parts:
                yield Found(f"os.path.join({', '.join([*parts, value.text, name])})")


def _whole(path: str, part: str) -> tuple[int, int] | None:
    """Returns where the last place of a part is that no letter or digit precedes or follows."""
    part = part.lstrip("/")
    if not part:
        return None
    end = len(path)
    while (at := path.rfind(part, 0, end)) >= 0:
        stop = at + len(part)
        if not path[at - 1 : at].isalnum() and not path[stop : stop + 1].isalnum():
            return at, stop
        end = stop - 1
    return None


def _replaced(text: str, value: str, path: str) -> Iterator[Found]:
    """Yields an expression for a path that differs in a directory, and maybe in the suffix."""
    if not os.path.dirname(value) or os.path.dirname(value) == "/":
        return
    mine, theirs = value.split("/"), path.split("/")
    if len(mine) != len(theirs):
        return
    (stem, suffix), (other, other_suffix) = map(os.path.splitext, (mine[-1], theirs[-1]))
    places = [i for i in range(len(mine) - 1) if mine[i] != theirs[i]]
    if stem != other or len(places) != 1:
        return
    old, new = f"/{mine[places[0]]}/", f"/{theirs[places[0]]}/"
    changed = f"{text}.replace({_quoted(old)}, {_quoted(new)})"
    if suffix != other_suffix:
        changed = f"os.path.splitext({changed})[0] + {_quoted(other_suffix)}"
    yield Found(changed)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_format(text: str) -> str:
    return _quoted(text)[1:-1].replace("{", "{{").replace("}", "}}")
