"""Expressions of a dataset, evaluated for all items that are looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, Callable

from hdmlp_analyze import channel

from .expressions import Found, Item, compiled

#: So many expressions of a dataset are evaluated at most.
_MOST = 256
#: One that names a file of one item only is evaluated for so many.
_PATIENCE = 16
#: An expression is also evaluated for so many items of the dataset that are not looked at.
_OTHERS = 16

#: Sends an event of a dataset.
Send = Callable[..., None]


class Expressions:
    """Evaluates each expression for each item: those of other processes of the program too.

    An expression that one process finds is in a file that all processes read, so that each
    evaluates it for the items that it looks at.

    Args:
        name: Distinguishes the dataset, or parts of one of a class, in the program.
        item: Returns the item at an index.
        send: Sends an event.
    """

    def __init__(self, name: str, item: Callable[[int], Item], send: Send):
        self._item, self._send = item, send
        self._shared = channel.path(f"expressions-{name}")
        self._offset = 0
        self._known: set[str] = set()
        self._codes: dict[str, CodeType] = {}
        self._names: dict[str, int] = {}
        self._items: list[tuple[int, frozenset[str]]] = []
        self._tried: dict[str, int] = {}
        self._held: dict[str, int] = {}

    def look(self, index: int, paths: Iterable[str], found: Iterable[Found]) -> None:
        """Evaluates all expressions for an item, and new ones for those before.

        Args:
            index: The item's index.
            paths: The files that it opened.
            found: Expressions for some of these.
        """
        texts = self._new(found)
        for before, opened in self._items:
            self._evaluate(texts, before, opened)
        opened = frozenset(paths)
        self._items.append((index, opened))
        self._evaluate(list(self._codes), index, opened)

    def _new(self, found: Iterable[Found]) -> list[str]:
        """Returns expressions that were not evaluated yet: of this and of other processes."""
        mine = [each for each in found if each.text not in self._known]
        if mine:
            lines = "".join(json.dumps(each) + "\n" for each in mine)
            fd = os.open(self._shared, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(fd, lines.encode())
            finally:
                os.close(fd)
        texts = []
        for each in self._read():
            if each.text not in self._known and len(self._codes) < _MOST:
                self._known.add(each.text)
                self._codes[each.text] = compiled(each.text)
                self._names[each.text] = each.names
                self._tried[each.text] = self._held[each.text] = 0
                texts.append(each.text)
        return texts

    def _read(self) -> list[Found]:
        """Returns what processes have written since."""
        try:
            with open(self._shared, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [Found(*json.loads(line)) for line in whole.splitlines()]

    def _evaluate(self, texts: Sequence[str], index: int, opened: frozenset[str]) -> None:
        results: list[Mapping[str, Any]] = []
        item = self._item(index)
        for text in texts:
            code = self._codes.get(text)
            if code is None:
                continue
            try:
                named = item.paths(code)
            except Exception as error:
                results.append({"text": text, "raised": type(error).__name__})
                del self._codes[text]
                continue
            held = [path for path in named if path in opened]
            self._tried[text] += 1
            results.append(
                {
                    "text": text,
                    "names": self._names[text],
                    "paths": held,
                    "more": len(set(named) - opened),
                }
            )
            if held:
                self._held[text] += 1
                if self._held[text] == 2 and not self._holds_for_others(text, code, item):
                    del self._codes[text]
            elif self._held[text] < 2 and self._tried[text] >= _PATIENCE:
                del self._codes[text]
        if results:
            self._send("named", index=index, expressions=results)

    def _holds_for_others(self, text: str, code: CodeType, item: Item) -> bool:
        """Looks for the files that an expression names for items that may not be looked at.

        It reports whether evaluating it raised nothing.
        """
        try:
            length = len(item.dataset)
        except Exception:
            return True
        others = sorted({length * place // _OTHERS for place in range(_OTHERS)} | {length - 1})
        exist, raised = 0, ""
        for other in others:
            try:
                named = item._replace(number=other).paths(code)
            except Exception as error:
                raised = type(error).__name__
                break
            exist += all(os.path.isfile(path) for path in named)
        self._send("others", text=text, exist=exist, others=len(others), raised=raised)
        return not raised
