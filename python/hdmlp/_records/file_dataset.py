"""Datasets that say which files each of their items reads, and make items of their bytes."""

from __future__ import annotations

from ..errors import ConfigError, SampleError
from .item_files import ItemFiles, asked, checked
from .records import read_file

_OWN = ("files_of", "make")


class FileDataset:
    """Base class of datasets whose items are made of the contents of files.

    A subclass has ``__len__`` and two methods::

        class Pairs(FileDataset):
            def __init__(self, pairs):
                self.pairs = pairs

            def __len__(self):
                return len(self.pairs)

            def files_of(self, i):
                return self.pairs[i]  # the paths of an image and a mask

            def make(self, i, image, mask):
                return decode(image), decode(mask)

    ``dataset[i]`` reads the files itself. A loader asks ``files_of`` once for all items when it is
    made; then the daemon reads ahead and caches the files, and ``make`` runs in this process, or in
    workers.
    """

    def files_of(self, i: int) -> object:
        """Returns the path of an item's file, or a list or tuple of paths.

        Items may have different numbers of files. It must return the same each time.

        Args:
            i: The item's index.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method files_of(self, i)")

    def make(self, i: int, *contents: memoryview) -> object:
        """Returns an item.

        Args:
            i: Its index.
            *contents: The bytes of its files, in the order of ``files_of``. They are read-only, and
                valid for as long as they are kept.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method make(self, i, *contents)")

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            raise ConfigError(_hidden(self, name))
        super().__setattr__(name, value)

    def __getitem__(self, i: int) -> object:
        """Returns an item, of files that are read here, without the daemon.

        Raises:
            SampleError: A file cannot be read.
        """
        contents = []
        for path in checked(self.files_of(i), i, f"{type(self).__name__}.files_of", 1):
            try:
                contents.append(memoryview(read_file(path)))
            except OSError as error:
                raise SampleError(
                    f"item {i} ({path}): {error.strerror}", {"sample": i, "path": path}
                ) from error
        return self.make(i, *contents)


def _hidden(dataset: object, name: str) -> str:
    return (
        f"{type(dataset).__name__}: the attribute {name} would hide the method of that name, which "
        "HDMLP calls; give the attribute another name"
    )


def files_of(dataset: FileDataset) -> ItemFiles:
    """Returns the files of all items of a dataset.

    Raises:
        ConfigError: It has no length, or ``files_of`` returns what it must not.
    """
    name = type(dataset).__name__
    for method in _OWN:
        if method in vars(dataset) or not callable(getattr(type(dataset), method)):
            raise ConfigError(_hidden(dataset, method))
        if getattr(type(dataset), method) is getattr(FileDataset, method):
            raise ConfigError(f"{name} has no method {method}: see help(FileDataset.{method})")
    try:
        count = len(dataset)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"{name} has no __len__, which says how many items there are") from None
    return asked(dataset.files_of, count, f"{name}.files_of", 1)
