"""Datasets, and a loader which needs neither torch nor numpy.

Example::

    import hdmlp.data

    folder = hdmlp.data.Folder("/data/train")
    loader = hdmlp.data.DataLoader(folder, batch_size=64, epochs=2, seed=1)
    for epoch in range(2):
        for samples, labels in loader:
            ...
"""

from __future__ import annotations

import operator
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from ._batches.source import Taken, column
from ._daemon import connecting
from ._daemon.reading import Reader
from ._launch import membership
from ._lib.arguments import (
    check_functions,
    check_path,
    configuration,
    is_url,
    parameters,
    settings,
    switch,
    whole_number,
)
from ._lib.progress import Progress
from ._lib.typing import Facts, Opened
from ._loading.base_loader import Loader
from ._loading.feed import Feed
from ._loading.options import Options, StreamOptions, check_shares, dealt, order_of, scheme_of
from ._records.arrays import Arrays, Typed
from ._records.declared import Declared
from ._records.directory import located, path_of, suffixes
from ._records.file_dataset import FileDataset, files_of
from ._records.files import Files
from ._records.hdf5 import HDF5
from ._records.lmdb import LMDB
from ._records.mds import MDS
from ._records.records import Listed, Records
from ._records.webdataset import WebDataset
from ._transforms.base import descriptions
from ._transforms.decode import within_pil_limit
from ._transforms.generators import generators_kept, seed_generators
from ._transforms.keys import batch_key, collate_key, place_key
from ._transforms.recipe import name_sample
from .errors import ConfigError, MismatchError, SampleError
from .transforms import describe

__all__ = [
    "HDF5",
    "LMDB",
    "MDS",
    "Arrays",
    "Batch",
    "DataLoader",
    "FileDataset",
    "Files",
    "Folder",
    "Records",
    "WebDataset",
]

#: Paths that one call fetches.
_PAGE = 10_000
#: Attributes which follow from the directory.
_FIXED = ("root", "extensions", "samples", "imgs", "targets", "classes", "class_to_idx")


class Fixed(list[Any]):
    """A list that cannot be changed, because a change would have no effect."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "this list describes the dataset's directory, and changing it would have no effect: "
            "use torch.utils.data.Subset for some of the samples, target_transform for other "
            "labels, or list(...) for a copy, which may be set as the samples of an "
            "hdmlp.torch.ImageFolder"
        )

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


class Folder:
    """A directory with one subdirectory per class, as torchvision's ``ImageFolder`` reads it.

    Sample IDs are torchvision's: they count through the classes in the order of their names, and
    through the files of a class in the order of their paths. Nothing is read before it is asked
    for; the daemon scans the directory once for all ranks. An object which has returned its length,
    classes or files stands for that version of the dataset: if it changes, a loader of the object
    raises :class:`~hdmlp.errors.MismatchError`.

    A subclass with another :attr:`kind` is a dataset of that kind of source (``hdmlp kinds`` lists
    them). Its samples need not be files: :attr:`samples` has their names instead of paths, and
    ``dataset[i]`` raises :class:`~hdmlp.errors.ConfigError`.

    Args:
        root: The directory.
        extensions: Suffixes of the files that are samples, such as ``[".jpg"]``, in upper or lower
            case. Default: torchvision's image suffixes.

    Attributes:
        root: The directory, as it was given; a leading ``~`` is the home directory.
        extensions: The suffixes, as a tuple; None: torchvision's.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: ``extensions`` is not a list of strings.
    """

    #: Name of the kind of source, as ``hdmlp kinds`` has it.
    kind = "folder"
    #: See :class:`Files`.
    leaves = may_change = False

    def __init__(self, root: str | os.PathLike[str], extensions: Sequence[str] | None = None):
        self.root = os.path.expanduser(path_of(root))
        self._path = located(self.root)
        self.extensions = suffixes(extensions)
        self._listed: Facts | None = None
        self._remote: Reader | None = None
        self._pages: dict[int, list[tuple[str, int]]] = {}
        # Lists of all samples that were asked for: scripts ask for them at each step.
        self._lists: dict[str, Any] = {}
        self._made = True

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and "_made" in self.__dict__:
            raise ConfigError(
                f"{name} cannot be set, because the daemon lists the directory: use "
                "torch.utils.data.Subset for some of the samples, target_transform for other "
                f"labels, or a {type(self).__name__} of another directory"
            )
        super().__setattr__(name, value)

    def _describe(self) -> dict[str, object]:
        """Returns the dataset as requests name it: ``kind``, ``path``, ``options``."""
        options = {} if self.extensions is None else {"extensions": list(self.extensions)}
        return {"kind": self.kind, "path": self._path, "options": options}

    def _manifest(self) -> int | None:
        """Returns None: the daemon lists the samples."""

    def _call(self, *calls: tuple[str, dict[str, int]]) -> Iterator[Any]:
        named = {**self._describe(), **settings({}, None)}
        return connecting.call([(method, {**named, **more}) for method, more in calls], Progress())

    def _told(self, opened: Opened) -> None:
        """Takes from an OPENED object what would take a call otherwise."""
        if self._listed is None and "class_sizes" in opened:
            self._listed = {
                "samples": opened["samples"],
                "classes": opened["classes"],
                "bytes": opened["bytes"],
                "fingerprint": opened["fingerprint"],
                "class_sizes": opened["class_sizes"],
            }

    def _check_version(self, fingerprint: str) -> None:
        """Checks that what this object has returned is of a version of the dataset.

        Raises:
            MismatchError: It is of another one.
        """
        mine = None if self._listed is None else self._listed["fingerprint"]
        if mine not in (None, fingerprint):
            raise MismatchError(
                f"{self._path}: the dataset changed after this object had returned its length, "
                f"classes or files: make a new {type(self).__name__}",
                {"key": "fingerprint", "mine": mine, "theirs": fingerprint},
            )

    @property
    def _facts(self) -> Facts:
        """``samples``, ``classes``, ``bytes``, ``fingerprint`` and ``class_sizes``."""
        if self._listed is None:
            (self._listed,) = self._call(("dataset", {}))
        return self._listed

    @property
    def classes(self) -> list[str]:
        """The classes' names, sorted."""
        return Fixed(self._facts["classes"])

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The classes' numbers by name."""
        return {name: i for i, name in enumerate(self._facts["classes"])}

    @property
    def targets(self) -> list[int]:
        """The class number of every sample, by ID."""
        if "targets" not in self._lists:
            sizes = enumerate(self._facts["class_sizes"])
            self._lists["targets"] = Fixed(label for label, size in sizes for _ in range(size))
        return self._lists["targets"]  # type: ignore[no-any-return]

    @property
    def samples(self) -> list[tuple[str, int]]:
        """(path, class number) of every sample, by ID.

        Fetched from the daemon with one call per 10,000 samples, then kept. Of a kind other than
        ``"folder"``, (name, class number).
        """
        if "samples" not in self._lists:
            numbers = range((len(self) + _PAGE - 1) // _PAGE)
            self._fetch(numbers)
            self._lists["samples"] = Fixed(s for number in numbers for s in self._pages[number])
        return self._lists["samples"]  # type: ignore[no-any-return]

    imgs = samples

    def _page(self, number: int) -> list[tuple[str, int]]:
        self._fetch([number])
        return self._pages[number]

    def _fetch(self, numbers: Iterable[int]) -> None:
        missing = [n for n in numbers if n not in self._pages]
        if not missing:
            return
        calls = [
            ("samples", {"from": n * _PAGE, "to": min((n + 1) * _PAGE, len(self))}) for n in missing
        ]
        pages = self._call(("dataset", {}), *calls)
        self._check_version(next(pages)["fingerprint"])
        prefix = os.path.join(self.root, "") if self._has_files() else ""
        for number, got in zip(missing, pages):
            self._pages[number] = [(prefix + path, label) for path, label in got]

    def _has_files(self) -> bool:
        """Report whether each sample is a file below ``root``, which Python can read itself."""
        return self.kind == Folder.kind

    def __len__(self) -> int:
        """Returns the number of samples."""
        return int(self._facts["samples"])

    def sample(self, index: int) -> tuple[str, int]:
        """Returns (path, class number) of one sample; (name, class number) if it is not a file.

        Args:
            index: The sample's ID; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        index, count = operator.index(index), len(self)
        if not -count <= index < count:
            raise IndexError(
                f"sample {index} is out of range: the dataset has {count} samples, 0 to {count - 1}"
            )
        index %= count
        return self._page(index // _PAGE)[index % _PAGE]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Returns (bytes, class number) of one sample.

        The file is read directly, without the daemon and its caches.

        Raises:
            IndexError: There is no such sample.
            SampleError: It is not a regular file.
        """
        path, label = self.sample(index)
        if is_url(path):
            return self._fetched(path, range(len(self))[index]), label
        if not self._has_files():
            raise ConfigError(
                f"sample {index} ({path}) of {self!r}: only the daemon reads samples of the kind "
                f"{self.kind!r}, so there is no dataset[i]; take them from a DataLoader of hdmlp"
            )
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SampleError(
                    f"sample {index} ({path}): it is not a regular file",
                    {"sample": operator.index(index), "path": path},
                )
            return file.read(), label

    def _fetched(self, path: str, index: int) -> bytes | None:
        """Returns the bytes of a sample at a URL."""
        return self._reader().read(index)[0]

    def _reader(self) -> Reader:
        """Returns what reads samples that are not in files of this machine."""
        if self._remote is None:
            self._remote = Reader({**self._describe(), **settings({}, None)}, None)
        return self._remote

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pages": {}, "_lists": {}, "_remote": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"


def _open_without_waiting(name: str, flags: int) -> int:
    """Opens a file; a FIFO without a writer must not block."""
    return os.open(name, flags | os.O_NONBLOCK)


def described(transforms: object) -> Any:
    """Returns :mod:`hdmlp.transforms` as the daemon takes them; None if there are none.

    Args:
        transforms: A list of them; or, of records of several fields, of (field, list).

    Raises:
        ConfigError: The daemon cannot carry out all of them.
    """
    if not transforms:
        return None
    if isinstance(transforms, FieldTransforms):
        return {"fields": [_described_field(name, own) for name, own in transforms]}
    try:
        return within_pil_limit(describe(transforms))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"transforms: {error}") from None


def _described_field(name: str, own: object) -> dict[str, object]:
    if not isinstance(own, Jointly):
        return {"field": name, "transforms": described(own)}
    steps = within_pil_limit(descriptions(own.transforms))
    return {"inputs": own.inputs, "transforms": steps, "mask": own.mask}


class Jointly(NamedTuple):
    """In a :class:`FieldTransforms`: transforms that are applied to several fields jointly.

    Attributes:
        inputs: ``field``, ``kind`` and, of a mask, ``type`` of each (docs/FORMATS.md).
        transforms: The daemon's.
        mask: How masks are sampled: ``"tensor"`` or ``"pil"``.
    """

    inputs: list[dict[str, str]]
    transforms: list[Any]
    mask: str


class FieldTransforms(list[Any]):
    """(field, transforms) of each field: what the daemon delivers of records of several fields."""


class Batch(NamedTuple):
    """One rank's batch.

    Attributes:
        samples: The bytes of each sample as a read-only memoryview in shared memory, which is valid
            as long as the view, or anything made of it, is kept; ``bytes(x)`` makes a copy. With
            transforms, a writable numpy array of shape (n, ...) in shared memory.
        labels: Class numbers: a numpy int64 array of shape (n,), or a list if numpy is missing. Of
            records, their labels; None if they have none.
    """

    samples: object
    labels: object


def _by_field(dataset: object, transforms: object) -> object:
    """Returns transforms that are given by field as :func:`described` takes them."""
    if not isinstance(transforms, dict):
        return transforms
    fields = dataset.fields if isinstance(dataset, Listed) else ()
    for name in transforms:
        if name not in fields:
            has = f"; the records have {', '.join(fields)}" if fields else ""
            raise ConfigError(f"transforms[{name!r}]: there is no field of that name{has}")
    return FieldTransforms((name, transforms.get(name)) for name in fields)


def _numpy() -> ModuleType | None:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


class DataLoader(Loader):
    """Delivers batches of raw samples to one rank, without torch.

    Args:
        dataset: A :class:`Folder`, :class:`Files`, :class:`Records` or :class:`FileDataset`, or a
            directory.
        batch_size: Samples per batch of this rank. Default: 1.
        shuffle: True or ``"torch"``: the order of torch's ``DistributedSampler``. ``"feistel"``:
            another random order, for very large datasets. False or ``"none"``: by ID.
            Default: True, unlike torch's.
        epochs: Epochs of the run. Default: None, no end.
        seed: The seed of the order, in [0, 2^64). Default: None, drawn by the daemon, the same on
            all ranks.
        rank: This process's rank. Default: the launcher's. Requires ``world_size``.
        world_size: The number of ranks. Default: the launcher's. Requires ``rank``.
        drop_last: If True, leave out samples that do not fill a batch on every rank. Otherwise
            ranks are padded to equal length, as by torch, and the last batch may be short.
            Default: False.
        scheme: How the ranks share a global batch (thesis 4.1.3). ``"strided"``: as torch's
            ``DistributedSampler``. ``"uniform"``: contiguous slices. ``"whole"``: each rank gets
            all of its ``batch_size`` samples. ``"imbalanced"``: a rank of the first half gets four
            times as many samples as one of the second, ``batch_size`` on average. With all but the
            first, each sample comes once per epoch. Default: ``"strided"``.
        collate_fn: Called with a list of (memoryview, int), or with transforms (array, int); of
            records, with a list of items; what it returns is the batch. Default: None, which makes
            a :class:`Batch`.
        transforms: A list of :mod:`hdmlp.transforms`, which the daemon carries out; of records of
            several fields, a dict of lists by field. Default: None, samples stay as they are.
        timeout: Seconds to wait for a batch before
            :class:`~hdmlp.errors.StallTimeoutError` is raised; 0: no limit. Default: 0.
        name: The loader's name, the same on all ranks. Default: its number in the process.
        verify: At the end of each epoch, check that all ranks together got every sample, and that
            each sample's bytes are those of its file. Each node then reads each sample that it
            delivers from the source once. A difference raises
            :class:`~hdmlp.errors.AuditError`. Default: False.
        config_file: Path of a TOML file of configuration keys. Default: None.
        **keys: Configuration keys of ``hdmlp config``, as ``memory="10GB"``; paths may be relative.

    Yields:
        A :class:`Batch`, or what ``collate_fn`` returns. Of a :class:`FileDataset`, a list of the
        items that it makes in this process.

    Raises:
        HDMLPError: See :mod:`hdmlp.errors`.
    """

    def __init__(
        self,
        dataset: Folder | Listed | FileDataset | str,
        batch_size: int = 1,
        shuffle: bool | str = True,
        *,
        epochs: int | None = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        scheme: str = "strided",
        collate_fn: Callable[[list[object]], object] | None = None,
        transforms: object = None,
        timeout: float = 0,
        name: str | None = None,
        verify: bool = False,
        config_file: str | None = None,
        **keys: object,
    ):
        if isinstance(dataset, FileDataset):
            if transforms:
                raise ConfigError("transforms: a FileDataset makes its items itself; leave it out")
            dataset = Declared(dataset, files_of(dataset))
        elif not isinstance(dataset, (Folder, Listed)):
            check_path("dataset", dataset, "a Folder, Files, Records, FileDataset or a path")
            dataset = Folder(dataset)
        check_functions(collate_fn=collate_fn)
        self._collate = collate_fn
        self._works = collate_fn is not None or isinstance(dataset, Declared)
        drop_last = switch("drop_last", drop_last)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        place = membership.find(rank, world_size)
        scheme = scheme_of("scheme", scheme)
        stream = StreamOptions(
            **dealt(scheme, self.batch_size, place.world_size, drop_last),
            shuffle=order_of(shuffle),
            epochs=epochs,
            seed=seed,
        )
        if scheme != "strided":
            check_shares(len(dataset), stream, place.world_size)
        # The rank, and the number of ranks, that random numbers of items depend on.
        self._part = (0, 1) if scheme == "whole" else place[:2]
        options = Options(
            stream,
            place,
            name=name,
            timeout=timeout,
            verify=switch("verify", verify),
            transforms=described(_by_field(dataset, transforms)),
            config=configuration(keys, parameters(type(self))),
            config_file=config_file,
        )
        super().__init__(dataset, options)
        for output in self._ready().outputs:
            if output is not None:
                output.array(None, 0)  # raises here rather than in the first epoch

    def _make(self, feed: Feed, taken: Taken) -> object:
        if isinstance(self.dataset, Declared):
            return self._make_items(self.dataset, feed, taken)
        if isinstance(self.dataset, Listed):
            return self._make_records(self.dataset, feed, taken)
        output, content = feed.stream.output, taken.content
        if output is not None:
            content = output.array(content, taken.n)
        if self._collate is not None:
            samples = content if output is None else output.items(content)
            items = list(zip(samples, column(taken.payload, taken.n, "labels")))
            return self._collated(items, taken)
        numpy = _numpy()
        if numpy is None:
            return Batch(content, column(taken.payload, taken.n, "labels"))
        return Batch(content, numpy.frombuffer(taken.payload, numpy.int64, taken.n, 32))

    def _collated(self, items: list[Any], taken: Taken) -> object:
        assert self._collate is not None
        with generators_kept():
            seed_generators(collate_key(self.seed, taken.epoch, taken.step, self._part[0]))
            return self._collate(items)

    def _make_items(self, files: Declared, feed: Feed, taken: Taken) -> object:
        """Makes a batch of a dataset that makes items itself: a list of them."""
        assert isinstance(files.of, FileDataset)
        contents = taken.content if len(feed.stream.outputs) > 1 else [taken.content]
        items: list[object] = []
        with generators_kept():
            base = batch_key(self.seed, taken.epoch, taken.step)
            rank, world_size = self._part
            ids = column(taken.payload, taken.n, "ids")
            for place, (sample, fields) in enumerate(zip(ids, zip(*contents))):
                seed_generators(place_key(base, place * world_size + rank))
                try:
                    items.append(files.of.make(sample, *(f for f in fields if f is not None)))
                except Exception as error:
                    name_sample(error, sample)
                    raise
        return items if self._collate is None else self._collated(items, taken)

    def _make_records(self, dataset: Listed, feed: Feed, taken: Taken) -> object:
        """Makes a batch of records: :class:`Batch`, whose samples have the form of an item."""
        outputs = feed.stream.outputs
        contents = taken.content if len(outputs) > 1 else [taken.content]
        values: list[Any] = [
            content if output is None else output.array(content, taken.n)
            for content, output in zip(contents, outputs)
        ]
        ids = column(taken.payload, taken.n, "ids")
        if self._collate is not None:
            columns = [
                value if output is None else output.items(value)
                for value, output in zip(values, outputs)
            ]
            items = [
                dataset._form.item([own[i] for own in columns], sample, dataset._label(sample))
                for i, sample in enumerate(ids)
            ]
            return self._collated(items, taken)
        if isinstance(dataset, Typed):
            values = dataset._batch(values)
        samples = dataset._form.batch(values, ids)
        if dataset._labels is None:
            return Batch(samples, None)
        labels = [dataset._labels[i] for i in ids]
        numpy = _numpy()
        if numpy is None or dataset._labels.kind == "object":
            return Batch(samples, labels)
        return Batch(samples, numpy.asarray(labels))
