"""What to say of a batch that does not come in time."""

from __future__ import annotations

from .errors import StallTimeoutError

#: Why the daemon may have no batch, and where to look.
CAUSES = (
    "the source is slow, another rank has not begun the epoch, fewer jobs of the group have come "
    "than share_members, or the program keeps so many batches that the staging buffer is full "
    "(keep bytes(sample) instead); `hdmlp stats` and the daemon's log say which"
)


def stalled(timeout: float, working: bool = False) -> StallTimeoutError:
    """Returns the error for a batch that did not come in time.

    Args:
        timeout: The limit in seconds.
        working: A worker process has the batch; else the daemon.
    """
    why, more = CAUSES, ""
    if working:
        why, more = "a worker process is still making it", ", or more num_workers"
    return StallTimeoutError(
        f"no batch within timeout={timeout:g} seconds: {why}; call next() again to wait longer, or "
        f"give a larger timeout (0: no limit){more}"
    )
