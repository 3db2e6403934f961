"""What to say of a batch that does not come in time."""

from __future__ import annotations

from ..errors import StallTimeoutError

#: Why the daemon may have no batch, and where to look.
CAUSES = (
    "the source is slow, the policy fills the caches before training (preload_timeout), another "
    "rank has not begun the epoch, fewer jobs of the group have come "
    "than share_members, the daemon is stopped, or the program keeps so many batches that the "
    "staging buffer is full (keep bytes(sample) instead); `hdmlp stats` and the daemon's log say "
    "which"
)


def causes(daemon: int) -> str:
    """Returns why the daemon may have no batch.

    Args:
        daemon: Its process ID in this process's namespace; 0: it is not known.
    """
    if _is_stopped(daemon):
        return f"the daemon (pid {daemon}) is stopped by a signal; kill -CONT {daemon} continues it"
    return CAUSES


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended, or cannot be seen from here
        return False


def stalled(timeout: float, working: bool = False, daemon: int = 0) -> StallTimeoutError:
    """Returns the error for a batch that did not come in time.

    Args:
        timeout: The limit in seconds.
        working: A worker process has the batch; else the daemon.
        daemon: The daemon's process ID, as for :func:`causes`.
    """
    why, more = causes(daemon), ""
    if working:
        why, more = "a worker process is still making it", ", or more num_workers"
    return StallTimeoutError(
        f"no batch within timeout={timeout:g} seconds: {why}; call next() again to wait longer, or "
        f"give a larger timeout (0: no limit){more}"
    )
