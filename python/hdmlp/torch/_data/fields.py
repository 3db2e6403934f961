"""What is made of the fields of records: the daemon's part, and Python's."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..._batches.output import Handed, Keyed, Output
from ..._batches.segments import Segment
from ..._batches.source import LeftBytes, Taken, column
from ..._batches.stream import Stream
from ..._lib import originals
from ..._records import decoders
from ..._records.form import NONE, Form
from ..._records.labels import Labels
from ..._transforms import ImgDecode, Transform
from ..._transforms.entries import Entries
from ..._transforms.generators import generators_kept, seed_generators
from ..._transforms.in_python import decoding, in_python, leaving
from ..._transforms.keys import LOADER, TARGET, entry_key
from ..._transforms.recipe import (
    Batch,
    Recipe,
    Undecodable,
    decoded,
    keys_in,
    name_sample,
)
from ..._transforms.split import entries_of, entries_of_joint
from ...data import FieldTransforms
from ...errors import ConfigError
from .collation import torchs_default
from .folder import Decoder, offload, pil_loader

log = logging.getLogger("hdmlp")

Step = Callable[..., object]


class Part(NamedTuple):
    """What is made of one field.

    Attributes:
        name: The field's name.
        described: The daemon's transforms.
        load: From what the daemon delivers to an object; None: it is a tensor, or bytes.
        transform: Applied to that; None: nothing is.
        instead: From a file's bytes to the daemon's tensor, for those which it leaves to Python;
            None: it leaves none.
        column: The field's values by record ID, which are known without reading it; None: they are
            not.
        wrap: From the daemon's tensor to torchvision's result, where Python gets items one by one;
            None: it is that tensor.
    """

    name: str
    described: list[Transform]
    load: Step | None
    transform: Entries | None
    instead: Keyed | None = None
    column: Labels | None = None
    wrap: Entries | None = None

    @property
    def decodes(self) -> bool:
        """Reports whether ``load`` is HDMLP's own, so where it fails the file is the reason."""
        return (
            isinstance(self.load, (Handed, Decoder))
            or self.load is pil_loader
            or getattr(self.load, "__module__", "") == decoders.__name__
        )

    @property
    def native(self) -> bool:
        """Reports whether Python has nothing to do."""
        return self.load is None and self.transform is None

    @property
    def instant(self) -> bool:
        """Reports whether what Python has to do takes next to no time."""
        return self.native or (self.load in decoders.INSTANT and self.transform is None)


def part_of(
    name: str,
    loader: Step | None,
    transform: Any,
    wanted: bool,
    say: bool,
    lacks: bool = False,
    first: int = 0,
) -> Part:
    """Returns what is made of a field that is loaded and transformed.

    Args:
        name: The field's name.
        loader: From its bytes to an object; None: it stays as it is.
        transform: Applied to that; None: nothing is.
        wanted: The daemon does what it can.
        say: Log what it cannot do.
        lacks: Some samples do not have the field, so that batches have no tensor of it.
        first: The position of its first transform, among those of all fields.

    Raises:
        ConfigError: One of our transforms would have to run in Python, which it cannot.
    """
    if loader is None:
        return Part(name, [], None, _entries(transform, first))
    found = offload(loader, transform, wanted, say, ragged=True, first=first)
    if not found.described:
        return Part(name, [], loader, found.entries or None)
    of_one_size = found.hands == "tensor" or (not found.rest and found.hands == "image")
    if lacks and of_one_size:
        offload(loader, transform, wanted=False)  # which says that our own ones cannot run here
        if say:
            log.warning(
                "the field %s is only decoded by the daemon, and its transforms run in Python: "
                "some samples do not have it",
                name,
            )
        plain = part_of(name, loader, None, wanted, False)
        return plain._replace(transform=_entries(transform, first))
    own = isinstance(loader, Decoder) and not isinstance(found.described[0], ImgDecode)
    instead = in_python(found.entries_done, loader if own else None)
    images = found.for_images(instead is not None)
    if own:
        assert isinstance(loader, Decoder)
        if instead is None and loader.only:
            raise ConfigError(
                f"transform[{name!r}]: images in modes of their own are left to torchvision's "
                "transforms in Python, which torchvision is missing for: begin with ImgDecode()"
            )
        arguments = loader.described(instead is not None)
        whole, images = decoding(found.described, arguments), decoding(images, arguments)
    else:
        whole = found.described if instead is None else leaving(found.described)
    if not found.rest and of_one_size:
        return Part(name, whole, None, None, instead, wrap=found.entries or None)
    described = whole if found.hands == "tensor" else images
    rest = found.entries if found.rest else None
    return Part(name, described, Handed(found.hands, instead), rest)


def _entries(transform: object, first: int) -> Entries | None:
    return entries_of(getattr(transform, "steps", transform), first) or None


class Fields:
    """What is made of a dataset's records.

    Args:
        parts: What is made of each field.
        form: What items look like.
        labels: The records' labels; None: they have none.
        target_transform: Applied to labels; None: nothing is.
        joint: Applied to a whole item; None: nothing is.
        then: Applied to that, one after another.
        labeller: From a record's ID and its first field, as the daemon delivers it, to its label;
            None: ``labels`` has it.
        end: The position after those of the fields' transforms.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        form: Form,
        labels: Labels | None,
        target_transform: Step | None,
        joint: Step | None,
        then: Sequence[Step] = (),
        labeller: Step | None = None,
        end: int = 0,
    ):
        self.labeller, self.end = labeller, end
        self.parts, self.form, self.labels = list(parts), form, labels
        self.target_transform, self.joint, self.then = target_transform, joint, list(then)
        #: For each field, which records do not have it, by ID; None: all have it, or the daemon
        #: says so, which it does where there are several fields.
        self.absent: Sequence[Any] = [None] * len(self.parts)

    @property
    def native(self) -> bool:
        """Reports whether Python has nothing to do but to put batches together."""
        return self._only_fields and all(part.native for part in self.parts)

    @property
    def instant(self) -> bool:
        """Reports whether Python has hardly more to do than to put batches together."""
        return self._only_fields and all(part.instant for part in self.parts)

    @property
    def _only_fields(self) -> bool:
        return not (self.joint or self.then or self.labeller or self.target_transform)

    def recipe(self, collate: Step) -> FieldsRecipe:
        """Returns how items are made of records.

        Args:
            collate: From a list of items to a batch.
        """
        return FieldsRecipe(self, collate)

    def named(self) -> Fields:
        """Returns the same with the names of classes as labels.

        Raises:
            ConfigError: The labels are no classes.
        """
        if self.labels is None or not self.labels.classes:
            raise ConfigError("labels='name': the records' labels are no classes; leave labels out")
        names = [self.labels.classes[number] for number in self.labels.values]
        made = Labels.of_objects(names)
        changed = copy.copy(self)
        changed.labels, changed.labeller = made, None
        return changed

    @property
    def changes_labels(self) -> bool:
        """Reports whether Python makes something else of labels."""
        return bool(self.target_transform or self.joint or self.then)

    @property
    def places(self) -> list[int]:
        """Which of the fields that the daemon delivers each part is; -1: none of them.

        If nothing is described it delivers all, in place.
        """
        if not any(part.described for part in self.parts):
            return list(range(len(self.parts)))
        places, count = [], 0
        for part in self.parts:
            places.append(count if part.column is None else -1)
            count += part.column is None
        return places

    @property
    def described(self) -> list[Transform] | FieldTransforms:
        """The daemon's transforms."""
        if not any(part.described for part in self.parts):
            return []
        if len(self.parts) == 1:
            return self.parts[0].described
        return FieldTransforms(
            [(part.name, part.described) for part in self.parts if part.column is None]
        )


class FieldsRecipe(Recipe):
    """How items are made of records; goes to worker processes by fork or by pickle.

    Args:
        fields: What is made of them.
        collate: From a list of items to a batch.

    Attributes:
        instant: Items take next to no time: a worker would only copy batches once more.
    """

    def __init__(self, fields: Fields, collate: Step):
        self.instant = fields.instant and collate is collate_records
        objects = fields.labels is not None and fields.labels.kind == "object"
        if objects and collate is collate_records and not fields.changes_labels:
            collate = Collated(fields.form)
        super().__init__(pil_loader, None, fields.target_transform, collate)
        self.form, self.labels, self.joint = fields.form, fields.labels, fields.joint
        self.then, self.places = fields.then, fields.places
        self._joint = entries_of_joint(fields.joint, fields.end)
        self._then = entries_of(fields.then, fields.end + len(self._joint.entries))
        self.labeller = fields.labeller
        self._absent = (
            list(enumerate(fields.absent)) if any(one is not None for one in fields.absent) else []
        )
        self.parts = [
            part._replace(load=Handed("tensor", part.instead), transform=part.wrap)
            if part.described and part.load is None
            else part
            for part in fields.parts
        ]

    def told(self, outputs: Sequence[Output | None]) -> None:
        """Takes what the daemon delivers of each field; see :meth:`Recipe.told`."""
        super().told(outputs)
        for part, place in zip(self.parts, self.places):
            if isinstance(part.load, Handed):
                part.load.output = outputs[place]

    def read(
        self, payload: bytearray, segments: Mapping[int, Segment]
    ) -> tuple[Sequence[object], Sequence[int]]:
        """Returns the records of a BATCH payload; see :meth:`Recipe.read`."""
        views = self.fields(payload, segments)
        return list(zip(*views)), [0] * len(views[0])

    def taken(self, taken: Taken, outputs: Sequence[Output | None]) -> Sequence[object]:
        """Returns the views of a batch's records; see :meth:`Recipe.taken`."""
        contents = taken.content if len(outputs) > 1 else [taken.content]
        views = [
            content if output is None else output.split(content, taken.n)
            for content, output in zip(contents, outputs)
        ]
        for place, data in taken.left.items():
            field, at = divmod(place, taken.n)
            views[field][at] = data
        return list(zip(*views))

    def samples(
        self, views: Sequence[Any], labels: Sequence[int], ids: Sequence[int], keys: Sequence[int]
    ) -> list[object]:
        """Makes the batch's items; see :meth:`Recipe.samples`."""
        made: list[object] = []
        for fields, sample, key in zip(self._there(views, ids), ids, keys):
            try:
                made.append(self.item(fields, sample, key))
            except Exception as error:
                name_sample(error, sample)
                raise
        return made

    def _there(self, views: Sequence[Any], ids: Sequence[int]) -> Sequence[Any]:
        """Returns records, with None for the fields that they do not have."""
        if not self._absent:
            return views
        found = [list(fields) for fields in views]
        for i, absent in self._absent:
            for fields, sample in zip(found, ids):
                if absent is not None and absent[sample]:
                    fields[i] = None
        return found

    def item(self, fields: Sequence[object], sample: int, key: int | None) -> object:
        """Makes an item of a record.

        Args:
            fields: The bytes of its fields, or what the daemon made of them; None: it does not
                have the field.
            sample: Its ID.
            key: The key of its random numbers; None: the generators are left as they are.
        """
        values = [
            part.column[sample]
            if part.column is not None
            else made_of(part, fields[place], sample, key, LOADER + i)
            for i, (part, place) in enumerate(zip(self.parts, self.places))
        ]
        label: object = NONE if self.labels is None else self.labels[sample]
        if self.labeller is not None:
            label = _called(self.labeller, sample, fields[0])
        if self.target_transform is not None and label is not NONE:
            _seed(key, TARGET)
            label = self.target_transform(label)
        if self.joint is None:
            item = self.form.item(values, sample, label)
        else:
            item = self._jointly(values, sample, label, key)
        return self._then(item, key)

    def _jointly(self, values: list[object], sample: int, label: object, key: int | None) -> object:
        if self.form.kind == "one" and label is not NONE:
            return self._joint.jointly((values[0], label), key)
        if self.form.kind == "one":
            return self._joint.jointly((values[0],), key)
        if self.form.kind == "dict":
            return self._joint.jointly((self.form.item(values, sample, label),), key)
        made = self._joint.jointly(values, key)
        if not isinstance(made, (tuple, list)):
            made = (made,)
        return tuple(made) if label is NONE else (*made, label)


class OfRecord:
    """A loader whose result depends on the record, beside its bytes."""

    def of_record(self, data: object, sample: int) -> object:
        """Returns what the bytes of a record are."""
        raise NotImplementedError

    def __call__(self, data: object) -> object:
        raise TypeError("the result depends on the record")


def _seed(key: int | None, position: int) -> None:
    if key is not None:
        seed_generators(entry_key(key, position))


def made_of(part: Part, field: object, sample: int, key: int | None, position: int) -> object:
    """Returns what is made of a field.

    Args:
        part: What is to be made.
        field: Its bytes, or what the daemon made of them; None: the record does not have it.
        sample: The record's ID.
        key: The key of its random numbers; None: the generators are left as they are.
        position: That of a loader of the program's.
    """
    if field is None:
        return None
    if part.load is None:
        value = field
    elif isinstance(part.load, OfRecord):
        value = part.load.of_record(field, sample)
    elif part.decodes:
        value = _decoded(part, part.load, field, key)
    else:
        _seed(key, position)
        value = _called(part.load, field)
    return value if part.transform is None else _called(part.transform, value, key)


def _called(step: Step, *given: object) -> object:
    """Returns what a function of the user's makes; an error says of what, if ``[i]`` gave others.

    ``dataset[i]`` gives bytes, where a loader gives the daemon's memory without a copy.
    """
    try:
        return step(*given)
    except (AttributeError, TypeError) as error:
        if any(isinstance(g, memoryview) for g in given) and hasattr(error, "add_note"):
            error.add_note(
                "the function was given a read-only memoryview, as by every loader; "
                "bytes(data) makes bytes of it"
            )
        raise


def _decoded(part: Part, load: Step, field: Any, key: int | None) -> object:
    """Returns what HDMLP's own decoder makes of a field; an error names the field."""
    try:
        return decoded(load, field, key)
    except Undecodable as error:
        raise Undecodable(f"field {part.name}: {error}") from error.__cause__


class Assembled:
    """Puts batches together of what the daemon delivers, where Python has nothing else to do.

    Args:
        stream: An open stream.
        fields: What is made of records.
    """

    def __init__(self, stream: Stream, fields: Fields):
        self._outputs, self._form = stream.outputs, fields.form
        self._parts, self._seed = fields.parts, int(stream.opened["seed"])
        self._places = fields.places
        self._labels = None if fields.labels is None else _Column(fields.labels)
        self._columns = [
            None if part.column is None else _Column(part.column) for part in fields.parts
        ]

    def of(self, taken: Taken) -> object:
        """Returns a batch.

        An exception has the ID of a record that was left to Python as ``sample``.
        """
        outputs = self._outputs
        contents = taken.content if len(outputs) > 1 else [taken.content]
        delivered: list[object] = [
            content if output is None else output.tensor(content, taken.n)
            for content, output in zip(contents, outputs)
        ]
        ids = column(taken.payload, taken.n, "ids")
        if taken.left:
            self._fill(delivered, ids, taken)
        values = [
            delivered[place] if known is None else known.of(ids)
            for known, place in zip(self._columns, self._places)
        ]
        labels = NONE if self._labels is None else self._labels.of(ids)
        return self._form.batch(values, ids, labels, collate_records)

    def _fill(self, values: list[Any], ids: Sequence[int], taken: Taken) -> None:
        batch = Batch(self._seed, taken.epoch, taken.step)
        _, keys = keys_in(taken.payload, taken.n, batch, taken.outputs)
        with generators_kept():
            for place, data in taken.left.items():
                field, at = divmod(place, taken.n)
                part = self._parts[self._places.index(field)]
                output, instead = self._outputs[field], part.instead
                assert output is not None
                assert instead is not None
                try:
                    output.put(values[field], at, _decoded(part, instead, data, keys[at]))
                except Exception as error:
                    name_sample(error, ids[at])
                    raise


class _Column:
    """Labels, or other values of records, of which batches have parts.

    Args:
        labels: The values.
    """

    def __init__(self, labels: Labels):
        self._labels = labels
        self._numbers = None if labels.kind == "object" else torch.as_tensor(_plain(labels))

    def of(self, ids: Sequence[int]) -> object:
        """Returns the values of records, collated."""
        if self._numbers is None:
            return [self._labels[i] for i in ids]
        return self._numbers[torch.tensor(ids, dtype=torch.int64)]


def _plain(labels: Labels) -> object:
    """Returns labels in a form of which torch makes a tensor."""
    values = labels.values
    if labels.kind == "int":
        return torch.tensor(list(values), dtype=torch.int64)
    if labels.kind == "float":
        return torch.tensor(list(values), dtype=torch.float64)
    if labels.kind == "bool":
        return torch.tensor(values, dtype=torch.bool)
    return values


class Collated:
    """Collates items whose labels are objects, which become a list.

    Args:
        form: What items look like.
    """

    def __init__(self, form: Form):
        self.form = form

    def __call__(self, items: Sequence[Any]) -> object:
        if self.form.kind == "dict":
            labels = [item["label"] for item in items]
            rest = [{k: v for k, v in item.items() if k != "label"} for item in items]
            return {**collate_records(rest), "label": labels}
        made = [collate_records(column) for column in list(zip(*items))[:-1]]
        return [*made, [item[-1] for item in items]]


def collate_records(items: Sequence[Any]) -> Any:
    """Collates items as torch's ``default_collate``, but for what it cannot.

    Bytes, tensors of different shapes, images and other objects that it does not know become lists.
    """
    first = items[0]
    raw = isinstance(first, (bytes, bytearray, memoryview, LeftBytes))
    if raw or any(item is None for item in items):
        return list(items)
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for item in items for name in item)
        return {name: collate_records([item.get(name) for item in items]) for name in names}
    if isinstance(first, (tuple, list)) and len({len(item) for item in items}) == 1:
        columns = [collate_records(column) for column in zip(*items)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    shapes = {tuple(item.shape) for item in items if hasattr(item, "shape")}
    if len(shapes) > 1:
        return list(items)
    try:
        if _are_views(items):
            import numpy

            stacked = numpy.empty((len(items), *first.shape), first.dtype)
            return torch.from_numpy(numpy.stack(items, out=stacked))
        return torchs_default()(list(items))
    except TypeError:  # it does not know the type
        return list(items)


def _are_views(items: Sequence[Any]) -> bool:
    """Reports whether items are arrays that cannot be written to, as views of a cache are.

    torch's default function stacks such arrays of one type, but warns of them.
    """
    first = type(items[0])
    return (
        (first.__module__, first.__name__) == ("numpy", "ndarray")
        and all(type(item) is first and not item.flags.writeable for item in items)
        and len({item.dtype for item in items}) == 1
        and not originals.replaced("collation")
    )


def check_parts(given: object, what: str, fields: Sequence[str], form: str) -> dict[str, object]:
    """Returns an argument by field: one for the only field, or a dict for some of them.

    Raises:
        ConfigError: It names a field that there is not, or none of several.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
        for name in named:
            if name not in fields:
                raise ConfigError(
                    f"{what}[{name!r}]: there is no field of that name; there are "
                    f"{', '.join(fields)}"
                )
        return named
    if form != "one" and len(fields) > 1:
        example = "{" + ", ".join(f"{name!r}: ..." for name in fields[:2]) + "}"
        raise ConfigError(
            f"{what}: records have the fields {', '.join(fields)}: give one for each that needs "
            f"it, as {example}, or transforms= for a whole item"
        )
    return dict.fromkeys(fields, given)
