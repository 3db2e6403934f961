"""Batches of records of which the daemon makes all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._batches.source import Taken, column
from ..._batches.stream import Stream
from ..._records.form import NONE
from ..._records.labels import Labels
from ..._transforms.generators import generators_kept
from ..._transforms.recipe import Batch, keys_in, name_sample
from .collated import collate_records
from .fields import Fields, decoded_field
from .joint import Group


class Assembled:
    """Puts batches together of what the daemon delivers, where Python has nothing else to do.

    Args:
        stream: An open stream.
        fields: What is made of records.
    """

    def __init__(self, stream: Stream, fields: Fields):
        self._outputs, self._form = stream.outputs, fields.form
        self._parts, self._seed = fields.parts, int(stream.opened["seed"])
        self._group = fields.group
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
            content if output is None or output.ragged else output.tensor(content, taken.n)
            for content, output in zip(contents, outputs)
        ]
        ids = column(taken.payload, taken.n, "ids")
        if self._group is not None:
            self._join(self._group, delivered, ids, taken)
        elif taken.left:
            self._fill(delivered, ids, taken)
        for part, place in zip(self._parts, self._places):
            if part.shaped is not None:
                delivered[place] = part.shaped.batch(delivered[place], taken.n)
        values = [
            delivered[place] if known is None else known.of(ids)
            for known, place in zip(self._columns, self._places)
        ]
        labels = NONE if self._labels is None else self._labels.of(ids)
        return self._form.batch(values, ids, labels, collate_records)

    def _join(self, group: Group, delivered: list[Any], ids: Sequence[int], taken: Taken) -> None:
        """Puts together what comes one by one, and what was left to Python."""
        places = {p.name: at for p, at in zip(self._parts, self._places) if p.name in group.fields}
        for name, at in places.items():
            group.outputs[name] = self._outputs[at]
        left: dict[int, dict[str, Any]] = {}
        by_place = {place: name for name, place in places.items()}
        for place, data in taken.left.items():
            field, at = divmod(place, taken.n)
            left.setdefault(at, {})[by_place[field]] = data
        made = {}
        if left:
            batch = Batch(self._seed, taken.epoch, taken.step)
            _, keys = keys_in(taken.payload, taken.n, batch, taken.outputs)
            with generators_kept():
                for at, given in left.items():
                    try:
                        made[at] = group.of_bytes(given, ids[at], keys[at])
                    except Exception as error:
                        name_sample(error, ids[at])
                        raise
        for name, place in places.items():
            output = self._outputs[place]
            if group.apart(name):
                items = [
                    made[at][name] if at in made else group.result(name, view)
                    for at, view in enumerate(delivered[place])
                ]
                delivered[place] = collate_records(items) if items else group.none(name)
                continue
            for at, values in made.items():
                assert output is not None
                output.put(delivered[place], at, values[name])

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
                    output.put(values[field], at, decoded_field(part, instead, data, keys[at]))
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
