"""Several datasets that are mixed by weights."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
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
from ..._records.mixture import Mixture, checked_weights, epoch_of
from ..._records.records import Listed
from ..._transforms.generators import generators_kept
from ..._transforms.keys import LOADER
from ...data import Folder, described
from ...errors import ConfigError
from .datasets import Datasets
from .fields import Fields, OfRecord, Part, Step, made_of
from .folder import ImageFolder
from .hf import HFDataset
from .records import Files, Making

_BATCHES = ("mixed", "one dataset each")


class Mix(Making, Listed, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Several datasets, of which epochs take samples by weights.

    Each dataset is gone through in passes: each of its samples comes once before any comes again,
    also over the ends of epochs. Of each dataset an epoch has its share by the weights, rounded up
    or down to a sample. Which sample comes when follows from weights, seed and epoch alone, so the
    daemon plans, caches and resumes a mix as any dataset. The loader's ``shuffle=True`` draws both
    the order of each pass and which dataset comes when; with ``shuffle=False`` datasets are gone
    through in order, and their samples are spread evenly over the epoch.

    ``mix[i]`` counts through the datasets, one after another, and ``len(mix)`` is the number of all
    their samples. ``len(loader)`` follows from the length of an epoch.

    Args:
        datasets: A list of datasets of HDMLP's, or a dict of them by name. Also torch's ``Subset``
            of such. What is made of their samples must be the same: fields, types, and transforms.
        weights: A number for each dataset, in any proportion; a dict by name; or a list of such
            lists, one per epoch, of which the last holds for all later epochs. Numbers of 0 leave
            datasets out. Default: None, their lengths: each sample comes equally often.
        epoch_size: Samples of an epoch. Default: None, ``stopping_strategy`` says.
        stopping_strategy: Without ``epoch_size``, an epoch ends when one of the datasets has been
            gone through once (``"first_exhausted"``), or when all have, of which shorter ones
            begin again (``"all_exhausted"``). Datasets whose weight is 0 do not count.
            Default: ``"first_exhausted"``.
        batches: ``"mixed"``, or ``"one dataset each"``: the batches of a step, on all ranks, have
            samples of one dataset, and weights are shares of the steps. An epoch then has only
            whole batches: ``epoch_size`` must be a multiple of ``batch_size`` times the number of
            ranks, and lengths by ``stopping_strategy`` are rounded to one, up for
            ``"all_exhausted"``. Default: ``"mixed"``.

    Labels that are numbers stay as they are. Labels that are texts become numbers of the classes of
    all datasets, sorted, or of the ``classes`` that a dataset was given.

    Raises:
        ConfigError: An argument is wrong, or the datasets do not fit together.
    """

    def __init__(
        self,
        datasets: Sequence[object] | Mapping[str, object],
        weights: object = None,
        epoch_size: int | None = None,
        stopping_strategy: str = "first_exhausted",
        batches: str = "mixed",
    ):
        if batches not in _BATCHES:
            raise ConfigError(f"batches={batches!r}: allowed: {', '.join(map(repr, _BATCHES))}")
        names, listed = _named(datasets)
        self._shown = ", ".join(map(_short, listed[:3])) + (", ..." if len(listed) > 3 else "")
        pieces = [_piece(name, dataset) for name, dataset in zip(_called(names, listed), listed)]
        _check_objects(pieces, listed)
        self._names = names
        self._pieces, self._places = pieces, Places(pieces)
        places = self._places
        self._weights = checked_weights(weights, names, places.sizes)
        self._entries, self._ends = epoch_of(
            places.sizes, self._weights, epoch_size, stopping_strategy
        )
        self._given_size, self._strategy = epoch_size, stopping_strategy
        self._single = batches == "one dataset each"
        form = joined_form(places)
        files, ranges = joined_files(pieces)
        labels = joined_labels(pieces, [piece.records._labels for piece in pieces])
        self._set(files, form, ranges, labels, joined_keys(pieces))
        self._then: list[Step] = []
        self._check_shapes(self._plan(wanted=True, say=False))

    # The order.

    def mixture(self, global_batch: int) -> Mixture:
        """Returns what the order of epochs follows from.

        Args:
            global_batch: Samples of a step, on all ranks.

        Raises:
            ConfigError: Batches are of one dataset each, and ``epoch_size`` is no multiple of it.
        """
        sizes, rows = self._places.sizes, self._weights.rows
        if not self._single:
            return Mixture(sizes, rows, self._entries, self._ends)
        least = self._entries // global_batch * global_batch
        if self._given_size is not None and least != self._entries:
            raise ConfigError(
                f"epoch_size={self._entries}: with batches='one dataset each' it must be a "
                f"multiple of batch_size times the number of ranks, {global_batch}: give "
                f"{f'{least} or ' if least else ''}{least + global_batch}"
            )
        if least < self._entries and (self._strategy == "all_exhausted" or not least):
            least += global_batch
        return Mixture(sizes, rows, least, -1, True, global_batch)

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch, as far as it does not follow from the loader's batches."""
        return self._entries

    def source_of(self, index: Any) -> Any:
        """Returns which dataset a sample is of, and its index in it.

        Args:
            index: A sample's index in the mix; or several, as a tensor, an array or a sequence.

        Returns:
            (number of the dataset, index), of several two tensors, arrays or lists.

        Raises:
            IndexError: There is no such sample.
        """
        if isinstance(index, (list, tuple, range)):
            found = self._sources(torch.tensor(list(index), dtype=torch.int64))
            return tuple(part.tolist() for part in found)
        if isinstance(index, torch.Tensor) and index.ndim:
            return self._sources(index)
        if getattr(index, "ndim", 0):
            found = self._sources(torch.as_tensor(index))
            return tuple(part.numpy() for part in found)
        sample = self._index(index)
        number, _ = self._places.of(sample)
        return number, sample - self._places.starts[number]

    def _sources(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise TypeError(f"indices must be whole numbers, not {index.dtype}")
        count, samples = len(self), index.to(torch.int64)
        wrong = samples[samples.lt(-count) | samples.ge(count)]
        if len(wrong):
            self._index(int(wrong[0]))  # which raises
        samples, starts = samples.remainder(count), torch.tensor(self._places.starts)
        numbers = torch.bucketize(samples, starts, right=True).sub(1)
        return numbers, samples.sub(starts[numbers])

    # What is made of samples.

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        pieces = self._pieces
        plans = [p.records._plan(wanted, say and p is pieces[0], raw) for p in pieces]
        first = plans[0]
        for piece, plan in zip(pieces, plans):
            for what in ("target_transform", "joint", "then"):
                if not same(getattr(plan, what), getattr(first, what)):
                    name = {"joint": "transforms", "then": "map"}.get(what, what)
                    raise ConfigError(
                        f"{piece.name} and {pieces[0].name} have different functions for items "
                        f"({name}): give both the same"
                    )
        parts = [self._part([plan.parts[i] for plan in plans]) for i in range(len(first.parts))]
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
            first.end,
        )

    def _part(self, parts: list[Part]) -> Part:
        """Returns what is made of a field, which is the same for all datasets."""
        pieces, first = self._pieces, parts[0]
        for piece, part in zip(pieces, parts):
            what = _difference(first, part)
            if what:
                raise ConfigError(
                    f"{piece.name} and {pieces[0].name} differ in what is made of the field "
                    f"{first.name!r}: {what}: give both the same loader and transform"
                )
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
            if part.described or part.load is None or part.column is not None:
                continue
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
        except Exception:  # the loader says what is wrong with it
            return None
        shape = getattr(value, "shape", None)
        if shape is None or not hasattr(value, "dtype"):
            return None
        return f"{type(value).__name__} of {value.dtype} of shape {tuple(shape)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{self._shown}])"


def _short(dataset: object) -> str:
    root = getattr(dataset, "root", None)
    return type(dataset).__name__ + (f"({root!r})" if isinstance(root, str) else "")


def _named(datasets: object) -> tuple[list[str] | None, list[object]]:
    """Returns the datasets' names, None if they have none, and the datasets."""
    if isinstance(datasets, Mapping):
        for name in datasets:
            if not isinstance(name, str):
                raise ConfigError(f"datasets has the key {name!r}: names of datasets are texts")
        names, listed = list(datasets), list(datasets.values())
    elif isinstance(datasets, (Listed, Folder)) or not isinstance(datasets, Sequence):
        raise ConfigError(
            f"datasets={datasets!r:.200}: must be a list of datasets, or a dict of them by name"
        )
    else:
        names, listed = None, list(datasets)
    if not listed:
        raise ConfigError("datasets: the list is empty; give at least one")
    return names, listed


def _called(names: list[str] | None, listed: Sequence[object]) -> list[str]:
    """Returns what messages call the datasets."""
    if names is None:
        return [f"datasets[{d}]" for d in range(len(listed))]
    return [f"datasets[{name!r}]" for name in names]


def _check_objects(pieces: Sequence[Piece], given: Sequence[object]) -> None:
    """Checks that no dataset is there twice, or has no samples."""
    for d, piece in enumerate(pieces):
        first = next(i for i, other in enumerate(given) if other is given[d])
        if first != d:
            raise ConfigError(
                f"{piece.name} is the same dataset as {pieces[first].name}, and would be read and "
                "cached twice: give it once, with the sum of both weights"
            )
        if not piece.count:
            raise ConfigError(f"{piece.name} is empty: leave it out")


def _piece(name: str, dataset: object) -> Piece:
    """Returns a dataset as records.

    Raises:
        ConfigError: HDMLP does not read its samples.
    """
    part: Any = dataset
    while type(part) is torch.utils.data.Subset:
        part = part.dataset
    if isinstance(part, Mix):
        raise ConfigError(
            f"{name} is a Mix: give one Mix all of its datasets, with the products of the weights"
        )
    if isinstance(part, Listed) and not isinstance(part, Making):
        raise ConfigError(
            f"{name} is a {type(part).__name__} of hdmlp.data: use that of hdmlp.torch"
        )
    if not isinstance(part, (ImageFolder, Making)):
        raise ConfigError(
            f"{name} is a {type(part).__name__}, whose samples HDMLP does not read itself: a Mix "
            "is of hdmlp.torch's ImageFolder, Files, Records, WebDataset, LMDB and the like"
        )
    samples = Datasets().samples(dataset)
    if isinstance(part, HFDataset) and part.alone:
        raise ConfigError(f"{name}: {part.alone}")
    if samples.folder is None and samples.why:
        raise ConfigError(f"{name}: {samples.why}")
    if samples.folder is None:
        return Piece(name, _Empty())
    records = _FolderFiles(part) if isinstance(part, ImageFolder) else part
    return Piece(name, records, samples.ids)


class _Empty:
    """What a Subset without indices is of."""

    def __len__(self) -> int:
        return 0


class _FolderFiles(Files):
    """A folder's files as records, of which the same is made as of the folder's samples.

    Args:
        folder: The folder, whose files are listed now.
    """

    def __init__(self, folder: ImageFolder):
        self.folder = folder
        samples = folder.samples
        paths, labels = [path for path, _ in samples], [label for _, label in samples]
        super().__init__(paths, labels, classes=folder.classes)

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        folder = self.folder
        self.loader = None if folder.raw else folder.loader
        self.transform, self.target_transform = folder.transform, folder.target_transform
        return super()._plan(wanted, say, raw)


def _difference(a: Part, b: Part) -> str:
    """Returns how what is made of two fields differs; empty: not at all."""
    if (a.column is None) != (b.column is None):
        return "not all of its values are numbers"
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
