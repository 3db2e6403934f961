"""What worker processes begin with."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
import torch.utils.data


class WorkerInit:
    """What a worker does first: it says who it is where ``torch.utils.data.get_worker_info`` looks, and calls the user's function.

    Args:
        init: the user's ``worker_init_fn``; None: there is none.
        dataset: the worker's copy of it.
        workers: how many there are.
    """

    def __init__(self, init: Optional[Callable[[int], None]], dataset: Any, workers: int):
        self.init, self.dataset, self.workers = init, dataset, workers

    def __call__(self, number: int) -> None:
        worker = torch.utils.data._utils.worker
        worker._worker_info = worker.WorkerInfo(id=number, num_workers=self.workers, seed=torch.initial_seed(), dataset=self.dataset)
        if self.init is not None:
            self.init(number)
