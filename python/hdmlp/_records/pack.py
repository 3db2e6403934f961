"""Packs datasets as tar shards: what of an item becomes which field."""

from __future__ import annotations

import collections
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .._lib.progress import Progress
from ..errors import ConfigError
from .arrays import Typed
from .files import Files
from .form import NONE
from .found import Found
from .records import Listed
from .shards import CLASSES, Fields, Writer, check_field, clean_key

_LEAST, _MOST = 64 << 20, 1 << 30
#: How many shards there are at least, if they do not get smaller than _LEAST.
_MANY = 128
#: Items by whose size that of shards is chosen.
_MEASURED = 64
#: Samples of a list of records that are read at the same time.
_STREAMS = 16
_BARE = "bin"


def pack(
    dataset: Any,
    out: str | os.PathLike[str],
    *,
    fields: Sequence[str] | None = None,
    shard_size: int | None = None,
    shards: str = "%06d.tar",
) -> list[str]:
    """Writes a dataset as tar shards by WebDataset's rules, in its order.

    Members are called KEY.FIELD. Of :class:`hdmlp.torch.Files`, :class:`hdmlp.torch.Records` and
    the like, what is stored is packed, whatever their transforms: files keep their extensions, in a
    dict as NAME.EXTENSION; integer labels become ``cls``, others ``label.json``; ``classes.json``
    in ``out`` has the names of the classes. Of any other dataset with ``len`` and ``[i]``, items
    are packed: bytes, texts, integers, and what JSON holds for fields that end with ``json``; as a
    dict by field, ``"__key__"`` being the key, or as a tuple or one value, with ``fields``.

    Each shard is read back and compared before it gets its name. A call that was interrupted, even
    by a crash, goes on if it is made again with the same arguments, with the same result. Nothing
    in ``out`` is overwritten that it did not write.

    ``hdmlp pack`` does the same for what is on disk: folders, shards, LMDB environments.

    Args:
        dataset: The dataset. A ``Subset`` gives another order, or a part.
        out: The directory of the shards; it is made if it is missing.
        fields: The names of the fields of an item, in its order, such as ``("jpg", "cls")``.
            Default: None, as described.
        shard_size: The bytes that a shard does not exceed, if it has several samples. Default:
            None: 1/128 of the dataset, as estimated by its first 64 items, 64 MiB to 1 GiB.
        shards: The shards' names. Default: ``"%06d.tar"``.

    Returns:
        The paths of the shards.

    Raises:
        ConfigError: An item has something that no file can be made of, as an image that is decoded;
            or the directory is not one for these shards.
    """
    base, indices = _whole(dataset)
    try:
        count = len(dataset)
    except TypeError:
        raise ConfigError(
            f"{type(dataset).__name__} has no length: give a map-style dataset, with len() and [i]"
        ) from None
    if not count:
        raise ConfigError("the dataset is empty")
    names = None if fields is None else [check_field(str(name)) for name in fields]
    listed = isinstance(base, Listed) and _makes_items_as_hdmlp(base)
    read = _of_listed(base, names) if listed else _of_items(base, names)

    def sample(i: int) -> Fields:
        return read(i if indices is None else operator.index(indices[i]))

    if shard_size is None:
        shard_size = _size_for(sample, count)
    elif shard_size < 1:
        raise ConfigError(f"shard_size={shard_size}: must be at least 1")
    what = {"type": type(base).__name__, "samples": count, "fields": names}
    writer = Writer(os.fspath(out), shards, shard_size, what)
    try:
        _fill(writer, sample, count, _STREAMS if listed else 0, base if listed else None)
        return writer.finish()
    finally:
        writer.close()


def _whole(dataset: Any) -> tuple[Any, Any]:
    """Returns the dataset of torch's subsets, and which of its items they have; None: all."""
    indices = None
    while (type(dataset).__module__, type(dataset).__qualname__) == _SUBSET:
        mine = dataset.indices
        indices = mine if indices is None else [mine[i] for i in indices]
        dataset = dataset.dataset
    return dataset, indices


#: A subclass, or a class that looks like it, may make other items.
_SUBSET = ("torch.utils.data.dataset", "Subset")


def _makes_items_as_hdmlp(dataset: Listed) -> bool:
    """Reports whether a dataset's items are those of a class of HDMLP, and not of a subclass."""
    methods = (getattr(type(dataset), name) for name in ("__getitem__", "__len__"))
    return all(method.__module__.partition(".")[0] == "hdmlp" for method in methods)


def _size_for(sample: Callable[[int], Fields], count: int) -> int:
    measured = min(count, _MEASURED)
    size = sum(len(data) for i in range(measured) for _, data in sample(i).fields)
    return min(max(size * count // measured // _MANY, _LEAST), _MOST)


def _fill(
    writer: Writer, sample: Callable[[int], Fields], count: int, streams: int, base: Listed | None
) -> None:
    classes = getattr(base, "classes", None)
    if classes:
        text = json.dumps(list(classes), ensure_ascii=False, indent=1)
        writer.beside(CLASSES, text.encode("utf-8", "replace") + b"\n")
    if writer.first and not writer.ends_with(sample(writer.first - 1), writer.first - 1):
        raise ConfigError(
            f"item {writer.first - 1} is not the one that an earlier run packed: the dataset has "
            "changed, or its items are random; give another directory"
        )
    progress = Progress()
    try:
        for i, made in enumerate(_ahead(sample, writer.first, count, streams), writer.first):
            writer.add(made)
            progress({"what": "packing samples", "done": i + 1, "total": count})
    finally:
        progress(None)


def _ahead(
    sample: Callable[[int], Fields], first: int, count: int, streams: int
) -> Iterator[Fields]:
    """Yields samples in order; several are read at the same time, in threads."""
    if not streams:
        yield from map(sample, range(first, count))
        return
    with ThreadPoolExecutor(streams) as pool:
        coming: collections.deque[Future[Fields]] = collections.deque()
        try:
            for i in range(first, count):
                coming.append(pool.submit(sample, i))
                if len(coming) > streams:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


# Lists of records, whose bytes are packed as they are stored.


def _of_listed(dataset: Listed, given: Sequence[str] | None) -> Callable[[int], Fields]:
    names, width = given, len(dataset.fields)
    if names is not None and len(names) != width:
        raise ConfigError(f"fields={names}: the dataset has {width} fields, {dataset.fields}")
    if names is None and not isinstance(dataset, Files):
        names = [check_field(name.lower()) for name in dataset.fields]

    keys: Sequence[str] | None = dataset._keys
    if keys is None and isinstance(dataset, Found):
        keys, _, _ = dataset._table(0)

    arrays = dataset._elements if isinstance(dataset, Typed) else {}
    if any(own.window is not None for own in arrays.values()):
        raise ConfigError("windows overlap: pack the sequences that they are cut of")
    if arrays and given is None:
        names = [f"{n}.npy" if f in arrays else n for f, n in zip(dataset.fields, names or ())]

    def read(i: int) -> Fields:
        i = dataset._index(i)
        found = []
        contents = dataset._fields_of(i)
        for number, data in enumerate(contents):
            if data is not None:
                name = names[number] if names else _name_of(dataset, number, i)
                own = arrays.get(dataset.fields[number])
                found.append((name, bytes(data) if own is None else own.npy(data)))
        taken = [name for name, _ in found]
        if len(set(taken)) < len(taken):
            raise ConfigError(
                f"record {i}: its fields would be called {', '.join(taken)}: give each a name, as "
                "in fields=('jpg', 'mask.png')"
            )
        for name, data in _besides(dataset, i, contents):
            if name in taken:
                raise ConfigError(
                    f"record {i}: a file and {'its label' if name == 'cls' else 'a value'} would "
                    f"both be called {name}: give the files other names, as in fields=('jpg',)"
                )
            found.append((name, data))
        own_key = f"{i:09d}" if arrays else _path_key(dataset, i)
        key = own_key if keys is None else keys[i]
        return Fields(clean_key(key), found)

    return read


def _name_of(dataset: Listed, number: int, i: int) -> str:
    """Returns the name of a field by its file's extension."""
    path = dataset._path_of(number, i) or ""
    extension = os.path.splitext(path)[1][1:].lower() or _BARE
    if dataset._form.kind == "dict":
        extension = f"{dataset.fields[number].lower()}.{extension}"
    return check_field(extension)


def _path_key(dataset: Listed, i: int) -> str:
    """Returns the path of a record's first file, without its extension."""
    paths = (dataset._path_of(number, i) for number in range(len(dataset.fields)))
    path = os.path.relpath(next(path for path in paths if path), dataset._path)
    return os.path.splitext(path)[0]


def _besides(
    dataset: Listed, i: int, contents: Sequence[bytes | None]
) -> Iterator[tuple[str, bytes]]:
    """Yields what a record has besides the contents of its fields: values and its label."""
    for name, column in dataset._form.columns.items():
        if not name.startswith("__"):
            value = column[i]
            suffix = "txt" if isinstance(value, str) else "json"
            field = name.lower() if "." in name else f"{name.lower()}.{suffix}"
            yield check_field(field), _encoded(field, value, f"record {i}")
    label = dataset._label_of(i, contents)
    if label is not NONE:
        field = "cls" if _integer(label) is not None else "label.json"
        yield field, _encoded(field, label, f"record {i}")


# Items of any other dataset.


def _of_items(dataset: Any, names: Sequence[str] | None) -> Callable[[int], Fields]:
    def read(i: int) -> Fields:
        item = dataset[i]
        key = f"{i:09d}"
        if isinstance(item, Mapping):
            key = str(item.get("__key__", key))
            values = {str(k): v for k, v in item.items() if not str(k).startswith("__")}
            if names is not None:
                missing = [name for name in names if name not in values]
                if missing:
                    raise ConfigError(f"item {i} has no {missing[0]!r}; it has {sorted(values)}")
                values = {name: values[name] for name in names}
        else:
            parts = list(item) if isinstance(item, (tuple, list)) else [item]
            if names is None or len(names) != len(parts):
                raise ConfigError(
                    f"item {i} has {len(parts)} values: give their names, such as "
                    f"fields={('jpg', 'cls')[: len(parts)]!r}"
                )
            values = dict(zip(names, parts))
        found: dict[str, bytes] = {}
        for name, value in values.items():
            field = check_field(name.lower())
            if field in found:
                raise ConfigError(f"item {i}: two of its fields would be called {field}")
            if value is not None:
                found[field] = _encoded(name, value, f"item {i}")
        if not found:
            raise ConfigError(f"item {i} has no fields")
        return Fields(clean_key(key), list(found.items()))

    return read


def _integer(value: Any) -> int | None:
    """Returns a value that is an integer; None: it is none."""
    if getattr(value, "ndim", 0):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _encoded(name: str, value: Any, where: str) -> bytes:
    """Returns the bytes of a value in a field of this name."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if name.endswith("json"):
        if hasattr(value, "tolist"):
            value = value.tolist()
        try:
            return json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {name!r}: {error}") from error
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{where}: {name!r}: {error}; give bytes") from error
    number = _integer(value)
    if number is not None:
        return b"%d" % number
    kind = f"{type(value).__module__}.{type(value).__name__}"
    raise ConfigError(
        f"{where}: {name!r} is a {kind}, and shards hold bytes: pack the files as they are stored "
        "(hdmlp.torch.Files, or hdmlp pack for folders), or give a dataset that encodes it"
    )
