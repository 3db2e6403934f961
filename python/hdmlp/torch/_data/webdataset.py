"""WebDataset's shards for torch, with those of webdataset's methods whose meaning is exact."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import torch.utils.data

from ..._records import decoders
from ..._records.labels import Labels
from ..._records.webdataset import ARGUMENTS, METHODS, OPTIONS, names_of
from ..._records.webdataset import WebDataset as PlainWebDataset
from ...errors import ConfigError
from .fields import Step
from .folder import pil_loader
from .records import Making


class _AsArray:
    """Makes an array of an image, as webdataset's decoders do.

    Args:
        kind: ``"rgb"`` (float32, height, width, 3), ``"rgb8"`` (uint8), ``"torchrgb"`` (a tensor of
            3, height, width) or ``"torchrgb8"``.
    """

    def __init__(self, kind: str):
        self.kind = kind

    def __call__(self, image: object) -> object:
        import numpy

        array = numpy.asarray(image)
        if not self.kind.endswith("8"):
            array = array.astype(numpy.float32) / 255.0
        if not self.kind.startswith("torch"):
            return array
        return torch.from_numpy(array.copy()).permute(2, 0, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AsArray) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"decode({self.kind!r})"


class _Renamed:
    """Renames the fields of a dict.

    Args:
        names: From new names to old ones, of which the first that there is gets the new name.
        keep: Fields with none of these names stay.
    """

    def __init__(self, names: dict[str, list[str]], keep: bool):
        self.names, self.keep = names, keep
        self._replaced = {old for several in names.values() for old in several}

    def __call__(self, item: dict[str, object]) -> dict[str, object]:
        made: dict[str, object] = {}
        if self.keep:
            made = {name: value for name, value in item.items() if name not in self._replaced}
        for new, names in self.names.items():
            made[new] = _first("rename", item, names)
        return made

    def before(self, name: str) -> list[str]:
        """Returns what a name was before: the alternatives of which one has it now."""
        if name in self.names:
            return self.names[name]
        return [name] if self.keep and name not in self._replaced else []


class _Tupled:
    """Makes a tuple of some of a dict's fields.

    Args:
        fields: The alternatives of each member, of which the first that there is counts.
    """

    def __init__(self, fields: Sequence[Sequence[str]]):
        self.fields = fields

    def __call__(self, item: Mapping[str, object]) -> tuple[object, ...]:
        if not isinstance(item, Mapping):
            raise TypeError(f"to_tuple: the item is no dict, but a {type(item).__name__}")
        return tuple(_first("to_tuple", item, names) for names in self.fields)


def _first(method: str, item: Mapping[str, object], names: Sequence[str]) -> object:
    """Returns the value of the first of some fields that an item has.

    Raises:
        ValueError: It has none of them.
    """
    for name in names:
        if name in item:
            return item[name]
    raise ValueError(f"{method}: no field {';'.join(names)!r} in {sorted(item)}")


class _Mapped:
    """Applies a function to each item; a dict that it makes of a dict has the key of that."""

    def __init__(self, function: Step):
        self.function = function

    def __call__(self, item: object) -> object:
        made = self.function(item)
        if made is None:
            raise ConfigError(
                "map: the function returned None, for which webdataset leaves the sample out, but "
                "an epoch here has a known number of samples: use torch.utils.data.Subset"
            )
        if isinstance(item, dict) and isinstance(made, dict):
            made["__key__"] = item.get("__key__")
        return made


class _MappedTuple:
    """Applies a function to each of the first members of a tuple; None: none."""

    def __init__(self, steps: Sequence[Step | None]):
        self.steps = steps

    def __call__(self, item: Sequence[object]) -> tuple[object, ...]:
        if not isinstance(item, (tuple, list)):
            raise TypeError(f"map_tuple: the item is no tuple, but a {type(item).__name__}")
        made = [v if step is None else step(v) for v, step in zip(item, self.steps)]
        return (*made, *item[len(made) :])


class WebDataset(Making, PlainWebDataset, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Tar files by WebDataset's rules, in any order.

    Members that follow one another and have the same name up to the first dot after the last slash,
    the key, are the fields of a sample; the rest of the name, in lower case, is a field's name.
    Samples have the order of the shards, and in each that of its members. The headers are read
    once; the index is kept beside the shards or, if that is not possible, in the user's cache.

    webdataset's ``decode``, ``to_tuple``, ``rename``, ``map_tuple`` and ``map`` return another
    dataset, as there. What it has for shuffling and splitting raises
    :class:`~hdmlp.errors.ConfigError` with what stands for it here.

    Args:
        urls: The paths of the shards: a path or a list, with braces (``{000..099}``, ``{a,b}``) and
            wildcards (``*``, ``?``), in this order; those that a wildcard stands for are sorted.
        fields: The fields of items: names, of which ``"jpg;png"`` is the first that a sample has.
            Items are then tuples in this order. Default: None, all, and items are dicts with
            ``"__key__"`` and ``"__url__"``.
        missing: What becomes of samples that lack one of ``fields``: ``"raise"``, ``"skip"``, or
            None: they have None there. Default: ``"raise"``.
        targets: The name of a field of at most 64 bytes whose values are :attr:`targets`, before
            any sample is read. Default: ``"cls"``, if there is such a field.
        index: See :class:`hdmlp.data.WebDataset`. Default: None.
        loader, transform, transforms, decode, kinds, mask: See :class:`Files`; by field.

    Raises:
        ConfigError: An argument is wrong.
        DatasetNotFoundError: A directory is missing.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Sequence[str] | None = None,
        *,
        missing: str | None = "raise",
        targets: str = "cls",
        index: str | os.PathLike[str] | None = None,
        loader: object = None,
        transform: object = None,
        transforms: Step | None = None,
        decode: bool = False,
        kinds: Mapping[str, str] | None = None,
        mask: str = "tensor",
        **others: object,
    ):
        for name, value in others.items():
            if name not in ARGUMENTS:
                raise TypeError(f"WebDataset got an unexpected keyword argument {name!r}")
            if value:  # what asks for nothing, such as shardshuffle=False, is as it is here
                raise ConfigError(f"{name}: {ARGUMENTS[name]}")
        super().__init__(urls, fields, missing=missing, targets=targets, index=index)
        self._set_making(loader, transform, None, transforms, decode, kinds, mask)

    def _known(self, name: str, load: Step | None) -> Labels | None:
        """Returns the targets, which are numbers in the index."""
        if name != self._targets or self._values is None or load is not decoders.number:
            return None
        return self._values if self._values.kind == "int" else None

    def _copy(self) -> WebDataset:
        made = copy.copy(self)
        made.__dict__["_then"] = list(self._then)
        for name in ("loader", "transform"):
            given = getattr(self, name)
            setattr(made, name, dict(given) if isinstance(given, dict) else given)
        return made

    def decode(
        self, *handlers: object, only: str | Sequence[str] | None = None, **others: object
    ) -> WebDataset:
        """Returns the dataset with fields decoded by their suffixes.

        Args:
            *handlers: What images become: ``"pil"``, ``"rgb"``, ``"rgb8"``, ``"torchrgb"`` or
                ``"torchrgb8"``. Default: none, images stay bytes.
            only: The names of the fields that are decoded, as a list or a text with spaces between
                them. Default: None, all.
            **others: webdataset's, which are refused with what to do.

        Raises:
            ConfigError: There is no such handler, or a field is a pickle.
        """
        _check_options("decode", others)
        if self._then:
            raise ConfigError(
                "decode: the items are what map, rename or map_tuple make: call it before them"
            )
        allowed = ("pil", "rgb", "rgb8", "torchrgb", "torchrgb8")
        if len(handlers) > 1 or any(handler not in allowed for handler in handlers):
            raise ConfigError(
                f"decode{handlers!r}: allowed: none, or one of {', '.join(allowed)}; for others, "
                "give loader={field: function of its bytes}"
            )
        made = self._copy()
        loaders: dict[str, Step] = dict(self.loader or {})
        transforms: dict[str, object] = dict(self.transform or {})
        for i, name in enumerate(self.fields):
            if name in loaders or not _is_one_of(name, only):
                continue
            step = self._decoder_of(i)
            images = step in (decoders.image, decoders.Gunzipped(decoders.image))
            if images and not handlers:
                step = None if step is decoders.image else decoders.Gunzipped(None)
            if step is not None and step is not decoders.image:
                loaders[name] = step
            elif step is not None:
                loaders[name] = pil_loader
            if images and handlers and handlers[0] != "pil":
                transforms[name] = _AsArray(str(handlers[0]))
        made.loader, made.transform = loaders, transforms
        return made

    def to_tuple(self, *fields: str, **others: object) -> WebDataset:
        """Returns the dataset with tuples of these fields as items; see ``fields``.

        Of what ``map`` makes, the tuples are made in Python.
        """
        _check_options("to_tuple", others)
        if self._chosen is not None or any(isinstance(step, _Tupled) for step in self._then):
            raise ConfigError("to_tuple: the items are tuples already; call it once")
        names = [name for field in fields for name in field.split()]
        if any(not isinstance(step, _Renamed) for step in self._then):
            return self._and(_Tupled([name.split(";") for name in names_of(names) or ()]))
        chosen = [self._name_before(name) for name in names]
        if {"__key__", "__url__"} & set(chosen):
            raise ConfigError(
                "to_tuple: __key__ and __url__ are in items that are dicts: leave to_tuple out, "
                "and use map(lambda item: (item['__key__'], ...))"
            )
        made = self._copy()
        made._then.clear()
        made.__dict__.pop("_made")
        made._choose(names_of(chosen))
        made.loader = _for_fields(self.loader, self.fields, made.fields)
        made.transform = _for_fields(self.transform, self.fields, made.fields)
        return made

    def _name_before(self, field: str) -> str:
        """Returns the name of a field, or its alternatives, before it was renamed."""
        names = field.split(";")
        for step in reversed(self._then):
            assert isinstance(step, _Renamed)
            names = [before for name in names for before in step.before(name)]
        if not names:
            raise ConfigError(f"to_tuple: rename leaves no field {field!r}")
        return ";".join(dict.fromkeys(names))

    def rename(self, *, keep: bool = True, **names: str | Sequence[str]) -> WebDataset:
        """Returns the dataset with fields renamed, as ``rename(image="jpg;png")``.

        Args:
            keep: Whether fields with none of these names stay. Default: True.
            **names: From a new name to an old one, or to several, as ``"jpg;png"`` or a list, of
                which the first that a sample has gets the new name, and the others go.
        """
        _check_options("rename", {name: names[name] for name in OPTIONS if name in names})
        for new, old in names.items():
            if not isinstance(old, (str, list, tuple)):
                raise ConfigError(f"rename: {new}={old!r}: must be the name of a field, or a list")
        listed = {k: v.split(";") if isinstance(v, str) else list(v) for k, v in names.items()}
        return self._and(_Renamed(listed, keep))

    def map(self, function: Step, **others: object) -> WebDataset:
        """Returns the dataset with a function applied to each item, in Python.

        As in webdataset, a dict that it makes of a dict gets the ``"__key__"`` of that.
        """
        _check_options("map", others)
        if not callable(function):
            raise ConfigError(f"map({function!r}): must be callable")
        return self._and(_Mapped(function))

    def map_tuple(self, *functions: Step | None, **others: object) -> WebDataset:
        """Returns the dataset with a function for each member of its items, which are tuples.

        The daemon carries out what it can of functions that are transforms.
        """
        _check_options("map_tuple", others)
        if self._then or self._form.kind != "tuple":
            return self._and(_MappedTuple(functions))
        if len(functions) > len(self.fields):
            raise ConfigError(
                f"map_tuple: {len(functions)} functions, and items have {len(self.fields)} members"
            )
        made = self._copy()
        transforms: dict[str, object] = dict(self.transform or {})
        for name, function in zip(self.fields, functions):
            if function is None or _is_identity(function):
                continue
            before = transforms.get(name)
            transforms[name] = function if before is None else [before, function]
        made.transform = transforms
        return made

    def _and(self, step: Step) -> WebDataset:
        made = self._copy()
        made._then.append(step)
        return made


def _is_identity(function: Step) -> bool:
    """Reports whether a function is webdataset's that returns what it is given."""
    name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    return name == ("webdataset.utils", "identity")


def _for_fields(given: object, fields: Sequence[str], chosen: Sequence[str]) -> object:
    """Returns what is given by fields for others, such as ``"jpg;png"``.

    Raises:
        ConfigError: It differs between the alternatives of one.
    """
    if not isinstance(given, dict):
        return given
    made = {}
    for name in chosen:
        parts = [part for part in name.split(";") if part in fields]
        found = [given.get(part) for part in parts]
        if any(other != found[0] for other in found):
            raise ConfigError(
                f"to_tuple: the fields {' and '.join(parts)} of {name!r} are decoded in different "
                "ways, and a tuple does not say which of them it has: choose one, or give "
                f"WebDataset(fields=..., loader={{{name!r}: function}})"
            )
        if found and found[0] is not None:
            made[name] = found[0]
    return made


def _is_one_of(field: str, only: str | Sequence[str] | None) -> bool:
    """Reports whether a field is one of those that ``decode`` is to decode.

    Raises:
        ConfigError: Of alternatives, some are and some are not.
    """
    if only is None:
        return True
    chosen = set(only.split() if isinstance(only, str) else only)
    parts = [part in chosen for part in field.split(";")]
    if any(parts) and not all(parts):
        raise ConfigError(f"decode: only={only!r} has some of the alternatives of {field!r}")
    return all(parts)


def _check_options(method: str, given: dict[str, object]) -> None:
    """Checks what a method was given besides its arguments.

    Raises:
        ConfigError: webdataset has an argument of that name.
    """
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
        raise ConfigError(f"{method}: {name}: {OPTIONS[name]}")


def _refusing(name: str) -> Callable[..., NoReturn]:
    """Returns a method of webdataset's that raises an error: what stands for it here."""

    def method(self: WebDataset, *_: object, **__: object) -> NoReturn:
        raise ConfigError(f"{name}: {METHODS[name]}")

    return method


for _name in METHODS:
    setattr(WebDataset, _name, _refusing(_name))
