"""The first thing that worker processes do."""

from __future__ import annotations

import random
import sys
from typing import Any, Callable

import torch
import torch.utils.data


class WorkerInit:
    """Makes a worker process one of torch's, as far as its dataset can see.

    Seeds the generators as torch does, sets what ``torch.utils.data.get_worker_info`` returns, and
    calls the user's function.

    Args:
        init: The user's ``worker_init_fn``; None: there is none.
        dataset: The worker's copy of the loader's dataset.
        workers: The number of workers.
        folder: The dataset's folder, if its transforms were taken from it before, so that changes
            in the worker would have no effect. None: items are taken from the dataset itself.
    """

    def __init__(
        self,
        init: Callable[[int], None] | None,
        dataset: object,
        workers: int,
        folder: object = None,
    ):
        self.init, self.dataset, self.workers, self.folder = init, dataset, workers, folder

    def __call__(self, base_seed: int, number: int) -> None:
        _seed(base_seed, number)
        worker: Any = torch.utils.data._utils.worker
        worker._worker_info = worker.WorkerInfo(
            id=number, num_workers=self.workers, seed=base_seed + number, dataset=self.dataset
        )
        if self.init is None:
            return
        before = self._making()
        self.init(number)
        if any(a is not b for a, b in zip(before, self._making())):
            raise RuntimeError(
                "worker_init_fn changed the transform, target_transform or loader of the dataset "
                "in a worker, where HDMLP does not read them: change what the object itself does, "
                "or set it before the loader is made"
            )

    def _making(self) -> list[object]:
        return [
            getattr(self.folder, name, None) for name in ("transform", "target_transform", "loader")
        ]


def _seed(base_seed: int, number: int) -> None:
    """Seeds the generators as the installed torch does; numpy's only if it is imported."""
    random.seed(base_seed + number)
    torch.manual_seed(base_seed + number)
    numpy = sys.modules.get("numpy")
    generate: Any = getattr(torch.utils.data._utils.worker, "_generate_state", None)
    if numpy is not None and generate is not None:
        numpy.random.seed(generate(base_seed, number))
