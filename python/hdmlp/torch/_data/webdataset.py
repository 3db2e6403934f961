"""WebDataset's shards for torch, with those of webdataset's methods whose meaning is exact."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Sequence
from typing import NoReturn

import torch.utils.data

from ..._records import decoders
from ..._records.labels import Labels
from ..._records.webdataset import COUNTERPARTS
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

    def __repr__(self) -> str:
        return f"decode({self.kind!r})"


class _Renamed:
    """Renames the fields of a dict.

    Args:
        names: From new names to old ones, of which ``"jpg;png"`` is the first that there is.
    """

    def __init__(self, names: dict[str, str]):
        self.names = names

    def __call__(self, item: dict[str, object]) -> dict[str, object]:
        made, used = {}, set()
        for new, old in self.names.items():
            found = next((name for name in old.split(";") if name in item), None)
            if found is None:
                raise KeyError(f"rename: no field {old!r} in {sorted(item)}")
            made[new] = item[found]
            used.add(found)
        return {**{k: v for k, v in item.items() if k not in used}, **made}


class _MappedTuple:
    """Applies a function to each member of a tuple; None: none."""

    def __init__(self, steps: Sequence[Step | None]):
        self.steps = steps

    def __call__(self, item: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(v if step is None else step(v) for v, step in zip(item, self.steps))


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
        loader, transform, transforms, decode: See :class:`Files`; by field.

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
        **others: object,
    ):
        for name in others:
            _refuse(name)
        super().__init__(urls, fields, missing=missing, targets=targets, index=index)
        self._set_making(loader, transform, None, transforms, decode)

    def _known(self, name: str, load: Step | None) -> Labels | None:
        """Returns the targets, which are numbers in the index."""
        if name != self._targets or not self._values or load is not decoders.number:
            return None
        found: Labels = self.__dict__["_classes_of"]
        return found if found.kind == "int" else None

    def __getattr__(self, name: str) -> object:
        if name in COUNTERPARTS:
            return functools.partial(_refuse, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _copy(self) -> WebDataset:
        made = copy.copy(self)
        made.__dict__["_then"] = list(self._then)
        for name in ("loader", "transform"):
            given = getattr(self, name)
            setattr(made, name, dict(given) if isinstance(given, dict) else given)
        return made

    def decode(self, *handlers: object) -> WebDataset:
        """Returns the dataset with fields decoded by their suffixes.

        Args:
            *handlers: What images become: ``"pil"``, ``"rgb"``, ``"rgb8"``, ``"torchrgb"`` or
                ``"torchrgb8"``. Default: none, images stay bytes.

        Raises:
            ConfigError: There is no such handler, or a field is a pickle.
        """
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
            suffix = decoders.suffix_of(self._name_of(i))
            if name in loaders:
                continue
            if suffix not in decoders.IMAGES:
                step = decoders.decoder(suffix)
                if step is not None:
                    loaders[name] = step
            elif handlers:
                loaders[name] = pil_loader
                if handlers[0] != "pil":
                    transforms[name] = _AsArray(str(handlers[0]))
        made.loader, made.transform = loaders, transforms
        return made

    def to_tuple(self, *fields: str) -> WebDataset:
        """Returns the dataset with tuples of these fields as items; see ``fields``."""
        if self._then or self._chosen is not None:
            raise ConfigError(
                "to_tuple: the items are no dicts of fields any more; call it earlier"
            )
        names = [name for field in fields for name in field.split()]
        chosen = [name for name in names if name not in ("__key__", "__url__")]
        if len(chosen) < len(names):
            raise ConfigError(
                "to_tuple: __key__ and __url__ are in items that are dicts: leave to_tuple out, "
                "and use map(lambda item: (item['__key__'], ...))"
            )
        made = type(self)(self.urls, chosen, missing=self._missing, targets=self._targets)
        made.loader = _for_fields(self.loader, self.fields, made.fields)
        made.transform = _for_fields(self.transform, self.fields, made.fields)
        made.transforms = self.transforms
        return made

    def rename(self, **names: str) -> WebDataset:
        """Returns the dataset with fields renamed, as ``rename(image="jpg;png")``."""
        return self._and(_Renamed(names))

    def map(self, function: Step) -> WebDataset:
        """Returns the dataset with a function applied to each item, in Python."""
        if not callable(function):
            raise ConfigError(f"map({function!r}): must be callable")
        return self._and(function)

    def map_tuple(self, *functions: Step | None) -> WebDataset:
        """Returns the dataset with a function for each member of its items, which are tuples.

        The daemon carries out what it can of functions that are transforms.
        """
        if self._then or self._form.kind != "tuple":
            return self._and(_MappedTuple(functions))
        if len(functions) > len(self.fields):
            raise ConfigError(
                f"map_tuple: {len(functions)} functions, and items have {len(self.fields)} members"
            )
        made = self._copy()
        transforms: dict[str, object] = dict(self.transform or {})
        for name, function in zip(self.fields, functions):
            if function is None or getattr(function, "__name__", "") == "identity":
                continue
            before = transforms.get(name)
            transforms[name] = function if before is None else [before, function]
        made.transform = transforms
        return made

    def _and(self, step: Step) -> WebDataset:
        made = self._copy()
        made._then.append(step)
        return made


def _for_fields(given: object, fields: Sequence[str], chosen: Sequence[str]) -> object:
    """Returns what is given by fields for others, such as ``"jpg;png"``."""
    if not isinstance(given, dict):
        return given
    made = {}
    for name in chosen:
        found = next((part for part in name.split(";") if part in given), None)
        if found is not None:
            made[name] = given[found]
    return made


def _refuse(name: str, *_: object, **__: object) -> NoReturn:
    what = COUNTERPARTS.get(name)
    if what is None:
        raise TypeError(f"WebDataset got an unexpected keyword argument {name!r}")
    raise ConfigError(f"{name}: {what}")
