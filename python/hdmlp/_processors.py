"""How many processors this process may use, and how many worker processes pay off."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import _launcher

#: More workers than that are not started unasked: each holds batches in memory.
MOST_WORKERS = 16


def processors(root: str = "/") -> int:
    """How many processors this process may use: those that it is bound to, or fewer by the quota of its control groups, rounded up as the daemon
    does for ``transform_threads``; at least 1.

    Args:
        root: of the file system.
    """
    bound = len(os.sched_getaffinity(0))
    return max(1, min([bound, *(math.ceil(quota) for quota in _quotas(root))]))


def workers_that_pay(available: int, ranks: int) -> int:
    """How many workers pay off for what runs in Python; 0: none.

    Each rank of the node has its share of the processors. With one, a worker and the training process would take turns. With two
    there are two workers: while batches lack the training process waits, and while they do not the workers do. From three on one
    processor is left to the training process and to the daemon.

    Args:
        available: processors.
        ranks: of this node.
    """
    share = available // max(ranks, 1)
    if share < 2:
        return 0
    return min(max(share - 1, 2), MOST_WORKERS)


def unasked(context: Any) -> tuple[int, str]:
    """How many workers to start where the user did not say, and the sentence that says so; empty: there is nothing to be said.

    Args:
        context: a multiprocessing context, or the name of a start method; None: the default.
    """
    available, ranks = processors(), local_ranks()
    count = workers_that_pay(available, ranks)
    if not count or multiprocessing.current_process().daemon:  # which may have no children
        return 0, ""
    method = _start_method(context)
    if method != "fork":
        return 0, not_started(
            f"the start method is {method}: it imports the script again, whose main part has to stand under if __name__ == '__main__'"
        )
    return count, (
        f"{count} worker processes run what is left to Python ({available} processors, shared by {ranks} rank{'s' * (ranks != 1)} of this node): "
        "give num_workers= for another number, 0 to have this process do it"
    )


def not_started(why: str) -> str:
    """The sentence that says why no workers were started."""
    count = workers_that_pay(processors(), local_ranks())
    return (
        f"what is left to Python runs in this process, and no worker processes are started unasked, because {why}: "
        f"give num_workers={count} to have them, or 0 to leave it so"
    )


def _start_method(context: Any) -> str:
    if context is not None:
        return context if isinstance(context, str) else context.get_start_method()
    # Asking for the default would settle it for the program.
    return multiprocessing.get_start_method(allow_none=True) or (
        "fork" if sys.version_info < (3, 14) else "forkserver"
    )


def local_ranks() -> int:
    """How many ranks there are on this node, as far as anybody says; else 1."""
    try:
        place = _launcher.look()
    except ValueError:  # variables that say half of it: who needs them says so
        return 1
    return place.local_world_size or (place.world_size if place.nodes == 1 else 1)


def _quotas(root: str) -> Iterator[float]:
    """The quotas, in processors, of this process's control groups and of all above them. What cannot be read limits nothing."""
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
        # Inside a container the mount may show only a part of the hierarchy: names that are not there are passed over.
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
