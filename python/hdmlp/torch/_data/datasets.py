"""Which datasets the daemon serves: folders, parts of them, and several parts of one.

torchvision is never imported: an object is one of its folders if its class comes from the module
that the program has loaded.
"""

from __future__ import annotations

import array
import operator
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

from torch.utils.data.dataset import ConcatDataset, Subset

from ..._lib import originals
from ..._records.declared import Declared
from ..._records.file_dataset import files_of
from ..._records.records import Listed
from ...data import Folder
from ...errors import ConfigError, DatasetError
from .folder import ImageFolder, pil_loader, torchvision_loads
from .hf import HFDataset
from .interfaces import TorchvisionFolder
from .joined import Joined, piece_of, shown
from .own_items import FileDataset
from .reasons import (
    ITEMS,
    is_torchvision,
    overrides,
    own_methods,
    revealed_by_calling,
    why_in_python,
)
from .vision import VisionFiles, vision


@dataclass(frozen=True, eq=False)
class Samples:
    """Which samples the items of a dataset are.

    Attributes:
        folder: Whose samples; None: the daemon does not serve the dataset.
        ids: Which of them, in order; None: all.
        why: Why the daemon does not serve a dataset whose items are files of a folder; else empty.
    """

    folder: Any
    ids: array.array[int] | None = None
    why: str = ""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Samples)
            and self.folder is other.folder
            and (self.ids is other.ids or self.ids == other.ids)
        )

    __hash__ = None  # type: ignore[assignment]

    def count(self) -> int:
        """Returns how many samples there are."""
        if self.ids is not None:
            return len(self.ids)
        return 0 if self.folder is None else len(self.folder)


def _unserved(why: str = "") -> Samples:
    return Samples(None, None, why)


class _Part(NamedTuple):
    """What was found for a Subset.

    Attributes:
        dataset: The Subset.
        whole: The samples of its dataset.
        indices: A copy of its indices.
        samples: Its own samples.
    """

    dataset: object
    whole: Samples
    indices: list[object]
    samples: Samples


class Datasets:
    """Finds :class:`Samples` of datasets.

    What has not changed since the last time is not compared again.
    """

    def __init__(self) -> None:
        self._mirrors: list[Mirror] = []
        self._parts: list[_Part] = []
        self._files: list[Declared] = []
        self._joins: list[tuple[object, list[Samples], Samples]] = []
        self._pictures: list[VisionFiles] = []

    def samples(self, dataset: object) -> Samples:
        """Returns which samples the dataset's items are now.

        Raises:
            ConfigError: It is a path, or a Subset with an index outside its dataset.
        """
        if isinstance(dataset, (str, bytes, os.PathLike)):
            raise ConfigError(
                f"dataset={dataset!r}: a path is not a dataset; give "
                f"hdmlp.torch.ImageFolder({dataset!r})"
            )
        if type(dataset) is Subset:
            return self._subset(dataset)
        if type(dataset) is ConcatDataset:
            return self._concatenated(dataset)
        if (isinstance(dataset, ImageFolder) or is_torchvision(dataset)) and _lacks(dataset):
            return _unserved(
                f"{type(dataset).__name__}.__init__ does not call super().__init__(), so it has no "
                f"{_lacks(dataset)}"
            )
        if isinstance(dataset, FileDataset):
            own = own_methods(FileDataset, dataset, "__getitem__", "__getitems__")
            return _unserved(overrides(dataset, own)) if own else Samples(self._declared(dataset))
        if isinstance(dataset, HFDataset) and dataset.unserved:
            return _unserved(dataset.unserved)
        if isinstance(dataset, Listed):
            own = own_methods(type_of_records(dataset), dataset, *ITEMS, "sample", "targets")
            why = overrides(dataset, own) if own else originals.replaced("HDMLP's folders")
            return _unserved(why) if why else Samples(dataset)
        if isinstance(dataset, Folder):
            known = ImageFolder if isinstance(dataset, ImageFolder) else Folder
            own = own_methods(known, dataset, *ITEMS, "sample", "samples", "targets")
            why = overrides(dataset, own) if own else originals.replaced("HDMLP's folders")
            if why:
                return _unserved(why)
            if isinstance(dataset, ImageFolder) and dataset.own_listing:
                return self._mirror(dataset, OwnListing).samples_of_it()
            return Samples(dataset)
        if is_torchvision(dataset):
            return self._mirror(dataset, Mirror).samples_of_it()
        if vision(dataset) is not None:
            return Samples(self._vision(dataset))
        return _unserved(why_in_python(dataset))

    def _mirror(self, dataset: Any, kind: type[Mirror]) -> Mirror:
        """Returns the mirror of a dataset, made if there is none."""
        mirror = next((mirror for mirror in self._mirrors if mirror.of is dataset), None)
        if mirror is None:
            mirror = kind(dataset)
            self._mirrors.append(mirror)
        return mirror

    def _vision(self, dataset: Any) -> VisionFiles:
        """Returns the files of one of torchvision's datasets of images with targets."""
        known = next((known for known in self._pictures if known.of is dataset), None)
        if known is None or not known.current():
            self._pictures = [other for other in self._pictures if other is not known]
            found = vision(dataset)
            assert found is not None
            known = VisionFiles(dataset, found)
            self._pictures.append(known)
        return known

    def _declared(self, dataset: FileDataset) -> Declared:
        """Returns the files of a dataset, asked for if its length is another one than before."""
        known = next((known for known in self._files if known.of is dataset), None)
        if known is None or len(known) != len(dataset):  # type: ignore[arg-type]
            self._files = [other for other in self._files if other is not known]
            known = Declared(dataset, files_of(dataset))
            self._files.append(known)
        return known

    def _subset(self, dataset: Subset[object]) -> Samples:
        whole = self.samples(dataset.dataset)
        if whole.folder is None:
            return whole
        if hasattr(whole.folder, "mixture"):
            raise ConfigError(
                "a Subset of a Mix: the Mix itself says which sample comes when: give the Mix "
                "Subsets of its datasets"
            )
        own = own_methods(Subset, dataset, "__getitems__")
        why = revealed_by_calling(originals.replaced("subsets"))
        why = overrides(dataset, own) if own else why
        if why:
            return _unserved(why)
        indices = dataset.indices
        kept = next((part for part in self._parts if part.dataset is dataset), None)
        if (
            kept is not None
            and kept.whole == whole
            and type(indices) is list
            and kept.indices == indices
        ):
            return kept.samples
        count = whole.count()
        places = [operator.index(index) for index in indices]
        if not places:
            return _unserved()  # there is nothing to serve
        outside = next((place for place in places if not -count <= place < count), None)
        if outside is not None:
            raise ConfigError(
                f"index {outside} of the Subset is out of range: its dataset has {count} samples, "
                f"0 to {count - 1}; correct the Subset's indices"
            )
        found = Samples(
            whole.folder,
            array.array(
                "i", (p % count if whole.ids is None else whole.ids[p % count] for p in places)
            ),
        )
        self._parts = [part for part in self._parts if part is not kept]
        self._parts.append(_Part(dataset, whole, list(indices), found))
        return found

    def _joined(
        self, dataset: ConcatDataset[object], parts: list[Samples], differs: str
    ) -> Samples:
        """Returns the samples of several folders, or lists of records, as those of one list."""
        for known, of, found in self._joins:
            if known is dataset and of == parts:
                return found
        try:
            made = Samples(_as_one(dataset, parts))
        except ConfigError as error:
            return _unserved(f"the parts of the ConcatDataset have {differs}, and {error}")
        self._joins = [join for join in self._joins if join[0] is not dataset]
        self._joins.append((dataset, parts, made))
        return made

    def _concatenated(self, dataset: ConcatDataset[object]) -> Samples:
        parts = [self.samples(part) for part in dataset.datasets]
        if any(hasattr(part.folder, "mixture") for part in parts):
            raise ConfigError(
                "a ConcatDataset of a Mix: the Mix itself says which sample comes when: give the "
                "Mix all of the datasets"
            )
        if all(part.folder is None and not part.why for part in parts):
            return _unserved()
        why = revealed_by_calling(originals.replaced("subsets"))
        if why:
            return _unserved(why)
        for part in parts:
            if part.folder is None:
                return _unserved(part.why or "one part of the ConcatDataset is not a folder")
        folders = [part.folder for part in parts if part.folder is not None]
        first = folders[0]
        for folder in folders[1:]:
            differs = _difference(first, folder)
            if differs:
                return self._joined(dataset, parts, differs)
        ids = array.array("i")
        for part in parts:
            ids.extend(range(part.count()) if part.ids is None else part.ids)
        return Samples(first, ids)


def _as_one(dataset: ConcatDataset[object], parts: list[Samples]) -> Joined:
    """Returns several datasets of HDMLP's as one list of records.

    Raises:
        ConfigError: They are of others, or do not fit together.
    """
    pieces = [
        piece_of(f"part {i}", part, samples.folder, samples.ids)
        for i, (part, samples) in enumerate(zip(dataset.datasets, parts))
    ]
    return Joined(pieces, shown(list(dataset.datasets)), renumber=False)


def type_of_records(dataset: Listed) -> type:
    """Returns the class of HDMLP's that a dataset of records is of."""
    return next(kind for kind in type(dataset).__mro__ if kind.__module__.startswith("hdmlp."))


def _lacks(dataset: object) -> str:
    """Returns what a folder lacks if it was not initialised; empty: it was."""
    if isinstance(dataset, (Folder, Listed)):
        return "" if "_made" in vars(dataset) else "directory"
    names = ("root", "extensions", "samples", "loader", "transform", "target_transform")
    return ", ".join(name for name in names if not hasattr(dataset, name))


def _difference(a: Folder, b: Folder) -> str:
    """Returns how two datasets differ in samples or in what is made of them; empty: not at all."""
    if a is b:
        return ""
    if isinstance(a, Listed) or isinstance(b, Listed):
        return "different records"  # which other lists of files below one directory are
    if a._describe() != b._describe():
        return "different directories"
    for name, what in (
        ("raw", "kinds"),
        ("loader", "loaders"),
        ("transform", "transforms"),
        ("target_transform", "target_transforms"),
        ("classes", "classes"),
    ):
        if not _same(getattr(a, name, None), getattr(b, name, None)):
            return f"different {what}"
    return ""


def _same(a: object, b: object) -> bool:
    """Reports whether two objects are known to do the same."""
    if a is b:
        return True
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception:  # a closure, for instance
        return False


class Relabelled:
    """From the daemon's class number to the label that the user's samples have.

    Args:
        labels: The labels, by class number.
        then: Applied to the label; None: nothing is.
    """

    def __init__(self, labels: Sequence[object], then: Callable[..., object] | None):
        self.labels, self.then = labels, then

    def __call__(self, number: int) -> object:
        label = self.labels[number]
        return label if self.then is None else self.then(label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Relabelled) and (self.labels, self.then) == (
            other.labels,
            other.then,
        )

    __hash__ = None  # type: ignore[assignment]


class Mirror(Folder):
    """The files of one of torchvision's folders, as the daemon lists them.

    What is made of them is what the object says at the time.

    Args:
        dataset: A ``DatasetFolder``, ``ImageFolder`` or ``ImageNet``. Its ``samples`` say which
            items there are.

    Attributes:
        of: The dataset.
    """

    def __init__(self, dataset: TorchvisionFolder):
        self.of = dataset
        # A copy of its samples, as they were when _found was.
        self._known: list[tuple[str, object]] | None = None
        self._found = _unserved()
        # The labels of its samples for each of the daemon's classes; None: the classes' numbers.
        self._labels: list[Any] | None = None
        extensions = dataset.extensions
        if extensions is None or tuple(extensions) == tuple(
            sys.modules["torchvision.datasets.folder"].IMG_EXTENSIONS
        ):
            extensions = None  # the daemon's own are these
        root: str = getattr(dataset, "split_folder", dataset.root)
        super().__init__(root, extensions)

    # What is made of the files.

    raw = False

    @property
    def transform(self) -> object:
        """The object's transform."""
        return self.of.transform

    @property
    def target_transform(self) -> Callable[..., object] | None:
        """From the daemon's class number to the item's label; None: it is the label."""
        then: Callable[..., object] | None = self.of.target_transform
        return then if self._labels is None else Relabelled(self._labels, then)

    def named(self) -> tuple[Sequence[object], Callable[..., object] | None]:
        """Returns the object's names for the daemon's classes, and its target_transform.

        Raises:
            ConfigError: Its labels are not numbers of its classes.
        """
        names, labels = self.of.classes, self._labels
        if labels is None:
            return names, self.of.target_transform
        for label in labels:
            if label is not None and (type(label) is not int or not 0 <= label < len(names)):
                raise ConfigError(
                    f"labels='name': the label {label!r} of its samples is not the number of one "
                    f"of its {len(names)} classes; leave labels out"
                )
        named = [None if label is None else names[label] for label in labels]
        return named, self.of.target_transform

    @property
    def loader(self) -> Callable[..., object]:
        """From a file's bytes to an image."""
        return pil_loader

    @property
    def classes(self) -> list[str]:
        """The object's names of its classes."""
        return list(self.of.classes)

    # Which files they are.

    def samples_of_it(self) -> Samples:
        """Returns which of the daemon's samples the object's items are."""
        why = self._other_decoder()
        if why:
            return _unserved(why)
        samples = self.of.samples
        if (
            self._known is None
            or len(self._known) != len(samples)
            or not all(map(operator.is_, self._known, samples))
        ):
            self._found = self._compare(samples)
            # Entries that can be changed in place have to be compared each time.
            self._known = list(samples) if set(map(type, samples)) <= {tuple} else None
        return self._found

    def _other_decoder(self) -> str:
        """Returns why the daemon cannot make the items' images; empty: it can."""
        if not torchvision_loads(self.of.loader):
            return (
                "its loader is a function of yours, which is given paths: hdmlp.torch.ImageFolder "
                "takes one which is given bytes"
            )
        replaced = originals.replaced("torchvision's loader") or originals.open_replaced(
            "torchvision.datasets.folder"
        )
        if replaced:
            return f"{replaced}, which its loader calls with a path"
        torchvision = sys.modules.get("torchvision")
        if torchvision is not None and torchvision.get_image_backend() != "PIL":
            return (
                f"torchvision.set_image_backend({torchvision.get_image_backend()!r}) chose a "
                "decoder other than PIL"
            )
        return ""

    def _compare(self, samples: Sequence[tuple[str, Any]]) -> Samples:
        """Finds the object's samples among those that the daemon lists."""
        if not isinstance(samples, list):  # a numpy array, for instance
            samples = list(map(tuple, samples))
        try:
            listed = list(super().samples)
        except DatasetError as error:  # directories without files, which allow_empty allows
            return _unserved(f"the daemon cannot list its directory: {error}")
        if listed == samples and {type(label) for _, label in samples} == {int}:
            self._labels = None
            return Samples(self)
        number = {path: (i, label) for i, (path, label) in enumerate(listed)}
        ids = array.array("i")
        labels: dict[int, object] = {}
        for path, label in samples:
            found = number.get(os.fspath(path))
            if found is None:
                return _unserved(
                    f"{path} is one of its samples, but not one of those which the daemon lists in "
                    f"{self.root}"
                )
            if not isinstance(label, (int, float, str, tuple)):
                return _unserved(f"the label of {path} is a {type(label).__name__}")
            ids.append(found[0])
            if labels.setdefault(found[1], label) != label:
                return _unserved(
                    f"its samples give files of {os.path.dirname(path)} the labels "
                    f"{labels[found[1]]!r} and {label!r}, and the daemon has one for each directory"
                )
        if not ids:
            return _unserved("it has no samples")
        same = all(type(label) is int and label == i for i, label in labels.items())
        self._labels = None if same else [labels.get(i) for i in range(len(self._facts["classes"]))]
        whole = len(ids) == len(listed) and all(map(operator.eq, ids, range(len(ids))))
        return Samples(self, None if whole else ids)


class OwnListing(Mirror):
    """The same of an :class:`ImageFolder` that has a listing of its own."""

    @property
    def raw(self) -> bool:  # type: ignore[override]
        """Whether the object's bytes stay as they are."""
        return bool(self.of.raw)  # type: ignore[attr-defined]

    @property
    def loader(self) -> Callable[..., object]:
        """From a file's bytes to an object."""
        return self.of.loader

    def _other_decoder(self) -> str:
        return ""
