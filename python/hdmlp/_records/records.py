"""The base of datasets whose records a process lists."""

from __future__ import annotations

import array
import errno
import operator
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .._daemon import connecting
from .._daemon.reading import Reader
from .._lib.arguments import by_position, check_path, is_url, settings
from .._lib.progress import Progress
from .._lib.typing import Facts, Opened
from ..errors import ConfigError, MismatchError, SampleError
from .form import NONE, Form
from .labels import Labels
from .manifest import TO_END, Located, below_root, descriptor, encoded, objects_at
from .runs import Ranges

#: Attributes which follow from the list of records.
_FIXED = ("fields", "samples", "imgs", "targets", "classes", "class_to_idx")

#: Why a file cannot be read, and what to do, by errno.
_REASONS = {
    errno.ENOENT: "there is no such file: check the path, and that its file system is mounted",
    errno.ENOTDIR: "a part of its path is no directory: check the path",
    errno.EISDIR: "it is a directory: give the path of a file",
    errno.EACCES: "the file cannot be read: give this user permission to read it",
    errno.EPERM: "the file cannot be read: give this user permission to read it",
    errno.ELOOP: "the file cannot be read: check the symbolic links on its path",
    errno.ETIMEDOUT: "the source did not answer: check whether its file system still answers",
}


class Listed:
    """A dataset whose records a process lists: ranges of files, with keys and labels.

    The daemon reads and caches what the records name, and nothing else. Its files must not change
    while a loader is open: a loader that finds one changed raises
    :class:`~hdmlp.errors.MismatchError` or :class:`~hdmlp.errors.SampleError`.

    Attributes:
        fields: The names of the fields.
    """

    #: Name of the kind of source, as ``hdmlp kinds`` has it.
    kind: ClassVar[str] = "records"
    #: Whether samples that cannot be read are delivered without their fields (OPEN's ``leave``).
    leaves: ClassVar[bool] = False
    #: Whether the files may be written while a loader is open.
    may_change: ClassVar[bool] = False

    def _set(
        self,
        files: Located,
        form: Form,
        ranges: Sequence[Ranges],
        labels: Labels | None,
        keys: Sequence[str] | None = None,
    ) -> None:
        if labels is not None and form.kind == "dict" and "label" in form.fields:
            raise ConfigError(
                "a field has the name 'label', by which items have the label: give the field "
                "another name"
            )
        self.fields = tuple(form.fields)
        self._files, self._form, self._ranges = files, form, list(ranges)
        self._labels, self._keys = labels, keys
        self._path = files.root
        self._lacking: set[int] | None = None
        self._listed: Facts | None = None
        self._bytes: bytes | None = None
        self._made = True

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and "_made" in self.__dict__:
            raise ConfigError(
                f"{name} cannot be set, because the records are listed already: make another "
                f"{type(self).__name__}, or use torch.utils.data.Subset for some of them"
            )
        super().__setattr__(name, value)

    # What requests say of it.

    def _describe(self) -> dict[str, object]:
        """Returns the dataset as requests name it: ``kind``, ``path``, ``options``."""
        return {"kind": self.kind, "path": self._path, "options": {}}

    def _manifest(self) -> int | None:
        """Returns a descriptor of the list of records, which the caller closes."""
        if self._bytes is None:
            names = objects_at(self._files.root, self._files.names)
            self._bytes = encoded(names, self.fields, self._ranges, self._keys)
        return descriptor(self._bytes)

    def _told(self, opened: Opened) -> None:
        """Takes what OPENED has of the dataset."""
        if self._listed is None:
            self._listed = {"fingerprint": opened["fingerprint"], "bytes": opened["bytes"]}

    def _check_version(self, fingerprint: str) -> None:
        """Checks that the files are those that were opened before.

        Raises:
            MismatchError: They are others.
        """
        mine = None if self._listed is None else self._listed.get("fingerprint")
        if mine not in (None, fingerprint):
            raise MismatchError(
                f"{self!r}: a file was written since its first loader was made: make a new "
                f"{type(self).__name__}",
                {"key": "fingerprint", "mine": mine, "theirs": fingerprint},
            )

    @property
    def _facts(self) -> Facts:
        """``fingerprint`` and ``bytes``, which the daemon sends."""
        if self._listed is None:
            manifest = self._manifest()
            try:
                params = {**self._describe(), **settings({}, None)}
                (facts,) = connecting.call([("dataset", params)], Progress(), manifest)
            finally:
                if manifest is not None:
                    os.close(manifest)
            self._listed = {"fingerprint": facts["fingerprint"], "bytes": facts["bytes"]}
        return self._listed

    # What there is.

    def __len__(self) -> int:
        """Returns the number of records."""
        return len(self._ranges[0].objects)

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of their numbers; empty if there are none."""
        return [] if self._labels is None else list(self._labels.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The classes' numbers by name."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def targets(self) -> list[object]:
        """The label of every record, by ID.

        Raises:
            AttributeError: The records have no labels.
        """
        if self._labels is None:
            raise AttributeError(f"the records of this {type(self).__name__} have no labels")
        return self._labels.listed()

    @property
    def samples(self) -> list[tuple[object, object]]:
        """(path, label) of every record, by ID.

        Of records of several fields, paths have the form of an item; without labels, the label is
        None.
        """
        return [self.sample(i) for i in range(len(self))]

    imgs = samples

    def sample(self, index: int) -> tuple[object, object]:
        """Returns (path, label) of one record; see :attr:`samples`.

        Raises:
            IndexError: There is no such record.
        """
        index = self._index(index)
        paths = [self._path_of(field, index) for field in range(len(self.fields))]
        label = None if self._labels is None else self._labels[index]
        return Form(self._form.kind, self.fields).item(paths, index), label

    def key(self, index: int) -> str:
        """Returns the key of a record: what it was given, or the path of its first file.

        Raises:
            IndexError: There is no such record.
        """
        index = self._index(index)
        if self._keys is not None:
            return self._keys[index]
        return next(
            (p for p in (self._path_of(f, index) for f in range(len(self.fields))) if p), ""
        )

    def _lacks(self, field: int) -> bool:
        """Reports whether some records do not have a field."""
        if self._lacking is None:
            self._lacking = {i for i, r in enumerate(self._ranges) if min(r.objects, default=0) < 0}
        return field in self._lacking

    def _index(self, index: int) -> int:
        index, count = operator.index(index), len(self)
        if not -count <= index < count:
            raise IndexError(
                f"record {index} is out of range: the dataset has {count}, 0 to {count - 1}"
            )
        return index % count

    def _path_of(self, field: int, index: int) -> str | None:
        """Returns the path of a record's file; None: it does not have the field."""
        number = self._ranges[field].objects[index]
        if number < 0:
            return None
        return os.path.join(self._files.root, self._files.names[number])

    # Items.

    def labels_of(self, ids: Sequence[int]) -> list[object]:
        """Returns the labels of records; nothing if they have none."""
        return [] if self._labels is None else [self._labels[i] for i in ids]

    def _label(self, index: int) -> object:
        return NONE if self._labels is None else self._labels[index]

    def _label_of(self, index: int, contents: Sequence[bytes | None]) -> object:
        """Returns the label of a record whose fields have these contents; NONE: it has none."""
        return self._label(index)

    def _fields_of(self, index: int) -> list[bytes | None]:
        """Returns the bytes of a record's fields, read from its files."""
        if is_url(self._path):
            return self._reader().read(index)
        return [self._bytes_of(field, index) for field in range(len(self.fields))]

    def _reader(self) -> Reader:
        """Returns what reads records that are not in files of this machine."""
        found: Reader | None = self.__dict__.get("_remote")
        if found is None:
            manifest = self._manifest()
            if manifest is not None:
                os.close(manifest)
            found = Reader({**self._describe(), **settings({}, None)}, self._bytes)
            self.__dict__["_remote"] = found
        return found

    def _read(self, index: int) -> tuple[object, int]:
        """Returns (bytes, ID) of a record of one field."""
        index = self._index(index)
        return self._fields_of(index)[0], index

    def _place(self, field: int, index: int) -> tuple[int, int]:
        """Returns where a field's range begins in its file, and its length."""
        ranges = self._ranges[field]
        offset = 0 if ranges.offsets is None else ranges.offsets[index]
        return offset, TO_END if ranges.lengths is None else ranges.lengths[index]

    def _ranges_of(self, indices: Iterable[int]) -> Iterator[list[tuple[str, int, int]]]:
        """Yields for each record the ranges of its fields: path, offset, length.

        Fields that it does not have are left out. Nothing is kept of what the daemon is asked for.
        """
        for index in indices:
            found = []
            for field in range(len(self.fields)):
                path = self._path_of(field, index)
                if path is not None:
                    offset, length = self._place(field, index)
                    if length == TO_END:
                        length = os.stat(path).st_size - offset
                    found.append((path, offset, length))
            yield found

    def _bytes_of(self, field: int, index: int) -> bytes | None:
        path = self._path_of(field, index)
        if path is None:
            return None
        offset, length = self._place(field, index)
        try:
            data = read_file(path, offset, None if length == TO_END else length)
        except OSError as error:
            why = _REASONS.get(error.errno or 0) or error.strerror or "unknown"
            raise SampleError(
                f"record {index} ({path}): {why}", {"sample": index, "path": path}
            ) from error
        if length not in (TO_END, len(data)):
            raise SampleError(
                f"record {index} ({path}): {len(data)} bytes from byte {offset} on, not {length}",
                {"sample": index, "path": path},
            )
        return data

    def __getitem__(self, index: int) -> object:
        """Returns one item, of bytes that are read from the files, without the daemon.

        Raises:
            IndexError: There is no such record.
            SampleError: A file cannot be read.
        """
        index = self._index(index)
        return self._form.item(self._fields_of(index), index, self._label(index))

    def __iter__(self) -> Iterator[object]:
        return (self[i] for i in range(len(self)))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_bytes": None, "_remote": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} records below {self._path!r})"


def read_file(path: str, offset: int = 0, length: int | None = None) -> bytes:
    """Returns a file's bytes.

    Args:
        path: The file, or the URL of an object, which the daemon reads.
        offset: Where to begin.
        length: How many bytes; None: to the file's end. An object must have them, and of a file
            there are fewer if it ends before.

    Raises:
        OSError: It cannot be read, is not a regular file, or ends before ``offset``.
        HDMLPError: The object cannot be read.
    """
    if is_url(path):
        where = below_root([path], ())
        at = Ranges(
            array.array("i", [0]),
            array.array("q", [offset]),
            array.array("q", [TO_END if length is None else length]),
        )
        manifest = encoded(objects_at(where.root, where.names), ["0"], [at])
        named = {"kind": Listed.kind, "path": where.root, "options": {}}
        (data,) = Reader({**named, **settings({}, None)}, manifest).read(0)
        return data or b""
    with open(path, "rb", opener=_open_without_waiting) as file:
        found = os.fstat(file.fileno())
        check_regular(path, found)
        _check_begin(path, offset, found.st_size)
        if offset:
            file.seek(offset)
        return file.read() if length is None else file.read(min(length, found.st_size - offset))


def check_regular(path: str, found: os.stat_result) -> None:
    """Checks that a path is that of a regular file.

    Raises:
        OSError: It is not.
    """
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(None, "it is not a regular file", path)


def _check_begin(path: str, offset: int, size: int) -> None:
    if offset > size:
        raise OSError(None, f"it has {size} bytes, and the range begins at byte {offset}", path)


def _open_without_waiting(name: str, flags: int) -> int:
    """Opens a file; a FIFO without a writer must not block."""
    return os.open(name, flags | os.O_NONBLOCK)


class Records(Listed):
    """Records given as ranges of files: any format that some library can index is served.

    Args:
        objects: The paths of the files.
        ranges: For each field, by name: the number of each record's file in ``objects`` (-1: it
            does not have the field), where its range begins, and how many bytes it has (-2: to the
            file's end); or the numbers alone, if records are whole files.
        values: Values by record ID, by name, which items have as they are. Default: none.
        labels: One per record: see :class:`Files`. Default: None, there are none.
        classes: See :class:`Files`. Default: None.
        keys: What the records are called. Default: None, by their files.
        root: What relative paths are relative to. Default: None, the current directory.

    An item is a dict: of ``values``, then of the fields, then ``"label"``.

    Raises:
        ConfigError: The lists do not fit together.
    """

    def __init__(
        self,
        objects: Sequence[str | os.PathLike[str]],
        ranges: Mapping[str, object],
        values: Mapping[str, Sequence[object]] | None = None,
        *,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        root: str | os.PathLike[str] | None = None,
    ):
        from .manifest import located

        _check_by_name("ranges", ranges)
        _check_by_name("values", values or {})
        if not ranges:
            raise ConfigError("ranges={}: records need at least one field")
        paths = []
        for i, path in enumerate(by_position("objects", objects)):
            check_path(f"objects[{i}]", path)
            paths.append(os.fsdecode(path))
        files = located(paths, None if root is None else os.fsdecode(root))
        columns = {name: _ranges(name, given, files.numbers) for name, given in ranges.items()}
        count = len(next(iter(columns.values())).objects)
        for name, column in columns.items():
            check_count(f"ranges[{name!r}]", len(column.objects), count)
        values = {n: by_position(f"values[{n!r}]", v) for n, v in (values or {}).items()}
        for name, value in values.items():
            check_count(f"values[{name!r}]", len(value), count)
            if name in columns or (name == "label" and labels is not None):
                raise ConfigError(f"values[{name!r}]: a field or a label has that name")
        for i in range(count):
            if all(column.objects[i] < 0 for column in columns.values()):
                raise ConfigError(f"record {i} has none of the fields {', '.join(columns)}")
        made = None if labels is None else Labels(labels, classes)
        if made is not None:
            check_count("labels", len(made), count)
        if keys is not None:
            keys = [str(key) for key in by_position("keys", keys)]
            check_count("keys", len(keys), count)
        self._set(files, Form("dict", list(columns), values), list(columns.values()), made, keys)


def _check_by_name(what: str, given: object) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{what}: must be a dict by the names of fields, which are texts")


def check_count(what: str, count: int, records: int) -> None:
    """Checks that there is one of something per record.

    Raises:
        ConfigError: There is not.
    """
    if count != records:
        raise ConfigError(f"{what} has {count} entries, and there are {records} records")


def _ranges(name: str, given: object, files: Sequence[int]) -> Ranges:
    """Returns a field's ranges, checked; ``files`` are the numbers of those that were given."""
    objects = len(files)
    try:
        if isinstance(given, tuple) and len(given) == 3:
            numbers, offsets, lengths = (_integers(kind, x) for kind, x in zip("iqq", given))
            if not len(numbers) == len(offsets) == len(lengths):
                raise ConfigError(
                    f"ranges[{name!r}]: {len(numbers)} files, {len(offsets)} offsets and "
                    f"{len(lengths)} lengths"
                )
            made = Ranges(numbers, offsets, lengths)
        else:
            made = Ranges(_integers("i", given))
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(
            f"ranges[{name!r}]: give (numbers of files, offsets, lengths), or the numbers alone, "
            "as sequences of integers"
        ) from None
    for i, number in enumerate(made.objects):
        if not -1 <= number < objects:
            raise ConfigError(f"ranges[{name!r}]: record {i} is in file {number} of {objects}")
        if made.offsets is not None and made.lengths is not None and number >= 0:
            offset, length = made.offsets[i], made.lengths[i]
            if offset < 0 or length < TO_END or length == -1:
                raise ConfigError(
                    f"ranges[{name!r}]: record {i} has {length} bytes from byte {offset} on"
                )
    numbers = array.array("i", (-1 if n < 0 else files[n] for n in made.objects))
    return made._replace(objects=numbers)


def _integers(kind: str, given: Any) -> array.array[int]:
    if hasattr(given, "tolist"):
        given = given.tolist()
    return array.array(kind, map(operator.index, given))
