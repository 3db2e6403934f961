"""Which datasets the daemon serves: folders, lists of records, parts of them, and several.

torchvision is never imported: an object is one of its folders if its class comes from the module
that the program has loaded.
"""

from __future__ import annotations

import array
import operator
import os
import pickle
from typing import Any, NamedTuple

from torch.utils.data.dataset import ConcatDataset, Subset

from ..._lib import originals
from ..._records.declared import Declared
from ..._records.file_dataset import files_of
from ..._records.records import Listed
from ...data import Folder
from ...errors import ConfigError
from .folder import ImageFolder
from .hf import HFDataset
from .joined import Joined, piece_of, shown
from .mirror import Mirror, OwnListing, Samples, unserved
from .own_items import FileDataset
from .reasons import (
    ITEMS,
    is_torchvision,
    overrides,
    own_methods,
    revealed_by_calling,
    why_in_python,
)
from .vision import Found, VisionFiles, vision


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
            return unserved(
                f"{type(dataset).__name__}.__init__ does not call super().__init__(), so it has no "
                f"{_lacks(dataset)}"
            )
        if isinstance(dataset, FileDataset):
            own = own_methods(FileDataset, dataset, "__getitem__", "__getitems__")
            return unserved(overrides(dataset, own)) if own else Samples(self._declared(dataset))
        if isinstance(dataset, HFDataset) and dataset.unserved:
            return unserved(dataset.unserved)
        if isinstance(dataset, Listed):
            own = own_methods(type_of_records(dataset), dataset, *ITEMS, "sample", "targets")
            why = overrides(dataset, own) if own else originals.replaced("HDMLP's folders")
            return unserved(why) if why else Samples(dataset)
        if isinstance(dataset, Folder):
            known = ImageFolder if isinstance(dataset, ImageFolder) else Folder
            own = own_methods(known, dataset, *ITEMS, "sample", "samples", "targets")
            why = overrides(dataset, own) if own else originals.replaced("HDMLP's folders")
            if why:
                return unserved(why)
            if isinstance(dataset, ImageFolder) and dataset.own_listing:
                return self._mirror(dataset, OwnListing).samples_of_it()
            return Samples(dataset)
        if is_torchvision(dataset):
            return self._mirror(dataset, Mirror).samples_of_it()
        found = vision(dataset)
        if found is not None:
            return unserved(found.why) if found.why else Samples(self._vision(dataset, found))
        return unserved(why_in_python(dataset))

    def _mirror(self, dataset: Any, kind: type[Mirror]) -> Mirror:
        """Returns the mirror of a dataset, made if there is none."""
        mirror = next((mirror for mirror in self._mirrors if mirror.of is dataset), None)
        if mirror is None:
            mirror = kind(dataset)
            self._mirrors.append(mirror)
        return mirror

    def _vision(self, dataset: Any, found: Found) -> VisionFiles:
        """Returns the files of one of torchvision's datasets of images with targets."""
        known = next((known for known in self._pictures if known.of is dataset), None)
        if known is None or not known.current(found):
            self._pictures = [other for other in self._pictures if other is not known]
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
            return unserved(why)
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
            return unserved()  # there is nothing to serve
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
            return unserved(f"the parts of the ConcatDataset have {differs}, and {error}")
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
            return unserved()
        own = own_methods(ConcatDataset, dataset, "__getitems__")
        why = revealed_by_calling(originals.replaced("subsets"))
        why = overrides(dataset, own) if own else why
        if why:
            return unserved(why)
        for part in parts:
            if part.folder is None:
                return unserved(part.why or "one part of the ConcatDataset is not a folder")
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
