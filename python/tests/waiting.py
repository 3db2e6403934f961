"""Waiting for events in other threads and processes, with limits that only a hang exceeds."""

import os
import select
import time

#: Seconds to wait for an event. Generous: a busy machine may be slow, and no test measures time.
LIMIT = 60


def until(condition, what="the awaited event", seconds=LIMIT, interval=0.005):
    """Waits until ``condition()`` is true, and returns its value.

    Args:
        condition: A function of no arguments.
        what: The event, for the error.
        seconds: The limit; None means none, for programs that a test starts and ends.
        interval: The seconds between two calls of ``condition``.

    Raises:
        AssertionError: the condition is still false after so many seconds.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while not (value := condition()):
        assert end is None or time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(interval)
    return value


def until_exists(path):
    """Waits, without a limit, until the file exists: in a program that a test starts and ends."""
    until(lambda: os.path.exists(path), seconds=None, interval=0.02)


def barrier(directory, name, rank, ranks):
    """Waits, without a limit, until all ranks have called it with this name.

    Args:
        directory: A directory that the ranks share; each call leaves a file there.
        name: Of one use only.
        rank: This process's rank.
        ranks: Their number.
    """
    open(os.path.join(directory, f"{name}-{rank}"), "w").close()
    until(
        lambda: sum(file.startswith(f"{name}-") for file in os.listdir(directory)) >= ranks,
        seconds=None,
        interval=0.02,
    )


def until_ended(pid, seconds=LIMIT):
    """Waits until the process, which need not be a child of this one, has ended.

    Raises:
        AssertionError: the process still runs after so many seconds.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        assert ready, f"process {pid} still runs after {seconds} s"
    finally:
        os.close(descriptor)
