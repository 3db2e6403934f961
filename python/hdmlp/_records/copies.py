"""Copies of the files of a dataset's items, as ``open`` finds them while an item is made."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .._lib.tally import Tally
from . import opens
from .declared import LOCAL, Checked, stamp_of
from .opens import INSTALLED

log = logging.getLogger("hdmlp")

#: Seconds for which a file counts as it was when it was looked at.
RECENT = 2.0
_THREADS = 16
#: So many files are remembered as looked at, at most.
_MOST = 100_000

#: What is counted, and how a line says it.
_COUNTS = {
    "served": "",
    "undeclared": "{} of files that files= does not name",
    "written": "{} of files that were written, replaced or removed since the loader was made",
    "absent": "{} of files of which there is no copy",
    "refused": "{} that need the file itself",
    "unopened": "{} declared files were not opened by open() in this thread",
}


class Fresh:
    """Reports whether files are those of which there are copies.

    Args:
        files: The files.
        each: Look at a file each time that it is opened; else at most every :data:`RECENT` seconds.
    """

    def __init__(self, files: Checked, each: bool):
        self._files, self._for = files, 0.0 if each else RECENT
        self._seen: dict[int, float] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._slow = False
        self._pid = 0

    def __reduce__(self) -> tuple[object, ...]:
        return Fresh, (self._files, not self._for)

    def ahead(self, numbers: Iterable[int]) -> None:
        """Looks at files that are about to be opened, several at once where that takes long."""
        if not self._slow or not self._for:
            return
        if self._pool is None or self._pid != os.getpid():  # a forked child has no threads
            self._pool, self._pid = ThreadPoolExecutor(_THREADS), os.getpid()
        list(self._pool.map(self.of, set(numbers)))

    def of(self, number: int) -> bool:
        """Reports whether a file is the one of which there is a copy."""
        begin = time.monotonic()
        if begin - self._seen.get(number, -RECENT) < self._for:
            return True
        same = stamp_of(self._files.files.paths[number]) == self._files.stamp(number)
        self._slow = time.monotonic() - begin > LOCAL
        if same:
            if len(self._seen) > _MOST:
                self._seen.clear()
            self._seen[number] = begin
        return same


class ItemCopies:
    """The copies for one item, or for several that are made at once.

    Args:
        files: The dataset's files.
        fresh: Whether they are as they were.
        numbers: The files that the items are said to read.
        views: By number, the bytes of those of which there are copies.
        counts: To how many calls of ``open`` there were of each kind, this adds.
        examples: The path of the first of each.
    """

    def __init__(
        self,
        files: Checked,
        fresh: Fresh,
        numbers: Iterable[int],
        views: dict[int, memoryview],
        counts: dict[str, int],
        examples: dict[str, str],
    ):
        self._fresh, self._views = fresh, views
        self._numbers = {files.files.paths[number]: number for number in numbers}
        self._opened: set[str] = set()
        self.counts, self.examples = counts, examples

    def declares(self, path: str) -> bool:
        """See :class:`hdmlp._records.opens.Copies`."""
        return path in self._numbers

    def opened(self, path: str, why_not: str) -> memoryview | None:
        """See :class:`hdmlp._records.opens.Copies`."""
        number = self._numbers[path]
        self._opened.add(path)
        data = self._views.get(number)
        if why_not:
            self._count("refused", f"{path}: {why_not}")
        elif data is None:
            self._count("absent", path)
        elif not self._fresh.of(number):
            self._count("written", path)
        else:
            self.counts["served"] += 1
            return data
        return None

    def opened_undeclared(self, path: str) -> None:
        """See :class:`hdmlp._records.opens.Copies`."""
        self._count("undeclared", path)

    def _count(self, name: str, example: str) -> None:
        self.counts[name] += 1
        self.examples.setdefault(name, example)

    def __enter__(self) -> None:
        opens.begin(self)

    def __exit__(self, failed: object, *_: object) -> None:
        opens.end()
        if failed is None and len(self._opened) < len(self._numbers):
            for path in self._numbers:
                if path not in self._opened:
                    self._count("unopened", path)


class Copying:
    """Makes items while ``open`` finds the copies of their files; goes to worker processes.

    Args:
        files: The dataset's files.
        each: As for :class:`Fresh`.
    """

    def __init__(self, files: Checked, each: bool):
        self.files, self.fresh = files, Fresh(files, each)
        self.tally = Tally(list(_COUNTS))
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._examples: dict[str, str] = {}
        self._installed = False
        self._said = False

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_installed": False}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def install(self) -> None:
        """Installs the wrappers of ``open`` in this process, for as long as this object lives."""
        if not self._installed:
            self._installed = True
            INSTALLED.add()
            self._remove = weakref.finalize(self, INSTALLED.remove)
            self._remove.atexit = False
        INSTALLED.libraries()

    def remove(self) -> None:
        """Takes the wrappers out again."""
        if self._installed:
            self._installed = False
            self._remove()

    def items(
        self, indices: Sequence[int], contents: Sequence[Sequence[memoryview | None]]
    ) -> ItemCopies:
        """Returns what has ``open`` find the files of items in a ``with`` block.

        Args:
            indices: The items.
            contents: By item, the bytes of its files, as records have them.
        """
        numbers: list[int] = []
        views: dict[int, memoryview] = {}
        for index, fields in zip(indices, contents):
            numbers += self.files.files.of(index)
            for number, view in zip(self.files.served.of(index), fields):
                if view is not None:
                    views[number] = view
        return ItemCopies(self.files, self.fresh, numbers, views, self._counts, self._examples)

    def batch(self, indices: Sequence[int]) -> None:
        """Notes that a batch of items is going to be made."""
        self.install()
        self.fresh.ahead(number for index in indices for number in self.files.served.of(index))

    def end(self) -> None:
        """Notes that a batch was made, in this process."""
        self.tally.add(self._counts, self._examples)
        self._counts, self._examples = dict.fromkeys(_COUNTS, 0), {}

    def say(self) -> None:
        """Logs once what was not served, and examples."""
        if self._said:
            return
        self._said = True
        counts = self.tally.counts()
        files = self.files
        calls = sum(counts.values()) - counts["unopened"]
        parts = [
            f"{text.format(counts[name])} (such as {self.tally.example(name)})"
            for name, text in _COUNTS.items()
            if text and counts[name]
        ]
        if files.shared is not None:
            parts.append(f"{files.shared[0]} is read by {files.shared[1]} items, and so not copied")
        if files.missing:
            parts.append(f"{files.missing} declared files did not exist when the loader was made")
        level = logging.WARNING if parts else logging.INFO
        log.log(
            level,
            "files=: %d of %d calls of open() while items were made got copies%s",
            counts["served"],
            calls,
            "; the file system was asked for the others: " * bool(parts) + "; ".join(parts),
        )
