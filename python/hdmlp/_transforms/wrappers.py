"""Classes of training scripts which make several views of an image: MoCo's, DINO's and others.

Each script has a copy of its own, so an object is recognised by what its ``__call__`` does: the
code must be that of a function of the table, compiled here, up to the names of its variables.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from .multiview import MOST


class _Known(NamedTuple):
    """A ``__call__`` that is known.

    Attributes:
        source: Its code.
        reads: The attributes that it reads, with the types that they must have; object: any.
        lists: From the values of these to the transform of each view.
    """

    source: str
    reads: dict[str, tuple[type, ...]]
    lists: Callable[..., Sequence[object]]


_KNOWN = [
    _Known(  # MoCo's and SimSiam's TwoCropsTransform
        """
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]
        """,
        {"base_transform": (object,)},
        lambda base: [base, base],
    ),
    _Known(  # MoCo v3's TwoCropsTransform
        """
        im1 = self.base_transform1(x)
        im2 = self.base_transform2(x)
        return [im1, im2]
        """,
        {"base_transform1": (object,), "base_transform2": (object,)},
        lambda first, second: [first, second],
    ),
    _Known(  # DINO's DataAugmentationDINO
        """
        crops = []
        crops.append(self.global_transfo1(x))
        crops.append(self.global_transfo2(x))
        for _ in range(self.local_crops_number):
            crops.append(self.local_transfo(x))
        return crops
        """,
        {
            "global_transfo1": (object,),
            "global_transfo2": (object,),
            "local_crops_number": (int,),
            "local_transfo": (object,),
        },
        lambda first, second, n, local: [first, second, *[local] * n],
    ),
    _Known(  # the ContrastiveLearningViewGenerator of SimCLR in PyTorch
        """
        return [self.base_transform(x) for i in range(self.n_views)]
        """,
        {"base_transform": (object,), "n_views": (int,)},
        lambda base, n: [base] * n,
    ),
    _Known(  # lightly's MultiViewTransform
        """
        return [transform(x) for transform in self.transforms]
        """,
        {"transforms": (list, tuple)},
        lambda transforms: transforms,
    ),
]


def views_of(t: object) -> Sequence[object] | None:
    """Returns the transform of each view that an object makes; None: it is not recognised."""
    call = call_of(t)
    if call is None or call.__globals__.get("range", range) is not range:
        return None
    found = next((known for known in _KNOWN if has_form(call, known.source)), None)
    values = None if found is None else attributes_of(t, found.reads)
    if found is None or values is None:
        return None
    if any(type(value) is int and not 0 <= value <= MOST for value in values):
        return None
    lists = found.lists(*values)
    return lists if 1 <= len(lists) <= MOST else None


def call_of(t: object) -> FunctionType | None:
    """Returns an object's ``__call__``, if it depends on its code, globals and arguments alone."""
    of = type(t)
    call = next((vars(c)["__call__"] for c in of.__mro__ if "__call__" in vars(c)), None)
    if type(call) is not FunctionType or of.__getattribute__ is not object.__getattribute__:
        return None
    return None if call.__closure__ or call.__defaults__ or call.__kwdefaults__ else call


def has_form(call: FunctionType, source: str, imports: str = "") -> bool:
    """Reports whether a function of self and one argument is the one of a source.

    Args:
        call: The function.
        source: Its statements.
        imports: Names that its module may import, separated by commas: calls of their attributes
            compile otherwise then.
    """
    return _form(call.__code__) in _forms(source, imports)


def attributes_of(t: object, reads: dict[str, tuple[type, ...]]) -> list[Any] | None:
    """Returns attributes of an object, if they are its own; None: one is not.

    Args:
        t: The object.
        reads: Their names, with the types that they must have; object: any.
    """
    own = getattr(t, "__dict__", {})
    values = []
    for name, types in reads.items():
        inherited = any(name in vars(of) for of in type(t).__mro__)
        if name not in own or inherited or not _is_one(own[name], types):
            return None
        values.append(own[name])
    return values


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    return types == (object,) or type(value) in types


#: Flags of code that say what it does: not whether it is nested, nor what its module imports.
_FLAGS = 0xFFF & ~0x10

_compiled: dict[str, list[object]] = {}


def _forms(source: str, imports: str) -> list[object]:
    """Returns the forms of a function of the table, without and with a docstring and imports."""
    if source not in _compiled:
        body = textwrap.indent(textwrap.dedent(source), "    ")
        _compiled[source] = [
            _form(_function(f"{before}def __call__(self, x):\n{doc}{body}"))
            for doc in ("", '    "d"\n')
            for before in ("", *([f"import {imports}\n"] if imports else []))
        ]
    return _compiled[source]


def _function(source: str) -> CodeType:
    module = compile(source, "<hdmlp>", "exec", dont_inherit=True)
    [code] = [const for const in module.co_consts if isinstance(const, CodeType)]
    return code


def _form(code: CodeType) -> object:
    """Returns what a function's code does, without the names of its variables and its text."""
    consts = [
        _form(const) if isinstance(const, CodeType) else "" if isinstance(const, str) else const
        for const in code.co_consts
    ]
    return (
        code.co_code,
        code.co_names,
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & _FLAGS,
        getattr(code, "co_exceptiontable", b""),
        len(code.co_cellvars),
        len(code.co_freevars),
        tuple(map(repr, consts)),
    )
