"""Datasets of records for torch: what the daemon reads is decoded and transformed."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch.utils.data

from ..._batches.output import Handed
from ..._lib.arguments import check_functions, switch
from ..._records import decoders
from ..._records.files import IMAGES
from ..._records.files import Files as PlainFiles
from ..._records.labels import Labels
from ..._records.records import Listed
from ..._records.records import Records as PlainRecords
from ..._transforms import ImgDecode
from ..._transforms.recipe import Undecodable, decoded
from ..._transforms.split import flat, length_of
from ...errors import ConfigError, HDMLPError, SampleError
from .collated import collate_records
from .fields import Fields, FieldsRecipe, OfRecord, Part, Step, check_parts, part_of
from .folder import as_transform, pil_loader
from .joint import Group, kinds_of, mask_type, of_raw


class Making:
    """What is made of a dataset's fields: arguments that all datasets of records have."""

    def _set_making(
        self,
        loader: Any,
        transform: Any,
        target_transform: Step | None,
        transforms: Step | None,
        decode: bool,
        kinds: object = None,
        mask: object = "tensor",
    ) -> None:
        check_functions(target_transform=target_transform, transforms=transforms)
        self.loader, self.transform = loader, transform
        self.target_transform, self.transforms = target_transform, transforms
        self._decode = switch("decode", decode)
        self.kinds, self.mask = kinds, mask
        self._mask_types: dict[str, str] = {}
        self._then: list[Step] = []
        self._plan(wanted=True, say=False)  # raises here rather than in the first epoch

    def _collation(self) -> Step:
        """Returns what collates items where the program does not."""
        return collate_records

    def _plan(self, wanted: bool, say: bool, raw: bool = False) -> Fields:
        """Returns what is made of the records, as the dataset's attributes say now.

        Args:
            wanted: The daemon does what it can.
            say: Log what it cannot do.
            raw: Fields stay as they are.
        """
        assert isinstance(self, Listed)
        form, names = self._form, self.fields
        loaders = check_parts(self.loader, "loader", names, form.kind)
        group = None if raw else self._group(wanted, say)
        given = None if group is not None else self.transform
        transforms = check_parts(given, "transform", names, form.kind)
        parts, first = [], 0 if group is None else length_of(self.transform)
        lacking = any(self._lacks(i) for i in range(len(names)))
        for i, name in enumerate(names):
            if raw:
                parts.append(Part(name, [], None, None))
                continue
            if group is not None and name in group.fields:
                parts.append(self._grouped(group, i, wanted))
                continue
            transform = as_transform(transforms.get(name), None)
            steps = list(flat(getattr(transform, "steps", transform)))
            if steps and isinstance(steps[0], ImgDecode) and steps[0].mode == "raw" and wanted:
                parts.append(self._raw(i, steps, first))
                first += len(steps) - 1
                continue
            load = loaders.get(name) or self._loader_of(name)
            if load is not None and not callable(load):
                raise ConfigError(f"loader={load!r}: must be callable")
            if load is None and (self._decode or self.transforms is not None):
                load = self._decoder_of(i)
            elif load is None and transform is not None:
                load = self._decoder_of(i, images=True)
            load = pil_loader if load is decoders.image else load
            if i and (load is pil_loader or isinstance(load, _ByName)):
                self._check_mode(i, name)
            known = None if transform is not None or lacking else self._known(name, load)
            if known is not None:
                parts.append(Part(name, [], None, None, column=known))
            else:
                part = part_of(name, load, transform, wanted, say, self._lacks(i), first)
                parts.append(part)
            first += length_of(getattr(transform, "steps", transform))
        return Fields(
            parts,
            form,
            self._labels,
            None if raw else self.target_transform,
            None if raw else self.transforms,
            () if raw else self._then,
            self._labeller(),
            first,
            group,
        )

    def _group(self, wanted: bool, say: bool) -> Group | None:
        """Returns what is made of fields jointly, by ``kinds``; None: there are none.

        Raises:
            ConfigError: ``kinds`` contradicts the fields or other arguments.
        """
        assert isinstance(self, Listed)
        if self.kinds is None:
            if self.mask != "tensor":
                raise ConfigError("mask: is for fields of the kind mask: give kinds= as well")
            return None
        if self.transforms is not None:
            raise ConfigError(
                "transforms: is for whole items, in Python; with kinds=, give transform="
            )
        form = self._form
        kinds = kinds_of(self.kinds, self.mask, self.fields, list(form.columns))
        if isinstance(self.transform, Mapping):
            raise ConfigError(
                "transform: with kinds=, one list is applied to the fields jointly, and not a dict "
                "by field"
            )
        for name in kinds.of:
            if isinstance(self.loader, Mapping) and name in self.loader:
                raise ConfigError(f"loader[{name!r}]: kinds= says what the field is: leave one out")
            if name in self.fields and self._lacks(self.fields.index(name)):
                raise ConfigError(
                    f"kinds[{name!r}]: some records do not have the field, and what belongs "
                    "together is transformed together: leave such records out"
                )
        if self.loader is not None and not isinstance(self.loader, Mapping):
            raise ConfigError("loader: kinds= says what the fields are: leave one out")
        for name, kind in kinds.of.items():
            if kind == "mask" and name not in self._mask_types:
                data = self._first_bytes(self.fields.index(name))
                self._mask_types[name] = "uint8" if data is None else mask_type(data)
        types = {n: self._mask_types[n] for n, kind in kinds.of.items() if kind == "mask"}
        return Group(kinds, types, self.transform, form.columns, wanted, say, 0)

    def _first_bytes(self, field: int) -> bytes | None:
        """Returns the bytes of the first record's field; None: they cannot be read."""
        assert isinstance(self, Listed)
        try:
            return self._fields_of(0)[field] if len(self) else None
        except (OSError, HDMLPError):
            return None  # what reads it reports why

    def _raw(self, field: int, steps: Sequence[object], first: int) -> Part:
        """Returns what is made of a mask whose list begins with ``ImgDecode(mode="raw")``."""
        assert isinstance(self, Listed)
        name = self.fields[field]
        if self._lacks(field):
            raise ConfigError(
                f"transform[{name!r}]: some records do not have the field, and ImgDecode(mode="
                "'raw') makes one tensor of a batch"
            )
        if name not in self._mask_types:
            data = self._first_bytes(field)
            self._mask_types[name] = "uint8" if data is None else mask_type(data)
        described, sized = of_raw(name, steps, self._mask_types[name], first)
        return Part(name, described, Handed("tensor") if sized else None, None)

    def _grouped(self, group: Group, field: int, wanted: bool) -> Part:
        """Returns what is made of a field before, or in the place of, what is made jointly."""
        assert isinstance(self, Listed)
        name = self.fields[field]
        if group.joined is not None or group.kinds[name] != "image":
            return Part(name, [], None, None)
        return part_of(name, pil_loader, None, wanted, False)

    def _labeller(self) -> Step | None:
        """Returns what makes labels of records' bytes; None: nothing does."""
        return None

    def _loader_of(self, name: str) -> Step | None:
        """Returns what a field's bytes become if nothing else is said; None: they stay bytes."""
        return None

    def _known(self, name: str, load: Step | None) -> Labels | None:
        """Returns what a field that is loaded so is, if that is known without reading it."""
        return None

    def _names_of(self, field: int) -> list[str]:
        """Returns names whose suffixes say what the field is: its own, or those of its files."""
        assert isinstance(self, Listed)
        name = self.fields[field]
        own = name.split(";")
        ranges, files = self._ranges[field], self._files.names
        parts = ranges.offsets is not None and decoders.decodes(name)
        images = decoders.suffix_of(own[0]) in decoders.IMAGES
        if self.kind != PlainRecords.kind or images or "." in name or parts:
            return own
        found: dict[int, list[str]] = self.__dict__.setdefault("_names", {})
        if field not in found:
            each = {files[n].rpartition(".")[2]: n for n in ranges.objects if n >= 0}
            numbers = ranges.objects if "gz" in map(str.lower, each) else each.values()
            kinds = {decoders.kind_of(files[n]): files[n] for n in numbers if n >= 0}
            found[field] = list(kinds.values()) or own
        return found[field]

    def _decoder_of(self, field: int, images: bool = False) -> Step | None:
        """Returns what decodes a field, by the suffixes of its names; None: it stays bytes.

        Args:
            field: Its number.
            images: Only images are decoded.

        Raises:
            ConfigError: Its alternatives are decoded in different ways, or cannot be.
        """
        assert isinstance(self, Listed)
        steps: dict[str, Step | None] = {}
        for name in self._names_of(field):
            if not images or decoders.suffix_of(name) in decoders.IMAGES:
                steps[decoders.kind_of(name)] = decoders.decoder(name)
            else:
                steps[decoders.kind_of(name)] = None
        first = next(iter(steps.values()))
        if all(step == first for step in steps.values()):
            return first
        if self.kind == PlainRecords.kind:
            return _ByName(self, field, steps)
        raise ConfigError(
            f"decode: the field {self.fields[field]!r} has alternatives that are decoded in "
            f"different ways ({', '.join(steps)}), and items do not say which a sample has: choose "
            f"one, or give loader={{{self.fields[field]!r}: function}}, which is given the bytes"
        )

    def _check_mode(self, field: int, name: str) -> None:
        """Checks that the first image of a field after the first loses nothing as RGB.

        Masks are often numbers of classes, as the indices of a palette: as colours they would be
        wrong without a word.
        """
        assert isinstance(self, Listed)
        try:
            from PIL import Image

            data = self._bytes_of(field, self._first_with(field))
            if data is None:
                return
            with Image.open(io.BytesIO(data)) as first:
                mode = first.mode
        except (OSError, ImportError, IndexError, HDMLPError):
            return  # the loader reports what is wrong with it
        if mode not in ("RGB", "RGBA", "CMYK", "YCbCr"):
            raise ConfigError(
                f"the field {name!r} has images of mode {mode!r}, whose levels may be numbers of "
                "classes, and they would be converted to RGB: give loader="
                f"{{{name!r}: function}}, which is given the bytes, for example "
                "lambda data: PIL.Image.open(io.BytesIO(data))"
            )

    def _first_with(self, field: int) -> int:
        """Returns the first record, of the first 10,000, that has an image as this field; or 0."""
        assert isinstance(self, Listed)
        for i in range(min(len(self), 10_000)):
            path = self._path_of(field, i)
            if path is not None:
                by_file = self.kind == PlainRecords.kind and len(self._names_of(field)) > 1
                if not by_file or decoders.suffix_of(path) in decoders.IMAGES:
                    return i
        return 0

    def __getitem__(self, index: int) -> object:
        """Returns one item, decoded and transformed in this process, without the daemon.

        Raises:
            IndexError: There is no such record.
            SampleError: A file cannot be read, or a field of it cannot be decoded.
        """
        assert isinstance(self, Listed)
        index = self._index(index)
        plan = self._plan(wanted=False, say=False)
        try:
            return FieldsRecipe(plan, collate_records).item(self._fields_of(index), index, None)
        except Undecodable as error:
            path = next(
                filter(None, (self._path_of(i, index) for i in range(len(self.fields)))), ""
            )
            raise SampleError(
                f"record {index} ({path}): {error}", {"sample": index, "path": path}
            ) from error.__cause__


class _ByName(OfRecord):
    """Decodes a field of records by the suffix of each record's file.

    Args:
        records: The records.
        field: The field's number.
        steps: What decodes it, by the end of a name; None: it stays bytes.
    """

    def __init__(self, records: Listed, field: int, steps: Mapping[str, Step | None]):
        self.field, self.steps = records.fields[field], dict(steps)
        self.numbers, self.names = records._ranges[field].objects, records._files.names

    def of_record(self, data: Any, sample: int) -> object:
        """Returns what the bytes of a record's field are."""
        step = self.steps[decoders.kind_of(self.names[self.numbers[sample]])]
        try:
            return data if step is None else decoded(step, data, None)
        except Undecodable as error:
            raise Undecodable(f"field {self.field}: {error}") from error.__cause__


class Files(Making, PlainFiles, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Files by a list of paths, in the order of the list.

    Args:
        paths: A path per record; or a tuple or a dict of paths, such as (image, mask) or
            ``{"image": ..., "json": ...}``, in which None stands for a file that a record does not
            have. Or a directory: the images below it, by their paths.
        labels: One per record. Integers stay as they are (int64), and so do floats (float64). Texts
            become the numbers of ``classes``. Rows of an array become rows of a tensor; other
            objects become lists. Default: None, there are none.
        loader: From the bytes of a file to an object; of several fields, a dict by field. The
            fields of tuples have the names ``"0"``, ``"1"`` and so on. Default: None: with a
            transform, images become RGB PIL images.
        transform: Applied to that object; a list is applied in order. Of several fields, a dict by
            field. The daemon carries out what it can. Default: None.
        target_transform: Applied to labels. Default: None.
        transforms: Applied to a whole item, in Python: called with the image and the label, with
            the members of a tuple, or with a dict. Default: None.
        classes: The names of the classes. Default: None: of texts, those that there are, sorted.
        root: What relative paths are relative to. Default: None, the current directory.
        suffixes: Of a directory, how the names of files end. Default: those of images.
        decode: Files become what their suffixes say: images, text, JSON, arrays (npy). Default:
            False: without transform and loader, they stay bytes.
        kinds: The kinds of fields that ``transform``, one list, is applied to jointly, by name:
            ``"image"``, ``"mask"`` or ``"boxes"``. Default: None.
        mask: How masks are sampled: ``"tensor"``, as v2's masks; ``"pil"``, as a second PIL image
            by v1's functions. Default: ``"tensor"``.

    An item has the form of what was given: a path, the object; a tuple, a tuple; a dict, a dict.
    With labels: (object, label); a tuple has the label as its last member, a dict as ``"label"``. A
    batch is what ``default_collate`` makes of such items, except that bytes, and tensors of
    different shapes, are lists.

    Raises:
        ConfigError: The lists do not fit together.
    """

    def __init__(
        self,
        paths: Sequence[object] | str | os.PathLike[str],
        labels: Sequence[object] | None = None,
        *,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
        classes: Sequence[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        suffixes: Sequence[str] = IMAGES,
        decode: bool = False,
        kinds: Mapping[str, str] | None = None,
        mask: str = "tensor",
    ):
        super().__init__(paths, labels, classes=classes, root=root, suffixes=suffixes)
        self._set_making(loader, transform, target_transform, transforms, decode, kinds, mask)


class Records(Making, PlainRecords, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Records given as ranges of files: any format that some library can index is served.

    Args:
        objects: The paths of the files.
        ranges: For each field, by name: the number of each record's file in ``objects`` (-1: it
            does not have the field), where its range begins, and how many bytes it has (-2: to the
            file's end); or the numbers alone, if records are whole files.
        values: Values by record ID, by name, which items have as they are. Default: none.
        labels: One per record: see :class:`Files`. Default: None, there are none.
        classes, keys, root: See :class:`hdmlp.data.Records`.
        loader, transform, target_transform, transforms, decode, kinds, mask: See :class:`Files`.

    An item is a dict: of ``values``, then of the fields, then ``"label"``.

    Raises:
        ConfigError: The lists do not fit together.
    """

    def __init__(
        self,
        objects: Sequence[str | os.PathLike[str]],
        ranges: Mapping[str, object],
        values: Mapping[str, Sequence[object]] | None = None,
        *,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
        decode: bool = False,
        kinds: Mapping[str, str] | None = None,
        mask: str = "tensor",
    ):
        super().__init__(
            objects, ranges, values, labels=labels, classes=classes, keys=keys, root=root
        )
        self._set_making(loader, transform, target_transform, transforms, decode, kinds, mask)
