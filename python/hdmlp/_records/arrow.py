"""Where the values of Arrow columns lie in files.

Columns that were read from a file are views of a map of it: the address of a buffer, less that at
which the map begins, is its offset in the file, whatever slices and concatenations lie between.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import ConfigError, DatasetError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+) +(/.*)")
#: What the kernel appends to the name of a file that was deleted.
_DELETED = b" (deleted)"
#: Of how many values of a column the bytes in the files are compared with those of the maps.
_COMPARED = 256


class Buffer(Protocol):
    """A ``pyarrow.Buffer``, as far as it is used."""

    address: int
    size: int


class Scalar(Protocol):
    """A ``pyarrow.Scalar``, as far as it is used."""

    def as_py(self) -> object:
        """Returns its value."""

    def __getitem__(self, name: str) -> Scalar: ...


class Array(Protocol):
    """A ``pyarrow.Array``, as far as it is used."""

    type: object
    offset: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Scalar: ...

    def buffers(self) -> list[Buffer | None]:
        """Returns its buffers, and those of its fields."""

    def field(self, name: str) -> Array:
        """Returns a field of an array of structs."""

    def is_null(self) -> Array:
        """Returns which values are null."""

    def to_numpy(self, zero_copy_only: bool = True) -> NDArray[numpy.bool_]:
        """Returns an array of truth values."""

    def take(self, indices: object) -> Array:
        """Returns some values."""

    def to_pylist(self) -> list[str | None]:
        """Returns the values of an array of texts."""

    def slice(self, offset: int, length: int) -> Array:
        """Returns a part of it."""

    def view(self, kind: object) -> Array:
        """Returns its buffers as an array of another type."""

    def validate(self, full: bool = False) -> None:
        """Raises an error of pyarrow if its buffers are no such array."""


class Chunks(Protocol):
    """A ``pyarrow.ChunkedArray``, as far as it is used."""

    type: object
    null_count: int
    chunks: Sequence[Array]

    def __getitem__(self, index: int) -> Scalar: ...

    def to_numpy(self) -> NDArray[numpy.float64]:
        """Returns an array of numbers."""


class NotInFiles(Exception):
    """A value does not lie in a file; the message says where it does."""


class _Map(NamedTuple):
    """A map of a file.

    Attributes:
        begin: Its first address.
        end: The address after its last byte.
        offset: Where in the file it begins.
        path: The file.
    """

    begin: int
    end: int
    offset: int
    path: bytes


class Maps:
    """The files that this process has mapped."""

    def __init__(self) -> None:
        self._maps: list[_Map] = []
        with open("/proc/self/maps", "rb") as file:
            for line in file:
                found = _LINE.match(line.rstrip(b"\n"))
                if found is not None:
                    begin, end, offset = (int(x, 16) for x in found.group(1, 2, 3))
                    self._add(_Map(begin, end, offset, found[5]))
        self._begins = [one.begin for one in self._maps]

    def _add(self, new: _Map) -> None:
        last = self._maps[-1] if self._maps else None
        if (
            last is not None
            and (last.end, last.path) == (new.begin, new.path)
            and last.offset + last.end - last.begin == new.offset
        ):
            self._maps[-1] = last._replace(end=new.end)  # the kernel has split it
        else:
            self._maps.append(new)

    def find(self, begin: int, end: int) -> tuple[str, int]:
        """Returns the file of some memory, and what to add to an address for the offset in it.

        Args:
            begin: The address of its first byte.
            end: That after its last.

        Raises:
            NotInFiles: It is not the map of a file, or the file was deleted.
            DatasetError: Another file has its name now.
        """
        at = bisect.bisect_right(self._begins, begin) - 1
        if at < 0 or end > self._maps[at].end:
            raise NotInFiles(
                "it lies in memory: save the dataset (save_to_disk), and load it from there"
            )
        found = self._maps[at]
        if found.path.endswith(_DELETED):
            name = os.fsdecode(found.path.removesuffix(_DELETED))
            if os.path.exists(name):
                raise DatasetError(
                    f"the file {name} was replaced since the dataset was loaded: load it again"
                )
            raise NotInFiles(f"its file {name} was deleted since it was loaded")
        path = found.path.replace(rb"\012", b"\n")  # as the kernel writes it
        return os.fsdecode(path), found.offset - found.begin


class Values(NamedTuple):
    """Where the bytes of a column's rows are.

    Attributes:
        files: The paths of the files.
        objects: For each row, the number of its file; -1: its bytes are null.
        offsets: Where they begin in it.
        lengths: How many there are; -2: all of the file.
        null: For each row, whether the value itself is null, and not just the bytes in it.
    """

    files: list[str]
    objects: NDArray[numpy.int32]
    offsets: NDArray[numpy.int64]
    lengths: NDArray[numpy.int64]
    null: NDArray[numpy.bool_]


def values_of(name: str, column: Chunks, rows: NDArray[numpy.int64], maps: Maps) -> Values:
    """Returns where the bytes of a column are.

    Args:
        name: The column's name.
        column: The column, of bytes, or of structs with a field ``bytes``, which
            :func:`check_column` has checked.
        rows: The numbers of its rows.
        maps: The maps.

    Raises:
        NotInFiles: They are not all in files.
        DatasetError: A file changed since it was mapped.
    """
    import numpy
    import pyarrow

    files: dict[str, int] = {}
    pieces = [[numpy.zeros(0, kind)] for kind in ("i4", "i8", "i8", "?")]
    for chunk in column.chunks:
        null = chunk.is_null().to_numpy(zero_copy_only=False)
        data = chunk.field("bytes") if pyarrow.types.is_struct(chunk.type) else chunk
        missing = null | data.is_null().to_numpy(zero_copy_only=False)
        ends = _ends(data)
        _, numbers, buffer = data.buffers()
        number, offsets = -1, ends[:-1]
        if buffer is not None and not missing.all():
            begin = buffer.address
            if ends[0] == ends[-1] and numbers is not None:
                # Of no bytes, pyarrow's buffer is no part of the file, but that of offsets is.
                begin, ends = numbers.address, numpy.zeros_like(ends)
                offsets = ends[:-1]
            path, shift = maps.find(begin + int(ends[0]), begin + int(ends[-1]))
            number = files.setdefault(path, len(files))
            offsets = offsets + (begin + shift)
        objects = numpy.where(missing, -1, number).astype("i4")
        for piece, part in zip(pieces, (objects, offsets, numpy.diff(ends), null)):
            piece.append(part)
    found = Values(list(files), *(numpy.concatenate(piece)[rows] for piece in pieces))
    _check(name, column, rows, found)
    return found


def _ends(data: Array) -> NDArray[numpy.int64]:
    """Returns where each value of an array of bytes begins in its buffer, and the last one ends."""
    import numpy
    import pyarrow

    kind = data.type
    if not (pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)):
        raise NotInFiles(f"its bytes are of type {kind}")
    _, ends, _ = data.buffers()
    if not len(data):
        return numpy.zeros(1, "i8")
    width = numpy.dtype("i4" if pyarrow.types.is_binary(kind) else "i8")
    # Without a count, numpy refuses a buffer whose size is no multiple of the width.
    begin, count = data.offset * width.itemsize, len(data) + 1
    numbers = numpy.frombuffer(ends, width, count, begin)  # type: ignore[call-overload]
    return numbers.astype("i8")  # type: ignore[no-any-return]


def check_column(
    name: str, column: Chunks, maps: Maps, files: Sequence[str], texts: bool = False
) -> None:
    """Checks that a column's values lie within its buffers, and these in files.

    pyarrow maps files without looking at offsets, and reading at those that lie kills the process.

    Args:
        name: The column's name.
        column: The column.
        maps: The maps.
        files: The files that were loaded, for messages: a column without a byte is in no map.
        texts: Texts must be UTF-8, for which all of them are read. Default: False: offsets and
            indices are read, and nothing that these lead to.

    Raises:
        DatasetError: They do not: a file is damaged, or changed since it was mapped.
    """
    first = 0
    for chunk in column.chunks:
        _check_sizes(name, chunk, maps)
        found = _damage(chunk if texts else _without_texts(chunk))
        if found is not None:
            row, why = found
            raise DatasetError(
                f"column {name!r}, row {first + row} of the table: "
                f"{of_file(chunk, maps, files)} is damaged ({why}): copy it once more from where "
                "it is whole, or make the dataset again"
            )
        first += len(chunk)


def _without_texts(array: Array) -> Array:
    """Returns an array whose texts are bytes, which need not be UTF-8."""
    import pyarrow

    storage: Array = getattr(array, "storage", array)
    kind = _as_bytes(storage.type)
    try:
        return storage if kind == storage.type else storage.view(kind)
    except (pyarrow.ArrowException, NotImplementedError):
        return storage  # of a type that has no views


def _as_bytes(kind: Any) -> Any:
    """Returns a type of Arrow with bytes in the place of texts."""
    import pyarrow

    types = pyarrow.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pyarrow.binary() if types.is_string(kind) else pyarrow.large_binary()
    if types.is_struct(kind):
        own = [kind.field(i) for i in range(kind.num_fields)]
        return pyarrow.struct([field.with_type(_as_bytes(field.type)) for field in own])
    for check, make in ((types.is_list, pyarrow.list_), (types.is_large_list, pyarrow.large_list)):
        if check(kind):
            return make(kind.value_field.with_type(_as_bytes(kind.value_type)))
    return kind


def _damage(array: Any) -> tuple[int, str] | None:
    """Returns the first value that does not lie within the buffers, and why; None: all do."""
    import pyarrow

    why = _why_damaged(array)
    if why is None:
        return None
    if pyarrow.types.is_struct(array.type):
        if min(_lengths_of_fields(array), default=array.offset) < array.offset + len(array):
            return 0, why  # pyarrow aborts the process when such a field is taken
        # Of a slice, pyarrow looks at all values of the fields.
        fields = [_damage(array.field(i)) for i in range(array.type.num_fields)]
        there = array.buffers()[0]
        if there is None or there.size * 8 >= array.offset + len(array):
            return min((found for found in fields if found is not None), default=None)
    low, high = 0, len(array)  # values before low are right, and not all before high
    while high - low > 1:
        middle = (low + high) // 2
        if _why_damaged(array.slice(low, middle - low)) is None:
            low = middle
        else:
            high = middle
    return low, why


class _Exported(ctypes.Structure):
    """The beginning of ``struct ArrowArray`` of Arrow's C data interface."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset")),
        *((name, ctypes.c_int64) for name in ("n_buffers", "n_children")),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
    ]


def _lengths_of_fields(array: Any) -> list[int]:
    """Returns how many values each field of an array of structs has, by its own count.

    They are read from what pyarrow exports, as it has no other call that does not use them.
    """
    _, exported = array.__arrow_c_array__()  # whose deletion releases it
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    whole = _Exported.from_address(pointer(exported, b"arrow_array"))
    children = [whole.children[i] for i in range(whole.n_children)]
    return [_Exported.from_address(child).length for child in children]


def _why_damaged(array: Array) -> str | None:
    import pyarrow

    try:
        array.validate(full=True)
    except pyarrow.ArrowException as error:
        return str(error).partition("\n")[0]
    return None


def of_file(array: Array, maps: Maps, files: Sequence[str] = ()) -> str:
    """Returns the file of an array's buffers, for messages; if they have none, one of ``files``."""
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            try:
                return f"the file {maps.find(buffer.address, buffer.address + buffer.size)[0]}"
            except NotInFiles:
                continue
    if files:
        return f"the file {files[0]}" if len(files) == 1 else f"one of {', '.join(files)}"
    return "what was loaded into memory"


def _check_sizes(name: str, chunk: Array, maps: Maps) -> None:
    """Checks that the files of an array are as large as they were when they were mapped.

    To read the map beyond the end of its file would kill the process.

    Raises:
        DatasetError: One is not.
    """
    for buffer in chunk.buffers():
        if buffer is None or not buffer.size:
            continue
        end = buffer.address + buffer.size
        try:
            path, shift = maps.find(buffer.address, end)
        except NotInFiles:
            continue
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise _changed(name, path, error.strerror or "it cannot be read") from error
        if size < end + shift:
            raise _changed(
                name, path, f"it has {size} bytes, and the column has some up to byte {end + shift}"
            )


def _check(name: str, column: Chunks, rows: NDArray[numpy.int64], found: Values) -> None:
    """Checks that files have the bytes of their maps, for some rows of each.

    Raises:
        DatasetError: One has others, or fewer.
    """
    import numpy

    compared = max(_COMPARED // max(len(found.files), 1), 1)
    for number, path in enumerate(found.files):
        mine = numpy.flatnonzero(found.objects == number)
        if not len(mine):
            continue
        try:
            with open(path, "rb") as file:
                for i in mine[:: max(len(mine) // compared, 1)]:
                    file.seek(int(found.offsets[i]))
                    data = file.read(int(found.lengths[i]))
                    if data != _bytes_at(column, int(rows[i])):
                        raise _changed(name, path, f"row {i} has other bytes in it")
        except OSError as error:
            raise _changed(name, path, error.strerror or "it cannot be read") from error


def _changed(name: str, path: str, why: str) -> DatasetError:
    return DatasetError(
        f"column {name!r}: the file {path} was written or replaced since the dataset was loaded "
        f"({why}): load the dataset again"
    )


def _bytes_at(column: Chunks, row: int) -> object:
    """Returns the bytes of a column's row."""
    import pyarrow

    value = column[row]
    return (value["bytes"] if pyarrow.types.is_struct(column.type) else value).as_py()


def with_paths(name: str, found: Values, paths: Array) -> Values:
    """Returns values whose bytes are whole files, where they have a path instead.

    Args:
        name: The column's name.
        found: Where the bytes of its rows are.
        paths: The rows' paths, an array of Arrow.

    Raises:
        NotInFiles: A path is no file of this machine.
        ConfigError: A row has neither bytes nor a path.
    """
    import numpy
    import pyarrow

    lacking = numpy.flatnonzero((found.objects < 0) & ~found.null)
    if not len(lacking):
        return found
    texts = paths.take(pyarrow.array(lacking)).to_pylist()
    files = {path: i for i, path in enumerate(found.files)}
    numbers = []
    for row, text in zip(lacking, texts):
        if not text:
            raise ConfigError(
                f"column {name!r}, row {row}: it has neither bytes nor a path: leave such rows out "
                "(filter)"
            )
        if "://" in text or "::" in text:
            raise NotInFiles(f"row {row} is {text}, which is no file of this machine")
        numbers.append(files.setdefault(text, len(files)))
    objects, offsets, lengths = found.objects.copy(), found.offsets.copy(), found.lengths.copy()
    objects[lacking], offsets[lacking], lengths[lacking] = numbers, 0, -2
    return found._replace(files=list(files), objects=objects, offsets=offsets, lengths=lengths)
