"""Which files the samples of a dataset are read from."""

from __future__ import annotations

import bisect
import os
import random
import stat
import sys
from typing import Any, NamedTuple

#: How many files are named, and how many samples are looked at for them.
MOST = 4000


def path_of(dataset: Any, index: Any) -> str | None:
    """Returns the file of a sample, as attributes of common datasets have it.

    Known are ``samples`` and ``imgs``, as torchvision's folders have them, and in torch's
    ``Subset`` and ``ConcatDataset`` what they are made of.

    Args:
        dataset: The dataset.
        index: The sample's.

    Returns:
        None if nothing says it.
    """
    try:
        if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            return path_of(dataset.dataset, dataset.indices[index])
        if hasattr(dataset, "cumulative_sizes") and hasattr(dataset, "datasets"):
            part = bisect.bisect_right(dataset.cumulative_sizes, index)
            first = dataset.cumulative_sizes[part - 1] if part else 0
            return path_of(dataset.datasets[part], index - first)
        for name in ("samples", "imgs"):
            listed = getattr(dataset, name, None)
            if listed is None:
                continue
            entry = listed[index]
            if isinstance(entry, (tuple, list)) and entry:
                entry = entry[0]
            if isinstance(entry, (str, os.PathLike)) and os.path.isfile(entry):
                return os.path.abspath(os.fspath(entry))
    except (AttributeError, IndexError, KeyError, TypeError):
        pass
    return None


def drawn(dataset: Any) -> list[str]:
    """Returns the files of samples in random order; empty if it is not known which they are."""
    count = len(dataset)
    if not count or path_of(dataset, 0) is None:
        return []
    chosen = random.Random(0).sample(range(count), min(count, MOST))
    return [path for path in (path_of(dataset, index) for index in chosen) if path]


#: Records of hdmlp's datasets are looked up in blocks of so many, and in so many blocks.
_BLOCK, _BLOCKS = 10_000, 32
#: Ranges of a file that are so close are one request, as the daemon makes it.
_GAP = 64 << 10


class Ranges(NamedTuple):
    """Where samples are, in random order.

    Attributes:
        paths: The file of each range.
        offsets: Where it begins.
        sizes: Its length in bytes.
        of: How many samples these are of.
    """

    paths: list[str]
    offsets: list[int]
    sizes: list[int]
    of: int


def ranges(dataset: Any) -> Ranges | None:
    """Returns where samples of a dataset are whose records hdmlp reads; None: it is another one.

    Known are hdmlp's datasets of records, and in torch's ``Subset`` and ``ConcatDataset`` what they
    are made of.
    """
    if not len(dataset) or _record(dataset, 0) is None:
        return None
    blocks = range(0, len(dataset), _BLOCK)
    draw = random.Random(0)
    chosen = [
        index
        for block in draw.sample(blocks, min(len(blocks), _BLOCKS))
        for index in range(block, min(block + _BLOCK, len(dataset)))
    ]
    records: dict[int, tuple[Any, list[int]]] = {}
    for index in draw.sample(chosen, min(len(chosen), MOST)):
        found = _record(dataset, index)
        if found is not None:
            records.setdefault(id(found[0]), (found[0], []))[1].append(found[1])
    samples = [
        _requests(each)
        for owner, numbers in records.values()
        for each in owner._ranges_of(sorted(numbers))
    ]
    draw.shuffle(samples)
    parts = [part for sample in samples for part in sample if part[2]]
    if not parts:
        return None
    paths, offsets, lengths = zip(*parts)
    return Ranges(list(paths), list(offsets), list(lengths), len(samples))


def _record(dataset: Any, index: int) -> tuple[Any, int] | None:
    """Returns the dataset of hdmlp's that has a sample, and its number there."""
    if hasattr(type(dataset), "_ranges_of"):
        return dataset, index
    try:
        if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            return _record(dataset.dataset, int(dataset.indices[index]))
        if hasattr(dataset, "cumulative_sizes") and hasattr(dataset, "datasets"):
            part = bisect.bisect_right(dataset.cumulative_sizes, index)
            first = dataset.cumulative_sizes[part - 1] if part else 0
            return _record(dataset.datasets[part], index - first)
    except (AttributeError, IndexError, TypeError, ValueError):
        pass
    return None


def _requests(fields: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Returns the ranges that the daemon reads of a record's: those that are close are one."""
    made: list[tuple[str, int, int]] = []
    for path, offset, length in fields:
        if made and made[-1][0] == path and 0 <= offset - sum(made[-1][1:]) <= _GAP:
            made[-1] = path, made[-1][1], offset + length - made[-1][1]
        else:
            made.append((path, offset, length))
    return made


class Opened:
    """Notes the data files that this process opens. Audit hooks stay for good: there is one.

    Attributes:
        paths: The files, in order, each once.
    """

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self._on = False
        sys.addaudithook(self._hook)

    def __enter__(self) -> Opened:
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or event != "open":
            return
        path, mode = arguments[0], arguments[1]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and not (isinstance(mode, str) and set(mode) & set("wax+")):
            self.paths[path] = None

    def data(self) -> list[str]:
        """Returns those of the files that hold data: regular ones that are no code."""
        found = []
        for path in self.paths:
            try:
                regular = stat.S_ISREG(os.stat(path).st_mode)
            except OSError:
                continue
            if regular and not path.endswith((".py", ".pyc", ".so")) and "/proc/" not in path:
                found.append(os.path.abspath(path))
        return found


def sizes(paths: list[str]) -> list[int]:
    """Returns the files' sizes in bytes; 0 where one is gone."""
    found = []
    for path in paths:
        try:
            found.append(os.stat(path).st_size)
        except OSError:
            found.append(0)
    return found
