"""WebDataset's tar shards, read by ranges: any order, and each byte once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from .._lib.arguments import check_path, is_url
from ..errors import ConfigError
from .decoders import number
from .directory import check_url, located
from .form import Form
from .found import Chosen, Found
from .labels import Labels
from .manifest import common_url, objects_at

_SPECIAL = "*?[{"


def patterns_of(urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths of shards, with braces and wildcards, as a list.

    Raises:
        ConfigError: One is no path, nor a URL of an object.
        DatasetNotFoundError: HDMLP does not read URLs of that kind.
    """
    if isinstance(urls, (str, bytes, os.PathLike)):
        urls = os.fsdecode(urls).split("::")
    if isinstance(urls, Mapping) or not isinstance(urls, Iterable):
        raise ConfigError(f"urls={urls!r}: must be a path, or a list of paths")
    patterns = []
    for url in urls:
        check_path("urls", url)
        patterns.append(os.fsdecode(url))
    if not patterns:
        raise ConfigError("urls: the list is empty")
    for pattern in patterns:
        if pattern.startswith("pipe:"):
            raise ConfigError(
                f"urls={pattern!r}: a command's output can only be read from its beginning, and "
                "HDMLP reads ranges: give the paths of files"
            )
        if pattern.startswith("file:"):
            raise ConfigError(f"urls={pattern!r}: give the path without file:")
        if "${" in pattern:
            raise ConfigError(
                f"urls={pattern!r}: variables are not replaced: use os.path.expandvars"
            )
        if not pattern:
            raise ConfigError("urls: an empty path")
        at_url = is_url(pattern)
        if at_url:
            check_url(pattern)
        if pattern.endswith("/") or (not at_url and os.path.isdir(os.path.expanduser(pattern))):
            raise ConfigError(
                f"urls={pattern!r}: it is a directory: give the names of its shards, such as "
                f"{os.path.join(pattern, '*.tar')!r}"
            )
    return patterns


def names_of(fields: object) -> list[str] | None:
    """Returns the argument ``fields`` as a list of names; None: all.

    Raises:
        ConfigError: It is something else, or has no names.
    """
    if isinstance(fields, str):
        fields = fields.split()
    if fields is None:
        return None
    if not isinstance(fields, Sequence) or not all(isinstance(name, str) for name in fields):
        raise ConfigError(f"fields={fields!r}: must be a list of names, such as ('jpg;png', 'cls')")
    if not fields:
        raise ConfigError("fields: the list is empty; leave it out for all fields")
    return list(fields)


def below(patterns: Sequence[str]) -> tuple[str, str, list[str]]:
    """Returns what shards have in common, as given and absolute, and their paths below it.

    Args:
        patterns: The paths, with braces and wildcards.
    """
    heads, tails = [], []
    for pattern in patterns:
        special = min((pattern.find(c) for c in _SPECIAL if c in pattern), default=len(pattern))
        cut = pattern.rfind("/", 0, special) + 1
        heads.append(pattern[:cut])
        tails.append(pattern[cut:])
    absolute = [located(head or ".") for head in heads]
    at_url = any(map(is_url, absolute))
    root = common_url(absolute) if at_url else os.path.commonpath(absolute)
    given = heads[0] if len(set(heads)) == 1 else os.path.join(root, "")
    under = [
        tail if directory == root else f"{os.path.relpath(directory, root)}/{tail}"
        for directory, tail in zip(absolute, tails)
    ]
    return given, root, list(objects_at(root, under))


def index_of(index: str | os.PathLike[str] | None) -> str:
    """Returns the argument ``index`` as the daemon takes it; empty: there is none."""
    if index is None:
        return ""
    check_path("index", index)
    text = os.fsdecode(index)
    if is_url(text):
        check_url(text)
        return text
    return os.path.abspath(os.path.expanduser(text))


class WebDataset(Found):
    """Tar files by WebDataset's rules, in any order.

    Members that follow one another and have the same name up to the first dot after the last slash,
    the key, are the fields of a sample; the rest of the name, in lower case, is a field's name.
    Samples have the order of the shards, and in each that of its members. The headers are read
    once; the index is kept beside the shards or, if that is not possible, in the user's cache.

    Args:
        urls: The paths of the shards, or URLs (``s3://``, ``https://``): one or a list, with braces
            (``{000..099}``, ``{a,b}``) and wildcards (``*``, ``?``), in this order; those that a
            wildcard stands for are sorted.
        fields: The fields of items: names, of which ``"jpg;png"`` is the first that a sample has.
            Items are then tuples in this order. Default: None, all, and items are dicts with
            ``"__key__"`` and ``"__url__"``.
        missing: What becomes of samples that lack one of ``fields``: ``"raise"``, ``"skip"``, or
            None: they have None there. Default: ``"raise"``.
        targets: The name of a field of at most 64 bytes whose values are :attr:`targets`, before
            any sample is read. Default: ``"cls"``, if there is such a field.
        index: An index that ``hdmlp dataset --index`` has made of these shards, so that their
            headers are not read: a file that all nodes see, or the URL of an object. One that is of
            other versions of the shards is not used, and a line says so. Default: None.

    Raises:
        ConfigError: An argument is wrong.
        DatasetNotFoundError: A directory is missing.
    """

    kind: ClassVar[str] = "webdataset"

    def __init__(
        self,
        urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Sequence[str] | None = None,
        *,
        missing: str | None = "raise",
        targets: str = "cls",
        index: str | os.PathLike[str] | None = None,
    ):
        if missing not in ("raise", "skip", None):
            raise ConfigError(f"missing={missing!r}: allowed: 'raise', 'skip', None")
        fields = names_of(fields)
        self.urls = patterns_of(urls)
        self._given, self._root, self._patterns = below(self.urls)
        self._index_at = index_of(index)
        self._missing, self._targets = missing, targets
        self._choose(fields)

    def _choose(self, fields: list[str] | None) -> None:
        """Lists the samples with these fields; None: all."""
        self._chosen = fields
        options: dict[str, object] = {"objects": self._patterns}
        if self._targets != "cls":  # which is the first one by default
            options["values"] = [self._targets]
        if fields is not None:
            options["fields"] = fields
            options["missing"] = self._missing or "none"
        if self._index_at:
            options["index"] = self._index_at
        facts = self._find(self._root, options)
        names = list(facts["fields"])
        form = Form("dict" if fields is None else "tuple", names, omits=True)
        self._settle(form, facts)
        self._values: Labels | None = None
        if fields is None or self._targets in names:
            self._load(form)

    def _load(self, form: Form) -> None:
        """Asks for the keys and values of all samples."""
        keys, shards, (values,) = self._table(1)
        self.__dict__["_keys"] = keys
        if form.kind == "dict":
            urls = [self._given + name for name in self._names_below()]
            form.columns = {"__key__": keys, "__url__": Chosen(urls, shards)}
        if self._targets in form.fields:
            self._values = _numbers(values)

    def _names_below(self) -> list[str]:
        base = located(self._given or ".")
        return [
            os.path.relpath(os.path.join(self._files.root, name), base)
            for name in self._files.names
        ]

    @property
    def targets(self) -> list[object]:
        """The value of the field ``targets`` of every sample, by ID.

        Integers if all are, else texts; None where a sample does not have the field.

        Raises:
            AttributeError: There is no such field, or a value has more than 64 bytes.
        """
        if self._values is None:
            raise AttributeError(
                f"the samples have no field {self._targets!r}: give targets= the name of a field "
                "of at most 64 bytes"
            )
        listed = self._values.listed()
        field = self.fields.index(self._targets)
        for i in [i for i, value in enumerate(listed) if value == ""]:
            length = self._range(field, i)[2]
            if length > 0:
                raise AttributeError(
                    f"sample {self.key(i)!r}: its {self._targets} has {length} bytes, and targets "
                    "at most 64: give targets= the name of another field"
                )
            listed[i] = None if length < 0 else ""
        return _as_integers(listed)

    @property
    def classes(self) -> list[str]:
        """The names of the classes: none, as shards have no names for numbers."""
        return []

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.urls[:2])) + (", ..." if len(self.urls) > 2 else "")
        return f"{type(self).__name__}({shown})"


def _numbers(values: Sequence[str]) -> Labels:
    """Returns values as labels: integers if all are, else texts."""
    try:
        return Labels([_integer(value) for value in values])
    except ValueError:
        return Labels.of_objects(values)


def _as_integers(values: list[object]) -> list[object]:
    """Returns values with their texts as integers, if all of them are."""
    try:
        return [_integer(value) if isinstance(value, str) else value for value in values]
    except ValueError:
        return values


def _integer(text: str) -> int:
    """Returns the integer that a text says, by the rules of ``decode``."""
    return number(os.fsencode(text))


_SHUFFLE = "give shuffle=True to hdmlp.torch.DataLoader: it shuffles all samples, not a buffer"
_BATCH = "give batch_size= to hdmlp.torch.DataLoader"
_RESAMPLE = "give a torch.utils.data.RandomSampler(dataset, replacement=True) as sampler="
_SPLIT = "give shard=True, or a DistributedSampler, to hdmlp.torch.DataLoader"
_SUBSET = "use torch.utils.data.Subset, or filter .targets"
_AGAIN = "iterate the loader again; an epoch has every sample once"
_CACHE = "give memory= or cache_dir= to hdmlp.torch.DataLoader, which caches by itself"
_ON_ERROR = "give on_error= to hdmlp.torch.DataLoader"
_LOADER = "give loader={field: function}, which is given the bytes"

#: Arguments of webdataset's class, and what stands for them here.
ARGUMENTS = {
    "handler": _ON_ERROR,
    "mode": _RESAMPLE,
    "resampled": _RESAMPLE,
    "repeat": _AGAIN,
    "shardshuffle": _SHUFFLE,
    "detshuffle": f"{_SHUFFLE}, and seed= is that of the order",
    "seed": "give seed= to hdmlp.torch.DataLoader",
    "cache_size": _CACHE,
    "cache_dir": _CACHE,
    "url_to_name": _CACHE,
    "nodesplitter": _SPLIT,
    "workersplitter": "leave it out: workers never have the same samples",
    "select_files": "give fields=, the names of the fields that items have",
    "rename_files": "use rename, which gives the fields of items other names",
    "empty_check": "leave it out: shards without samples are an error",
    "verbose": "leave it out: loader.report() says what was read",
}
#: Its methods that there are not.
METHODS = {
    "shuffle": _SHUFFLE,
    "batched": _BATCH,
    "unbatched": "leave batch_size at 1, or iterate the dataset",
    "listed": f"{_BATCH}, and collate_fn=list",
    "unlisted": "leave batch_size at 1, or iterate the dataset",
    "select": _SUBSET,
    "slice": f"{_SUBSET}, as Subset(dataset, range(100))",
    "rsample": "give a torch.utils.data.SubsetRandomSampler as sampler=",
    "repeat": _AGAIN,
    "with_epoch": _AGAIN,
    "with_length": "leave it out: len(dataset) is known",
    "resampled": _RESAMPLE,
    "shardshuffle": _SHUFFLE,
    "nodesplitter": _SPLIT,
    "map_dict": "use map with a function of the dict, or give transform={field: function}",
    "rename_keys": "use rename, which takes names of fields",
    "extract_keys": "use to_tuple, which takes names of fields",
    "xdecode": _LOADER,
    "log_keys": "use map with a function that logs item['__key__']",
    "mcached": _CACHE,
    "lmdb_cached": _CACHE,
    "compose": "use map: a stage is a function of an item here, and not of an iterator",
    "append": "use map: a stage is a function of an item here, and not of an iterator",
}
#: Arguments of its methods that there are not.
OPTIONS = {
    "handler": _ON_ERROR,
    "pre": _LOADER,
    "post": _LOADER,
    "partial": "leave it out: decode is called once for a field, which then is bytes",
    "missing_is_error": "give missing=None to the dataset: items then have None",
    "none_is_error": "give missing= to the dataset",
}
