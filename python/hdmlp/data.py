"""Datasets, and a loader that needs neither torch nor numpy.

    dataset = hdmlp.data.Folder("/data/train")
    loader = hdmlp.data.DataLoader(dataset, batch_size=64, epochs=2, seed=1)
    for epoch in range(2):
        for samples, labels in loader:
            ...

Rank and world size come from the launcher.
"""

from __future__ import annotations

import operator
import os
import stat
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from . import _daemon, _launcher
from ._arguments import configuration, parameters, settings, whole_number
from ._feed import Feed
from ._loader import Loader
from ._options import Options, StreamOptions, order_of
from ._progress import Progress
from ._source import Taken, column
from ._view import patiently
from .errors import ConfigError, DatasetNotFoundError, MismatchError, SampleError
from .transforms import describe

__all__ = ["Batch", "DataLoader", "Folder"]

#: Seconds for which a dataset looks whether its directory is there.
_LOOK = 2.0
#: Paths that one call brings.
_PAGE = 10_000
#: What a dataset tells, and is not told.
_TOLD = ("root", "extensions", "samples", "imgs", "targets", "classes", "class_to_idx")


class Fixed(list):
    """A list that cannot be changed, because nothing would come of it."""

    def _refuse(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            "this list says what is in the dataset's directory, and changing it would change nothing: use torch.utils.data.Subset "
            "for some of the samples, target_transform for other labels, or list(...) for a copy"
        )

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return list, (list(self),)


class Folder:
    """A directory with one sub-directory per class, as torchvision's ``ImageFolder`` reads it.

    Sample IDs count through the classes in the order of their names, and through
    the files of a class in the order of their paths: torchvision's numbering.
    Nothing is read before it is asked for; the daemon scans the directory once for all ranks. An object that has told its
    length, classes or files stands for that version of the dataset: once it changed, a loader of the object raises.

    A subclass with another :attr:`kind` is a dataset of that kind of source (``hdmlp kinds`` lists
    them). Its samples need not be files: :attr:`samples` has their names instead of paths, and
    ``dataset[i]`` raises :class:`~hdmlp.errors.ConfigError`.

    Args:
        root: the directory.
        extensions: suffixes of the files that are samples, such as ``[".jpg"]``, upper or lower
            case; None: torchvision's image suffixes.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: ``extensions`` is not a list of texts.
    """

    #: Name of the kind of source, as ``hdmlp kinds`` has it.
    kind = "folder"

    def __init__(
        self, root: Union[str, "os.PathLike[str]"], extensions: Optional[Sequence[str]] = None
    ):
        self.root = os.fsdecode(root)
        if not self.root:
            raise DatasetNotFoundError(
                "root='': an empty path names no directory; give '.' for the current one"
            )
        path = os.path.expanduser(self.root)
        if not os.path.isabs(path):
            try:
                path = os.path.join(os.getcwd(), path)
            except FileNotFoundError:
                raise DatasetNotFoundError(
                    f"{self.root}: a relative path, and the current directory was deleted; give an absolute one"
                ) from None
        # What ".." leads to behind a symbolic link is for the system to say.
        self._path = os.path.realpath(path) if ".." in path.split(os.sep) else os.path.abspath(path)
        try:
            known = patiently(self._path, lambda: os.path.isdir(self._path), timeout=_LOOK)
        except OSError:  # the file system does not answer: a loader waits for it as long as it is to, and says so
            known = True
        if not known:
            raise DatasetNotFoundError(f"{self.root}: there is no such directory")
        if isinstance(extensions, str):
            extensions = [extensions]
        if extensions is not None and not all(isinstance(e, str) and e for e in extensions):
            raise ConfigError(
                f"extensions={extensions!r}: must be a list of suffixes such as '.jpg'"
            )
        self.extensions = None if extensions is None else tuple(extensions)
        self._facts: Optional[Dict[str, Any]] = None
        self._pages: Dict[int, List[Tuple[str, int]]] = {}
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TOLD and "_made" in self.__dict__:
            raise ConfigError(
                f"{name} cannot be set, because the daemon lists the directory: use torch.utils.data.Subset for some of the samples, "
                f"target_transform for other labels, or a {type(self).__name__} of another directory"
            )
        super().__setattr__(name, value)

    def describe(self) -> Dict[str, Any]:
        """The dataset as requests name it: ``kind``, ``path``, ``extensions``."""
        extensions = None if self.extensions is None else list(self.extensions)
        return {"kind": self.kind, "path": self._path, "extensions": extensions}

    def _call(self, *calls: Tuple[str, Dict[str, Any]]) -> Iterator[Any]:
        named = {**self.describe(), **settings({}, None)}
        return _daemon.call([(method, {**named, **more}) for method, more in calls], Progress())

    def told(self, opened: Dict[str, Any]) -> None:
        """Takes from OPENED what a call would bring."""
        if self._facts is None and "class_sizes" in opened:
            self._facts = {
                key: opened[key]
                for key in ("samples", "classes", "bytes", "fingerprint", "class_sizes")
            }

    def check_version(self, fingerprint: str) -> None:
        """Raises MismatchError if what this object has told of the dataset is not of that version of it."""
        mine = None if self._facts is None else self._facts["fingerprint"]
        if mine not in (None, fingerprint):
            raise MismatchError(
                f"{self._path}: the dataset changed after this object had told its length, classes or files: make a new {type(self).__name__}",
                {"key": "fingerprint", "mine": mine, "theirs": fingerprint},
            )

    @property
    def facts(self) -> Dict[str, Any]:
        """What the daemon knows: ``samples``, ``classes``, ``bytes``, ``fingerprint``, ``class_sizes``."""
        if self._facts is None:
            (self._facts,) = self._call(("dataset", {}))
        return self._facts

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
        return Fixed(self.facts["classes"])

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """From a class's name to its number."""
        return {name: i for i, name in enumerate(self.facts["classes"])}

    @property
    def targets(self) -> List[int]:
        """The class number of every sample, by ID."""
        return Fixed(
            label for label, size in enumerate(self.facts["class_sizes"]) for _ in range(size)
        )

    @property
    def samples(self) -> List[Tuple[str, int]]:
        """(path, class number) of every sample, by ID. One call per 10,000 samples, then kept.

        Of a kind other than ``"folder"``, (name, class number).
        """
        self._fetch(range((len(self) + _PAGE - 1) // _PAGE))
        return Fixed(sample for number in sorted(self._pages) for sample in self._pages[number])

    imgs = samples

    def _page(self, number: int) -> List[Tuple[str, int]]:
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
        self.check_version(next(pages)["fingerprint"])
        prefix = os.path.join(self.root, "") if self._has_files() else ""
        for number, got in zip(missing, pages):
            self._pages[number] = [(prefix + path, label) for path, label in got]

    def _has_files(self) -> bool:
        """Report whether each sample is a file below ``root``, which Python can read itself."""
        return self.kind == Folder.kind

    def __len__(self) -> int:
        """The number of samples, F."""
        return int(self.facts["samples"])

    def sample(self, index: int) -> Tuple[str, int]:
        """(path, class number) of one sample; (name, class number) if it is not a file."""
        index, count = operator.index(index), len(self)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of {count}")
        index %= count
        return self._page(index // _PAGE)[index % _PAGE]

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        """(bytes, class number) of one sample, read from its file, past the daemon and its caches."""
        path, label = self.sample(index)
        if not self._has_files():
            raise ConfigError(
                f"sample {index} ({path}) of {self!r}: only the daemon reads samples of the kind "
                f"{self.kind!r}, so there is no dataset[i]; take them from a DataLoader of hdmlp"
            )
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:  # a FIFO must not keep us
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SampleError(
                    f"sample {index} ({path}): it is not a regular file",
                    {"sample": operator.index(index), "path": path},
                )
            return file.read(), label

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_pages": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"


def described(transforms: Any) -> Optional[List[Dict[str, Any]]]:
    """A list of :mod:`hdmlp.transforms` as the daemon takes it; None for no transforms.

    Raises:
        ConfigError: it has others, which the daemon can not carry out.
    """
    if not transforms:
        return None
    try:
        return describe(transforms)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"transforms: {error}") from None


class Batch(NamedTuple):
    """One rank's batch.

    Attributes:
        samples: the bytes of each sample, read-only, where they lie in shared memory: valid for
            as long as the view, or anything made of it, is kept. ``bytes(x)`` makes a copy. With transforms a
            numpy array of shape (n, ...), writable, which lies there as well.
        labels: class numbers: a numpy int64 array of shape (n,), or a list where numpy is missing.
    """

    samples: Any
    labels: Any


def _numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy


class DataLoader(Loader):
    """Feeds one rank with batches of raw samples, without torch.

    Args:
        dataset: a :class:`Folder`, or a directory.
        batch_size: samples per batch of this rank.
        shuffle: True or ``"torch"``: the order of torch's ``DistributedSampler``; ``"feistel"``: another
            random order, for very large datasets; False or ``"none"``: by ID.
        epochs: epochs of the run; None: no end.
        seed: of the order, in [0, 2^64); None: drawn by the daemon, the same on all ranks.
        rank, world_size: both or neither; by default the launcher's.
        drop_last: leave out what does not fill a batch on every rank. Otherwise ranks are padded
            to equal length, as torch does, and the last batch may be short.
        collate_fn: called with a list of (memoryview, int), with transforms of (array, int); what it returns is the batch.
        transforms: a list of :mod:`hdmlp.transforms`, which the daemon carries out; None: samples stay as they are.
        timeout: seconds to wait for a batch before :class:`~hdmlp.errors.StallTimeoutError`; 0: for ever.
        name: the loader's name, the same on all ranks; by default its number in the process.
        verify: check at the end of each epoch that all ranks together got every sample, and of every sample that its bytes are those of
            its file: each node reads each sample that it delivers from the source once (:class:`AuditError`).
        config_file: a TOML file of configuration keys.
        **keys: configuration keys, such as ``memory="10GB"``; ``hdmlp config`` lists them.

    Raises:
        HDMLPError: see :mod:`hdmlp.errors`.
    """

    def __init__(
        self,
        dataset: Union[Folder, str],
        batch_size: int = 1,
        shuffle: Union[bool, str] = True,
        *,
        epochs: Optional[int] = None,
        seed: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        drop_last: bool = False,
        collate_fn: Optional[Callable] = None,
        transforms: Any = None,
        timeout: float = 0,
        name: Optional[str] = None,
        verify: bool = False,
        config_file: Optional[str] = None,
        **keys: Any,
    ):
        if not isinstance(dataset, Folder):
            dataset = Folder(dataset)
        self._collate, self._works = collate_fn, collate_fn is not None
        self.batch_size = whole_number("batch_size", batch_size, 1)
        place = _launcher.find(rank, world_size)
        stream = StreamOptions(
            self.batch_size * place.world_size,
            shuffle=order_of(shuffle),
            epochs=epochs,
            seed=seed,
            tail="drop" if drop_last else "pad",
            drop_last=bool(drop_last),
        )
        options = Options(
            stream,
            place,
            name=name,
            timeout=timeout,
            verify=bool(verify),
            transforms=described(transforms),
            config=configuration(keys, parameters(type(self))),
            config_file=config_file,
        )
        super().__init__(dataset, options)
        if self.output is not None:
            self.output.array(None, 0)  # says whether numpy can have it

    def _make(self, feed: Feed, taken: Taken) -> Any:
        output = feed.stream.output
        if output is not None:
            taken = taken._replace(content=output.array(taken.content, taken.n))
        if self._collate is not None:
            return self._collate(list(zip(taken.content, column(taken.payload, taken.n, "labels"))))
        numpy = _numpy()
        if numpy is None:
            return Batch(taken.content, column(taken.payload, taken.n, "labels"))
        return Batch(taken.content, numpy.frombuffer(taken.payload, numpy.int64, taken.n, 32))
