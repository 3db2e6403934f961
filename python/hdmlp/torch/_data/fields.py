"""What is made of the fields of records: the daemon's part, and Python's."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..._batches.output import Handed, Keyed, Output
from ..._batches.segments import Segment
from ..._batches.source import Taken
from ..._records import decoders, mds
from ..._records.form import NONE, Form
from ..._records.labels import Labels
from ..._transforms import ImgDecode, Transform
from ..._transforms.entries import Entries
from ..._transforms.generators import seed_generators
from ..._transforms.in_python import decoding, in_python, leaving
from ..._transforms.keys import LOADER, TARGET, entry_key
from ..._transforms.recipe import (
    Batch,
    Recipe,
    Undecodable,
    decoded,
    name_sample,
)
from ..._transforms.split import entries_of, entries_of_joint
from ...data import FieldTransforms, Jointly
from ...errors import ConfigError
from .collated import DEFAULTS, Collated, collate_records, none_of_labels
from .elements import OfPixels, Tensors
from .folder import Decoder, offload, pil_loader
from .joint import Group

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
        shaped: What the bytes that the daemon delivers of an array become; None: it is none.
    """

    name: str
    described: list[Transform] | Jointly
    load: Step | None
    transform: Entries | OfRecords | None
    instead: Keyed | None = None
    column: Labels | None = None
    wrap: Entries | None = None
    shaped: Tensors | None = None

    @property
    def decodes(self) -> bool:
        """Reports whether ``load`` is HDMLP's own, so where it fails the file is the reason."""
        return (
            isinstance(self.load, (Handed, Decoder))
            or self.load is pil_loader
            or isinstance(self.load, (Tensors, OfPixels))
            or getattr(self.load, "__module__", "") in (decoders.__name__, mds.__name__)
        )

    @property
    def native(self) -> bool:
        """Reports whether Python has nothing to do."""
        return self.load is None and self.transform is None

    @property
    def instant(self) -> bool:
        """Reports whether what Python has to do takes next to no time."""
        if self.transform is not None:
            return False
        return self.native or isinstance(self.load, Tensors) or self.load in decoders.INSTANT


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
    if isinstance(loader, Tensors):
        if wanted and transform is None and not lacks:
            return Part(name, loader.described, None, None, shaped=loader)
        return Part(name, [], loader, _entries(transform, first))
    found = offload(loader, transform, wanted, say, ragged=True, first=first)
    if not found.described:
        return Part(name, [], loader, found.entries or None)
    of_one_size = found.hands == "tensor" or (not found.rest and found.hands == "image")
    if lacks and of_one_size:
        offload(loader, transform, wanted=False)  # which means that our own ones cannot run here
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
        group: What is made of fields jointly; None: each has transforms of its own.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        form: Form,
        labels: Labels | None,
        target_transform: Step | None,
        joint: Step | Entries | None,
        then: Sequence[Step] = (),
        labeller: Step | None = None,
        end: int = 0,
        group: Group | None = None,
    ):
        self.labeller, self.end, self.group = labeller, end, group
        self.parts, self.form, self.labels = list(parts), form, labels
        self.target_transform, self.joint, self.then = target_transform, joint, list(then)
        #: For each field, which records do not have it, by ID; None: all have it, or the daemon
        #: says so, which it does where there are several fields.
        self.absent: Sequence[Any] = [None] * len(self.parts)

    @property
    def native(self) -> bool:
        """Reports whether Python has nothing to do but to put batches together."""
        jointly = self.group is None or self.group.joined is not None
        return self._only_fields and jointly and all(part.native for part in self.parts)

    @property
    def instant(self) -> bool:
        """Reports whether Python has hardly more to do than to put batches together."""
        jointly = self.group is None or self.group.joined is not None
        return self._only_fields and jointly and all(part.instant for part in self.parts)

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
        if not self._transformed:
            return list(range(len(self.parts)))
        delivered = self._delivered
        return [delivered.index(i) if i in delivered else -1 for i in range(len(self.parts))]

    @property
    def _transformed(self) -> bool:
        """Whether the daemon transforms any field."""
        return self._jointly is not None or any(part.described for part in self.parts)

    @property
    def _jointly(self) -> Group | None:
        """What the daemon does of several fields jointly; None: nothing."""
        return None if self.group is None or self.group.joined is None else self.group

    @property
    def _delivered(self) -> list[int]:
        """The numbers of the parts in the order in which the daemon delivers them."""
        joint = () if self._jointly is None else self._jointly.fields
        named = {part.name: i for i, part in enumerate(self.parts)}
        order: list[int] = []
        for i, part in enumerate(self.parts):
            if part.name in joint:
                order += [named[name] for name in joint if named[name] not in order]
            elif part.column is None:
                order.append(i)
        return order

    @property
    def described(self) -> list[Transform] | FieldTransforms:
        """The daemon's transforms."""
        if not self._transformed:
            return []
        group = self._jointly
        only = self.parts[0].described
        if len(self.parts) == 1 and group is None and not isinstance(only, Jointly):
            return only
        made = FieldTransforms()
        for i in self._delivered:
            part = self.parts[i]
            if group is None or part.name not in group.fields:
                made.append((part.name, part.described))
            elif part.name == group.fields[0]:
                made.append((part.name, group.described))
        return made


class FieldsRecipe(Recipe):
    """How items are made of records; goes to worker processes by fork or by pickle.

    Args:
        fields: What is made of them.
        collate: From a list of items to a batch.

    Attributes:
        instant: Items take next to no time: a worker would only copy batches once more.
    """

    def __init__(self, fields: Fields, collate: Step):
        self.instant = fields.instant and collate in DEFAULTS
        objects = fields.labels is not None and fields.labels.kind == "object"
        if objects and collate is collate_records and not fields.changes_labels:
            collate = Collated(fields.form)
        super().__init__(pil_loader, None, fields.target_transform, collate)
        self.form, self.labels, self.joint = fields.form, fields.labels, fields.joint
        self.then, self.places = fields.then, fields.places
        self.changes_labels = fields.changes_labels
        self.group = fields.group
        self._joint = (
            fields.joint
            if isinstance(fields.joint, Entries)
            else entries_of_joint(fields.joint, fields.end)
        )
        self._then = entries_of(fields.then, fields.end + len(self._joint.entries))
        self.labeller = fields.labeller
        self._default = isinstance(collate, Collated) or collate in DEFAULTS
        self._absent = (
            list(enumerate(fields.absent)) if any(one is not None for one in fields.absent) else []
        )
        self.parts = [
            part._replace(load=part.shaped or Handed("tensor", part.instead), transform=part.wrap)
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
            if self.group is not None and part.name in self.group.fields:
                self.group.outputs[part.name] = outputs[place]

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

    def collated(self, made: list[object], batch: Batch, place: object) -> object:
        """Collates items; see :meth:`Recipe.collated`.

        A batch without samples, because none of them can be read, has empty tensors and lists.
        """
        if made or not self._default:
            return super().collated(made, batch, place)
        group = () if self.group is None else self.group.kinds
        values = [
            self.group.none(part.name) if self.group and part.name in group else _none(part)
            for part in self.parts
        ]
        labels: object = NONE
        if self.labels is not None:
            labels = none_of_labels("int" if self.changes_labels else self.labels.kind)
        whole = self.form.batch(values, [], labels, collate_records)
        if self.group is not None and isinstance(whole, dict):
            whole.update({name: self.group.none(name) for name in self.group.columns})
        return whole

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
        joint = () if self.group is None or self.group.joined is None else self.group.fields
        values = [
            part.column[sample]
            if part.column is not None
            else fields[place]
            if part.name in joint
            else made_of(part, fields[place], sample, key, LOADER + i)
            for i, (part, place) in enumerate(zip(self.parts, self.places))
        ]
        if self.group is not None:
            return self._in_group(values, sample, key)
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

    def _in_group(self, values: list[object], sample: int, key: int | None) -> object:
        """Makes an item of fields that a list is applied to jointly."""
        assert self.group is not None
        names = [part.name for part in self.parts]
        given = {name: v for name, v in zip(names, values) if name in self.group.fields}
        made = self.group.values(given, sample, key)
        label: object = NONE if self.labels is None else self.labels[sample]
        if self.target_transform is not None and label is not NONE:
            _seed(key, TARGET)
            label = self.target_transform(label)
        item = self.form.item([made.get(n, v) for n, v in zip(names, values)], sample, label)
        for name in self.group.columns:
            assert isinstance(item, dict)
            item[name] = made[name]
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


def _none(part: Part) -> object:
    """Returns a batch of no values of a field."""
    if part.column is not None:
        return none_of_labels(part.column.kind)
    if part.load is decoders.number and part.transform is None:
        return none_of_labels("int")
    images = isinstance(part.load, (Handed, Decoder, Tensors, OfPixels))
    tensors = images or part.load in (pil_loader, decoders.image, decoders.array_of)
    return torch.empty(0) if tensors or part.transform is not None else []


class OfRecords(NamedTuple):
    """Transforms that depend on the record.

    Attributes:
        which: Returns which of the lists is a record's, by its ID.
        lists: The lists; None: nothing is applied.
    """

    which: Callable[[int], int]
    lists: list[Entries | None]

    @property
    def steps(self) -> list[Step]:
        """The transforms of all lists."""
        return [step for entries in self.lists if entries is not None for step in entries.steps]


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
        value = decoded_field(part, part.load, field, key)
    else:
        _seed(key, position)
        value = _called(part.load, field)
    transform = part.transform
    if isinstance(transform, OfRecords):
        transform = transform.lists[transform.which(sample)]
    return value if transform is None else _called(transform, value, key)


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


def decoded_field(part: Part, load: Step, field: Any, key: int | None) -> object:
    """Returns what HDMLP's own decoder makes of a field; an error names the field."""
    try:
        return decoded(load, field, key)
    except Undecodable as error:
        raise Undecodable(f"field {part.name}: {error}") from error.__cause__


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
