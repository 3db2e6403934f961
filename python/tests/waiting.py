"""Waiting for events in other threads and processes, with limits that only a hang exceeds."""

import os
import select
import time

#: Seconds to wait for an event. Generous: a busy machine may be slow, and no test measures time.
LIMIT = 60


def until(condition, what="the awaited event", seconds=LIMIT):
    """Waits until ``condition()`` is true, and returns its value.

    Raises:
        AssertionError: the condition is still false after so many seconds.
    """
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.005)
    return value


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
