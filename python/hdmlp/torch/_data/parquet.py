"""Parquet files for torch."""

from __future__ import annotations

import bisect
import itertools
import logging
import os
from collections.abc import Sequence
from typing import Any

import torch.utils.data

from ..._records import decoders, parquet
from ..._records.arrays import check_stamps
from ..._transforms.recipe import Composed
from ...errors import ConfigError, SampleError
from .fields import Step, check_parts
from .folder import as_transform, pil_loader
from .records import Making

log = logging.getLogger("hdmlp")

#: How many row groups a process keeps.
_KEPT = 2


class RowsInPlace(Making, parquet.InPlace, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The rows of Parquet files, as :class:`Parquet` returns them where they lie as they are."""

    def __init__(
        self,
        files: parquet.Files,
        loader: object,
        transform: object,
        transforms: Step | None,
    ):
        self._open(files)
        self._set_making(loader, transform, None, transforms, False)

    def _loader_of(self, name: str) -> Step | None:
        return _loader(next(own for own in self.columns if own.name == name), self._transformed)

    @property
    def _transformed(self) -> set[str]:
        return set(check_parts(self.transform, "transform", self.fields, self._form.kind))


def _loader(column: parquet.Column, transformed: set[str]) -> Step | None:
    """Returns what the bytes of a column become if nothing else is said."""
    if column.image or (column.name in transformed and not column.text):
        return pil_loader
    return decoders.text if column.text else None


class RowsByPyarrow(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The same rows, which pyarrow reads in this process, a row group at a time."""

    def __init__(
        self,
        files: parquet.Files,
        loader: object,
        transform: object,
        transforms: Step | None,
    ):
        names = [column.name for column in files.columns]
        loaders = check_parts(loader, "loader", names, "dict")
        given = check_parts(transform, "transform", names, "dict")
        self._steps: dict[str, Step] = {}
        for column in files.columns:
            load = as_transform(loaders.get(column.name), None)
            then = as_transform(given.get(column.name), None)
            if load is None and column.path and not column.text and (column.image or then):
                load = pil_loader
            steps = [step for step in (load, then) if step is not None]
            if steps:
                self._steps[column.name] = Composed(steps)
        parquet.check_types(files.paths, names)
        self._stamps = files.stamps
        self._names, self._media = names, {c.name for c in files.columns if c.image}
        self._transforms = transforms
        self._groups = [
            (path, group, rows)
            for path, footer in zip(files.paths, files.footers)
            for group, (rows, _) in enumerate(footer.groups)
        ]
        self._ends = list(itertools.accumulate(rows for _, _, rows in self._groups))
        if not self._ends or not self._ends[-1]:
            raise ConfigError(f"{files.paths[0]}: there are no rows")
        self._read: dict[int, Any] = {}
        self._pid = os.getpid()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> object:
        """Returns a row, decoded and transformed.

        Raises:
            IndexError: There is no such row.
            MismatchError: A file was written since this object was made.
            SampleError: A file is damaged.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} is out of range: there are {len(self)}")
        index %= len(self)
        number = bisect.bisect_right(self._ends, index)
        table = self._table(number)
        row = index - self._ends[number] + self._groups[number][2]
        path = self._groups[number][0]
        item: dict[str, Any] = {
            name: parquet.value_at(path, name, table[name], row) for name in self._names
        }
        for name in self._media:
            item[name] = (item[name] or {}).get("bytes")
        for name, step in self._steps.items():
            if item[name] is not None:
                item[name] = step(item[name])
        return item if self._transforms is None else self._transforms(item)

    def _table(self, number: int) -> Any:
        if self._pid != os.getpid():
            self._read, self._pid = {}, os.getpid()
        if number not in self._read:
            from pyarrow.parquet import ParquetFile

            while len(self._read) >= _KEPT:
                del self._read[next(iter(self._read))]
            path, group, _ = self._groups[number]
            check_stamps({path: self._stamps[path]}, "Parquet")
            with parquet.pyarrow_errors(path, SampleError), ParquetFile(path) as file:
                self._read[number] = file.read_row_group(group, columns=self._names)
        return self._read[number]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_read": {}}


#: The class that users wrote: messages name it by this, and pickles by ``__qualname__``.
RowsInPlace.__name__ = RowsByPyarrow.__name__ = "Parquet"


class Parquet:
    """The rows of Parquet files: images and bytes are read in place, by the daemon.

    A column is read in place if it is of bytes or texts, neither compressed nor with a dictionary
    (PLAIN), as Hugging Face's ``to_parquet`` writes images. Others are read by pyarrow, once, into
    this process; if there is no column to be read in place, pyarrow reads rows, in this process or
    its workers, a row group at a time. One line says so.

    Args:
        paths: A file, or a list of files with the same columns, in any order, which follow one
            another.
        columns: Which columns rows have. Default: None, all.
        loader: From the bytes of a column to an object, by column. Default: None: columns that are
            images, as Hugging Face's ``datasets`` notes in files, become RGB PIL images, and so do
            bytes that have a transform; texts become texts.
        transform: Applied to that, by column; the daemon carries out what it can. Default: None.
        transforms: Applied to a whole row, in Python. Default: None.

    A row is a dict by column, with None for null.

    Raises:
        ConfigError: A file is none of Parquet, is damaged, or has other columns.
    """

    def __new__(
        cls,
        paths: object,
        *,
        columns: Sequence[str] | None = None,
        loader: object = None,
        transform: object = None,
        transforms: Step | None = None,
    ) -> Any:
        """Returns the rows, as what reads them."""
        files = parquet.files_at(paths, columns)
        if files.in_place:
            others = [column for column in files.columns if column.why]
            texts = [column.name for column in others if column.text or not column.path]
            if texts:
                log.warning(
                    "Parquet: %s: read by pyarrow into this process, as it does not lie in the "
                    "files as it is (%s)",
                    ", ".join(texts),
                    next(column.why for column in others if column.name == texts[0]),
                )
            return RowsInPlace(files, loader, transform, transforms)
        cause = next((c for c in files.columns if c.binary and c.why), files.columns[0])
        log.warning(
            "Parquet: rows are read by pyarrow in Python, a row group at a time, which takes long "
            "in random order: %s: %s; write it without compression and dictionary (as to_parquet "
            "of datasets does for images, from 5 on)",
            cause.name,
            cause.why,
        )
        return RowsByPyarrow(files, loader, transform, transforms)
