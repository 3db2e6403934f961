"""Datasets, and a loader that needs neither torch nor numpy.

    import hdmlp.data
    loader = hdmlp.data.DataLoader(hdmlp.data.Folder("/data/train"), batch_size=64, epochs=2, seed=1)
    for epoch in range(2):
        for samples, labels in loader:
            ...
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _daemon
from ._arguments import settings, whole_number
from ._loader import Loader
from ._progress import Progress
from ._stream import Taken, column
from .errors import ConfigError, DatasetNotFoundError
from .transforms import describe

__all__ = ["Batch", "DataLoader", "Folder"]

#: Paths that one call brings.
_PAGE = 10_000


class Folder:
    """A directory with one sub-directory per class, as torchvision's ``ImageFolder`` reads it.

    Sample IDs count through the classes in the order of their names, and through
    the files of a class in the order of their paths: torchvision's numbering.
    Nothing is read before it is asked for; the daemon scans the directory once for all ranks.

    Args:
        root: the directory.
        extensions: suffixes of the files that are samples, such as ``[".jpg"]``, upper or lower
            case; None: torchvision's image suffixes.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: ``extensions`` is not a list of texts.
    """

    kind = "folder"

    def __init__(self, root: Union[str, "os.PathLike[str]"], extensions: Optional[Sequence[str]] = None):
        self.root = os.fspath(root)
        self._path = os.path.abspath(os.path.expanduser(self.root))
        if not os.path.isdir(self._path):
            raise DatasetNotFoundError(f"{self.root}: there is no such directory")
        if isinstance(extensions, str):
            extensions = [extensions]
        if extensions is not None and not all(isinstance(e, str) and e for e in extensions):
            raise ConfigError(f"extensions={extensions!r}: must be a list of suffixes such as '.jpg'")
        self.extensions = None if extensions is None else tuple(extensions)
        self._facts: Optional[Dict[str, Any]] = None
        self._pages: Dict[int, List[Tuple[str, int]]] = {}

    def describe(self) -> Dict[str, Any]:
        """The dataset as requests name it: ``kind``, ``path``, ``extensions``."""
        extensions = None if self.extensions is None else list(self.extensions)
        return {"kind": self.kind, "path": self._path, "extensions": extensions}

    def _call(self, method: str, **more: Any) -> Any:
        params = {**self.describe(), **settings({}, None), **more}
        return _daemon.call(method, params, Progress())

    @property
    def facts(self) -> Dict[str, Any]:
        """What the daemon knows: ``samples``, ``classes``, ``bytes``, ``fingerprint``, ``class_sizes``."""
        if self._facts is None:
            self._facts = self._call("dataset")
        return self._facts

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
        return list(self.facts["classes"])

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """From a class's name to its number."""
        return {name: i for i, name in enumerate(self.facts["classes"])}

    @property
    def targets(self) -> List[int]:
        """The class number of every sample, by ID."""
        return [label for label, size in enumerate(self.facts["class_sizes"]) for _ in range(size)]

    @property
    def samples(self) -> List[Tuple[str, int]]:
        """(path, class number) of every sample, by ID. One call per 10,000 samples, then kept."""
        pages = (self._page(i) for i in range((len(self) + _PAGE - 1) // _PAGE))
        return [sample for page in pages for sample in page]

    imgs = samples

    def _page(self, number: int) -> List[Tuple[str, int]]:
        page = self._pages.get(number)
        if page is None:
            begin = number * _PAGE
            got = self._call("samples", **{"from": begin, "to": min(begin + _PAGE, len(self))})
            page = [(os.path.join(self.root, path), label) for path, label in got]
            self._pages[number] = page
        return page

    def __len__(self) -> int:
        """The number of samples, F."""
        return int(self.facts["samples"])

    def sample(self, index: int) -> Tuple[str, int]:
        """(path, class number) of one sample."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of {count}")
        index %= count
        return self._page(index // _PAGE)[index % _PAGE]

    def __getitem__(self, index: int) -> Tuple[Any, int]:
        """(bytes, class number) of one sample, read from its file, past the daemon and its caches."""
        path, label = self.sample(index)
        with open(path, "rb") as file:
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
        timeout: seconds to wait for a batch before :class:`~hdmlp.errors.StallTimeout`; 0: for ever.
        name: the loader's name, the same on all ranks; by default its number in the process.
        verify: check at the end of each epoch that all ranks together got every sample.
        config_file: a TOML file of configuration keys.
        **keys: configuration keys, such as ``memory="10GB"``; ``hdmlp config`` lists them.

    Raises:
        HDMLPError: see :mod:`hdmlp.errors`.
    """

    def __init__(self, dataset: Union[Folder, str], batch_size: int = 1,
                 shuffle: Union[bool, str] = True, *, epochs: Optional[int] = None,
                 seed: Optional[int] = None, rank: Optional[int] = None,
                 world_size: Optional[int] = None, drop_last: bool = False,
                 collate_fn: Optional[Callable] = None, transforms: Any = None, timeout: float = 0,
                 name: Optional[str] = None, verify: bool = False,
                 config_file: Optional[str] = None, **keys: Any):
        if not isinstance(dataset, Folder):
            dataset = Folder(dataset)
        self._collate = collate_fn
        self.batch_size = whole_number("batch_size", batch_size, 1)
        super().__init__(dataset, local_batch=self.batch_size, shuffle=shuffle, epochs=epochs, seed=seed,
                         rank=rank, world_size=world_size, tail="drop" if drop_last else "pad",
                         drop_last=drop_last, timeout=timeout, name=name, verify=verify,
                         config_file=config_file, keys=keys, transforms=described(transforms))
        if self.output is not None:
            self.output.array(None, 0)  # says whether numpy can have it

    def _make(self, taken: Taken) -> Any:
        output = self._stream.output
        if output is not None:
            taken = taken._replace(content=output.array(taken.content, taken.n))
        if self._collate is not None:
            return self._collate(list(zip(taken.content, column(taken.payload, taken.n, "labels"))))
        numpy = _numpy()
        if numpy is None:
            return Batch(taken.content, column(taken.payload, taken.n, "labels"))
        return Batch(taken.content, numpy.frombuffer(taken.payload, numpy.int64, taken.n, 32))
