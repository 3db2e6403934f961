"""Shards of mosaicml-streaming (MDS): where the columns of each sample are, and what they are."""

from __future__ import annotations

import array
import decimal
import io
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Union

from .._lib.arguments import check_path, is_url
from ..errors import ConfigError, DatasetNotFoundError
from . import decoders
from .arrays import Typed, check_numpy, unreadable
from .elements import Elements
from .form import Form, check_chosen
from .manifest import located
from .records import read_file
from .runs import Ranges

_INDEX = "index.json"
#: The bytes of a value.
_Data = Union[bytes, memoryview]
#: numpy's types by the numbers that arrays have whose type is not the column's.
_TYPES = {
    **{8: "u1", 9: "i1", 16: "u2", 17: "i2", 18: "f2", 32: "u4", 33: "i4", 34: "f4"},
    **{64: "u8", 65: "i8", 66: "f8"},
}
#: The encodings of numbers, and numpy's types.
_NUMBERS = {
    "int": "i8",
    **{f"{kind}{8 * n}": f"{kind[0]}{n}" for kind in ("int", "uint") for n in (1, 2, 4, 8)},
    **{f"float{8 * n}": f"f{n}" for n in (2, 4, 8)},
}


class Column(NamedTuple):
    """A column of all shards.

    Attributes:
        name: Its name.
        encoding: How its values are stored.
        size: How many bytes each has; None: they differ.
    """

    name: str
    encoding: str
    size: int | None


class _Shard(NamedTuple):
    path: str
    samples: int
    size: int


class MDS(Typed):
    """The samples of mosaicml-streaming's shards, which are not compressed, as they lie.

    The offsets at the head of each shard are read, and the sizes of columns where a sample has
    several that vary.

    Args:
        path: The directory of ``index.json``, or that file.
        columns: Which columns items have. Default: None, all.

    An item is a dict by column: arrays of numbers, and the bytes of other columns.

    Attributes:
        fields: The names of the columns.
        encodings: How the values of each column are stored, by name.

    Raises:
        ConfigError: The shards are compressed or damaged, or there is no such column.
        DatasetNotFoundError: There is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], *, columns: Sequence[str] | None = None):
        self._open(path, columns)

    def _open(self, path: str | os.PathLike[str], columns: Sequence[str] | None) -> None:
        check_numpy(type(self).__name__)
        check_path("path", path)
        where = os.path.expanduser(os.fsdecode(path))
        where = where if is_url(where) else os.path.abspath(where)
        if not where.endswith(".json"):
            where = f"{where.rstrip('/')}/{_INDEX}"
        self._index_path = where
        given, shards = _index(where)
        self._note([where, *(shard.path for shard in shards)])
        chosen = _chosen(given, columns)
        self.encodings = {column.name: column.encoding for column in chosen}
        files = located([shard.path for shard in shards], None)
        places = [_Places() for _ in given]
        for shard, number in zip(shards, files.numbers):
            try:
                _read(shard, number, given, places)
            except OSError as error:
                raise unreadable(shard.path, error) from error
            except struct.error:
                raise ConfigError(f"{shard.path}: it is cut off: copy it once more") from None
        self._elements = {
            column.name: made
            for column in chosen
            for made in [numbers_of(where, column)]
            if made is not None
        }
        ranges = [places[given.index(column)].ranges() for column in chosen]
        self._set(files, Form("dict", [column.name for column in chosen]), ranges, None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} samples below {self._path!r})"


def _index(path: str) -> tuple[list[Column], list[_Shard]]:
    """Returns the columns and the shards that an ``index.json`` names."""
    try:
        told = json.loads(read_file(path))
    except FileNotFoundError:
        raise DatasetNotFoundError(
            f"{path}: there is no such file: give the directory of it"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: it is no JSON: {error}: take it once more from where it is whole"
        ) from None
    shards = told.get("shards") if isinstance(told, Mapping) else None
    if not isinstance(shards, list) or not shards:
        raise ConfigError(f"{path}: it lists no shards, as mosaicml-streaming's does")
    columns: list[Column] = []
    found = []
    for i, shard in enumerate(shards):
        try:
            own = _columns(shard)
            found.append(_shard(path, shard))
        except (ConfigError, DatasetNotFoundError):
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                f"{path}: shard {i} is not as mosaicml-streaming writes it: {why}: take the file "
                "once more from where it is whole, or write the shards again"
            ) from None
        columns = columns or own
        if own != columns:
            differ = [a for a, b in zip(own, columns) if a != b] or [own[-1]]
            raise ConfigError(
                f"{path}: the columns of shard {i} are not those of shard 0: {differ[0].name!r} is "
                f"{differ[0].encoding} of {differ[0].size or 'any'} bytes"
            )
    return columns, found


def _columns(shard: object) -> list[Column]:
    if not isinstance(shard, Mapping):
        raise ValueError(f"it is {shard!r:.40}")
    if shard["format"] != "mds" or shard["version"] != 2:
        raise ValueError(f"format {shard['format']}, version {shard['version']}")
    parts = shard["column_names"], shard["column_encodings"], shard["column_sizes"]
    if len(set(map(len, parts))) != 1 or not parts[0] or len(set(parts[0])) < len(parts[0]):
        raise ValueError("its columns have other numbers of names, encodings and sizes")
    for name, encoding, size in zip(*parts):
        if not isinstance(name, str) or not isinstance(encoding, str):
            raise ValueError("a column has no name or encoding")
        if size is not None and (not isinstance(size, int) or size < 0):
            raise ValueError(f"column {name} has {size} bytes")
    return [Column(*column) for column in zip(*parts)]


def _shard(path: str, shard: Mapping[str, Any]) -> _Shard:
    raw, samples = shard["raw_data"], shard["samples"]
    name, size = raw["basename"], raw["bytes"]
    if not isinstance(samples, int) or samples < 0 or not isinstance(size, int):
        raise ValueError(f"{samples} samples, {size} bytes")
    if os.path.isabs(name) or ".." in name.split("/"):
        raise ValueError(f"the file {name!r} is not beside it")
    made = f"{path.rpartition('/')[0]}/{name}"
    if not is_url(made) and not os.path.exists(made):
        packed = shard.get("compression")
        if packed:
            raise ConfigError(
                f"{made}: its shards are compressed ({packed}), of which no part can be read "
                "alone: decompress them once beside index.json, under the names of raw_data"
            )
        raise DatasetNotFoundError(f"{made}: there is no such file, and {path} lists it")
    return _Shard(made, samples, size)


def _chosen(given: Sequence[Column], columns: Sequence[str] | None) -> list[Column]:
    if columns is None:
        return list(given)
    by_name = {column.name: column for column in given}
    check_chosen("columns", columns, by_name)
    return [by_name[name] for name in columns]


class _Places:
    """Where the values of a column are, sample by sample."""

    def __init__(self) -> None:
        self.objects, self.offsets = array.array("i"), array.array("q")
        self.lengths = array.array("q")

    def ranges(self) -> Ranges:
        """Returns them as the daemon takes them."""
        return Ranges(self.objects, self.offsets, self.lengths)


def _read(shard: _Shard, number: int, columns: Sequence[Column], places: Sequence[_Places]) -> None:
    """Adds where the columns of a shard's samples are.

    Raises:
        ConfigError: The shard contradicts itself, or its index.
    """
    path = shard.path
    varying = [column for column in columns if column.size is None]
    fixed = 4 * len(varying) + sum(column.size or 0 for column in columns)
    if len(varying) > 1 and is_url(path):
        raise ConfigError(
            f"{path}: its samples have {len(varying)} columns whose sizes vary "
            f"({', '.join(column.name for column in varying)}); where each ends, the sample itself "
            "says, which would take a request for each: copy the shards to a file system, or write "
            "them with one such column"
        )
    if not is_url(path) and os.path.getsize(path) != shard.size:
        raise ConfigError(
            f"{path}: it has {os.path.getsize(path)} bytes, and index.json says {shard.size}: it "
            "was cut off, or is another one"
        )
    head = 4 * (shard.samples + 2)
    if shard.size < head:
        raise ConfigError(f"{path}: it has {shard.size} bytes, and its offsets alone {head}")
    count, *offsets = struct.unpack(f"<{shard.samples + 2}I", read_file(path, 0, head))
    if count != shard.samples:
        raise ConfigError(f"{path}: it has {count} samples, and index.json says {shard.samples}")
    descriptor = -1 if is_url(path) or len(varying) < 2 else os.open(path, os.O_RDONLY)
    try:
        for i, (begin, end) in enumerate(zip(offsets, offsets[1:])):
            if begin < head or not begin + fixed <= end <= shard.size:
                raise ConfigError(
                    f"{path}: sample {i} is from byte {begin} to {end} of {shard.size}, and its "
                    f"columns have at least {fixed} bytes: the shard is damaged"
                )
            sizes = [end - begin - fixed] * len(varying)
            if descriptor >= 0:
                sizes = list(
                    struct.unpack(
                        f"<{len(varying)}I", os.pread(descriptor, 4 * len(varying), begin)
                    )
                )
            if sum(sizes) + fixed != end - begin:
                raise ConfigError(
                    f"{path}: sample {i} has {end - begin} bytes, and its columns "
                    f"{sum(sizes) + fixed}: the shard is damaged"
                )
            _place(number, begin + 4 * len(varying), columns, sizes, places)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _place(
    number: int,
    at: int,
    columns: Sequence[Column],
    sizes: Sequence[int],
    places: Sequence[_Places],
) -> None:
    """Adds where the columns of a sample are, whose data begin there."""
    varying = iter(sizes)
    for column, place in zip(columns, places):
        length = next(varying) if column.size is None else column.size
        place.objects.append(number)
        place.offsets.append(at)
        place.lengths.append(length)
        at += length


def numbers_of(path: str, column: Column) -> Elements | None:
    """Returns what makes arrays of a column's bytes; None: they are no numbers of one shape.

    Args:
        path: The index that names the column, for messages.
        column: The column.

    Raises:
        ConfigError: The column has another size than such numbers.
    """
    import numpy

    name, _, form = column.encoding.partition(":")
    kind = _NUMBERS.get(name)
    edges: tuple[int, ...] = ()
    if name == "ndarray" and form.count(":") == 1:
        try:
            kind, edges = _NUMBERS[form.partition(":")[0]], _edges(form.partition(":")[2])
        except (KeyError, ValueError):
            raise ConfigError(
                f"{path}: column {column.name}: its encoding is {column.encoding}"
            ) from None
    if kind is None:
        return None
    made = Elements(numpy.dtype(kind), edges)
    if made.nbytes != column.size:
        raise ConfigError(
            f"{path}: column {column.name}: {column.encoding} has {made.nbytes} bytes, and the "
            f"column {column.size}"
        )
    return made


def _edges(text: str) -> tuple[int, ...]:
    edges = tuple(map(int, text.split(",")))
    if min(edges) < 1:
        raise ValueError(text)
    return edges


def decoder_of(path: str, column: str, encoding: str) -> Callable[[_Data], object] | None:
    """Returns what decodes a value; None: it stays bytes.

    Args:
        path: The index that names the column, for messages.
        column: The column's name.
        encoding: How it is stored.

    Raises:
        ConfigError: It is a pickle, whose loading runs code that it names, or of another encoding.
    """
    name = encoding.partition(":")[0]
    if name == "bytes":
        return None
    if name == "ndarray":
        return _Array(encoding.partition(":")[2])
    if name not in _DECODERS:
        why = (
            "is a pickle, and loading one runs whatever code it names"
            if name == "pkl"
            else f"is of encoding {encoding!r}, which HDMLP does not decode"
        )
        raise ConfigError(
            f"{path}: column {column!r} {why}: leave it out with columns=, or give loader="
            f"{{{column!r}: function}}, which is given the bytes"
        )
    return _DECODERS[name]


class _Array:
    """Decodes arrays whose shape, or type as well, is before their numbers.

    Args:
        form: The encoding after its name: the type, or nothing.
    """

    def __init__(self, form: str):
        self.form = form

    def __call__(self, data: _Data) -> object:
        import numpy

        view, at = memoryview(data), 0
        kind = _NUMBERS.get(self.form)
        if kind is None:
            kind, at = _TYPES[view[0]], 1
        axes, width = view[at] >> 2, 1 << (view[at] & 3)
        begin = at + 1 + axes * width
        shape = numpy.frombuffer(view[at + 1 : begin], f"u{width}")
        return numpy.frombuffer(view[begin:].tobytes(), kind).reshape(shape.tolist())


def _raw_image(data: _Data) -> object:
    from PIL import Image

    width, height, size = struct.unpack_from("<III", data)
    mode = bytes(data[12 : 12 + size]).decode()
    return Image.frombytes(mode, (width, height), bytes(data[12 + size :]))


def _parts(data: _Data, at: int) -> list[bytes]:
    """Returns the parts of a list, whose number and sizes begin there."""
    (count,) = struct.unpack_from("<I", data, at)
    sizes = struct.unpack_from(f"<{count}I", data, at + 4)
    begin, parts = at + 4 + 4 * count, []
    for size in sizes:
        parts.append(bytes(data[begin : begin + size]))
        begin += size
    if begin != len(data):
        raise ValueError(f"a list of {len(data)} bytes, whose parts end at byte {begin}")
    return parts


def _opened(data: bytes) -> object:
    from PIL import Image

    return Image.open(io.BytesIO(data))


def _text(data: _Data) -> str:
    return bytes(data).decode()


def _integer(data: _Data) -> int:
    return int(_text(data))


def _float(data: _Data) -> float:
    return float(_text(data))


def _decimal(data: _Data) -> decimal.Decimal:
    return decimal.Decimal(_text(data))


def _json(data: _Data) -> object:
    return json.loads(bytes(data))


def _raw_images(data: _Data) -> object:
    return list(map(_raw_image, _parts(data, 4)))


def _images(data: _Data) -> object:
    return list(map(_opened, _parts(data, 4)))


def _array_of_images(data: _Data) -> object:
    return list(map(_opened, _parts(data, 0)))


_DECODERS: dict[str, Callable[[_Data], object]] = {
    "str": _text,
    "str_int": _integer,
    "str_float": _float,
    "str_decimal": _decimal,
    "json": _json,
    "jpeg": decoders.image,
    "png": decoders.image,
    "pil": _raw_image,
    "list[pil]": _raw_images,
    "list[jpeg]": _images,
    "list[png]": _images,
    "jpeg_array": _array_of_images,
    "jpegarray": _array_of_images,
}
