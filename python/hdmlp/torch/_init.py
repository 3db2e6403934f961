"""What worker processes begin with."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.utils.data


class WorkerInit:
    """What a worker does first: it says who it is where ``torch.utils.data.get_worker_info`` looks, and calls the user's function.

    Args:
        init: the user's ``worker_init_fn``; None: there is none.
        dataset: the worker's copy of it.
        workers: how many there are.
        asked: items are had from the dataset; False: what is made of samples was taken from it before.
    """

    def __init__(self, init: Callable[[int], None] | None, dataset: Any, workers: int, asked: bool):
        self.init, self.dataset, self.workers, self.asked = init, dataset, workers, asked

    def __call__(self, number: int) -> None:
        worker = torch.utils.data._utils.worker
        worker._worker_info = worker.WorkerInfo(
            id=number, num_workers=self.workers, seed=torch.initial_seed(), dataset=self.dataset
        )
        if self.init is None:
            return
        before = self._making()
        self.init(number)
        if not self.asked and any(a is not b for a, b in zip(before, self._making())):
            raise RuntimeError(
                "worker_init_fn changed the transform, target_transform or loader of the dataset in a worker, which HDMLP does not ask there: "
                "change what the object itself does, or set it before the loader is made"
            )

    def _making(self) -> list[Any]:
        return [
            getattr(self.dataset, name, None)
            for name in ("transform", "target_transform", "loader")
        ]
