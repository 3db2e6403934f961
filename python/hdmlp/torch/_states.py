"""States of a loader that goes by a sampler: whose they are."""

from __future__ import annotations

from typing import Any

from .. import _launcher
from ..errors import ConfigError


def process_rank() -> int:
    """Which of the launch's processes this is; 0 if the launcher does not say."""
    try:
        return _launcher.find(None, None).rank
    except ConfigError:  # variables that say half of it
        return 0


def of_another(state: dict[str, Any]) -> dict[str, Any]:
    """Another rank's state, to go on from: the place in the epoch, and what the order follows from."""
    state = {**state, "drawn": ""} if "drawn" in state else state
    return {**state, "after": of_another(state["after"])} if "after" in state else state
