"""A folder of images like torchvision's ImageFolder, with the daemon's part of its transforms."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, Callable

import torch.utils.data

from ..._lib import originals
from ..._lib.arguments import check_functions
from ..._transforms.recipe import FILE_OBJECT, Composed
from ..._transforms.split import Split, in_python, split
from ...data import Folder
from ...errors import ConfigError
from .foreign import NOTICE

log = logging.getLogger("hdmlp")

_TRUNCATED = "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True"


def pil_loader(data: bytes | memoryview) -> Any:
    """Decodes an image as torchvision's loader does for its file.

    Args:
        data: The file's bytes.

    Returns:
        An RGB ``PIL.Image``.
    """
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def _name(error: Exception, sample: str) -> None:
    """Has the message of an error of PIL, which was given bytes, begin with the sample's name."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        text = f"{sample}: {FILE_OBJECT.sub('', error.args[0])}"
        error.args = (text,)
        if isinstance(error, SyntaxError):  # as of damaged PNG files; its text is not made of args
            error.msg = text


def torchvision_loads(loader: object) -> bool:
    """Reports whether a loader is one which torchvision's folders have by default."""
    return any(
        originals.is_original(loader, "torchvision.datasets.folder", name)
        for name in ("default_loader", "pil_loader")
    )


def as_transform(transform: Any, transforms: Any) -> Callable[[Any], Any] | None:
    """Returns one callable for the two names of the argument; a list is applied in order.

    Raises:
        ConfigError: Both are given, or one is not callable.
    """
    if transform is not None and transforms is not None:
        raise ConfigError("transform and transforms are two names of one argument: give one")
    given: Callable[[Any], Any] | None = transform if transform is not None else transforms
    if isinstance(given, (list, tuple)):
        for i, t in enumerate(given):
            if not callable(t) and not isinstance(t, (list, tuple)):
                raise ConfigError(f"transform[{i}]={t!r}: must be callable")
        given = Composed(given) if given else None
    if given is not None and not callable(given):
        raise ConfigError(f"transform={given!r}: must be callable")
    return given


def offload(
    loader: object, transform: object, wanted: bool = True, say: bool = True, ragged: bool = False
) -> Split:
    """Splits a transform into the daemon's part and Python's, and logs why there is the latter.

    Args:
        loader: The dataset's loader.
        transform: Its transform.
        wanted: The daemon does what it can.
        say: Log.
        ragged: As for :func:`hdmlp.transforms.split`.

    Raises:
        ConfigError: One of our transforms would have to run in Python, which it cannot.
    """
    given = getattr(transform, "steps", transform)
    try:
        if not wanted:
            return in_python(given, "with offload=False")
        if loader is not pil_loader:
            return in_python(given, "after a loader of yours")
        why = _pils_way()
        if why and _is_decoded_here(given, why, say):
            return in_python(given, f"because {why}")
        found = split(given, ragged)
    except TypeError as error:
        raise ConfigError(f"transform: {error}") from None
    if not say:
        return found
    if found.left:
        cause, *others = map(short, found.left)
        also = f"; because of it also: {', '.join(others)}" if others else ""
        if found.described:
            log.warning(
                "%s runs in Python, after what the daemon applies: %s%s", cause, found.why, also
            )
        else:
            log.warning("all transforms run in Python, because of %s: %s%s", cause, found.why, also)
    return found


def _pils_way() -> str:
    """Returns why PIL may decode otherwise than the daemon; empty: it does not."""
    module: object = sys.modules.get("PIL.ImageFile")
    if getattr(module, "LOAD_TRUNCATED_IMAGES", False):
        return f"{_TRUNCATED}, and to the daemon truncated files are errors, subject to on_error"
    replaced = originals.replaced("images")
    return replaced and f"{replaced}, which the daemon would not call"


def _is_decoded_here(given: object, why: str, say: bool) -> bool:
    """Reports whether Python is to decode because of what :func:`_pils_way` returned.

    Our own transforms cannot run there, so with one of them the daemon decodes.
    """
    try:
        in_python(given, why)
    except TypeError:
        if say:
            log.warning(
                "with transforms of hdmlp.transforms the daemon decodes images all the same: %s",
                why,
            )
        return False
    if say:
        log.warning("images are decoded and transformed in Python: %s", why)
    return True


def short(value: object) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return type(value).__name__ if len(text) > 60 or " object at 0x" in text else text


class ImageFolder(Folder, torch.utils.data.Dataset[Any]):
    """torchvision's ``ImageFolder``: a directory with one subdirectory per class.

    ``dataset[i]`` reads the file itself: for a look at a sample, not for training.

    Args:
        root: The directory.
        transform: From what ``loader`` made to what the model gets: a list (or Compose) of
            :mod:`hdmlp.transforms`, of torchvision's, or of any callables. The daemon carries out
            those which it knows, from the first on; the rest runs in Python. Default: None.
        target_transform: Applied to the class number. Default: None.
        loader: From a sample's bytes, a read-only memoryview, to an object. torchvision's takes a
            path; its own ``default_loader`` and ``pil_loader`` mean :func:`pil_loader` here.
            Default: :func:`pil_loader`.
        is_valid_file: Not supported; the daemon lists the files.
        extensions: Suffixes of the files which are samples. Default: torchvision's image suffixes.
        transforms: Another name of ``transform``.

    Attributes:
        classes: The classes' names, sorted.
        class_to_idx: The classes' numbers by name.
        targets: The class number of every sample, by ID.
        samples: (path, class number) of every sample, by ID.
        imgs: The same.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[memoryview], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        extensions: Sequence[str] | None = None,
        transforms: Any = None,
    ):
        if is_valid_file is not None:
            raise ConfigError(
                "is_valid_file is not supported: use extensions=, the daemon lists the files"
            )
        for name in ("find_classes", "make_dataset"):
            if hasattr(self, name):
                raise ConfigError(
                    f"{type(self).__name__} has a {name} of its own, but HDMLP's daemon lists the "
                    "files: use torchvision's ImageFolder, which hdmlp.torch.DataLoader takes as "
                    "well, or torch.utils.data.Subset and target_transform"
                )
        super().__init__(root, extensions)
        check_functions(target_transform=target_transform, loader=loader)
        self.transform = as_transform(transform, transforms)
        self.target_transform = target_transform
        self.loader = pil_loader if loader is None or torchvision_loads(loader) else loader
        self._custom = loader is not None
        self._notice = NOTICE

    @property
    def raw(self) -> bool:
        """Whether the bytes stay as they are: no transform, and no loader of the user's."""
        return (
            self.transform is None
            and self.target_transform is None
            and not self._custom
            and self.loader is pil_loader
        )

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Returns (object, label) of one sample, decoded and transformed.

        Raises:
            IndexError: There is no such sample.
            SampleError: It is not a regular file.
            Exception: What PIL raises for a file that it cannot decode, with the file's path.
        """
        self._notice.read()
        data, label = super().__getitem__(index)
        try:
            value = self.loader(data)
        except Exception as error:
            if self.loader is pil_loader:
                sample = range(len(self))[index]
                _name(error, f"sample {sample} ({self.sample(sample)[0]})")
            raise
        if self.transform is not None:
            value = self.transform(value)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return value, label
