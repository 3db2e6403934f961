"""The processors that this process may use, and how many workers are worth starting."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections.abc import Iterator

from .._lib.typing import Context
from . import membership

#: The most workers that are started by default: each holds batches in memory.
MOST_WORKERS = 16


def processors(root: str = "/") -> int:
    """Returns the number of processors that this process may use, at least 1.

    They are those that it is bound to, or fewer by the quota of its control groups, which is
    rounded up as the daemon does for ``transform_threads``.

    Args:
        root: The root of the file system.
    """
    bound = len(os.sched_getaffinity(0))
    return max(1, min([bound, *(math.ceil(quota) for quota in _quotas(root))]))


def workers_that_pay(available: int, ranks: int) -> int:
    """Returns how many workers are worth starting for what runs in Python; 0 if none do.

    Each rank of the node has its share of the processors. With one processor, a worker and the
    training process would take turns. With two, there are two workers: either batches are missing
    and the training process waits, or batches are ready and the workers wait. With three or more,
    one is left to the training process and the daemon.

    Args:
        available: The number of processors.
        ranks: The number of ranks of this node.
    """
    share = available // max(ranks, 1)
    if share < 2:
        return 0
    return min(max(share - 1, 2), MOST_WORKERS)


def unasked(context: str | Context | None) -> tuple[int, str]:
    """Returns how many workers to start if the user did not say, and a sentence to log.

    Args:
        context: A multiprocessing context, or the name of a start method; None means the default.

    Returns:
        The number, and the sentence; empty if there is nothing to log.
    """
    available, ranks = processors(), local_ranks()
    count = workers_that_pay(available, ranks)
    if not count or multiprocessing.current_process().daemon:  # which may have no children
        return 0, ""
    method = _start_method(context)
    if method != "fork":
        return 0, not_started(
            f"the start method is {method}, which imports the script again, so its main part must "
            "be under if __name__ == '__main__'"
        )
    return count, (
        f"num_workers is not given: {count} worker processes run what the daemon does not do "
        f"({available} processors, shared by {ranks} rank{'s' * (ranks != 1)} of this node); give "
        "num_workers= for another number, 0 for none"
    )


def not_started(why: str) -> str:
    """Returns the sentence that says why no workers were started."""
    count = workers_that_pay(processors(), local_ranks())
    return (
        f"num_workers is not given: this process runs what the daemon does not do, because {why}; "
        f"give num_workers={count} to have {count} worker processes do it beside the training, "
        "each with copies of your objects, or 0 for none"
    )


def would_bring(waited: float, seconds: float) -> str:
    """Returns the sentence that says what workers would bring to a loop; empty: nothing.

    Args:
        waited: The seconds for which it has waited for items that this process makes.
        seconds: The seconds that it has taken.
    """
    count = workers_that_pay(processors(), local_ranks())
    if not count or multiprocessing.current_process().daemon:  # which may have no children
        return ""
    times = seconds / max(seconds - waited, waited / count)
    return (
        f"the loop has waited {waited:.1f} of {seconds:.1f} s for items, which this process makes, "
        f"as num_workers is not given: num_workers={count} would have {count} worker processes "
        f"make them beside the training, each with copies of your objects, and the loop up to "
        f"{times:.1f} times as fast; 0 keeps it as it is, without this line"
    )


def _start_method(context: str | Context | None) -> str:
    if context is not None:
        return context if isinstance(context, str) else str(context.get_start_method())
    # Asking for the default would fix it for the program.
    return multiprocessing.get_start_method(allow_none=True) or (
        "fork" if sys.version_info < (3, 14) else "forkserver"
    )


def local_ranks() -> int:
    """Returns the number of ranks on this node; 1 if it is not known."""
    try:
        place = membership.look()
    except ValueError:  # the variables are incomplete, which is reported where they are needed
        return 1
    return place.local_world_size or (place.world_size if place.nodes == 1 else 1)


def _quotas(root: str) -> Iterator[float]:
    """Yields the quotas, in processors, of this process's control groups and of those above.

    What cannot be read limits nothing.
    """
    try:
        with open(
            os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="surrogateescape"
        ) as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = os.path.join(root, "sys/fs/cgroup", controllers)
        # In a container the mount may show a part of the hierarchy: missing names are skipped.
        while True:
            yield from _quota(mount + path.rstrip("/"), bool(controllers))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _quota(group: str, first_version: bool) -> Iterator[float]:
    try:
        if first_version:
            with (
                open(f"{group}/cpu.cfs_quota_us") as quota,
                open(f"{group}/cpu.cfs_period_us") as period,
            ):
                words = [quota.read(), period.read()]
        else:
            with open(f"{group}/cpu.max") as file:
                words = file.read().split()
        most, period_us = float(words[0]), float(words[1])  # "max": none
    except (OSError, ValueError, IndexError):
        return
    if most > 0 and period_us > 0:
        yield most / period_us
