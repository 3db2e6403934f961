"""How long a GPU takes for a step."""

from __future__ import annotations

import sys
from typing import Any


class Device:
    """Time on a GPU: between events on its current stream, at the step's begin and end.

    Attributes:
        seconds: Those of the last step; None: the script uses no GPU.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._events: tuple[Any, Any] | None = None

    def begin(self) -> None:
        """Begins a step, once the GPU has nothing to do."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return
        torch.cuda.synchronize()
        self._events = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._events[0].record()

    def end(self) -> None:
        """Ends a step: waits until the GPU has done all of it."""
        if self._events is None:
            return
        begin, end = self._events
        end.record()
        end.synchronize()
        self.seconds, self._events = begin.elapsed_time(end) / 1e3, None
