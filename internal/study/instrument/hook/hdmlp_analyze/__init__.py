"""Measures the first loader that a training script iterates, and ends the script afterwards.

It uses nothing but the standard library, and what the script itself has imported. Nothing of a
loader is changed but its ``__iter__``, and nothing of torch.distributed but that something follows
``init_process_group``.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Callable

from . import channel

#: Modules that define a loader's class named DataLoader, and whose loader it is.
LOADERS = {
    "torch.utils.data.dataloader": "torch",
    "hdmlp.torch._loader": "hdmlp",
    "hdmlp.data": "hdmlp",
}


#: The module that joins the ranks of a job.
DISTRIBUTED = "torch.distributed.distributed_c10d"


def install() -> None:
    """Changes these modules, or begins to wait for them: a path file may have imported them."""
    channel.tell_started()
    sys.meta_path.insert(0, _Watcher())
    for name in (*LOADERS, DISTRIBUTED):
        if name in sys.modules:
            _change(sys.modules[name], name)


class _Watcher:
    """Finds these modules as Python does, and changes them once they are run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the module's spec; None: it is not one of these, or is not found."""
        if name not in LOADERS and name != DISTRIBUTED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
            if spec is not None:
                _change_when_run(spec, name)
                return spec
        return None


def _change_when_run(spec: importlib.machinery.ModuleSpec, name: str) -> None:
    loader: Any = spec.loader
    run = getattr(loader, "exec_module", None)
    if run is None:
        return

    def exec_module(module: ModuleType) -> None:
        run(module)
        _change(module, name)

    loader.exec_module = exec_module


def _change(module: ModuleType, name: str) -> None:
    if name == DISTRIBUTED:
        _change_start(module)
    else:
        _change_loader(module, LOADERS[name])


def _change_start(module: Any) -> None:
    from . import iteration, meeting

    initialise: Callable[..., None] = module.init_process_group

    @functools.wraps(initialise)
    def initialised(*args: Any, **kwargs: Any) -> None:
        initialise(*args, **kwargs)
        meeting.begin(iteration.is_over)

    module.init_process_group = initialised


def _change_loader(module: Any, kind: str) -> None:
    from . import iteration

    loader = module.DataLoader
    iterate: Callable[[Any], Any] = loader.__iter__

    @functools.wraps(iterate)
    def measured(self: Any) -> Any:
        return iteration.iterate(self, iterate, kind)

    loader.__iter__ = measured
