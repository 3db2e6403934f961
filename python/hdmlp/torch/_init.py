"""The first thing that worker processes do."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.utils.data


class WorkerInit:
    """Sets what ``torch.utils.data.get_worker_info`` returns, and calls the user's function.

    Args:
        init: The user's ``worker_init_fn``; None: there is none.
        dataset: The worker's copy of the dataset.
        workers: The number of workers.
        asked: Items are taken from the dataset in the worker. If False, its transforms were taken
            from it before, so that changes in the worker would have no effect.
    """

    def __init__(self, init: Callable[[int], None] | None, dataset: Any, workers: int, asked: bool):
        self.init, self.dataset, self.workers, self.asked = init, dataset, workers, asked

    def __call__(self, number: int) -> None:
        worker: Any = torch.utils.data._utils.worker
        worker._worker_info = worker.WorkerInfo(
            id=number, num_workers=self.workers, seed=torch.initial_seed(), dataset=self.dataset
        )
        if self.init is None:
            return
        before = self._making()
        self.init(number)
        if not self.asked and any(a is not b for a, b in zip(before, self._making())):
            raise RuntimeError(
                "worker_init_fn changed the transform, target_transform or loader of the dataset "
                "in a worker, where HDMLP does not read them: change what the object itself does, "
                "or set it before the loader is made"
            )

    def _making(self) -> list[Any]:
        return [
            getattr(self.dataset, name, None)
            for name in ("transform", "target_transform", "loader")
        ]
