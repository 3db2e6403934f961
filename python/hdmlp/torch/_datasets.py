"""Which datasets the daemon serves: HDMLP's and torchvision's folders, parts of them, and several parts of one.

torchvision is never imported: an object is one of its folders if its class comes from the module that the program has loaded.
"""

from __future__ import annotations

import array
import operator
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import torch.utils.data

from ..data import Folder
from ..errors import ConfigError, DatasetError
from ._folder import ImageFolder, pil_loader, torchvision_loads

#: What says of a folder which items it has: with a method of the user's in one of these places, only calling it tells.
_ITEMS = ("__getitem__", "__getitems__", "__len__")


class Samples(NamedTuple):
    """Which samples the items of a dataset are.

    Attributes:
        folder: whose samples; None: the daemon does not serve the dataset.
        ids: which of them, in order; None: all.
        why: why the daemon does not serve a dataset that has files of a folder for items; empty: it has not.
    """

    folder: Folder | None
    ids: array.array[int] | None
    why: str = ""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Samples)
            and self.folder is other.folder
            and (self.ids is other.ids or self.ids == other.ids)
        )

    __hash__ = None  # type: ignore[assignment]


class _Part(NamedTuple):
    """What was found of a Subset: of which samples, from a copy of its indices."""

    dataset: Any
    whole: Samples
    indices: list[Any]
    samples: Samples


class Datasets:
    """Tells :class:`Samples` of datasets, again and again: what has not changed is not compared again."""

    def __init__(self) -> None:
        self._mirrors: list[Mirror] = []
        self._parts: list[_Part] = []

    def samples(self, dataset: Any) -> Samples:
        """Which samples the dataset's items are now."""
        if type(dataset) is torch.utils.data.Subset:
            return self._subset(dataset)
        if type(dataset) is torch.utils.data.ConcatDataset:
            return self._concatenated(dataset)
        if isinstance(dataset, Folder):
            known = ImageFolder if isinstance(dataset, ImageFolder) else Folder
            plain = _as_in(known, dataset, *_ITEMS, "sample", "samples", "targets")
            return Samples(dataset if plain else None, None)
        if _is_torchvision(dataset):
            mirror = next((mirror for mirror in self._mirrors if mirror.of is dataset), None)
            if mirror is None:
                mirror = Mirror(dataset)
                self._mirrors.append(mirror)
            return mirror.samples_of_it()
        return Samples(None, None)

    def _subset(self, dataset: torch.utils.data.Subset) -> Samples:
        whole = self.samples(dataset.dataset)
        if whole.folder is None:
            return whole
        indices = dataset.indices
        kept = next((part for part in self._parts if part.dataset is dataset), None)
        if (
            kept is not None
            and kept.whole == whole
            and type(indices) is list
            and kept.indices == indices
        ):
            return kept.samples
        count = len(whole.folder) if whole.ids is None else len(whole.ids)
        places = [operator.index(index) for index in indices]
        if not places:
            return Samples(None, None)  # as torch has it, there is nothing to serve
        outside = next((place for place in places if not -count <= place < count), None)
        if outside is not None:
            return Samples(
                None,
                None,
                f"index {outside} of the Subset is outside its dataset of {count} samples",
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

    def _concatenated(self, dataset: torch.utils.data.ConcatDataset) -> Samples:
        parts = [self.samples(part) for part in dataset.datasets]
        if all(part.folder is None and not part.why for part in parts):
            return Samples(None, None)
        for part in parts:
            if part.folder is None:
                return Samples(None, None, part.why or "one part of the ConcatDataset is no folder")
        first = parts[0].folder
        for part in parts[1:]:
            differs = _difference(first, part.folder)
            if differs:
                return Samples(
                    None,
                    None,
                    f"the parts of the ConcatDataset have {differs}, and the daemon serves one at a time: a loader for each does it",
                )
        ids = array.array("i")
        for part in parts:
            ids.extend(range(len(part.folder)) if part.ids is None else part.ids)
        return Samples(first, ids)


def _difference(a: Folder, b: Folder) -> str:
    """What is not the same of two folders' samples and of what is made of them; empty: nothing."""
    if a is b:
        return ""
    if a.describe() != b.describe():
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


def _same(a: Any, b: Any) -> bool:
    """True if the two objects are known to do the same."""
    if a is b:
        return True
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception:  # a closure, for instance
        return False


def _as_in(known: type, value: Any, *names: str) -> bool:
    """True if nothing was put over the methods of the class."""
    return all(
        getattr(type(value), name, None) is getattr(known, name, None) and name not in vars(value)
        for name in names
    )


def _is_torchvision(dataset: Any) -> bool:
    """True of torchvision's folders whose items are made as DatasetFolder makes them."""
    module = sys.modules.get("torchvision.datasets.folder")
    return (
        module is not None
        and isinstance(dataset, module.DatasetFolder)
        and _as_in(module.DatasetFolder, dataset, *_ITEMS)
    )


class Relabelled:
    """From the daemon's class number to what the user's samples say, or what ``then`` makes of that.

    Args:
        labels: by the daemon's class number.
        then: applied to it; None: nothing.
    """

    def __init__(self, labels: Sequence[Any], then: Callable | None):
        self.labels, self.then = labels, then

    def __call__(self, number: int) -> Any:
        label = self.labels[number]
        return label if self.then is None else self.then(label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Relabelled) and (self.labels, self.then) == (
            other.labels,
            other.then,
        )

    __hash__ = None  # type: ignore[assignment]


class Mirror(Folder):
    """The files of a folder of torchvision's, as the daemon lists them. What is made of them is what the object says at the moment.

    Args:
        dataset: a ``DatasetFolder``, ``ImageFolder`` or ``ImageNet``. Its ``samples`` say which items there are.

    Attributes:
        of: the dataset.
    """

    def __init__(self, dataset: Any):
        self.of = dataset
        self._known: list[Any] | None = None  # a copy of its samples, as they were when found was
        self._found = Samples(None, None)
        self._labels: list[Any] | None = (
            None  # what its samples say of each of the daemon's classes; None: the same number
        )
        extensions = dataset.extensions
        if extensions is None or tuple(extensions) == tuple(
            sys.modules["torchvision.datasets.folder"].IMG_EXTENSIONS
        ):
            extensions = None  # the daemon's own are these
        super().__init__(getattr(dataset, "split_folder", dataset.root), extensions)

    # What is made of the files.

    raw = False

    @property
    def transform(self) -> Callable | None:
        """What the object has."""
        return self.of.transform

    @property
    def target_transform(self) -> Callable | None:
        """From the daemon's class number to the item's label; None: it is the label."""
        then = self.of.target_transform
        return then if self._labels is None else Relabelled(self._labels, then)

    def named(self) -> tuple[list[Any], Callable | None]:
        """What the object calls each of the daemon's classes, and what it applies to labels.

        Raises:
            ConfigError: its labels are no numbers of its classes.
        """
        names, labels = self.of.classes, self._labels
        if labels is None:
            return names, self.of.target_transform
        wrong = next(
            (
                label
                for label in labels
                if label is not None and (type(label) is not int or not 0 <= label < len(names))
            ),
            None,
        )
        if wrong is not None:
            raise ConfigError(
                f"labels='name': the label {wrong!r} of its samples is no number of one of its {len(names)} classes; leave labels out"
            )
        return [
            None if label is None else names[label] for label in labels
        ], self.of.target_transform

    @property
    def loader(self) -> Callable:
        """From a file's bytes to an image."""
        return pil_loader

    @property
    def classes(self) -> list[Any]:
        """What the object calls its classes."""
        return self.of.classes

    # Which files they are.

    def samples_of_it(self) -> Samples:
        """Which of the daemon's samples the object's items are."""
        why = self._not_ours()
        if why:
            return Samples(None, None, why)
        samples = self.of.samples
        if (
            self._known is None
            or len(self._known) != len(samples)
            or not all(map(operator.is_, self._known, samples))
        ):
            self._found = self._compare(samples)
            # Entries that can be changed where they are have to be compared each time.
            self._known = list(samples) if set(map(type, samples)) <= {tuple} else None
        return self._found

    def _not_ours(self) -> str:
        """Why the daemon cannot make the items' images; empty: it can."""
        if not torchvision_loads(self.of.loader):
            return "its loader is a function of yours that is given paths: hdmlp.torch.ImageFolder takes one that is given bytes"
        torchvision = sys.modules.get("torchvision")
        if torchvision is not None and torchvision.get_image_backend() != "PIL":
            return f"torchvision.set_image_backend({torchvision.get_image_backend()!r}) chose another decoder than PIL"
        return ""

    def _compare(self, samples: list[Any]) -> Samples:
        try:
            listed = list(super().samples)
        except DatasetError as error:  # directories without files, which allow_empty allows
            return Samples(None, None, f"the daemon cannot list its directory: {error}")
        if listed == samples and set(type(label) for _, label in samples) == {int}:
            self._labels = None
            return Samples(self, None)
        number = {path: (i, label) for i, (path, label) in enumerate(listed)}
        ids, labels = array.array("i"), {}
        for path, label in samples:
            found = number.get(os.fspath(path))
            if found is None:
                return Samples(
                    None,
                    None,
                    f"{path} is one of its samples, and no sample of the directory {self.root} as the daemon lists it",
                )
            if not isinstance(label, (int, float, str, tuple)):
                return Samples(None, None, f"the label of {path} is a {type(label).__name__}")
            ids.append(found[0])
            if labels.setdefault(found[1], label) != label:
                return Samples(
                    None,
                    None,
                    f"its samples give files of {os.path.dirname(path)} the labels {labels[found[1]]!r} and {label!r}, and the daemon "
                    "knows one for each directory",
                )
        if not ids:
            return Samples(None, None, "it has no samples")
        same = all(type(label) is int and label == i for i, label in labels.items())
        self._labels = None if same else [labels.get(i) for i in range(len(self.facts["classes"]))]
        whole = len(ids) == len(listed) and all(map(operator.eq, ids, range(len(ids))))
        return Samples(self, None if whole else ids)
