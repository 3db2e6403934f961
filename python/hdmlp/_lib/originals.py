"""Whether functions of torch, torchvision, timm and PIL are the libraries' own.

HDMLP does in their place what they do, which is right only as long as the program has not replaced
them. A function is recognised by what it is, and not by when it was looked at: by its
``__module__``, its ``__qualname__``, and a code object which equals what its file, in the library's
own package, compiles to. So it does not matter whether the program replaces it before or after it
imports HDMLP. Builtin functions are compared by identity.

:data:`ORIGINALS` is the table of them. No library is imported here: nothing was replaced in what is
not loaded.
"""

from __future__ import annotations

import _io
import builtins
import enum
import functools
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

#: Stands for all functions of a module, and all methods of its classes.
ALL = "*"


class Row(NamedTuple):
    """Names of one module, which the program must not have replaced.

    Names are separated by spaces. What this release of a library does not have must not have been
    added either.

    Attributes:
        module: The module.
        functions: Qualified names of functions and methods, or :data:`ALL`.
        modules: Global names which refer to other modules, as ``name=module``.
        builtins: Names of torch's builtin functions.
        tensors: Names of torch's builtin methods of tensors.
        bound: Names of methods of the module's global generator.
        hooks: Global names of dicts that have to be empty.
        registry: A global name of a dict, and those of its keys whose values, functions or classes,
            have to be the library's own.
        kernels: A global name of a dict of dicts of functions by type of argument; those for images
            of PIL and tensors have to be the library's own.
    """

    module: str
    functions: str = ""
    modules: str = ""
    builtins: str = ""
    tensors: str = ""
    bound: str = ""
    hooks: str = ""
    registry: str = ""
    kernels: str = ""


_T = "torchvision.transforms"
_V2 = f"{_T}.v2"
_DATA = "torch.utils.data"
_RANDPERM = Row("torch", builtins="randperm")
_DRAWS = Row("torch", builtins="rand randint randperm", tensors="uniform_ normal_")
_PYTHONS_DRAWS = Row("random", bound="random uniform randint gauss choice choices shuffle")

#: By what HDMLP does in their place.
ORIGINALS: dict[str, tuple[Row, ...]] = {
    "images": (
        Row(
            "PIL.Image",
            "open preinit init new frombytes _decompression_bomb_check Image.convert Image.load "
            "Image.frombytes Image.tobytes Image._new Image.resize Image.crop Image._crop "
            "Image.transpose Image.paste Image.copy Image.point Image.split Image.getbands "
            "Image.putpalette Image.getpalette Image.im Image.__array_interface__ merge blend "
            "fromarray Image.transform Image.rotate Image.filter Image.histogram",
            registry="OPEN JPEG PNG WEBP",
        ),
        Row("PIL.ImageFile", ALL),
        Row("PIL.JpegImagePlugin", ALL),
        Row("PIL.PngImagePlugin", ALL),
        Row("PIL.WebPImagePlugin", ALL),
        Row(
            "PIL.ImageOps",
            "expand crop fit pad grayscale mirror flip autocontrast equalize invert posterize "
            "solarize _lut",
        ),
        Row("PIL.ImageEnhance", ALL),
        Row(
            "PIL.ImageEnhance",
            "Color.__init__ Contrast.__init__ Brightness.__init__ Sharpness.__init__",
        ),
        Row("PIL.ImageFilter", ALL),
    ),
    "transforms": (
        Row(f"{_T}.transforms", modules=f"F={_T}.functional torch=torch"),
        Row(f"{_T}.autoaugment", ALL, modules=f"F={_T}.functional torch=torch"),
        Row(f"{_T}._presets", modules=f"F={_T}.functional"),
        Row(f"{_T}.functional", ALL, modules="F_pil F_t"),
        Row(f"{_T}._functional_pil", ALL, modules="Image=PIL.Image ImageOps=PIL.ImageOps"),
        Row(f"{_T}._functional_tensor", ALL),
        Row(f"{_T}.functional_pil", ALL),  # until torchvision 0.14
        Row(f"{_T}.functional_tensor", ALL),
        _DRAWS,
        _PYTHONS_DRAWS,
    ),
    "transforms.v2": (
        _DRAWS,
        Row(f"{_V2}._transform", ALL),
        Row(f"{_V2}._utils", ALL),
        Row(f"{_V2}._geometry", modules=f"F={_V2}.functional"),
        Row(f"{_V2}._color", modules=f"F={_V2}.functional"),
        Row(f"{_V2}._misc", modules=f"F={_V2}.functional"),
        Row(f"{_V2}._augment", modules=f"F={_V2}.functional"),
        Row(f"{_V2}._auto_augment", ALL, modules=f"F={_V2}.functional"),
        Row(f"{_V2}._container", modules="torch=torch"),
        Row(f"{_V2}._type_conversion", modules=f"F={_V2}.functional"),
        Row(f"{_V2}.functional", ALL),
        Row(f"{_V2}.functional._utils", ALL, kernels="_KERNEL_REGISTRY"),
        Row(f"{_V2}.functional._meta", ALL),
        Row(f"{_V2}.functional._geometry", ALL, modules=f"_FP={_T}._functional_pil"),
        Row(f"{_V2}.functional._color", ALL, modules=f"_FP={_T}._functional_pil"),
        Row(f"{_V2}.functional._misc", ALL),
        Row(f"{_V2}.functional._type_conversion", ALL, modules=f"_F={_T}.functional"),
    ),
    "timm": (
        Row("timm.data.transforms", ALL, modules=f"F={_T}.functional"),
        Row(
            "timm.data.auto_augment",
            ALL,
            modules="random=random np=numpy Image=PIL.Image ImageOps=PIL.ImageOps "
            "ImageEnhance=PIL.ImageEnhance ImageFilter=PIL.ImageFilter",
        ),
        Row("timm.data.random_erasing", ALL, modules="random=random torch=torch"),
        _DRAWS,
        _PYTHONS_DRAWS,
        Row("numpy.random", bound="choice"),
    ),
    "mixing": (
        Row(f"{_V2}._augment", ALL),
        Row(f"{_V2}._container", modules="torch=torch"),
        Row(f"{_V2}._utils", ALL),
        Row("timm.data.mixup", ALL, modules="np=numpy torch=torch"),
    ),
    "modules": (
        Row(
            "torch.nn.modules.module",
            "Module.__call__ Module._call_impl Module._wrapped_call_impl Module.__getattr__",
            hooks="_global_forward_hooks _global_forward_pre_hooks",
        ),
        Row("torch.nn.modules.container", "Sequential.forward Sequential.__iter__"),
        Row("torch.nn.modules.linear", "Identity.forward"),
    ),
    "torchvision's folders": (
        Row(
            "torchvision.datasets.folder",
            "DatasetFolder.__getitem__ DatasetFolder.__getitems__ DatasetFolder.__len__ "
            "ImageFolder.__getitem__ ImageFolder.__getitems__ ImageFolder.__len__",
        ),
        Row("torchvision.datasets.imagenet", "ImageNet.__getitem__ ImageNet.__getitems__"),
    ),
    "torchvision's datasets": (
        Row("torchvision.datasets.voc", ALL, modules="Image=PIL.Image"),
        Row("torchvision.datasets.coco", ALL, modules="Image=PIL.Image"),
        Row("torchvision.datasets.cityscapes", ALL, modules="Image=PIL.Image json=json"),
        Row("torchvision.datasets.vision", "StandardTransform.__call__"),
        Row(
            "torchvision.tv_tensors._dataset_wrapper",
            "VisionDatasetTVTensorWrapper.__getitem__ VisionDatasetTVTensorWrapper.__getitems__ "
            "VisionDatasetTVTensorWrapper.__len__ pil_image_to_mask",
        ),
    ),
    "Hugging Face's datasets": (
        Row(
            "datasets.arrow_dataset",
            "Dataset.__getitem__ Dataset.__getitems__ Dataset._getitem Dataset.__len__",
        ),
        Row("datasets.features.image", "Image.decode_example"),
    ),
    "torchvision's loader": (
        Row("torchvision.datasets.folder", "pil_loader", modules="Image=PIL.Image"),
        Row("torchvision", "get_image_backend"),
    ),
    "subsets": (
        Row(
            f"{_DATA}.dataset",
            "Subset.__getitem__ Subset.__getitems__ Subset.__len__ "
            "ConcatDataset.__getitem__ ConcatDataset.__getitems__ ConcatDataset.__len__",
        ),
    ),
    "DistributedSampler": (
        Row(
            f"{_DATA}.distributed",
            "DistributedSampler.__iter__ DistributedSampler.__len__ DistributedSampler.set_epoch",
        ),
        _RANDPERM,
    ),
    "SequentialSampler": (
        Row(f"{_DATA}.sampler", "SequentialSampler.__iter__ SequentialSampler.__len__"),
    ),
    "RandomSampler": (
        Row(
            f"{_DATA}.sampler",
            "RandomSampler.__iter__ RandomSampler.__len__ RandomSampler.num_samples",
        ),
        _RANDPERM,
    ),
    "WeightedRandomSampler": (Row(f"{_DATA}.sampler", "WeightedRandomSampler.__iter__"),),
    "SubsetRandomSampler": (Row(f"{_DATA}.sampler", "SubsetRandomSampler.__iter__"), _RANDPERM),
    "BatchSampler": (Row(f"{_DATA}.sampler", "BatchSampler.__iter__ BatchSampler.__len__"),),
    "randperm": (_RANDPERM,),
    "collation": (Row(f"{_DATA}._utils.collate", "collate default_collate default_convert"),),
    "iteration": (
        Row(
            f"{_DATA}.dataloader",
            "DataLoader._get_iterator DataLoader._index_sampler _DatasetKind.create_fetcher "
            "_BaseDataLoaderIter.__next__ _BaseDataLoaderIter._next_index "
            "_SingleProcessDataLoaderIter._next_data _MultiProcessingDataLoaderIter._next_data",
        ),
        Row(f"{_DATA}._utils.fetch", "_MapDatasetFetcher.fetch"),
    ),
    "HDMLP's folders": (
        Row("hdmlp.data", "Folder.__getitem__ Folder.__getitems__ Folder.__len__ Folder.sample"),
        Row(
            "hdmlp.torch._data.folder",
            "ImageFolder.__getitem__ ImageFolder.__getitems__ ImageFolder.__len__ "
            "ImageFolder.sample",
        ),
    ),
}

#: Methods that libraries define under the name of another one.
_ALIASES = {
    "Module.__call__": ("Module._wrapped_call_impl", "Module._call_impl"),
}

#: Methods which change nothing of what a transform does.
_SHOWN = ("__repr__", "__str__", "extra_repr", "describe", "__init__", "__init_subclass__")


def replaced(*uses: str) -> str:
    """Returns what the program has replaced of some rows, and by what; empty: nothing.

    Args:
        uses: Keys of :data:`ORIGINALS`.
    """
    for use in uses:
        for row in ORIGINALS[use]:
            module = sys.modules.get(row.module)
            if module is not None:
                for found in _replaced_in(row, module):
                    return f"{row.module}.{found}"
    return ""


def open_replaced(module: str) -> str:
    """Returns by what the program has replaced ``open`` for a module; empty: by nothing."""
    opened = getattr(sys.modules.get(module), "open", builtins.open)
    if opened is _io.open or str(getattr(opened, "__module__", "")).startswith("hdmlp."):
        return ""
    return f"open was replaced{_by(opened)}"


def replaced_in_class(cls: type) -> str:
    """Returns which method of a library's class the program has replaced; empty: none.

    Methods of its bases in the library count as well. Of torch's classes, :data:`ORIGINALS` has
    what counts.
    """
    library = _library(cls.__module__)
    for base in () if library == "torch" else cls.__mro__:
        if _library(base.__module__) != library:
            continue
        for name, value in _methods(base):
            return f"{base.__module__}.{base.__qualname__}.{name} was replaced{_by(value)}"
    return ""


def is_original(value: object, module: str, name: str) -> bool:
    """Reports whether a value is the function that a library defines.

    Args:
        value: Any value; of a static method or a property, its function counts.
        module: The module which defines it.
        name: Its qualified name.
    """
    function = _unwrapped(value)
    return (
        type(function) is FunctionType
        and function.__module__ == module
        and function.__qualname__ == name
        and _is_compiled(function.__code__, module, name)
    )


def _library(module: str) -> str:
    return module.partition(".")[0]


def _by(value: object, word: str = " by") -> str:
    """Returns what a message says of the value which is in a function's place."""
    function = _unwrapped(value)
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        name = getattr(code, "co_qualname", code.co_name)
        return f"{word} {name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"{word} {type(value).__name__} object" if value is not None else ""


def _unwrapped(value: Any) -> Any:
    """Returns the function of a static method, a property or a cache."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.__wrapped__ if isinstance(value, functools._lru_cache_wrapper) else value


# What of a row was replaced.

#: Modules of the types of arguments whose kernels count.
_KINDS = ("PIL.Image", "torch")


def _replaced_in(row: Row, module: ModuleType) -> Iterator[str]:
    """Yields the names of a row that were replaced, each with what is in its place."""
    for name, value in _functions_replaced(row, module):
        yield f"{name} was replaced{_by(value)}"
    names = vars(module)
    for entry in row.modules.split():
        name, _, other = entry.partition("=")
        if names.get(name) is not None and not _is_module(names[name], other):
            yield f"{name} was replaced{_by(names[name])}"
    for name in row.hooks.split():
        for hook in names.get(name, {}).values():
            yield f"{name} has a hook{_by(hook, ':')}"
    name, _, keys = row.registry.partition(" ")
    for key in keys.split():
        for value in names[name].get(key, ()):
            if value is not None and not _is_librarys(value, _library(row.module)):
                yield f"{name}[{key!r}] was replaced{_by(value)}"
    for functional, kernels in names.get(row.kernels, {}).items():
        for kind, kernel in kernels.items():
            if kind.__module__ in _KINDS and not _is_librarys(kernel, _library(row.module)):
                yield f"{row.kernels}[{functional.__name__}] was replaced{_by(kernel)}"


def _functions_replaced(row: Row, module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yields the functions of a row that were replaced, each with what is in its place."""
    if row.functions == ALL:
        yield from _members(module)
    else:
        for name in row.functions.split():
            yield from _member(module, name)
    for name in row.builtins.split():
        value = vars(module)[name]
        if value is not getattr(vars(module)["_C"]._VariableFunctions, name):
            yield name, value
    for name in row.tensors.split():
        value = vars(vars(module)["Tensor"]).get(name)
        if value is not None:
            yield f"Tensor.{name}", value
    for name in row.bound.split():
        value = vars(module)[name]
        if getattr(value, "__self__", None) is not _generator(module):
            yield name, value


def _generator(module: ModuleType) -> object:
    """Returns the global generator of Python's ``random`` or numpy's."""
    names = vars(module)
    return names["_inst"] if "_inst" in names else names["mtrand"]._rand


def _member(module: ModuleType, qualified: str) -> Iterator[tuple[str, object]]:
    """Yields a function or a method, found as Python finds it, if it was replaced or added."""
    owner, _, name = qualified.rpartition(".")
    if not owner:
        value = vars(module).get(name)
        if value is not None and not is_original(value, module.__name__, name):
            yield name, value
        return
    cls = vars(module).get(owner)
    for base in getattr(cls, "__mro__", ()):
        if name in vars(base):
            value, own = vars(base)[name], f"{base.__qualname__}.{name}"
            known = (own, *_ALIASES.get(own, ()))
            if base is not object and not (
                _library(base.__module__) == _library(module.__name__)
                and any(is_original(value, base.__module__, one) for one in known)
            ):
                yield qualified, value
            return


def _members(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yields the functions of a module and the methods of its classes that were replaced."""
    path = getattr(module, "__file__", None) or ""
    defined, used = _compiled(path, module.__name__), _used(path, module.__name__)
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from ((f"{name}.{method}", own) for method, own in _methods(value))
        elif name in defined:
            if not is_original(value, module.__name__, name):
                yield name, value
        elif isinstance(value, type) or not _is_function(value):
            continue
        elif not _is_imported(value, name, _library(module.__name__)) and name in used:
            yield name, value


def _methods(cls: type) -> Iterator[tuple[str, object]]:
    """Yields those of a class's own methods which were replaced."""
    if issubclass(cls, (enum.Enum, tuple)) or hasattr(cls, "__dataclass_fields__"):
        return  # their methods are generated
    for name, value in list(vars(cls).items()):
        if name in _SHOWN or isinstance(value, type) or not _is_function(value):
            continue
        if not is_original(value, cls.__module__, f"{cls.__qualname__}.{name}") and not (
            name == "get_params" and _is_first_versions(value, cls)
        ):
            yield name, value


def _is_first_versions(value: object, cls: Any) -> bool:
    """Reports whether a class of torchvision's v2 has it from the transform of the first API."""
    first: Any = getattr(cls, "_v1_transform_cls", object)
    return any(
        is_original(value, base.__module__, f"{base.__qualname__}.get_params")
        for base in first.__mro__
    )


def _is_function(value: object) -> bool:
    """Reports whether a value of a library's namespace can be a function, or in its place."""
    if isinstance(value, (staticmethod, classmethod, property)):
        return True
    return callable(value) and _library(type(value).__module__) != "typing"


def _is_module(value: object, name: str) -> bool:
    """Reports whether a value is a module, and this one if it is named."""
    found = getattr(value, "__name__", "") if isinstance(value, ModuleType) else ""
    return bool(found) and sys.modules.get(found) is value and name in ("", found)


def _is_imported(value: object, name: str, library: str) -> bool:
    """Reports whether a value can be what a library's module has from elsewhere.

    Args:
        value: A function, or in the place of one.
        name: Its global name in the module.
        library: The library's package.
    """
    function = _unwrapped(value)
    if type(function) is not FunctionType:
        return isinstance(value, BuiltinFunctionType)
    if _library(function.__module__ or "") != library:
        return _library(function.__module__ or "") in _OTHERS
    there = vars(sys.modules[function.__module__]).get(name, value)  # it may have other names there
    return there is value and _is_librarys(value, library)


def _is_librarys(value: Any, library: str) -> bool:
    """Reports whether a library defines a function or class."""
    where = value.__module__ or ""
    if isinstance(value, type):
        found = vars(sys.modules[where]).get(value.__name__)
        return _library(where) == library and found is value
    return _library(where) == library and is_original(value, where, _unwrapped(value).__qualname__)


#: From where libraries have functions of others.
_OTHERS = frozenset(
    ("torch", "numpy", *getattr(sys, "stdlib_module_names", ("functools", "typing", "warnings")))
)


# What files compile to.


def _is_compiled(code: CodeType, module: str, name: str) -> bool:
    """Reports whether a code object is what the library's file has under a name."""
    if _SEEN.get(id(code)) == (code, module, name):
        return True
    path, package = code.co_filename, sys.modules.get(_library(module))
    folders = getattr(package, "__path__", ())
    if not any(path.startswith(os.path.join(folder, "")) for folder in folders):
        return False
    if code not in _compiled(path, module).get(name, ()):
        return False
    _SEEN[id(code)] = code, module, name
    return True


#: Code objects which were recognised, so that a file is read once; they stay, and so do their IDs.
_SEEN: dict[int, tuple[CodeType, str, str]] = {}


@functools.cache
def _compiled(path: str, module: str) -> dict[str, list[CodeType]]:
    """Returns the code of a file's functions by their qualified names.

    It comes from the file that Python keeps of it, if that is up to date.
    """
    try:
        code = importlib.machinery.SourceFileLoader(module, path).get_code(module)
    except (OSError, ImportError, SyntaxError, ValueError):
        return {}
    found: dict[str, list[CodeType]] = {}
    _collect(code, "", found)
    return found


@functools.cache
def _used(path: str, module: str) -> frozenset[str]:
    """Returns the names that a file's code refers to: others may be added to its module."""
    try:
        code = importlib.machinery.SourceFileLoader(module, path).get_code(module)
    except (OSError, ImportError, SyntaxError, ValueError):
        return frozenset()
    functions = [code for several in _compiled(path, module).values() for code in several]
    return frozenset(n for c in (code, *functions) if c is not None for n in c.co_names)


_NEW_LOCALS = 0x2  # set for functions, and not for the bodies of classes


def _collect(code: CodeType | None, prefix: str, found: dict[str, list[CodeType]]) -> None:
    for inner in code.co_consts if code is not None else ():
        if isinstance(inner, CodeType):
            name = prefix + inner.co_name
            found.setdefault(name, []).append(inner)
            local = inner.co_flags & _NEW_LOCALS
            _collect(inner, f"{name}.<locals>." if local else f"{name}.", found)
