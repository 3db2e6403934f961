"""albumentations' pipelines, which draw from generators of their own.

A pipeline that is copied to workers would repeat in each of them, and in each epoch, what it draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: The seeds that numpy's and Python's generators of a pipeline take.
_MASK = 0xFFFFFFFF


def seeders(step: object) -> list[Callable[[int], None]]:
    """Returns what seeds the pipelines of an entry of a list, each with the entry's key.

    Args:
        step: A pipeline, or what has one: in an attribute, in a variable of the function that made
            it, or in a global variable that it uses; or transforms of which one has one, such as
            views.
    """
    if "albumentations" not in sys.modules:
        return []
    steps = _steps(step, {})
    found = {id(p): p for t in steps for p in (t, *_parts(t)) if _is_pipeline(p)}
    return [_seeder(p) for p in found.values()]


def _steps(value: object, seen: dict[int, object]) -> Iterator[object]:
    """Yields a transform and those in lists within it, and in Composes within it, each once."""
    if id(value) in seen or _is_pipeline(value):
        yield from () if id(value) in seen else (value,)
        return
    seen[id(value)] = value
    parts: Iterable[object]
    if isinstance(value, (list, tuple)):
        parts = value
    elif callable(value):
        yield value
        own = getattr(value, "__dict__", {}).values()
        parts = [p for p in own if isinstance(p, (list, tuple)) or hasattr(p, "transforms")]
    else:
        return
    for part in parts:
        yield from _steps(part, seen)


def _is_pipeline(value: object) -> bool:
    classes = type(value).__mro__
    return any(c.__module__.startswith("albumentations.") for c in classes) and callable(
        getattr(value, "set_random_seed", None)  # releases before 1.4.17 use the global generators
    )


def _parts(step: Any) -> Iterator[object]:
    """Yields the values that a callable refers to by name."""
    yield from vars(step).values() if hasattr(step, "__dict__") else ()
    owner = getattr(step, "__self__", None)
    yield from vars(owner).values() if hasattr(owner, "__dict__") else ()
    function = step if hasattr(step, "__code__") else type(step).__dict__.get("__call__")
    function = getattr(step, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue
    names = getattr(function, "__globals__", {})
    for name in getattr(getattr(function, "__code__", None), "co_names", ()):
        yield names.get(name)


def _seeder(pipeline: Any) -> Callable[[int], None]:
    given = pipeline.seed

    def seed(key: int) -> None:
        pipeline.set_random_seed((key ^ (given or 0)) & _MASK)
        pipeline.seed = given  # which is part of the key of the next sample, too

    return seed
