"""What of a process decides what transforms of libraries do, beside the transforms themselves.

A process that was forked has all of it as it was then. :func:`surroundings` returns what can be
compared later: whether another process, forked now, would make something else of a sample.

It contains the namespaces of the libraries' modules and classes, with what is in their tables, so
every setting that is a variable, every registered plugin and every function that the program has
replaced is in it; and the settings that libraries and the kernel keep elsewhere.
"""

from __future__ import annotations

import functools
import os
import resource
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .own_state import folders_of

#: Libraries of which all modules that transforms may use count, with their classes.
_WHOLE = ("PIL.", "torchvision.transforms.", "torchvision.tv_tensors.", "timm.data.")
#: Single modules that count.
_SINGLE = frozenset(
    (
        *("torchvision", "torchvision.datasets.folder", "torch.utils.data._utils.collate"),
        *(f"torch.nn.modules.{name}" for name in ("module", "container", "linear")),
    )
)
#: Modules whose functions count, and not their classes and tables: these are large.
_FUNCTIONS = frozenset(
    ("torch", "torch.functional", "torch.nn.functional", "numpy", "numpy.random", "random", "math")
)
#: Names of modules and classes that say nothing of what they do; Python adds some of them late.
_UNUSED = (
    *("__builtins__", "__warningregistry__", "__doc__"),
    *("__annotations__", "__annotations_cache__", "__slotnames__"),
)

#: Functions that return settings which are no variables of Python.
_SETTINGS = (
    ("torch", "get_default_dtype"),
    ("torch", "are_deterministic_algorithms_enabled"),
    ("torch", "get_float32_matmul_precision"),
    ("torch", "is_grad_enabled"),
    ("torch", "is_inference_mode_enabled"),
    ("torch._C", "_get_mkldnn_enabled"),
    ("torch._C", "_len_torch_function_stack"),
    ("numpy", "geterr"),
)

#: Where the functions and classes of modules that count may come from, beside Python's own.
_OF_LIBRARIES = ("PIL", "torchvision", "timm", "torch", "numpy", "hdmlp", "typing_extensions")
#: What the kernel limits.
_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
#: The number which is smallest after zero: 0 where the processor treats such as zero.
_SMALLEST = 5e-324


class Surroundings:
    """What :func:`surroundings` found: values that are equal as long as nothing was changed.

    Args:
        names: Copies of the namespaces.
        tables: Copies of the containers in them.
        settings: Everything else.
    """

    def __init__(
        self, names: list[dict[str, object]], tables: list[object], settings: list[object]
    ):
        self._names, self._tables, self._settings = names, tables, settings

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Surroundings):
            return False
        try:
            return vars(self) == vars(other)
        except Exception:  # what is there now cannot be compared: an array, for instance
            return False

    __hash__ = None  # type: ignore[assignment]

    def code_of_the_program(self) -> str:
        """Returns the name of a function or class that no library defines; empty: there is none."""
        folders = (*folders_of(_OF_LIBRARIES), *_files_of(_OF_LIBRARIES))
        for names in (*self._names, *self._tables):
            for value in _members(names, _DEPTH):
                if not _is_librarys(value, folders):
                    return str(getattr(value, "__qualname__", type(value).__qualname__))
        return ""


def surroundings() -> Surroundings:
    """Returns what decides now what transforms do; see this module."""
    names: list[dict[str, object]] = []
    tables: list[object] = []
    for namespace, whole in _namespaces():
        own = dict(namespace)
        for name in _UNUSED:
            own.pop(name, None)
        names.append(own)
        if whole:
            tables += [_copied(v, _DEPTH) for v in own.values() if isinstance(v, _CONTAINERS)]
    settings = [*map(repr, _settings()), dict(os.environ)]
    return Surroundings(names, tables, [*settings, [*warnings.filters], warnings.showwarning])


def _namespaces() -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yields the namespaces that count, each with whether the contents of its tables do."""
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        if name in _SINGLE or f"{name}.".startswith(_WHOLE):
            yield vars(module), True
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield vars(value), True
        elif name in _FUNCTIONS:
            yield vars(module), False
            if name == "torch":
                yield vars(vars(module)["Tensor"]), False


_CONTAINERS = (dict, list, set, tuple)
#: How deep containers within one another are looked into.
_DEPTH = 3


def _copied(value: Any, depth: int) -> object:
    """Returns a copy of a container, and of the containers in it."""
    if not depth or not isinstance(value, _CONTAINERS):
        return value
    if isinstance(value, dict):
        return {key: _copied(item, depth - 1) for key, item in list(value.items())}
    return [_copied(item, depth - 1) for item in list(value)]


def _members(value: Any, depth: int) -> Iterator[Any]:
    """Yields what is in containers within one another."""
    for item in value.values() if isinstance(value, dict) else value:
        if not isinstance(item, _CONTAINERS):
            yield item
        elif depth > 1:
            yield from _members(item, depth - 1)


def _settings() -> Iterator[object]:
    for module, name in _SETTINGS:
        ask = getattr(sys.modules.get(module), name, None)
        yield None if ask is None else ask()
    torch = sys.modules.get("torch")
    yield None if torch is None else torch.empty(0).device
    yield _SMALLEST * 1.0
    yield sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)
    yield [resource.getrlimit(getattr(resource, name)) for name in _LIMITS]


def _is_librarys(value: Any, folders: tuple[str, ...]) -> bool:
    """Reports whether a library defines what a value does when it is called.

    Args:
        value: Any value.
        folders: Those of libraries.
    """
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.partial):
        value = value.func
    elif isinstance(value, functools._lru_cache_wrapper):
        value = value.__wrapped__
    if isinstance(value, FunctionType):
        path = value.__code__.co_filename
        name = str(value.__globals__.get("__name__"))
    elif isinstance(value, type) or callable(value):
        name = (value if isinstance(value, type) else type(value)).__module__
        path = getattr(sys.modules.get(name), "__file__", None) or "<"
    else:
        return True
    if path.startswith("<"):  # it was made by a library's code, or has no file
        return name != "__main__" and not name.startswith("ipykernel")
    if path.startswith(folders):
        return True
    return path.startswith(_PYTHONS) and not any(part in path for part in _NOT_PYTHONS)


def _files_of(libraries: Iterable[str]) -> Iterator[str]:
    """Yields the files of libraries that are one module, if they are imported."""
    for library in libraries:
        module = sys.modules.get(library)
        if module is not None and not hasattr(module, "__path__") and module.__file__:
            yield module.__file__


#: The folder of Python's own modules.
_PYTHONS = os.path.join(os.path.dirname(os.__file__), "")
#: What is in it, or may be, that is not Python's, or does what the program says: mocks.
_NOT_PYTHONS = ("site-packages", "dist-packages", "/unittest/")
