"""Calls functions with modules of the script's, once these are imported."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Callable

#: What is done with modules, by name, once they are run.
Changes = Mapping[str, Callable[[Any], None]]


def watch(changes: Changes) -> None:
    """Changes modules, or begins to wait for them: a path file may have imported them."""
    sys.meta_path.insert(0, _Watcher(changes))
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])


class _Watcher:
    """Finds these modules as Python does, and changes them once they are run."""

    def __init__(self, changes: Changes):
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the module's spec; None: it is not one of these, or is not found."""
        change = self._changes.get(name)
        if change is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
            if spec is not None:
                _change_when_run(spec, change)
                return spec
        return None


def _change_when_run(spec: importlib.machinery.ModuleSpec, change: Callable[[Any], None]) -> None:
    loader: Any = spec.loader
    run = getattr(loader, "exec_module", None)
    if run is None:
        return

    def exec_module(module: ModuleType) -> None:
        run(module)
        change(module)

    loader.exec_module = exec_module
