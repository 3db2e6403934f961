"""Datasets of a program's own, of which HDMLP has been given the files that each item reads."""

from __future__ import annotations

import array
import hashlib
import os
import stat
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .._lib.arguments import is_url
from .._lib.typing import Facts
from ..errors import ConfigError
from .form import Form
from .item_files import MOST, ItemFiles
from .manifest import TO_END, Located, below_root, descriptor, encoded, objects_at
from .records import Listed
from .runs import Ranges

_MASK = 0xFFFFFFFFFFFFFFFF


class Declared(Listed):
    """The files of a dataset's items as records: a field per file.

    Args:
        of: The dataset.
        files: Which files its items read, at least one each.

    Attributes:
        of: The dataset.
        files: As given.
    """

    def __init__(self, of: object, files: ItemFiles):
        self.of, self.files = of, files
        ranges = _ranges(files)
        fields = [str(i) for i in range(len(ranges))]
        where = below_root(files.paths, ()) if files.paths else Located("/", [], ())
        self._set(where, Form("tuple", fields), ranges, None)

    @property
    def classes(self) -> list[str]:
        """The classes of the dataset, if it has them."""
        classes: list[str] = getattr(self.of, "classes", [])
        return classes

    def sample(self, index: int) -> tuple[object, object]:
        """Returns (path of the item's first file, None).

        Raises:
            IndexError: There is no such item.
        """
        numbers = self.files.of(self._index(index))
        return (self.files.paths[numbers[0]] if len(numbers) else None), None

    def __len__(self) -> int:
        """Returns the number of items."""
        return len(self.files.ends)

    def __getitem__(self, index: int) -> object:
        """Returns an item of the dataset."""
        return self.of[index]  # type: ignore[index]

    def __repr__(self) -> str:
        return f"{type(self.of).__name__}({len(self)} items)"


def _ranges(files: ItemFiles) -> list[Ranges]:
    """Returns where each field is: -1 for items that have fewer files.

    Raises:
        ConfigError: An item has too many files.
    """
    counts = list(files.counts())
    most = max(counts, default=0)
    if most > MOST:
        raise ConfigError(
            f"item {counts.index(most)} has {most} files: at most {MOST} are possible"
        )
    if counts and min(counts) == most > 0:
        return [Ranges(files.numbers[place::most]) for place in range(most)]
    columns = [array.array("i") for _ in range(max(most, 1))]
    for item in range(len(counts)):
        numbers = files.of(item)
        for place, column in enumerate(columns):
            column.append(numbers[place] if place < len(numbers) else -1)
    return [Ranges(column) for column in columns]


class Stamp(NamedTuple):
    """What distinguishes a file from one that was written since."""

    size: int
    modified: int
    changed: int
    inode: int


def stamp_of(path: str) -> Stamp | None:
    """Returns the stamp of a file; None: there is no regular file at this path."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    times = found.st_mtime_ns & _MASK, found.st_ctime_ns & _MASK
    return Stamp(found.st_size, *times, found.st_ino & _MASK)


#: Seconds that looking at a file takes at most where it is local, and doing so one after the other
#: is as fast as with threads.
LOCAL = 300e-6
_THREADS = 32
_FIRST = 64


def stamps_of(paths: Sequence[str]) -> list[Stamp | None]:
    """Returns the stamps of files; several at once where that takes long."""
    begin = time.perf_counter()
    found = [stamp_of(path) for path in paths[:_FIRST]]
    if time.perf_counter() - begin < LOCAL * len(found) or len(paths) <= len(found):
        return found + [stamp_of(path) for path in paths[_FIRST:]]
    with ThreadPoolExecutor(_THREADS) as pool:
        return found + list(pool.map(stamp_of, paths[_FIRST:], chunksize=_FIRST))


class Checked(Declared):
    """Files of which a dataset's items only declare that they read them.

    Nothing follows from a wrong declaration, or from a file that is written: a copy is used only if
    its file is the one that was looked at when this object was made.

    Args:
        of: The dataset.
        files: Which files its items are said to read.

    Attributes:
        of: The dataset.
        files: As given.
        served: Those of which there may be copies, in the order of a record's fields.
        shared: An existing file that too many items read, and how many; None: there is none.
        missing: How many files there are not.
    """

    leaves = True
    may_change = True

    #: A file that more items than this read is not a part of them: it would be cached as often.
    #: The file system keeps it in memory.
    MOST_ITEMS = 64

    def __init__(self, of: object, files: ItemFiles):
        remote = next((path for path in files.paths if is_url(path)), None)
        if remote is not None:
            raise ConfigError(
                f"files= names {remote}, and items open files by path: derive the dataset from "
                "hdmlp.torch.FileDataset, whose make() gets the contents"
            )
        stamps = stamps_of(files.paths)
        self._looked = time.monotonic()
        uses = array.array("i", bytes(4 * len(files.paths)))
        for number in files.numbers:
            uses[number] += 1
        existing = [number for number, stamp in enumerate(stamps) if stamp is not None]
        most = max(existing, key=uses.__getitem__, default=None)
        self.shared: tuple[str, int] | None = None
        if most is not None and uses[most] > self.MOST_ITEMS:
            self.shared = files.paths[most], uses[most]
        self.missing = sum(stamp is None for stamp in stamps)
        self._stamps = array.array("Q")
        for stamp in stamps:
            self._stamps.extend(stamp or (0, 0, 0, 0))
        self.served = files.only(
            lambda number, place: (
                stamps[number] is not None and uses[number] <= self.MOST_ITEMS and place < MOST
            )
        )
        super().__init__(of, self.served)
        self.files = files

    @property
    def serves(self) -> bool:
        """Reports whether there may be copies at all."""
        return len(self.served.numbers) > 0

    def why_none(self) -> str:
        """Returns why there are no copies, if :attr:`serves` is false."""
        paths, reasons = self.files.paths, []
        if not paths:
            return "it names none for any item"
        absent = [path for n, path in enumerate(paths) if self.stamp(n) == (0, 0, 0, 0)]
        if len(absent) < len(paths) and absent:
            reasons.append(f"{len(absent)} of those that it names do not exist, or are no files")
        elif absent and os.path.exists(absent[0]):
            reasons.append(
                f"none of the paths that it names is that of a file (such as {paths[0]})"
            )
        elif absent:
            reasons.append(f"none of the files that it names exists (such as {paths[0]})")
        if self.shared is not None:
            reasons.append(
                f"{self.shared[0]} is read by {self.shared[1]} items, and a file of more than "
                f"{self.MOST_ITEMS} is left to the file system, which keeps it in memory"
            )
        if max(self.files.counts()) > MOST:
            reasons.append(f"only the first {MOST} files of an item can be copied")
        return "; ".join(reasons)

    def stamp(self, number: int) -> Stamp:
        """Returns the stamp that a file has if its copy may be used."""
        return Stamp(*self._stamps[4 * number : 4 * number + 4])

    def _manifest(self) -> int:
        """Returns a descriptor of the list of records, of the files that are as they were."""
        stamps: Sequence[Stamp | None]
        stamps = [self.stamp(number) for number in range(len(self.files.paths))]
        if time.monotonic() - self._looked > 1:
            stamps = stamps_of(self.files.paths)
        return descriptor(self._encoded(stamps))

    def _encoded(self, stamps: Sequence[Stamp | None]) -> bytes:
        """Returns the list of records.

        A record needs a file: one that has none gets no byte of another one.

        Args:
            stamps: Those of the files as they are now.
        """
        usable = [stamp == self.stamp(number) for number, stamp in enumerate(stamps)]
        ranges: list[Ranges] = []
        numbers: dict[int, int] = {}
        for column in self._ranges:
            of = array.array("i")
            for number in column.objects:
                usable_one = number >= 0 and usable[number]
                of.append(numbers.setdefault(number, len(numbers)) if usable_one else -1)
            ranges.append(Ranges(of))
        empty = [i for i in range(len(self)) if all(r.objects[i] < 0 for r in ranges)]
        if empty:
            if not numbers:
                numbers[next((n for n, stamp in enumerate(stamps) if any(stamp or ())), 0)] = 0
            count = len(self)
            zeros, lengths = array.array("q", [0]) * count, array.array("q", [TO_END]) * count
            objects = array.array("i", ranges[0].objects)
            for i in empty:
                objects[i], lengths[i] = 0, 0
            ranges[0] = Ranges(objects, zeros, lengths)
        names = [self._files.names[number] for number in numbers]
        return encoded(objects_at(self._files.root, names), self.fields, ranges, None)

    @property
    def _facts(self) -> Facts:
        """``fingerprint``: the same for the same files, whatever their contents.

        Only the order of items follows from it.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path in self.files.paths:
            digest.update(os.fsencode(path) + b"\0")
        digest.update(self.files.numbers.tobytes() + self.files.ends.tobytes())
        return {"fingerprint": digest.hexdigest()}

    def _check_version(self, fingerprint: str) -> None:
        """Does nothing: files may be written at any time."""
