"""Several datasets of records as one."""

from __future__ import annotations

import logging
import operator
import pickle
from collections.abc import Sequence
from typing import Any

import torch.utils.data

from ..._records.joined import (
    Piece,
    Places,
    joined_files,
    joined_form,
    joined_keys,
    joined_labels,
)
from ..._records.records import Listed
from ..._transforms.entries import Entries
from ..._transforms.generators import generators_kept
from ..._transforms.keys import LOADER
from ...data import described
from ...errors import ConfigError
from .collated import collate_records
from .fields import Fields, OfRecord, OfRecords, Part, Step, made_of, part_of
from .folder import Decoder, ImageFolder, pil_loader
from .hf import HFDataset
from .mirror import Mirror
from .records import Files, Making

log = logging.getLogger("hdmlp")


class Joined(Making, Listed, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Several datasets of records as one, of which the same is made.

    Args:
        pieces: The datasets' records, one after another.
        shown: What ``repr`` shows of them.
        renumber: Labels that are texts get one list of classes; otherwise the datasets' numbers of
            classes must agree.

    Raises:
        ConfigError: The datasets do not fit together.
    """

    def __init__(self, pieces: Sequence[Piece], shown: str, renumber: bool):
        self._pieces, self._places, self._shown = list(pieces), Places(pieces), shown
        _check_features(pieces)
        form = joined_form(self._places)
        files, ranges = joined_files(pieces)
        labels = [piece.records._labels for piece in pieces]
        made = joined_labels(pieces, labels, renumber)
        self._set(files, form, ranges, made, joined_keys(pieces))
        self._then: list[Step] = []
        self._looked: dict[int, list[Step]] = {}  # transforms of which results were compared
        self._check_shapes(self._plan(wanted=True, say=False))

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        pieces = self._pieces
        plans = [p.records._plan(wanted, say and p is pieces[0], raw) for p in pieces]
        first = plans[0]
        for piece, plan in zip(pieces, plans):
            if type(plan) is not Fields or _has_more(piece.records._form, plan):
                raise ConfigError(
                    f"{piece.name} makes items of several fields or of whole rows together, or "
                    "lacks files of some rows, which a Mix does not support: give transforms by "
                    "field, decode all images, and leave out rows without them"
                )
            for what in ("target_transform", "joint", "then"):
                if not same(getattr(plan, what), getattr(first, what)):
                    name = {"joint": "transforms", "then": "map"}.get(what, what)
                    raise ConfigError(
                        f"{piece.name} and {pieces[0].name} have different functions for items "
                        f"({name}): give both the same"
                    )
        parts = []
        for i in range(len(first.parts)):
            of = [plan.parts[i] for plan in plans]
            differs = self._differs(of)
            if differs and self._own_transforms:
                parts.append(self._part_apart(i, of, differs, wanted, say))
            elif differs:
                raise ConfigError(f"{differs}: give both the same loader and transform")
            else:
                parts.append(self._part(of))
        labellers = [plan.labeller for plan in plans]
        if len({labeller is None for labeller in labellers}) > 1:
            raise ConfigError("some of the datasets have a function for labels, and some have none")
        return Fields(
            parts,
            self._form,
            self._labels,
            first.target_transform,
            first.joint,
            first.then,
            None if first.labeller is None else _Labellers(self._places, labellers),
            max(plan.end for plan in plans),
        )

    def _collation(self) -> Step:
        """Returns what collates items; the targets of torchvision's datasets decide."""
        found = [p.records._collation() for p in self._pieces if isinstance(p.records, Making)]
        return next((one for one in found if one is not collate_records), collate_records)

    def _differs(self, parts: list[Part]) -> str:
        """Returns how what is made of a field differs between the datasets; empty: not at all."""
        for piece, part in zip(self._pieces, parts):
            what = _difference(parts[0], part)
            if what:
                return (
                    f"{piece.name} and {self._pieces[0].name} differ in what is made of the field "
                    f"{part.name!r}: {what}"
                )
        return ""

    def _part_apart(
        self, field: int, parts: list[Part], differs: str, wanted: bool, say: bool
    ) -> Part:
        """Returns what is made of a field, of which each dataset has transforms of its own.

        Raises:
            ConfigError: More differs, or some of them cannot run in Python.
        """
        try:
            plain = [p.records._plan(False, False).parts[field] for p in self._pieces]
        except ConfigError as error:
            raise ConfigError(
                f"{differs}; lists that differ run in Python, where those of hdmlp.transforms "
                "cannot: use torchvision's, or give all datasets the same list"
            ) from error
        first = plain[0]
        for part in plain:
            load = part.load
            decodes = load is pil_loader or isinstance(load, Decoder)
            if not decodes or not same(load, first.load) or part.column is not None:
                raise ConfigError(f"{differs}: give both the same loader and transform")
        lists = [p.transform if isinstance(p.transform, Entries) else None for p in plain]
        own = OfRecords(self._places.number, lists)
        if wanted or say:
            self._look(field, first._replace(transform=own), own.steps)
        if say and wanted:
            log.warning(
                "the transforms of the field %s run in Python, on images that the daemon decodes, "
                "because the datasets have lists of their own",
                first.name,
            )
        made = part_of(first.name, first.load, None, wanted, False)
        return made._replace(transform=own)

    #: Datasets may have transforms of their own.
    _own_transforms = False

    def _part(self, parts: list[Part]) -> Part:
        """Returns what is made of a field, which is the same for all datasets."""
        pieces, first = self._pieces, parts[0]
        made = first
        if isinstance(first.load, OfRecord):
            made = made._replace(load=_OfPieces(self._places, parts))
        columns = [part.column for part in parts if part.column is not None]
        if columns:
            made = made._replace(column=joined_labels(pieces, columns))
        return made

    def _check_shapes(self, plan: Fields) -> None:
        """Checks that Python makes arrays of one type and shape of all datasets' fields.

        Where the first and the last sample of a dataset differ in shape, batches are lists.
        """
        for field, part in enumerate(plan.parts):
            if not part.described and part.load is not None and part.column is None:
                self._check_shape(field, part)

    def _look(self, field: int, part: Part, steps: list[Step]) -> None:
        """Checks the results of a field's transforms, unless it did so."""
        known = self._looked.get(field)
        if known is None or len(known) != len(steps) or any(map(operator.is_not, known, steps)):
            self._check_shape(field, part)
            self._looked[field] = steps

    def _check_shape(self, field: int, part: Part) -> None:
        found: list[set[object]] = []
        for start, size in zip(self._places.starts, self._places.sizes):
            found.append({self._kind(field, part, i) for i in (start, start + size - 1)})
        for piece, kinds in zip(self._pieces, found):
            if len(kinds) == len(found[0]) == 1 and None not in kinds | found[0]:
                (kind,), (first,) = kinds, found[0]
                if kind != first:
                    raise ConfigError(
                        f"the field {part.name!r} is {kind} in {piece.name}, and {first} in "
                        f"{self._pieces[0].name}: give both transforms that make one "
                        "type and shape"
                    )

    def _kind(self, field: int, part: Part, sample: int) -> str | None:
        """Returns the type and shape of a sample's field; None: it has none, or cannot be made."""
        try:
            data = self._fields_of(sample)[field]
            with generators_kept():
                value = made_of(part, data, sample, None, LOADER + field)
        except Exception:  # the loader reports what is wrong with it
            return None
        if type(value).__module__.startswith("PIL."):
            return "a PIL image"
        shape = getattr(value, "shape", None)
        if shape is None or not hasattr(value, "dtype"):
            return None
        return f"{type(value).__name__} of {value.dtype} of shape {tuple(shape)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{self._shown}])"


def shown(datasets: Sequence[object]) -> str:
    """Returns what messages show of datasets."""
    return ", ".join(map(_short, datasets[:3])) + (", ..." if len(datasets) > 3 else "")


def _short(dataset: object) -> str:
    root = getattr(dataset, "root", None)
    return type(dataset).__name__ + (f"({root!r})" if isinstance(root, str) else "")


def piece_of(name: str, dataset: object, folder: Any, ids: Sequence[int] | None) -> Piece:
    """Returns a dataset, or a Subset of one, as records.

    Args:
        name: What messages call it.
        dataset: The dataset.
        folder: Whose samples its items are, as the daemon lists them; None: it has none.
        ids: Which of them; None: all.

    Raises:
        ConfigError: HDMLP does not read its samples.
    """
    part: Any = dataset
    while type(part) is torch.utils.data.Subset:
        part = part.dataset
    if isinstance(part, Listed) and not isinstance(part, Making):
        raise ConfigError(
            f"{name} is a {type(part).__name__} of hdmlp.data: use that of hdmlp.torch"
        )
    if not isinstance(part if folder is None else folder, (ImageFolder, Making, Mirror)):
        raise ConfigError(
            f"{name} is a {type(part).__name__}, whose samples HDMLP does not read itself: "
            "give hdmlp.torch's ImageFolder, Files, Records, WebDataset, LMDB or the like"
        )
    if isinstance(part, HFDataset) and part.alone:
        raise ConfigError(f"{name}: {part.alone}")
    if folder is None:
        return Piece(name, _Empty())
    return Piece(name, folder if isinstance(folder, Making) else _FolderFiles(folder), ids)


class _Empty:
    """What a Subset without indices is of."""

    def __len__(self) -> int:
        return 0


class _FolderFiles(Files):
    """A folder's files as records, of which the same is made as of the folder's samples.

    Args:
        folder: The folder, whose files are listed now.
    """

    def __init__(self, folder: ImageFolder | Mirror):
        self.folder = folder
        samples = folder.samples
        paths, labels = [path for path, _ in samples], [label for _, label in samples]
        super().__init__(paths, labels, classes=folder.classes)

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        folder = self.folder
        self.loader = None if folder.raw else folder.loader
        self.transform, self.target_transform = folder.transform, folder.target_transform
        return super()._plan(wanted, say, raw)


#: What of a dataset's plan, and of the form of its items, a mix puts together.
_MERGED = frozenset(
    ("parts", "form", "labels", "target_transform", "joint", "then", "labeller", "end")
)
_FORM = frozenset(("kind", "fields", "omits", "columns", "names", "beside"))


def _has_more(form: object, plan: Fields) -> bool:
    """Reports whether items are made by more than a mix puts together."""
    more = [value for name, value in vars(form).items() if name not in _FORM]
    for name, value in vars(plan).items():
        if name not in _MERGED:
            more += value if isinstance(value, list) else [value]
    return any(value is not None and value != {} for value in more)


def _check_features(pieces: Sequence[Piece]) -> None:
    """Checks that columns of Hugging Face's datasets mean the same, names of classes included."""
    found = [getattr(getattr(p.records, "dataset", None), "features", None) for p in pieces]
    for piece, features in zip(pieces, found):
        if found[0] is None or features is None:
            continue
        for name in features:
            if features[name] != found[0].get(name):
                raise ConfigError(
                    f"{piece.name} and {pieces[0].name} have different features: the column "
                    f"{name!r} is {features[name]} and {found[0].get(name)}: cast one "
                    "(cast_column)"
                )


def _difference(a: Part, b: Part) -> str:
    """Returns how what is made of two fields differs; empty: not at all."""
    if (a.column is None) != (b.column is None):
        return "not all of its values are numbers"
    if repr(a.shaped) != repr(b.shaped):
        return f"its arrays are {b.shaped!r} and {a.shaped!r}"
    mine, theirs = described(a.described) or [], described(b.described) or []
    if mine != theirs:
        for x, y in zip(mine, theirs):
            if x != y:
                return f"the daemon's transforms are {y} and {x}"
        return f"the daemon's transforms are {theirs} and {mine}"
    for what in ("transform", "wrap"):
        x, y = (getattr(part, what) for part in (a, b))
        if not same(getattr(x, "steps", x), getattr(y, "steps", y)):
            return f"the transforms in Python are {y!r} and {x!r}"
    if isinstance(a.load, OfRecord) and type(a.load) is type(b.load):
        return ""
    return "" if same(a.load, b.load) else f"the loaders are {b.load!r} and {a.load!r}"


def same(a: object, b: object) -> bool:
    """Reports whether two objects are known to do the same."""
    if a is b:
        return True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is not type(b):
        return False
    try:
        return bool(pickle.dumps(a) == pickle.dumps(b))
    except Exception:  # a closure, for instance
        return False


class _OfPieces(OfRecord):
    """What a field's bytes become, by the dataset and the record.

    Args:
        places: Where the datasets' records are.
        parts: What is made of the field in each.
    """

    def __init__(self, places: Places, parts: Sequence[Part]):
        self.places = places
        self.loads = [part.load for part in parts if isinstance(part.load, OfRecord)]

    def of_record(self, data: object, sample: int) -> object:
        """Returns what the bytes of a record are."""
        number, own = self.places.of(sample)
        return self.loads[number].of_record(data, own)


class _Labellers:
    """Makes labels of records' bytes, by the dataset.

    Args:
        places: Where the datasets' records are.
        labellers: What makes them in each.
    """

    def __init__(self, places: Places, labellers: Sequence[Step]):
        self.places, self.labellers = places, list(labellers)

    def __call__(self, sample: int, value: object) -> object:
        number, own = self.places.of(sample)
        return self.labellers[number](own, value)
