"""Datasets whose records the daemon finds, by their format."""

from __future__ import annotations

import array
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .._daemon import connecting
from .._launch import membership
from .._lib.arguments import is_url, settings
from .._lib.progress import Progress
from .._lib.typing import Opened
from ..errors import MismatchError
from .form import NONE, Form
from .manifest import Located
from .records import Listed
from .runs import Ranges

#: Records that one call lists.
_PAGE = 10_000


class Texts(Sequence[str]):
    """Texts by number, in one piece of memory.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Sequence[str] = ()):
        self._ends, self._bytes = array.array("Q"), bytearray()
        self.extend(texts)

    def extend(self, texts: Sequence[str]) -> None:
        """Adds texts."""
        for text in texts:
            self._bytes += os.fsencode(text)
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        begin = self._ends[index - 1] if index else 0
        return os.fsdecode(bytes(self._bytes[begin : self._ends[index]]))


class Chosen(Sequence[str]):
    """One of a few texts for each number.

    Args:
        texts: The texts.
        numbers: Which of them, by number.
    """

    def __init__(self, texts: Sequence[str], numbers: Sequence[int]):
        self._texts, self._numbers = texts, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._texts[self._numbers[index]]


class Found(Listed):
    """A dataset whose records the daemon finds in files of a format.

    The index is kept beside the files or, if that is not possible, in the user's cache.
    """

    def _find(self, root: str, options: Mapping[str, object]) -> dict[str, Any]:
        """Asks the daemon for the records; returns ``fields``, ``columns`` and ``samples``.

        Args:
            root: The directory, an absolute path.
            options: Those of the kind.
        """
        self._options = dict(options)
        params = {"kind": self.kind, "path": root, "options": self._options, **settings({}, None)}
        if is_url(root):  # whose index takes many requests: one node finds it for all
            params["launch"] = membership.launch()
        (facts,) = connecting.call([("dataset", params)], Progress())
        self._count = int(facts["samples"])
        self._pages: dict[int, list[list[list[int]]]] = {}
        self._found_files = Located(root, list(facts["objects"]), ())
        return dict(facts)

    def _settle(self, form: Form, facts: Mapping[str, Any]) -> None:
        """Sets what the dataset is, once :meth:`_find` has found it."""
        self._set(self._found_files, form, [Ranges(array.array("i")) for _ in form.fields], None)
        self._lacking = {form.fields.index(name) for name in facts.get("lacking", ())}
        self._listed = {"fingerprint": facts["fingerprint"], "bytes": facts["bytes"]}

    def _table(self, columns: int) -> tuple[Texts, array.array[int], list[list[str]]]:
        """Asks for all records: their keys, the number of the file of each, and their values.

        Args:
            columns: The number of columns of values.
        """
        keys, files = Texts(), array.array("i")
        values: list[list[str]] = [[] for _ in range(columns)]
        for page in self._list(ranges=False):
            keys.extend(page["keys"])
            files.extend(page["objects"])
            for column, more in zip(values, page["values"]):
                column += more
        if len(keys) != self._count:
            raise MismatchError(
                f"{self!r}: its files changed while it was opened: make a new {type(self).__name__}"
            )
        return keys, files, values

    def _list(self, ranges: bool, only: int | None = None) -> Iterator[Any]:
        """Yields pages of records: their keys, files, values and, if asked for, ranges."""
        params = {**self._describe(), **settings({}, None), "ranges": ranges}
        pages = range((self._count + _PAGE - 1) // _PAGE) if only is None else [only]
        calls = [("dataset", {**self._describe(), **settings({}, None)})]
        for page in pages:
            end = min((page + 1) * _PAGE, self._count)
            calls.append(("entries", {**params, "from": page * _PAGE, "to": end}))
        answers = iter(connecting.call(calls, Progress()))
        self._check_version(next(answers)["fingerprint"])
        yield from answers

    def _describe(self) -> dict[str, object]:
        """Returns the dataset as requests name it: ``kind``, ``path``, ``options``."""
        return {"kind": self.kind, "path": self._path, "options": self._options}

    def _manifest(self) -> int | None:
        """Returns None: the daemon finds the records."""

    def _told(self, opened: Opened) -> None:
        """Takes what OPENED has of the dataset, which is known."""

    def __len__(self) -> int:
        """Returns the number of records."""
        return self._count

    def _range(self, field: int, index: int) -> list[int]:
        number = index // _PAGE
        if number not in self._pages:
            self._pages[number] = next(self._list(ranges=True, only=number))["ranges"]
        return self._pages[number][index % _PAGE][field]

    def _ranges_of(self, indices: Iterable[int]) -> Iterator[list[tuple[str, int, int]]]:
        for number, page in itertools.groupby(indices, lambda index: index // _PAGE):
            ranges = next(self._list(ranges=True, only=number))["ranges"]
            for index in page:
                yield [
                    (os.path.join(self._files.root, self._files.names[file]), offset, length)
                    for file, offset, length in ranges[index % _PAGE]
                    if length >= 0
                ]

    def _path_of(self, field: int, index: int) -> str | None:
        file, _, length = self._range(field, index)
        if length < 0:
            return None
        return os.path.join(self._files.root, self._files.names[file])

    def _place(self, field: int, index: int) -> tuple[int, int]:
        _, offset, length = self._range(field, index)
        return offset, length

    def _label(self, index: int) -> object:
        return NONE if self._labels is None else self._labels[index]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_pages": {}}
