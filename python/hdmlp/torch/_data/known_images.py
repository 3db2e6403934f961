"""Datasets of small images as torchvision stores them, read in place: CIFAR, MNIST and the like."""

from __future__ import annotations

import os
import string
from collections.abc import Sequence
from typing import ClassVar

import torch.utils.data

from ..._lib.arguments import check_functions, is_url, switch
from ..._records.array_files import ArrayFile, idx_at, pickled, unpickled
from ..._records.arrays import check_numpy, unreadable
from ..._records.form import Form
from ..._records.labels import Labels
from ...errors import ConfigError, DatasetNotFoundError
from .arrays import OfArrays
from .fields import Step


class KnownImages(OfArrays, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images, and their classes, in the files that torchvision has downloaded.

    An item is (image, class number), as torchvision's: a PIL image, or what ``transform`` makes of
    it. The files are not checked against known digests.

    Attributes:
        root: The directory that was given.
        train: Whether these are the images for training.
    """

    def _load(
        self,
        root: str | os.PathLike[str],
        train: bool,
        transform: object,
        target_transform: Step | None,
        download: bool,
    ) -> None:
        name = type(self).__name__
        check_numpy(name)
        check_functions(target_transform=target_transform)
        if is_url(os.fsdecode(root)):
            raise ConfigError(f"root={root!r}: {name} is read from files of this machine")
        self.root, self.train = os.path.expanduser(os.fsdecode(root)), switch("train", train)
        if download:
            raise ConfigError(
                f"download=True: HDMLP does not download; make torchvision.datasets.{name}"
                "(..., download=True) once, and leave it out here"
            )
        paths = self._paths()
        for path in paths:
            if not os.path.exists(path):
                raise DatasetNotFoundError(f"{path}: there is no such file; {self._advice(path)}")
        self._note(paths)
        try:
            images, labels, classes = self._located(paths)
        except OSError as error:
            raise unreadable(error.filename or paths[0], error) from error
        images = [self._checked(file) for file in images]
        try:
            made = Labels(labels, classes)
        except ConfigError as error:
            raise ConfigError(f"{os.path.dirname(paths[0])}: {error}") from None
        self._set_arrays(Form("one", ["0"]), [images], made)
        self._set_tensors(["0"])
        self._set_making(None, transform, target_transform, None, False)

    def _advice(self, path: str) -> str:
        if os.path.isfile(f"{path}.gz"):
            return f"decompress {path}.gz beside it (gunzip -k)"
        name = type(self).__name__
        return f"make torchvision.datasets.{name}(..., download=True) once, or check root"

    def _checked(self, file: ArrayFile) -> ArrayFile:
        """Returns an array whose samples are images; an array of another form is an error."""
        return file

    def _paths(self) -> list[str]:
        """Returns the paths of the files."""
        raise NotImplementedError

    def _located(self, paths: Sequence[str]) -> tuple[list[ArrayFile], list[int], Sequence[str]]:
        """Returns the arrays of the images, the class numbers, and the names of the classes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r}, train={self.train})"


class CIFAR10(KnownImages):
    """torchvision's ``CIFAR10``, whose batches are read where they lie, without unpickling.

    Args:
        root: The directory that has ``cifar-10-batches-py``.
        train: The images for training, and not those for tests. Default: True.
        transform: Applied to PIL images of 32 x 32 pixels; the daemon carries out what it can.
            Default: None.
        target_transform: Applied to the class number. Default: None.
        download: Must be False: torchvision downloads.

    Raises:
        ConfigError: A file is not as CIFAR's.
        DatasetNotFoundError: A file is missing.
    """

    base_folder: ClassVar[str] = "cifar-10-batches-py"
    _train: ClassVar[Sequence[str]] = [f"data_batch_{i}" for i in range(1, 6)]
    _test: ClassVar[Sequence[str]] = ["test_batch"]
    _meta: ClassVar[tuple[str, str, str]] = ("batches.meta", "label_names", "labels")

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: object = None,
        target_transform: Step | None = None,
        download: bool = False,
    ):
        self._load(root, train, transform, target_transform, download)

    def _paths(self) -> list[str]:
        names = [*(self._train if self.train else self._test), self._meta[0]]
        return [os.path.abspath(os.path.join(self.root, self.base_folder, n)) for n in names]

    def _located(self, paths: Sequence[str]) -> tuple[list[ArrayFile], list[int], Sequence[str]]:
        *batches, meta = paths
        images, labels = [], []
        for path in batches:
            found = pickled(path, "data")
            own = _numbers(path, found.values.get(self._meta[2]))
            if len(own) != found.file.shape[0]:
                raise ConfigError(f"{path}: {found.file.shape[0]} images, and {len(own)} labels")
            images.append(found.file)
            labels += own
        classes = unpickled(meta).get(self._meta[1])
        if not isinstance(classes, list) or not all(isinstance(c, str) for c in classes):
            raise ConfigError(f"{meta}: it has no list {self._meta[1]!r}")
        return images, labels, classes

    def _checked(self, file: ArrayFile) -> ArrayFile:
        if file.shape[1:] != (3072,):
            raise ConfigError(f"{file.path}: its images have {file.shape[1:]} numbers, not 3072")
        return file._replace(shape=(file.shape[0], 3, 32, 32))


class CIFAR100(CIFAR10):
    """torchvision's ``CIFAR100``; see :class:`CIFAR10`. Its directory is ``cifar-100-python``."""

    base_folder = "cifar-100-python"
    _train, _test = ("train",), ("test",)
    _meta = ("meta", "fine_label_names", "fine_labels")


class MNIST(KnownImages):
    """torchvision's ``MNIST``, whose unpacked files below ``root/MNIST/raw`` are read in place.

    Args:
        root: The directory that has ``MNIST/raw``.
        train: The images for training, and not those for tests. Default: True.
        transform: Applied to PIL images of mode L; the daemon carries out what it can. Default:
            None.
        target_transform: Applied to the class number. Default: None.
        download: Must be False: torchvision downloads.

    Raises:
        ConfigError: A file is not as MNIST's.
        DatasetNotFoundError: A file is missing.
    """

    _names: ClassVar[Sequence[str]] = (
        *("0 - zero", "1 - one", "2 - two", "3 - three", "4 - four"),
        *("5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"),
    )

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: object = None,
        target_transform: Step | None = None,
        download: bool = False,
    ):
        self._load(root, train, transform, target_transform, download)

    def _prefix(self) -> str:
        return "train" if self.train else "t10k"

    def _paths(self) -> list[str]:
        raw = os.path.abspath(os.path.join(self.root, type(self).__name__, "raw"))
        of = os.path.join(raw, self._prefix())
        return [f"{of}-images-idx3-ubyte", f"{of}-labels-idx1-ubyte"]

    def _located(self, paths: Sequence[str]) -> tuple[list[ArrayFile], list[int], Sequence[str]]:
        images, labels = map(idx_at, paths)
        for file, axes in ((images, 3), (labels, 1)):
            if len(file.shape) != axes or file.dtype != "u1":
                raise ConfigError(
                    f"{file.path}: an array of {file.dtype} of shape {file.shape}, and not of "
                    f"uint8 with {axes} axes"
                )
        if labels.shape[0] != images.shape[0]:
            raise ConfigError(
                f"{labels.path}: {labels.shape[0]} labels, and {images.shape[0]} images"
            )
        with open(labels.path, "rb") as opened:
            opened.seek(labels.offset)
            numbers = list(opened.read(labels.shape[0]))
        return [images], numbers, self._names


class FashionMNIST(MNIST):
    """torchvision's ``FashionMNIST``, below ``root/FashionMNIST/raw``; see :class:`MNIST`."""

    _names = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )


class KMNIST(MNIST):
    """torchvision's ``KMNIST``, below ``root/KMNIST/raw``; see :class:`MNIST`."""

    _names = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


#: Lowercase letters that look as their capitals, and are one class with these.
_MERGED = set("cijklmopsuvwxyz")
_LETTERS = sorted(string.digits + string.ascii_letters)
_MERGED_LETTERS = [name for name in _LETTERS if name not in _MERGED]


class EMNIST(MNIST):
    """torchvision's ``EMNIST``, below ``root/EMNIST/raw``; see :class:`MNIST`.

    Args:
        root: The directory that has ``EMNIST/raw``.
        split: ``"byclass"``, ``"bymerge"``, ``"balanced"``, ``"letters"``, ``"digits"`` or
            ``"mnist"``.
        train, transform, target_transform, download: See :class:`MNIST`.

    Images are transposed, as they are stored, and as torchvision gives them.
    """

    _splits: ClassVar[dict[str, Sequence[str]]] = {
        "byclass": _LETTERS,
        "bymerge": _MERGED_LETTERS,
        "balanced": _MERGED_LETTERS,
        "letters": ["N/A", *string.ascii_lowercase],
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str,
        train: bool = True,
        transform: object = None,
        target_transform: Step | None = None,
        download: bool = False,
    ):
        if split not in self._splits:
            raise ConfigError(f"split={split!r}: allowed: {', '.join(map(repr, self._splits))}")
        self.split = split
        self._load(root, train, transform, target_transform, download)

    def _prefix(self) -> str:
        return f"emnist-{self.split}-{'train' if self.train else 'test'}"

    def _located(self, paths: Sequence[str]) -> tuple[list[ArrayFile], list[int], Sequence[str]]:
        images, labels, _ = super()._located(paths)
        return images, labels, self._splits[self.split]


def _numbers(path: str, labels: object) -> list[int]:
    if not isinstance(labels, list) or not all(isinstance(x, int) for x in labels):
        raise ConfigError(f"{path}: it has no list of labels, as a batch of CIFAR has")
    return labels
