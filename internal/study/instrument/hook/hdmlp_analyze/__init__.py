"""Measures the first loader that a training script iterates, and ends the script afterwards.

It uses nothing but the standard library, and what the script itself has imported. Nothing of a
loader is changed but its ``__iter__``, and nothing of torch.distributed but that something follows
``init_process_group``.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from . import channel, importing

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
    changes: dict[str, Callable[[Any], None]] = {
        name: functools.partial(_change_loader, kind=kind) for name, kind in LOADERS.items()
    }
    importing.watch({**changes, DISTRIBUTED: _change_start})


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
