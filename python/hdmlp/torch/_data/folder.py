"""A folder of images like torchvision's ImageFolder, with the daemon's part of its transforms."""

from __future__ import annotations

import io
import logging
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import torch.utils.data

from ..._lib import originals
from ..._lib.arguments import check_functions, is_url, switch
from ..._records.records import read_file
from ..._transforms.recipe import FILE_OBJECT, Composed
from ..._transforms.split import Split, in_python, length_of, split
from ...data import Folder
from ...errors import ConfigError
from . import listing
from .elements import OfPixels
from .foreign import NOTICE
from .listing import IMAGES, StandardTransform, shown
from .reasons import own_methods

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


class Decoder:
    """A loader of images which the daemon can stand for.

    Attributes:
        mode: What images are converted to: ``"RGB"`` or ``"L"``.
        arguments: Those of the daemon's decoding.
        only: Images are not converted: those of another mode are left to this loader.
    """

    mode = "RGB"
    arguments: Mapping[str, object]
    only = False

    def __call__(self, data: Any) -> Any:
        """Decodes an image.

        Args:
            data: The file's bytes.
        """
        raise NotImplementedError

    def described(self, leaves: bool) -> dict[str, object]:
        """Returns the arguments of the daemon's decoding.

        Args:
            leaves: Images are left to this loader which the daemon does not decode as it does.
        """
        more = {"leave": True, "unconverted": self.only} if leaves else {}
        return {"mode": self.mode, **self.arguments, **more}


def offload(
    loader: object,
    transform: object,
    wanted: bool = True,
    say: bool = True,
    ragged: bool = False,
    first: int = 0,
) -> Split:
    """Splits a transform into the daemon's part and Python's, and logs why there is the latter.

    Args:
        loader: The dataset's loader.
        transform: Its transform.
        wanted: The daemon does what it can.
        say: Log.
        ragged: As for :func:`hdmlp.transforms.split`.
        first: The same.

    Raises:
        ConfigError: One of our transforms would have to run in Python, which it cannot.
    """
    given = getattr(transform, "steps", transform)
    stored = loader.stored if isinstance(loader, OfPixels) else None
    try:
        if not wanted:
            return in_python(given, "with offload=False", first)
        if loader is not pil_loader and not isinstance(loader, Decoder) and stored is None:
            return in_python(given, "after a loader of yours", first)
        if stored is not None:
            if not length_of(given):
                return in_python(given, "", first)
            given = [stored, given]
        why = _pils_way()
        if why and _is_decoded_here(given, why, say):
            return in_python(given, f"because {why}", first)
        channels = 1 if isinstance(loader, Decoder) and loader.mode == "L" else 3
        found = split(given, ragged, first, channels)
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


def _check_torchvisions_loader(loader: object) -> None:
    """Checks whether a function that torchvision's loaders call was replaced.

    Raises:
        ConfigError: One of them is given.
    """
    replaced = originals.replaced("torchvision's loader")
    if replaced and torchvision_loads(loader):
        raise ConfigError(
            f"loader={getattr(loader, '__name__', loader)}: {replaced}, which it calls with a "
            "path, and HDMLP's ImageFolder has the bytes: give it a loader which is given bytes, "
            "or use torchvision's ImageFolder"
        )
    if replaced and loader is None:
        log.warning(
            "%s: HDMLP's ImageFolder does not call it; give loader= a function which is given "
            "bytes, or use torchvision's ImageFolder",
            replaced,
        )


def _listed(name: str) -> Any:
    """Returns a property for a part of the listing: what was set, or what the daemon lists."""

    def value(self: Any) -> Any:
        own = self.__dict__.get("_own", {})
        return own[name] if name in own else getattr(Folder, name).fget(self)

    return property(value, doc=getattr(Folder, name).__doc__)


#: The parts of a listing that may be set.
LISTED = ("samples", "imgs", "targets", "classes", "class_to_idx")


class ImageFolder(Folder, torch.utils.data.Dataset[Any]):
    """torchvision's ``ImageFolder``: a directory with one subdirectory per class.

    ``dataset[i]`` reads the file itself: for a look at a sample, not for training.

    Args:
        root: The directory.
        transform: From what ``loader`` made to what the model gets: a list (or Compose) of
            :mod:`hdmlp.transforms`, of torchvision's, or of any callables. The daemon carries out
            those which it has, from the first on; the rest runs in Python. Default: None.
        target_transform: Applied to the class number. Default: None.
        loader: From a sample's bytes, a read-only memoryview, to an object. torchvision's takes a
            path; its own ``default_loader`` and ``pil_loader`` mean :func:`pil_loader` here.
            Default: :func:`pil_loader`.
        is_valid_file: Returns whether the file at a path is a sample, instead of ``extensions``.
            Default: None.
        allow_empty: Class directories may be without samples. Default: False.
        extensions: Suffixes of the files which are samples. Default: torchvision's image suffixes.
        transforms: Another name of ``transform``.

    The daemon lists the files. With ``is_valid_file``, ``allow_empty`` or a ``find_classes`` or
    ``make_dataset`` of a subclass's own this object does so, when it is made. As with torchvision's
    folder, the listing may be replaced: ``samples`` has the items. The daemon serves them as long
    as they are files that it lists as well, with one label for each directory.

    Attributes:
        classes: The classes' names, sorted.
        class_to_idx: The classes' numbers by name.
        targets: The class number of every sample, by ID.
        samples: (path, class number) of every sample, by ID.
        imgs: The same.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: An argument is wrong.
        FileNotFoundError: This object lists the files, and a class has none.
    """

    #: For a subclass whose ``__init__`` does not call this one's.
    _custom = True
    _notice = NOTICE

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[memoryview], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        extensions: Sequence[str] | None = None,
        transforms: Any = None,
    ):
        super().__init__(root, extensions)
        check_functions(
            target_transform=target_transform, loader=loader, is_valid_file=is_valid_file
        )
        if is_valid_file is not None and extensions is not None:
            raise ConfigError("is_valid_file contradicts extensions: leave one of them out")
        _check_torchvisions_loader(loader)
        self.transform = as_transform(transform, transforms)
        self.target_transform = target_transform
        self.loader = pil_loader if loader is None else loader
        self._custom = loader is not None
        self._notice = NOTICE
        empty = switch("allow_empty", allow_empty)
        own = own_methods(ImageFolder, self, "find_classes", "make_dataset")
        if own or empty or is_valid_file is not None:
            self._list(is_valid_file, empty)

    # The listing.

    samples = _listed("samples")
    imgs = _listed("imgs")
    targets = _listed("targets")
    classes = _listed("classes")
    class_to_idx = _listed("class_to_idx")

    def _list(self, is_valid_file: Callable[[str], bool] | None, allow_empty: bool) -> None:
        """Lists the files, as torchvision's folder does."""
        if is_url(self.root):
            raise ConfigError(
                f"{self.root}: the daemon lists what a URL names: is_valid_file, allow_empty and "
                "own methods find_classes and make_dataset have no meaning: give extensions, or a "
                "list of samples (hdmlp.torch.Files)"
            )
        extensions = None if is_valid_file is not None else self.extensions or IMAGES
        more = {"allow_empty": True} if allow_empty else {}  # which some releases do not have
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.imgs = self.make_dataset(
            self.root,
            class_to_idx=self.class_to_idx,
            extensions=extensions,
            is_valid_file=is_valid_file,
            **more,
        )
        self.targets = [label for _, label in self.samples]

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """Returns the classes' names and numbers, as torchvision's method; may be overridden."""
        return listing.find_classes(directory)

    #: Returns the samples, as torchvision's method; may be overridden.
    make_dataset = staticmethod(listing.make_dataset)

    def __setattr__(self, name: str, value: object) -> None:
        if name in LISTED:
            self.__dict__.setdefault("_own", {})[name] = value
            return
        if name == "loader" and torchvision_loads(value):
            value = pil_loader
        super().__setattr__(name, value)

    @property
    def own_listing(self) -> bool:
        """Whether the samples are this object's, and not those that the daemon lists."""
        return "samples" in self.__dict__.get("_own", {})

    def sample(self, index: int) -> tuple[str, int]:
        """Returns (path, class number) of one sample; see :meth:`hdmlp.data.Folder.sample`."""
        if not self.own_listing:
            return super().sample(index)
        path, label = self.samples[operator.index(index)]
        return os.fspath(path), label

    def _fetched(self, path: str, index: int) -> bytes | None:
        return read_file(path) if self.own_listing else super()._fetched(path, index)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self.samples) if self.own_listing else super().__len__()

    @property
    def transforms(self) -> StandardTransform | None:
        """Both transforms, as torchvision's datasets have them; None: there are none."""
        if self.transform is None and self.target_transform is None:
            return None
        return StandardTransform(self.transform, self.target_transform)

    def extra_repr(self) -> str:
        """Returns more lines for ``repr``, as torchvision's method; may be overridden."""
        return ""

    def __repr__(self) -> str:
        return shown(self)

    # The items.

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
