"""WebDataset's tar shards, read by ranges: any order, and each byte once."""

from __future__ import annotations

import array
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .._daemon import connecting
from .._lib.arguments import is_url, settings
from .._lib.progress import Progress
from .._lib.typing import Opened
from ..errors import ConfigError, MismatchError
from .directory import located
from .form import NONE, Form
from .labels import Labels
from .manifest import Located, Ranges
from .records import Listed

#: Records that one call lists.
_PAGE = 10_000
_SPECIAL = "*?[{"


class Texts(Sequence[str]):
    """Texts by number, in one piece of memory.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Sequence[str] = ()):
        self._ends, self._bytes = array.array("Q"), bytearray()
        self.extend(texts)

    def extend(self, texts: Sequence[str]) -> None:
        """Adds texts."""
        for text in texts:
            self._bytes += os.fsencode(text)
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        begin = self._ends[index - 1] if index else 0
        return os.fsdecode(bytes(self._bytes[begin : self._ends[index]]))


class Chosen(Sequence[str]):
    """One of a few texts for each number.

    Args:
        texts: The texts.
        numbers: Which of them, by number.
    """

    def __init__(self, texts: Sequence[str], numbers: Sequence[int]):
        self._texts, self._numbers = texts, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._texts[self._numbers[index]]


def patterns_of(urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths of shards, with braces and wildcards, as a list.

    Raises:
        ConfigError: One is no path of a file system.
    """
    if isinstance(urls, (str, bytes, os.PathLike)):
        urls = os.fsdecode(urls).split("::")
    patterns = [os.fsdecode(url) for url in urls]
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
        if is_url(pattern):
            raise ConfigError(
                f"urls={pattern!r}: a URL, and HDMLP reads files: mount what it names, for example "
                "with rclone mount, and give the paths"
            )
        if not pattern:
            raise ConfigError("urls: an empty path")
    return patterns


def below(patterns: Sequence[str]) -> tuple[str, str, list[str]]:
    """Returns the directory that shards have in common, as given and absolute, and their paths.

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
    root = os.path.commonpath(absolute)
    given = heads[0] if len(set(heads)) == 1 else os.path.join(root, "")
    under = [
        tail if directory == root else f"{os.path.relpath(directory, root)}/{tail}"
        for directory, tail in zip(absolute, tails)
    ]
    return given, root, under


class WebDataset(Listed):
    """Tar files by WebDataset's rules, in any order.

    Members that follow one another and have the same name up to the first dot after the last slash,
    the key, are the fields of a sample; the rest of the name, in lower case, is a field's name.
    Samples have the order of the shards, and in each that of its members. The headers are read
    once; the index is kept beside the shards or, if that is not possible, in the user's cache.

    Args:
        urls: The paths of the shards: a path or a list, with braces (``{000..099}``, ``{a,b}``) and
            wildcards (``*``, ``?``), in this order; those that a wildcard stands for are sorted.
        fields: The fields of items: names, of which ``"jpg;png"`` is the first that a sample has.
            Items are then tuples in this order. Default: None, all, and items are dicts with
            ``"__key__"`` and ``"__url__"``.
        missing: What becomes of samples that lack one of ``fields``: ``"raise"``, ``"skip"``, or
            None: they have None there. Default: ``"raise"``.
        targets: The name of a field of at most 64 bytes whose values are :attr:`targets`, before
            any sample is read. Default: ``"cls"``, if there is such a field.

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
    ):
        if missing not in ("raise", "skip", None):
            raise ConfigError(f"missing={missing!r}: allowed: 'raise', 'skip', None")
        if isinstance(fields, str):
            fields = fields.split()
        self.urls = patterns_of(urls)
        self._given, root, self._patterns = below(self.urls)
        self._chosen = None if fields is None else [str(name) for name in fields]
        self._missing, self._targets = missing, targets
        options: dict[str, object] = {"objects": self._patterns, "values": [targets]}
        if self._chosen is not None:
            options["fields"] = self._chosen
            options["missing"] = missing or "none"
        self._options = options
        facts = self._ask(root, options)
        names = list(facts["fields"])
        self._count = int(facts["samples"])
        files = Located(root, list(facts["objects"]), ())
        form = Form("dict" if self._chosen is None else "tuple", names, omits=True)
        self._values = targets in names
        self._pages: dict[int, list[list[list[int]]]] = {}
        self._set(files, form, [Ranges(array.array("i")) for _ in names], None)
        self._listed = {"fingerprint": facts["fingerprint"], "bytes": facts["bytes"]}
        if self._chosen is None or self._values:
            self._load(form)

    def _load(self, form: Form) -> None:
        """Asks for the keys and values of all samples."""
        keys, shards, values = Texts(), array.array("i"), []
        for page in self._list(ranges=False):
            keys.extend(page["keys"])
            shards.extend(page["objects"])
            values += page["values"][0]
        if len(keys) != self._count:
            raise self._changed()
        self.__dict__["_keys"] = keys
        if form.kind == "dict":
            urls = [self._given + name for name in self._names_below()]
            form.columns = {"__key__": keys, "__url__": Chosen(urls, shards)}
        if self._values:
            self.__dict__["_classes_of"] = Labels(_numbers(values))

    def _names_below(self) -> list[str]:
        base = located(self._given or ".")
        return [
            os.path.relpath(os.path.join(self._files.root, name), base)
            for name in self._files.names
        ]

    def _changed(self) -> MismatchError:
        return MismatchError(
            f"{self!r}: its shards changed while it was opened: make a new {type(self).__name__}"
        )

    # Requests.

    @staticmethod
    def _ask(root: str, options: Mapping[str, object]) -> Any:
        params = {"kind": "webdataset", "path": root, "options": options, **settings({}, None)}
        (facts,) = connecting.call([("dataset", params)], Progress())
        return facts

    def _list(self, ranges: bool, only: int | None = None) -> Iterator[Any]:
        """Yields pages of records: their keys, shards, values and, if asked for, ranges."""
        params = {**self._describe(), **settings({}, None), "ranges": ranges}
        first = range((self._count + _PAGE - 1) // _PAGE) if only is None else [only]
        calls = [("dataset", {**self._describe(), **settings({}, None)})]
        for page in first:
            end = min((page + 1) * _PAGE, self._count)
            calls.append(("records", {**params, "from": page * _PAGE, "to": end}))
        answers = iter(connecting.call(calls, Progress()))
        self._check_version(next(answers)["fingerprint"])
        yield from answers

    def _describe(self) -> dict[str, object]:
        """Returns the dataset as requests name it: ``kind``, ``path``, ``options``."""
        return {"kind": self.kind, "path": self._path, "options": self._options}

    def _manifest(self) -> int | None:
        """Returns None: the daemon finds the samples."""

    def _told(self, opened: Opened) -> None:
        """Takes what OPENED says of the dataset, which is known."""

    # What there is.

    def __len__(self) -> int:
        """Returns the number of samples."""
        return self._count

    @property
    def targets(self) -> list[object]:
        """The value of the field ``targets`` of every sample, by ID; an integer if all are.

        Raises:
            AttributeError: There is no such field.
        """
        if not self._values:
            raise AttributeError(
                f"the samples have no field {self._targets!r}: give targets= the name of a field "
                "of at most 64 bytes"
            )
        found: Labels = self.__dict__["_classes_of"]
        return found.listed()

    @property
    def classes(self) -> list[str]:
        """The names of the classes: none, as shards have no names for numbers."""
        return []

    def _range(self, field: int, index: int) -> list[int]:
        number = index // _PAGE
        if number not in self._pages:
            self._pages[number] = next(self._list(ranges=True, only=number))["ranges"]
        return self._pages[number][index % _PAGE][field]

    def _path_of(self, field: int, index: int) -> str | None:
        shard, _, length = self._range(field, index)
        if length < 0:
            return None
        return os.path.join(self._files.root, self._files.names[shard])

    def _place(self, field: int, index: int) -> tuple[int, int]:
        _, offset, length = self._range(field, index)
        return offset, length

    def _label(self, index: int) -> object:
        return NONE

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_pages": {}}

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.urls[:2])) + (", ..." if len(self.urls) > 2 else "")
        return f"{type(self).__name__}({shown})"


def _numbers(values: Sequence[str]) -> Sequence[object]:
    """Returns values as integers if all are."""
    try:
        return [int(value) for value in values]
    except ValueError:
        return values


#: Names of webdataset's arguments and methods, and what stands for them here.
COUNTERPARTS = {
    "shuffle": "give shuffle=True to hdmlp.torch.DataLoader: it shuffles all samples, not a buffer",
    "shardshuffle": "give shuffle=True to hdmlp.torch.DataLoader: it shuffles all samples",
    "batched": "give batch_size= to hdmlp.torch.DataLoader",
    "resampled": "give a torch.utils.data.RandomSampler(dataset, replacement=True) as sampler=",
    "nodesplitter": "give shard=True, or a DistributedSampler, to hdmlp.torch.DataLoader",
    "workersplitter": "leave it out: workers never have the same samples",
    "cache_dir": "give cache_dir= to hdmlp.torch.DataLoader",
    "handler": "give on_error= to hdmlp.torch.DataLoader",
    "with_epoch": "leave it out: an epoch has every sample once",
    "with_length": "leave it out: len(dataset) is known",
    "select": "use torch.utils.data.Subset, or filter .targets",
    "unbatched": "leave batch_size at 1, or iterate the dataset",
}
