"""Hugging Face's datasets for torch: the bytes of images and sounds are read by the daemon."""

from __future__ import annotations

import array
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch.utils.data

from ..._records.arrays import Stamp, check_stamps, stamp_of
from ..._records.arrow import (
    Array,
    Chunks,
    Maps,
    NotInFiles,
    Values,
    check_column,
    values_of,
    with_paths,
)
from ..._records.manifest import located
from ..._records.records import Listed
from ..._records.runs import Ranges
from ..._transforms.split import begins_with_rgb, in_python, length_of
from ...errors import ConfigError
from .fields import Fields, Part, Step, check_parts, part_of
from .folder import as_transform
from .hf_features import DecodedByFeature, ImageOfFeature, SoundOfFeature, mode_of
from .hf_rows import (
    HF,
    Columns,
    Features,
    Formatted,
    FormattedFields,
    Row,
    Struct,
    check_rows,
    damage_named,
    kind_of,
    names_within,
    own_rows,
    rows_of,
)
from .records import Making

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

log = logging.getLogger("hdmlp")

#: Formats whose batches have no rows.
_TABLES = ("arrow", "pandas", "polars")
#: Of how many images of a column without a mode the modes are looked at, when it is wrapped.
_LOOKED_AT = 5


class HFDataset(Making, Listed, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A ``datasets.Dataset`` whose images, sounds and bytes the daemon reads and caches.

    They are found in the Arrow files that the dataset has mapped, or in the files that its paths
    name, whatever was shuffled, selected, filtered or concatenated. Other columns are read in
    Python. A dataset that lies in memory or elsewhere, and one without such columns, is read in
    Python, as by torch's loader. One that is streamed is iterated over by torch's own loader.

    Items are rows, as dicts by column. Batches are what ``default_collate`` makes of them, except
    that images, bytes, None, and tensors of different shapes are lists. Images are decoded as by
    ``datasets``: in the mode of ``Image(mode=)``, or else in their own, and turned as EXIF says.

    A function that ``set_transform`` or ``with_transform`` was given is called with a dict of the
    columns of each batch, in Python; so is ``with_format`` as in ``datasets``.

    Args:
        dataset: The dataset: one split.
        transform: By column: applied to its images; or the transform of the only column of images.
            The daemon carries out what it can. A first ``RGB()``, or a function that only calls
            ``convert("RGB")``, is the mode in which it decodes; a first
            :class:`~hdmlp.transforms.ImgDecode` says how to, in the place of ``datasets``.
            Default: None.

    Attributes:
        dataset: The dataset.

    Raises:
        ConfigError: It is no such dataset, or an argument does not fit it.
        DatasetError: A file is damaged, or was written or replaced since the dataset was loaded.
    """

    def __new__(cls, dataset: object = None, transform: object = None) -> HFDataset:
        """Returns the dataset; of one that is streamed, what torch's loader iterates over."""
        library: Any = sys.modules.get("datasets")
        if library is not None and isinstance(dataset, library.IterableDataset):
            return Streamed(dataset, transform)  # type: ignore[return-value]
        return super().__new__(cls)

    def __init__(self, dataset: HF, transform: object = None):
        _check(dataset)
        self.dataset, self.transform = dataset, transform
        self._format = dict(dataset.format)
        if self._format["type"] in _TABLES:
            raise ConfigError(
                f"with_format({self._format['type']!r}): a batch is a table, which has no rows for "
                "a loader: give with_format(None), and with_transform for what is made of rows"
            )
        self._formatted = self._format["type"] is not None
        all_of_them = self._formatted or self._format["output_all_columns"]
        chosen = dataset.column_names if all_of_them else self._format["columns"]
        self._names = [name for name in dataset.column_names if name in chosen]
        self._plainly = dataset.with_format(None)
        self._count = len(dataset)
        #: Why it is read in Python; empty: it is not.
        self.unserved = ""
        self._stamps: dict[str, Stamp] = {}  # of the Arrow files
        self._structs: dict[str, Struct] = {}
        self._modes: dict[str, str] = {}
        try:
            found = self._find()
            if not found:
                self.unserved = "it has no column of images, sounds or bytes that lie in files"
        except NotInFiles as why:
            found, self.unserved = {}, str(why)
        self._locate(found)
        self._check_transforms()
        if not self.unserved:
            self._plan(wanted=True, say=False)

    # Where the bytes are.

    def _manifest(self) -> int | None:
        check_stamps(self._stamps, type(self).__name__)
        return super()._manifest()

    def _find(self) -> dict[str, Values]:
        """Returns where the bytes of the columns are that the daemon reads.

        Raises:
            NotInFiles: Some are not in files.
        """
        why = own_rows(self.dataset)
        if why:
            raise NotInFiles(why)
        maps, found = Maps(), {}
        check_rows(self.dataset, maps)
        rows = rows_of(self.dataset) if self._count else None
        kinds = {name: kind_of(self.dataset.features[name]) for name in self._names}
        files = [file["filename"] for file in self.dataset.cache_files]
        for name, kind in kinds.items():
            column = self.dataset.data.column(name)
            check_column(name, column, maps, files, texts=kind is not None)
        for name, kind in kinds.items():
            if kind is None or rows is None:
                continue
            feature = self.dataset.features[name]
            column = self.dataset.data.column(name)
            try:
                values = values_of(name, column, rows, maps)
                self._stamps.update((path, stamp_of(path)) for path in values.files)
                if kind != "bytes":
                    self._structs[name] = Struct(_paths(column, rows), values.null)
                    if feature.decode:
                        values = with_paths(name, values, self._structs[name].paths)
            except NotInFiles as why:
                raise NotInFiles(f"column {name!r}: {why}") from None
            if (values.objects >= 0).any():
                found[name] = values
        return found

    def _locate(self, found: Mapping[str, Values]) -> None:
        """Sets the ranges of the columns that the daemon reads."""
        paths = [path for values in found.values() for path in values.files]
        files = located(paths, None)
        ranges, first = [], 0
        for values in found.values():
            mine = files.numbers[first : first + len(values.files)]
            first += len(values.files)
            ranges.append(
                Ranges(
                    array.array("i", [-1 if n < 0 else mine[n] for n in values.objects.tolist()]),
                    array.array("q", values.offsets.astype("i8").tobytes()),
                    array.array("q", values.lengths.astype("i8").tobytes()),
                )
            )
        rows = rows_of(self.dataset)
        others = [n for n in self._names if n not in found and not self.unserved]
        kept = {
            name: struct
            for name, struct in self._structs.items()
            if name in found and not self.dataset.features[name].decode
        }
        self._absent = {n: v.objects < 0 for n, v in found.items() if (v.objects < 0).any()}
        columns = Columns(self._plainly, others, rows)
        form = Row(self._names, list(found), columns, kept, self._absent)
        self._set(files, form, ranges, None)

    # What is made of them.

    def _check_transforms(self) -> None:
        """Checks the transforms, and that they can run where they have to.

        Raises:
            ConfigError: One is of no column of images, or cannot run in Python.
        """
        transforms = self._transforms()
        if not transforms:
            return
        if self._formatted:
            what = self._format["type"]
            what = "set_transform" if what == "custom" else f"with_format({what!r})"
            raise ConfigError(
                f"transform: the dataset has {what}, which makes its rows: give one of them"
            )
        for name, transform in transforms.items():
            if name in self.fields:
                continue
            try:
                why = self.unserved or "no row has an image"
                in_python(getattr(transform, "steps", transform), f"where {why}")
            except TypeError as error:
                raise ConfigError(f"transform[{name!r}]: {error}") from None

    def _transforms(self) -> dict[str, Step]:
        """Returns the transforms, by column."""
        given, features = self.transform, self.dataset.features
        if given is None:
            return {}
        images = [name for name in self._names if kind_of(features[name]) == "image"]
        if isinstance(given, Mapping):
            for name in given:
                if name not in self._names:
                    raise ConfigError(
                        f"transform[{name!r}]: there is no column of that name; there are "
                        f"{', '.join(self._names)}"
                    )
                if name not in images:
                    raise ConfigError(
                        f"transform[{name!r}]: it is a column of {features[name]}, and transforms "
                        "are for those of images: give with_transform(function) of the dataset"
                    )
        elif len(images) != 1:
            example = "{" + ", ".join(f"{name!r}: ..." for name in images or ["image"]) + "}"
            raise ConfigError(
                f"transform: the dataset has {len(images)} columns of images: give one for each "
                f"that needs it, as {example}"
            )
        named = check_parts(given, "transform", images, "one")
        for name in named:
            if not features[name].decode:
                raise ConfigError(
                    f"transform[{name!r}]: its images are not decoded: "
                    f"cast_column({name!r}, Image())"
                )
        made = {name: as_transform(step, None) for name, step in named.items()}
        return {name: step for name, step in made.items() if step is not None}

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        self._check_format()
        if raw or self._formatted:
            parts = [Part(name, [], None, None) for name in self.fields]
            if raw:
                return self._with_absent(Fields(parts, self._form, None, None, None))
            function = (self._format["format_kwargs"] or {}).get("transform")
            made = FormattedFields(parts, self._form, None, None, function)
            structs = {name: self._structs.get(name) for name in self.fields}
            made.rows = Formatted(self.dataset, self.fields, structs, rows_of(self.dataset))
            return self._with_absent(made)
        if say:
            self._say_what_python_reads()
        transforms, parts, first = self._transforms(), [], 0
        for i, name in enumerate(self.fields):
            transform = transforms.get(name)
            load = self._load(name, transform, say)
            parts.append(part_of(name, load, transform, wanted, say, self._lacks(i), first))
            first += length_of(getattr(transform, "steps", transform))
        return self._with_absent(Fields(parts, self._form, None, None, None, end=first))

    def _with_absent(self, fields: Fields) -> Fields:
        fields.absent = [self._absent.get(name) for name in self.fields]
        return fields

    def _check_format(self) -> None:
        """Checks that the dataset's format is what it was.

        Raises:
            ConfigError: It is not.
        """
        if dict(self.dataset.format) != self._format:
            raise ConfigError(
                "the format of the dataset changed after the HFDataset was made (set_format, "
                "set_transform): make a new HFDataset"
            )

    def _load(self, name: str, transform: object, say: bool) -> Step | None:
        """Returns what makes an object of a column's bytes; None: they stay bytes."""
        feature = self.dataset.features[name]
        kind = kind_of(feature)
        if kind == "bytes" or not feature.decode:
            return None
        if kind != "image":
            return SoundOfFeature(feature, self._structs[name].paths)
        if feature.mode is None and begins_with_rgb(getattr(transform, "steps", transform)):
            return ImageOfFeature(feature, "RGB", False)
        if feature.mode in ("RGB", "L"):
            return ImageOfFeature(feature, feature.mode, False)
        mode = feature.mode or self._mode(name)
        if feature.mode is None and mode in ("RGB", "L"):
            return ImageOfFeature(feature, mode, True)
        if say:
            log.warning(
                "the images of column %s have mode %s, and are decoded and transformed in Python; "
                "the daemon does so with cast_column(%r, Image(mode='RGB')), or with transforms "
                "that begin with RGB()",
                name,
                mode,
                name,
            )
        return DecodedByFeature(feature)

    def _mode(self, name: str) -> str:
        """Returns the mode of a column's images, as far as some of them say it."""
        if name not in self._modes:
            field = self.fields.index(name)
            there = [i for i, n in enumerate(self._ranges[field].objects) if n >= 0]
            modes = [
                mode_of(self._bytes_of(field, i))
                for i in there[:: max(len(there) // _LOOKED_AT, 1)]
            ]
            self._modes[name] = "RGB" if "RGB" in modes else modes[0]
        return self._modes[name]

    def _say_what_python_reads(self) -> None:
        features = self.dataset.features
        for name in self._names:
            kinds = sorted(set(names_within(features[name])))
            own = type(features[name]).__name__
            if name not in self.fields and (kinds or hasattr(features[name], "decode_example")):
                log.warning(
                    "column %s: %s%s is read and decoded in Python, and not cached",
                    name,
                    own,
                    f" of {', '.join(kinds)}" if kinds else "",
                )

    # Items.

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self._count

    def __getitem__(self, index: Any) -> object:
        """Returns one row, decoded and transformed in this process; or, by name, a column.

        Of a slice, a range or a list, the rows as a dict of lists, as ``datasets`` gives them.

        Raises:
            IndexError: There is no such row.
            SampleError: A file cannot be read.
        """
        if isinstance(index, str):
            return self._plainly[index]
        # Tensors and arrays without axes have __iter__ as well.
        if isinstance(index, slice) or (
            isinstance(index, Iterable) and getattr(index, "ndim", 1) == 1
        ):
            found = range(len(self))[index] if isinstance(index, slice) else index
            indices = [self._index(i) for i in found]
            if self._formatted:
                with damage_named(self.dataset, indices):
                    return self.dataset[indices]
            rows: list[Any] = [self[i] for i in indices]
            return {name: [row[name] for row in rows] for name in self._names}
        index = self._index(index)
        with damage_named(self.dataset, [index]):
            if self._formatted:
                return self.dataset[index]
            if not self.unserved:
                return super().__getitem__(index)
            return self._of_row(self._plainly[index])

    def _of_row(self, row: Any) -> dict[str, object]:
        """Returns what becomes of a row that is read in Python."""
        transforms = self._transforms()
        return {
            name: transforms[name](row[name])
            if name in transforms and row[name] is not None
            else row[name]
            for name in self._names
        }

    def __getitems__(self, indices: Sequence[int]) -> list[object]:
        """Returns several rows: a function of ``set_transform`` is called once for all of them."""
        if self._formatted:
            with damage_named(self.dataset, indices):
                return self.dataset.__getitems__(list(indices))
        if self.unserved:
            with damage_named(self.dataset, indices):
                rows = self._plainly.__getitems__(list(indices))
                return [self._of_row(row) for row in rows]
        return [self[index] for index in indices]

    def __repr__(self) -> str:
        return f"HFDataset({self._count} rows of {', '.join(self._names)})"

    @property
    def alone(self) -> str:
        """Why it cannot be a part of a :class:`Mix`; empty: it can."""
        if self._formatted:
            return (
                "set_transform or with_format makes its rows, a batch at a time: give "
                "with_format(None), and transform={column: ...}"
            )
        kept = [n for n in self._structs if n in self.fields and not self.features[n].decode]
        if kept:
            return (
                f"column {kept[0]!r} is delivered as bytes and path: give "
                f"cast_column({kept[0]!r}, Image())"
            )
        if self._absent:
            name = next(iter(self._absent))
            return f"some rows have no {name!r}, which a Mix does not say: leave them out (filter)"
        return ""

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._names)

    @property
    def features(self) -> Features:
        """The features of the dataset."""
        return self.dataset.features

    def _label_column(self) -> str | None:
        of = [n for n in self._names if type(self.dataset.features[n]).__name__ == "ClassLabel"]
        return of[0] if len(of) == 1 else None

    @property
    def targets(self) -> list[object]:
        """The class numbers of all rows, if one column has classes.

        Raises:
            AttributeError: No column has, or several have.
        """
        name = self._label_column()
        if name is None:
            raise AttributeError(
                f"not one of the columns {', '.join(self._names)} is a ClassLabel, or several are: "
                "take the values of one, as dataset['label']"
            )
        return list(self._plainly[name])

    @property
    def classes(self) -> list[str]:
        """The names of the classes, if one column has classes; else empty."""
        name = self._label_column()
        return [] if name is None else list(self.dataset.features[name].names)


class Streamed(torch.utils.data.IterableDataset[object]):
    """The rows of a streamed dataset, whose images are transformed in Python.

    Args:
        dataset: A ``datasets.IterableDataset``.
        transform: As for :class:`HFDataset`, by column.

    Raises:
        ConfigError: The transforms are no dict, or one cannot run in Python.
    """

    def __init__(self, dataset: Iterable[dict[str, object]], transform: object):
        if transform is not None and not isinstance(transform, Mapping):
            raise ConfigError(
                "transform: a streamed dataset does not always say which columns it has: give a "
                "dict by column"
            )
        self.dataset = dataset
        named = {name: as_transform(step, None) for name, step in (transform or {}).items()}
        self._steps = {name: step for name, step in named.items() if step is not None}
        for name, step in self._steps.items():
            try:
                in_python(getattr(step, "steps", step), "where a dataset is streamed")
            except TypeError as error:
                raise ConfigError(f"transform[{name!r}]: {error}") from None
        log.warning(
            "HFDataset: the dataset is streamed, so it has no rows by index: torch's own loader "
            "reads it, its images are decoded and transformed in Python, and nothing is cached; "
            "load it without streaming=True for the daemon to read it"
        )

    def __iter__(self) -> Iterator[object]:
        for row in self.dataset:
            made = dict(row)
            for name, step in self._steps.items():
                if made[name] is not None:
                    made[name] = step(made[name])
            yield made


def _check(dataset: object) -> None:
    """Checks that a dataset is one of Hugging Face's, with rows by index.

    Raises:
        ConfigError: It is not.
    """
    library: Any = sys.modules.get("datasets")
    if library is not None and isinstance(dataset, library.Dataset):
        return
    if library is None and find_spec("datasets") is None:
        raise ConfigError("HFDataset needs the library datasets: pip install datasets")
    name = type(dataset).__name__
    if name in ("DatasetDict", "IterableDatasetDict"):
        assert isinstance(dataset, Mapping)
        raise ConfigError(
            f"HFDataset: a {name} has the splits {', '.join(dataset)}: give one, as "
            f"dataset[{next(iter(dataset), 'train')!r}]"
        )
    raise ConfigError(
        f"HFDataset({dataset!r:.100}): must be a datasets.Dataset, as load_dataset(..., "
        "split='train') or load_from_disk returns"
    )


def _paths(column: Chunks, rows: NDArray[numpy.int64]) -> Array:
    """Returns the paths of a column of structs, for these rows, as an array of Arrow."""
    import pyarrow

    parts = [chunk.field("path") for chunk in column.chunks]
    paths = pyarrow.concat_arrays(parts) if parts else pyarrow.array([], pyarrow.string())
    return paths.take(pyarrow.array(rows))  # type: ignore[no-any-return]
