"""What an item of a dataset of records looks like: as what was given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ..errors import ConfigError

#: In place of a label, if records have none.
NONE = object()


class Form:
    """How the values of a record's fields become an item.

    Args:
        kind: ``"one"``: the value of the only field. ``"tuple"``, ``"dict"``: of all.
        fields: The fields' names.
        columns: Of a dict: values by record ID, by name, which come before the fields.
        omits: A dict leaves out the fields that a record does not have, instead of None.
    """

    def __init__(
        self,
        kind: str,
        fields: Sequence[str],
        columns: Mapping[str, Sequence[object]] | None = None,
        omits: bool = False,
    ):
        self.kind, self.fields, self.omits = kind, list(fields), omits
        self.columns = dict(columns or {})

    def item(self, values: Sequence[object], sample: int, label: object = NONE) -> object:
        """Returns an item.

        Args:
            values: One per field.
            sample: The record's ID.
            label: Its label, which is the last member of an item, or ``"label"`` of a dict.
        """
        if self.kind == "one":
            return values[0] if label is NONE else (values[0], label)
        if self.kind == "tuple":
            return tuple(values) if label is NONE else (*values, label)
        item = {name: column[sample] for name, column in self.columns.items()}
        for name, value in zip(self.fields, values):
            if value is not None or not self.omits:
                item[name] = value
        if label is not NONE:
            item["label"] = label
        return item

    def batch(
        self,
        values: Sequence[object],
        ids: Sequence[int],
        labels: object = NONE,
        collate: Callable[[list[object]], object] = list,
    ) -> object:
        """Returns a batch of collated values, as ``default_collate`` makes it of items.

        Args:
            values: One per field: of all records.
            ids: Their IDs.
            labels: Their labels, collated.
            collate: Collates the values of a column.
        """
        if self.kind == "one":
            return values[0] if labels is NONE else [values[0], labels]
        if self.kind == "tuple":
            return list(values) if labels is NONE else [*values, labels]
        made: dict[str, object] = {
            name: collate([column[i] for i in ids]) for name, column in self.columns.items()
        }
        made.update(zip(self.fields, values))
        if labels is not NONE:
            made["label"] = labels
        return made


def check_chosen(what: str, chosen: Sequence[str], given: Collection[str]) -> None:
    """Checks the names that a user chose among those that there are.

    Args:
        what: The argument's name.
        chosen: The names.
        given: Those that there are.

    Raises:
        ConfigError: There is no such name, or it was given twice, or none was given.
    """
    if isinstance(chosen, str):
        raise ConfigError(f"{what}={chosen!r}: must be a list of names, such as [{chosen!r}]")
    for i, name in enumerate(chosen):
        if name not in given:
            raise ConfigError(f"{what}: there is no {name!r}; there are {', '.join(given)}")
        if name in chosen[:i]:
            raise ConfigError(f"{what}: {name!r} is given twice, and items have each name once")
    if not chosen:
        raise ConfigError(f"{what}: items need at least one")
