"""Whether what Python does with samples may have state of its own.

Workers have copies of what they run. An object that draws from a generator of its own, that counts,
or that reads a file which it holds open does otherwise in several processes than in one; so does
what the training loop changes. So workers are started without being asked for only if each step is

- an object of a class of torchvision, PIL or HDMLP, without hooks or methods of its own, whose
  attributes are such objects, numbers, strings or containers of these;
- a function of these libraries; or
- a plain function: it assigns nothing but its own variables, and its globals, closure and defaults
  are modules, functions that are plain, classes of libraries, numbers, strings and tuples of these.
  It looks nothing up by a name that is not in its code, and uses nothing of the modules of the
  process's own state (open files, the environment, all modules) but what is constant.

A call would not prove anything, so none is made.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import enum
import functools
import numbers
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .recognition import changed

_LIBRARIES = ("torchvision", "PIL", "hdmlp")
#: Modules of torch that only call others.
_CONTAINERS = ("torch.nn.modules.container", "torch.nn.modules.linear.Identity")
_CONSTANTS = (numbers.Number, str, bytes, enum.Enum, type(None), type(Ellipsis))
_ARRAYS = ("torch.Tensor", "torch.nn.parameter.Parameter", "numpy.ndarray", "array.array")
#: Builtin functions by which a plain function can change what is not its own.
_CHANGING = ("globals", "vars", "setattr", "delattr", "exec", "eval", "getattr", "__import__")
#: Attributes by which it can reach what its code does not name.
_REACHING = ("__dict__", "__globals__", "__getattribute__", "__builtins__", "f_globals", "f_locals")
#: Modules of the process's own state, which is another one in each worker.
_STATEFUL = (
    "os",
    "posix",
    "sys",
    "builtins",
    "inspect",
    "gc",
    "importlib",
    "ctypes",
    "io",
    "socket",
    "subprocess",
    "threading",
    "multiprocessing",
    "tempfile",
)
#: What is constant of them.
_CONSTANT = frozenset(
    (
        *("path", "sep", "altsep", "extsep", "pathsep", "linesep", "curdir", "pardir", "name"),
        *("fspath", "fsencode", "fsdecode", "getpid", "cpu_count", "BytesIO", "StringIO"),
        *("maxsize", "version_info", "byteorder", "platform", "float_info"),
    )
)


def own_state(step: object) -> str:
    """Returns which state a step may have, for a message; empty: it has none.

    Args:
        step: What is called for each sample or batch.
    """
    return _Search().value(step, lenient=False)


def code_of_the_program(step: object) -> str:
    """Returns what a step runs that no library defines, for a message; empty: nothing.

    Args:
        step: What is called for each sample or batch.
    """
    return _SearchForCode().value(step, lenient=False)


class _Search:
    """Looks through an object and what it refers to, each once."""

    #: Whose objects it looks through.
    libraries: Sequence[str] = _LIBRARIES

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}

    def value(self, value: Any, lenient: bool) -> str:
        """Returns which state a value may have.

        Args:
            value: The value.
            lenient: It is an attribute of a library's object, where lists and dicts and tensors are
                arguments.
        """
        if id(value) in self._seen or isinstance(value, _CONSTANTS):
            return ""
        self._seen[id(value)] = value  # kept, so that its ID is its own
        kind = type(value)
        if kind is tuple or kind is frozenset or (lenient and kind in (list, set)):
            return self._first(value, lenient)
        if lenient and isinstance(value, dict):
            return self._first(value.values(), lenient)
        if kind is FunctionType:
            return self._function(value)
        if kind is functools.partial:
            return self._first((value.func, *value.args, *value.keywords.values()), False)
        if isinstance(value, ModuleType) or (isinstance(value, type) and _is_trusted(value)):
            return ""
        if kind is BuiltinFunctionType:
            if not _is_free(value):
                return f"it is a method of a {type(value.__self__).__name__}"
            stateful = value.__module__ in _STATEFUL[:3] and value.__name__ not in _CONSTANT
            return f"it is {value.__module__}.{value.__name__}" if stateful else ""
        return self._object(value, lenient)

    def _first(self, values: Iterable[object], lenient: bool) -> str:
        return next(filter(None, (self.value(value, lenient) for value in values)), "")

    def _object(self, value: Any, lenient: bool) -> str:
        kind = type(value)
        module = f"{kind.__module__}.{kind.__name__}"
        if kind is MethodType:
            return self._object(value.__self__, lenient) or self.value(value.__func__, False)
        if _library(kind) in self.libraries or module.startswith(_CONTAINERS):
            members = value if isinstance(value, tuple) else ()
            parts = [*getattr(value, "__dict__", {}).values(), *members]
            return changed(value) or self._first(parts, True)
        if lenient and module in _ARRAYS:
            return ""
        if _library(kind) in ("torch", "numpy") and not hasattr(value, "__dict__"):
            return "" if kind.__name__ in _IMMUTABLE else f"it uses a {kind.__name__}"
        return f"it is, or uses, a {kind.__name__}"

    def _function(self, function: FunctionType) -> str:
        name = function.__qualname__
        if _is_trusted(function):
            return ""
        if vars(function):
            return f"the function {name} has attributes"
        values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # it is empty
                values.append(cell.cell_contents)
        names = _Names(function.__code__)
        if names.assigned:
            return f"the function {name} assigns {names.assigned}"
        reaching = names.attributes.intersection(_REACHING)
        if reaching:
            return f"the function {name} uses {min(reaching)}"
        for used in names.globals:
            if used in function.__globals__:
                values.append(function.__globals__[used])
            elif used in _CHANGING and hasattr(builtins, used):
                return f"the function {name} calls {used}"
        modules = [value for value in values if isinstance(value, ModuleType)]
        for imported in names.imported:
            if imported not in sys.modules:
                return f"the function {name} imports {imported}"
            modules.append(sys.modules[imported])
        for module in modules:
            why = names.state_of(module)
            if why:
                return f"the function {name} uses {why}"
            if not _is_trusted(module):
                values += [vars(module)[a] for a in names.attributes if a in vars(module)]
        found = self._first(values, False)
        return f"the function {name}: {found}" if found else ""


class _SearchForCode(_Search):
    """Takes of functions those of libraries alone."""

    libraries = (*_LIBRARIES, "timm")

    def value(self, value: Any, lenient: bool) -> str:
        """Returns what a value is, or uses, that no library defines; see :meth:`_Search.value`."""
        kind = type(value)
        if isinstance(value, BuiltinFunctionType) and _library(value) not in _CALLED:
            return f"it is, or uses, {value.__name__}"
        if isinstance(value, (*_CONSTANTS, dict)) and _library(kind) not in _PLAIN:
            return f"it is, or uses, a {kind.__name__}"
        return super().value(value, lenient)

    def _function(self, function: FunctionType) -> str:
        if function.__code__.co_filename.startswith(folders_of(_CALLED)):
            return ""
        return f"it is, or uses, the function {function.__qualname__}"


#: Libraries whose functions a step of theirs may use.
_CALLED = (*_SearchForCode.libraries, "torch")
#: Where the types of plain values are defined.
_PLAIN = ("builtins", "collections", "numpy", *_CALLED)

_OF_CLOSURE = ("STORE_DEREF", "DELETE_DEREF")
_ASSIGN = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", *_OF_CLOSURE)

#: Types of torch's and numpy's constants, and of functions which are no functions to Python.
_IMMUTABLE = ("dtype", "ufunc", "device", "layout", "memory_format", "_ArrayFunctionDispatcher")


class _Names:
    """The names that a function's code uses, its inner functions included.

    Attributes:
        globals: Global names, and those of builtins.
        attributes: Names of attributes.
        imported: Modules which it imports.
        assigned: What it assigns beside its own variables; empty: nothing.
    """

    def __init__(self, code: CodeType):
        self.globals: set[str] = set()
        self.attributes: set[str] = set()
        self.imported: set[str] = set()
        self.assigned = ""
        for instruction in _instructions(code):
            name, argument = instruction.opname, str(instruction.argval)
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                self.globals.add(argument)
            elif name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
                self.attributes.add(argument)
            elif name == "IMPORT_NAME":
                self.imported.add(argument)
            elif name in _ASSIGN and (name not in _OF_CLOSURE or argument in code.co_freevars):
                self.assigned = argument

    def state_of(self, module: ModuleType) -> str:
        """Returns what the code may use of a module that is not the same in each process."""
        if module.__name__ in _STATEFUL:
            used = self.attributes.intersection(vars(module)) - _CONSTANT
            return f"{module.__name__}.{min(used)}" if used else ""
        if not _is_trusted(module) and "__getattr__" in vars(module):
            return f"{module.__name__}.__getattr__"
        return ""


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _instructions(inner)


def _library(value: object) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _is_free(function: Any) -> bool:
    """Reports whether a builtin function is no method of an object."""
    bound = function.__self__
    return bound is None or isinstance(bound, (ModuleType, type))


def _is_trusted(value: Any) -> bool:
    """Reports whether a module, or the file of a function or class, is a known library's.

    Python's own modules, torch and numpy are among them.
    """
    if isinstance(value, FunctionType):
        path = value.__code__.co_filename
    else:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        path = getattr(sys.modules.get(name), "__file__", None) or ""
        if not path:
            return name in sys.builtin_module_names
    if path.startswith(folders_of((*_LIBRARIES, "torch", "numpy"))):
        return True
    standard = tuple(os.path.join(folder, "") for folder in _STANDARD)
    return path.startswith((*standard, "<frozen ")) and "-packages" not in path


def folders_of(libraries: Iterable[str]) -> tuple[str, ...]:
    """Returns the folders of libraries that are imported, each with a slash at its end."""
    found = (sys.modules.get(library) for library in libraries)
    return tuple(os.path.join(f, "") for library in found for f in getattr(library, "__path__", ()))


_STANDARD = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
