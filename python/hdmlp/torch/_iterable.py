"""Iterable datasets: torch's own loader iterates them; this counts, so that a run can go on in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from .._arguments import whole_number
from ..errors import ConfigError


class Iterables:
    """Where a loader of an iterable dataset is.

    A state says how many batches of which epoch were yielded. Going on from one iterates the dataset anew and drops as many: what the dataset draws
    is not restored.

    Args:
        loader: whose torch's part iterates.
    """

    def __init__(self, loader: DataLoader):
        self._loader = loader
        self._epoch = self._step = 0
        self._skip = 0
        self._latest: object | None = None

    def __iter__(self) -> Iterator[Any]:
        """The next epoch, or the rest of one after :meth:`load_state_dict`."""
        batches, skip, self._skip = DataLoader.__iter__(self._loader), self._skip, 0
        mark = self._latest = object()
        self._step = skip
        return self._counted(batches, skip, mark)

    def _counted(self, batches: Iterator[Any], skip: int, mark: object) -> Iterator[Any]:
        for _ in range(skip):
            next(batches, None)
        for batch in batches:
            if self._latest is mark:  # else another iteration has begun since, and counts
                self._step += 1
            yield batch
        if self._latest is mark:
            self._epoch, self._step = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and how many of its batches were yielded."""
        return {"version": 1, "kind": "iterable", "epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called."""
        if not isinstance(state, dict) or state.get("kind") != "iterable":
            raise ConfigError(f"not a state of a loader of an iterable dataset: {state!r:.200}")
        self._epoch = whole_number("epoch of the state", state.get("epoch"), 0)
        self._skip = self._step = whole_number("step of the state", state.get("step"), 0)
        self._latest = None
