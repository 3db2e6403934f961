"""The labels of records: as they were given, and as batches have them."""

from __future__ import annotations

import array
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from .._lib.arguments import by_position
from ..errors import ConfigError


class Labels:
    """The labels of a dataset's records, by ID.

    Numbers and truth values stay as they are. Texts become the numbers of classes, which are
    sorted. The rows of an array become rows; other objects stay objects.

    Args:
        given: One per record.
        classes: The names of the classes, in the order of their numbers; texts are labels by these,
            and integers are numbers of them. None: texts have the classes that there are, sorted.

    Attributes:
        kind: ``"int"``, ``"float"``, ``"bool"``, ``"row"`` or ``"object"``.
        values: One per record: an array for integers and floats, else what was given.
        classes: The classes' names; empty if labels are no classes.
        found: The classes are the texts that there are: they were not given.

    Raises:
        ConfigError: A label is not one of ``classes``, or ``given`` has no order.
    """

    def __init__(self, given: Sequence[Any], classes: Sequence[str] | None = None):
        given = by_position("labels", given)
        self.classes: list[str] = [] if classes is None else list(classes)
        self.kind, self.values, self.found = "object", given, False
        if getattr(given, "ndim", 1) > 1:
            self._rows(given)
            return
        listed = given.tolist() if hasattr(given, "tolist") else [_pythons(x) for x in given]
        self.values = listed
        types = set(map(type, listed))
        if types and types <= {str}:
            self._number(listed)
        elif types == {bool} and not self.classes:
            self.kind = "bool"
        elif types <= {int, bool} or all(isinstance(x, (numbers.Integral, bool)) for x in listed):
            self._keep([operator.index(x) for x in listed])
        elif all(isinstance(x, numbers.Real) and not isinstance(x, bool) for x in listed):
            self.kind, self.values = "float", array.array("d", map(float, listed))
        if self.classes and self.kind == "int":
            self._check()

    @classmethod
    def of_objects(cls, values: Sequence[object]) -> Labels:
        """Returns labels that stay the objects that they are."""
        made = cls([])
        made.kind, made.values = "object", values
        return made

    def _rows(self, array: Any) -> None:
        """Takes the rows of an array, of which torch can make a tensor unless they are objects."""
        kind = getattr(array.dtype, "kind", None)  # None: it is a tensor
        if kind is None or kind in "biufc":
            self.kind, self.values = "row", array
            if kind and (not array.dtype.isnative or min(array.strides) < 0):
                self.values = array.astype(array.dtype.newbyteorder("="))
        else:
            self.values = array.tolist()

    def _number(self, listed: list[str]) -> None:
        if not self.classes:
            self.classes, self.found = sorted(set(listed)), True
        numbers_of = {name: i for i, name in enumerate(self.classes)}
        if len(numbers_of) < len(self.classes):
            raise ConfigError("classes: a name is there twice")
        try:
            self.values = array.array("q", [numbers_of[name] for name in listed])
        except KeyError as error:
            name = error.args[0]
            raise ConfigError(
                f"labels[{listed.index(name)}]={name!r}: it is none of the {len(self.classes)} "
                "classes that were given"
            ) from None
        self.kind = "int"

    def _keep(self, integers: list[int]) -> None:
        try:
            self.values, self.kind = array.array("q", integers), "int"
        except OverflowError:  # they stay objects
            self.values = integers

    def _check(self) -> None:
        for i, number in enumerate(self.values):
            if not 0 <= number < len(self.classes):
                raise ConfigError(
                    f"labels[{i}]={number}: there are {len(self.classes)} classes, whose numbers "
                    f"are 0 to {len(self.classes) - 1}"
                )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> object:
        return self.values[index]

    def listed(self) -> list[object]:
        """Returns the labels as a list."""
        return self.values.tolist() if hasattr(self.values, "tolist") else list(self.values)


def _pythons(label: Any) -> Any:
    """Returns a scalar of numpy's, as rows of its arrays are, as what ``tolist`` makes of it."""
    return label.item() if type(label).__module__ == "numpy" and not label.ndim else label
