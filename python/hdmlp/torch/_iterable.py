"""Iterable datasets: torch's own loader iterates them; this counts their batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._arguments import whole_number
from ..errors import ConfigError


class Iterables:
    """The position of a loader of an iterable dataset.

    A state holds the epoch and how many of its batches were yielded. Resuming from one iterates
    the dataset anew and discards as many; the dataset's own random numbers are not restored.
    """

    def __init__(self) -> None:
        self._epoch = self._step = 0
        self._skip = 0
        self._latest: object | None = None

    def iterate(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of an epoch, or the rest of them after :meth:`load_state_dict`."""
        skip, self._skip = self._skip, 0
        mark = self._latest = object()
        self._step = skip
        return self._counted(batches, skip, mark)

    def _counted(self, batches: Iterator[Any], skip: int, mark: object) -> Iterator[Any]:
        for _ in range(skip):
            next(batches, None)
        for batch in batches:
            if self._latest is mark:  # only the latest iteration counts
                self._step += 1
            yield batch
        if self._latest is mark:
            self._epoch, self._step = self._epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch, and how many of its batches were yielded."""
        return {"version": 1, "kind": "iterable", "epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from where :meth:`state_dict` was called."""
        if not isinstance(state, dict) or state.get("kind") != "iterable":
            raise ConfigError(f"not a state of a loader of an iterable dataset: {state!r:.200}")
        self._epoch = whole_number("state['epoch']", state.get("epoch"), 0)
        self._skip = self._step = whole_number("state['step']", state.get("step"), 0)
        self._latest = None
