"""Which files each item of a dataset reads, asked once for all items."""

from __future__ import annotations

import array
import itertools
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .._lib.progress import Progress
from ..errors import ConfigError
from .manifest import current_directory, made_absolute

#: The most files of an item: a batch has no more outputs.
MOST = 64
#: After so many items, progress is noted.
_STEP = 4096

#: What a path has that is not the only one of its file.
_ODD = re.compile(r"//|/\.\.?(/|$)|/$|\0")

#: What a function may return for an item: one path, several, or none.
Named = object


class ItemFiles(NamedTuple):
    """The files of a dataset's items.

    Attributes:
        paths: The files' paths, absolute, each once.
        numbers: Which of them each item reads: those of the first item, then those of the second.
        ends: Where each item's numbers end.
    """

    paths: list[str]
    numbers: array.array[int]
    ends: array.array[int]

    def of(self, item: int) -> Sequence[int]:
        """Returns the numbers of an item's files."""
        return self.numbers[self.ends[item - 1] if item else 0 : self.ends[item]]

    def counts(self) -> Iterator[int]:
        """Yields how many files each item has."""
        return map(operator.sub, self.ends, itertools.chain([0], self.ends))

    def only(self, keep: Callable[[int, int], bool]) -> ItemFiles:
        """Returns the same without some files.

        Args:
            keep: Called with a file's number, and its place among the item's files.
        """
        numbers, ends = array.array("i"), array.array("q")
        for item in range(len(self.ends)):
            numbers.extend(n for i, n in enumerate(self.of(item)) if keep(n, i))
            ends.append(len(numbers))
        return ItemFiles(self.paths, numbers, ends)


def asked(ask: Callable[[int], Named], count: int, what: str, least: int) -> ItemFiles:
    """Asks which files each item reads.

    Three items are asked for twice: the first, the last and the one in the middle.

    Args:
        ask: From an item's index to its path, or to a list or tuple of paths.
        count: The number of items.
        what: What messages call ``ask``.
        least: How many files an item must have at least.

    Raises:
        ConfigError: ``ask`` raises, returns something else, or not the same twice.
    """
    known: dict[str, int] = {}
    numbers, ends = array.array("i"), array.array("q")
    progress = Progress()
    try:
        for item in range(count):
            for path in checked(_asked(ask, item, what), item, what, least):
                numbers.append(known.setdefault(path, len(known)))
            ends.append(len(numbers))
            if item % _STEP == 0:
                progress({"what": f"{what}: which files items read", "done": item, "total": count})
    finally:
        progress(None)
    found = ItemFiles(list(known), numbers, ends)
    for item in {0, count // 2, count - 1} if count else ():
        again = checked(_asked(ask, item, what), item, what, least)
        before = [found.paths[number] for number in found.of(item)]
        if again != before:
            raise ConfigError(
                f"{what}({item}) returned {_listed(before)} first, and then {_listed(again)}: it "
                "is asked once for all items, so it must return the same files each time"
            )
    return found


def _asked(ask: Callable[[int], Named], item: int, what: str) -> Named:
    try:
        return ask(item)
    except Exception as error:
        raise ConfigError(
            f"{what}({item}) raised {type(error).__name__}: {error}; it is asked for every item "
            "when a loader is made"
        ) from error


def checked(named: Named, item: int, what: str, least: int) -> list[str]:
    """Returns the paths of an item, absolute.

    Args:
        named: What a function returned for the item.
        item: The item's index.
        what: What messages call the function.
        least: How many files an item must have at least.

    Raises:
        ConfigError: It is no path, nor a list of paths.
    """
    if type(named) is str and named[:1] == "/" and not _ODD.search(named):
        return [named]
    if isinstance(named, str):
        paths = [named]
    elif isinstance(named, (bytes, os.PathLike)):
        paths = [os.fsdecode(named)]
    elif named is None:
        paths = []
    else:
        paths = _several(named, item, what)
    if len(paths) < least:
        raise ConfigError(f"{what}({item}) returned {named!r}, which names no file")
    for path in paths:
        if not path or "\0" in path:
            raise ConfigError(f"{what}({item}) returned {path!r}, which is not the path of a file")
    return [made_absolute(path, "/" if path[0] == "/" else current_directory()) for path in paths]


def _several(named: Named, item: int, what: str) -> list[str]:
    entries: Iterable[object] = [named]
    if isinstance(named, Iterable) and not isinstance(named, (bytearray, Mapping)):
        entries = named
    paths = []
    for entry in entries:
        if not isinstance(entry, (str, bytes, os.PathLike)):
            raise ConfigError(
                f"{what}({item}) returned {named!r:.200}: it must return a path, or a list or "
                "tuple of paths"
            )
        paths.append(os.fsdecode(entry))
    return paths


def _listed(paths: Sequence[str]) -> str:
    return repr(paths[0] if len(paths) == 1 else list(paths))
