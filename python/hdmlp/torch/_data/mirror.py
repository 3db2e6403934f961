"""Folders of torchvision's, and those that list themselves, as the daemon lists their files.

torchvision is never imported: an object is one of its folders if its class comes from the module
that the program has loaded.
"""

from __future__ import annotations

import array
import operator
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..._lib import originals
from ...data import Folder
from ...errors import ConfigError, DatasetError
from .folder import pil_loader, torchvision_loads
from .interfaces import TorchvisionFolder


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


def unserved(why: str = "") -> Samples:
    """Returns the samples of a dataset that the daemon does not serve."""
    return Samples(None, None, why)


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

    What is made of them follows from the object at the time.

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
        self._found = unserved()
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
            return unserved(why)
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
            return unserved(f"the daemon cannot list its directory: {error}")
        if listed == samples and {type(label) for _, label in samples} == {int}:
            self._labels = None
            return Samples(self)
        number = {path: (i, label) for i, (path, label) in enumerate(listed)}
        ids = array.array("i")
        labels: dict[int, object] = {}
        for path, label in samples:
            found = number.get(os.fspath(path))
            if found is None:
                return unserved(
                    f"{path} is one of its samples, but not one of those which the daemon lists in "
                    f"{self.root}"
                )
            if not isinstance(label, (int, float, str, tuple)):
                return unserved(f"the label of {path} is a {type(label).__name__}")
            ids.append(found[0])
            if labels.setdefault(found[1], label) != label:
                return unserved(
                    f"its samples give files of {os.path.dirname(path)} the labels "
                    f"{labels[found[1]]!r} and {label!r}, and the daemon has one for each directory"
                )
        if not ids:
            return unserved("it has no samples")
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
