"""Several datasets of records as one: their lists one after another."""

from __future__ import annotations

import array
import bisect
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from .._lib.arguments import is_url
from ..errors import ConfigError
from .form import Form
from .found import Found
from .labels import Labels
from .manifest import TO_END, Located, below_root, quoted
from .runs import Ranges


@dataclasses.dataclass(frozen=True)
class Piece:
    """The records of a dataset that belong to a joined one.

    Attributes:
        name: What messages call the dataset.
        records: The dataset.
        ids: Which of its records, in order; None: all.
    """

    name: str
    records: Any
    ids: Sequence[int] | None = None

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records) if self.ids is None else len(self.ids)

    def id_of(self, place: int) -> int:
        """Returns the dataset's own ID of a record."""
        return place if self.ids is None else self.ids[place]

    def chosen(self, values: Any) -> Any:
        """Returns those of values by the dataset's IDs which belong to the records."""
        if self.ids is None or values is None:
            return values
        if hasattr(values, "ndim"):
            return values[list(self.ids)]
        taken = (values[i] for i in self.ids)
        if isinstance(values, array.array):
            return array.array(values.typecode, taken)
        return list(taken)


class Places:
    """Where the records of pieces are in the joined dataset.

    Args:
        pieces: The pieces.

    Attributes:
        sizes: Their numbers of records.
        starts: The ID of the first record of each.
    """

    def __init__(self, pieces: Sequence[Piece]):
        self.pieces = list(pieces)
        self.sizes = [piece.count for piece in pieces]
        self.starts = [sum(self.sizes[:d]) for d in range(len(pieces))]

    def of(self, sample: int) -> tuple[int, int]:
        """Returns (number of the piece, the record's ID in its dataset)."""
        number = bisect.bisect_right(self.starts, sample) - 1
        return number, self.pieces[number].id_of(sample - self.starts[number])

    def number(self, sample: int) -> int:
        """Returns the number of the piece."""
        return self.of(sample)[0]

    def __getstate__(self) -> dict[str, object]:
        # What is made of samples goes to workers, which need no datasets.
        return {
            **self.__dict__,
            "pieces": [dataclasses.replace(p, records=None) for p in self.pieces],
        }


class Column(Sequence[object]):
    """A column of each of several pieces, one after another.

    Args:
        places: Where the pieces are.
        columns: The values of each, by the IDs of its dataset.
    """

    def __init__(self, places: Places, columns: Sequence[Sequence[object]]):
        self._places, self._columns = places, columns

    def __len__(self) -> int:
        return sum(self._places.sizes)

    def __getitem__(self, index: Any) -> Any:
        number, own = self._places.of(index)
        return self._columns[number][own]


def joined_files(pieces: Sequence[Piece]) -> tuple[Located, list[Ranges]]:
    """Returns the files of all pieces, and the ranges of their records, by field.

    Raises:
        ConfigError: They are in places that cannot be reached as one.
    """
    paths: dict[str, int] = {}
    fields: list[list[Ranges]] = []
    for piece in pieces:
        records = piece.records
        root, names = records._files.root, records._files.names
        if isinstance(records, Found):
            names = [quoted(name, root) for name in names]
        numbers = [paths.setdefault(os.path.join(root, name), len(paths)) for name in names]
        fields.append([_numbered(ranges, numbers) for ranges in _ranges_of(piece)])
    urls = [path for path in paths if is_url(path)]
    if urls and len(urls) < len(paths):
        other = next(path for path in paths if not is_url(path))
        raise ConfigError(
            f"some of the datasets are at URLs ({urls[0]}) and some are files ({other}): all must "
            "be in one place: copy one of them"
        )
    return below_root(list(paths), ()), [_after_another(same) for same in zip(*fields)]


def _ranges_of(piece: Piece) -> list[Ranges]:
    """Returns the ranges of a piece's records, by field."""
    records = piece.records
    if not isinstance(records, Found):
        return [
            Ranges(piece.chosen(r.objects), piece.chosen(r.offsets), piece.chosen(r.lengths))
            for r in records._ranges
        ]
    count = len(records.fields)
    parts = [(array.array("i"), array.array("q"), array.array("q")) for _ in range(count)]
    for page in records._list(ranges=True):
        for record in page["ranges"]:
            for (numbers, offsets, lengths), (number, offset, length) in zip(parts, record):
                numbers.append(number if length >= 0 else -1)
                offsets.append(offset if length >= 0 else 0)
                lengths.append(max(length, 0))
    return [Ranges(*(piece.chosen(part) for part in field)) for field in parts]


def _numbered(ranges: Ranges, numbers: Sequence[int]) -> Ranges:
    """Returns ranges in which files have other numbers."""
    objects = array.array("i", (-1 if n < 0 else numbers[n] for n in ranges.objects))
    return ranges._replace(objects=objects)


def _after_another(pieces: Sequence[Ranges]) -> Ranges:
    """Returns the ranges of a field of several pieces as one."""
    objects = array.array("i")
    for ranges in pieces:
        objects.extend(ranges.objects)
    if all(ranges.offsets is None for ranges in pieces):
        return Ranges(objects)
    offsets, lengths = array.array("q"), array.array("q")
    for ranges in pieces:
        count = len(ranges.objects)
        offsets.extend(array.array("q", [0]) * count if ranges.offsets is None else ranges.offsets)
        ends = array.array("q", [TO_END]) * count
        lengths.extend(ends if ranges.lengths is None else ranges.lengths)
    return Ranges(objects, offsets, lengths)


def joined_form(places: Places) -> Form:
    """Returns the form that items of all pieces have.

    Raises:
        ConfigError: They have different ones.
    """
    first, *others = places.pieces
    mine: Form = first.records._form
    for piece in others:
        theirs: Form = piece.records._form
        for what, a, b in (
            ("items", _SHAPES[mine.kind], _SHAPES[theirs.kind]),
            ("fields", mine.fields, theirs.fields),
            ("values beside their fields", list(mine.columns), list(theirs.columns)),
        ):
            named = mine.kind == "dict" or what != "fields" or len(a) != len(b)
            if a != b and named:
                raise ConfigError(
                    f"{piece.name} and {first.name} have different {what}: {_said(b)} and "
                    f"{_said(a)}: make both alike (of a WebDataset, with fields=)"
                )
    forms = [piece.records._form for piece in places.pieces]
    columns = {n: Column(places, [form.columns[n] for form in forms]) for n in mine.columns}
    return Form(mine.kind, mine.fields, columns, any(form.omits for form in forms))


_SHAPES = {"one": "single objects", "tuple": "tuples", "dict": "dicts"}


def _said(value: Any) -> str:
    return value if isinstance(value, str) else (", ".join(value) or "none")


def joined_labels(
    pieces: Sequence[Piece], labels: Sequence[Labels | None], renumber: bool = True
) -> Labels | None:
    """Returns the labels of all pieces as one; None: they have none.

    Numbers stay as they are. Texts become numbers of one list of classes, if they may get others.

    Raises:
        ConfigError: They are of different types, or the classes have different numbers.
    """
    first = pieces[0]
    kept = [label for label in labels if label is not None]
    if not kept:
        return None
    for piece, label in zip(pieces, labels):
        mine, theirs = labels[0], label
        if (mine is None) != (theirs is None) or (mine and theirs and mine.kind != theirs.kind):
            raise ConfigError(
                f"{piece.name} has {_labels(theirs)}, and {first.name} has {_labels(mine)}: give "
                "all datasets labels of one type, or none"
            )
    given = {
        i: label.classes
        for i, label in enumerate(kept)
        if label.classes and not (label.found and renumber)
    }
    classes = next(iter(given.values()), None)
    for i, own in given.items():
        if own != classes:
            _differ(pieces[next(iter(given))].name, classes or [], pieces[i].name, own)
    found = [label for label in kept if label.found and renumber]
    if classes is None and found:
        classes = sorted({name for label in found for name in label.classes})
    made = Labels([])
    made.kind, made.classes = kept[0].kind, list(classes or [])
    made.found = bool(found) and not given
    made.values = _values(pieces, [_renumbered(p, x, made.classes) for p, x in zip(pieces, kept)])
    return made


def _labels(labels: Labels | None) -> str:
    return "no labels" if labels is None else f"labels of the type {labels.kind}"


def _differ(first: str, mine: list[str], second: str, theirs: list[str]) -> None:
    """Raises the error for datasets whose classes have different numbers."""
    for number, (a, b) in enumerate(zip(mine, theirs)):
        if a != b:
            where = f"number {number} is {a!r} in {first}, and {b!r} in {second}"
            break
    else:
        where = f"{first} has {len(mine)} classes, and {second} has {len(theirs)}"
    raise ConfigError(
        f"the datasets have different classes: {where}, so that a label would mean two things: "
        "give both the same classes= (of folders, list the files with hdmlp.torch.Files and labels "
        "that are texts, which get one list of classes)"
    )


def _renumbered(piece: Piece, labels: Labels, classes: list[str]) -> Any:
    """Returns the values of a piece's labels, in the numbers of these classes."""
    if not labels.found or labels.classes == classes:
        return labels.values
    numbers = {name: i for i, name in enumerate(classes)}
    unknown = [name for name in labels.classes if name not in numbers]
    if unknown:
        raise ConfigError(
            f"{piece.name} has the label {unknown[0]!r}, which is none of the {len(classes)} "
            "classes that other datasets were given: correct it, or give all the same classes="
        )
    new = [numbers[name] for name in labels.classes]
    return array.array("q", (new[number] for number in labels.values))


def _values(pieces: Sequence[Piece], values: Sequence[Any]) -> Any:
    """Returns the values of all pieces in one list, or one array."""
    chosen = [piece.chosen(own) for piece, own in zip(pieces, values)]
    if all(isinstance(own, array.array) for own in chosen):
        made = array.array(chosen[0].typecode)
        for own in chosen:
            made.extend(own)
        return made
    if all(hasattr(own, "ndim") for own in chosen):
        return _rows(pieces, chosen)
    return [value for own in chosen for value in own]


def _rows(pieces: Sequence[Piece], rows: list[Any]) -> Any:
    """Returns the rows of several arrays, or tensors, as one."""
    for piece, own in zip(pieces, rows):
        if (type(own), own.dtype, own.shape[1:]) != (
            type(rows[0]),
            rows[0].dtype,
            rows[0].shape[1:],
        ):
            raise ConfigError(
                f"{piece.name} has labels that are rows of {own.dtype} of shape "
                f"{tuple(own.shape[1:])}, and {pieces[0].name} of {rows[0].dtype} of shape "
                f"{tuple(rows[0].shape[1:])}: give all datasets labels of one shape and type"
            )
    if type(rows[0]).__module__.partition(".")[0] == "torch":
        import torch

        return torch.cat(rows)
    import numpy

    return numpy.concatenate(rows)


def joined_keys(pieces: Sequence[Piece]) -> list[str] | None:
    """Returns the keys of all records; None: none has one of its own."""
    own = [piece.records.__dict__.get("_keys") for piece in pieces]
    if all(keys is None for keys in own):
        return None
    made = []
    for piece, keys in zip(pieces, own):
        for place in range(piece.count):
            i = piece.id_of(place)
            made.append(piece.records.key(i) if keys is None else keys[i])
    return None if any("\0" in key for key in made) else made
