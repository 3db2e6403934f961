"""Takes a batch from a source, and makes of it what the loop gets."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from .._batches.source import BatchSource, Taken
from .._lib.interrupts import interrupts
from .._transforms.recipe import Undecodable
from ..errors import HDMLPError, SampleError
from .feed import Feed

log = logging.getLogger("hdmlp")


class Brought(NamedTuple):
    """The result of :func:`bring`.

    Attributes:
        taken: The batch as it came from the source.
        batch: What the loop gets.
        error: The exception that the user's code raised instead; None if it raised none.
        stall: Nanoseconds for which ``next()`` was blocked.
        python: The part of ``stall`` in which Python code was running, in nanoseconds.
    """

    taken: Taken
    batch: object
    error: Exception | None
    stall: int
    python: int


def bring(
    feed: Feed,
    source: BatchSource,
    position: int,
    make: Callable[[Feed, Taken], object],
    timeout: float,
    timed: bool,
) -> Brought:
    """Takes the batch at a position from the source, and makes of it what the loop gets.

    If Python cannot decode a sample, the daemon applies ``on_error`` to it and sends the batch
    again.

    Args:
        feed: The iteration's feed.
        source: The feed's source.
        position: The number of the batch from the start of the run.
        make: Makes of a batch what the loop gets.
        timeout: Seconds to wait at most; 0 means no limit.
        timed: Whether the time of ``make`` counts as Python's part of the stall.

    Raises:
        HDMLPError: The source raised it.
        Exception: A signal handler raised it. The batch can be brought again.
    """
    stall = python = 0
    bad: Undecodable | None = None
    while True:
        if source.position != position:
            source.seek(position)
        try:
            taken = source.next(timeout)
        except HDMLPError as failed:
            feed.raised(failed)
            if bad is not None and isinstance(failed, SampleError) and failed.sample == bad.sample:
                raise failed from bad.__cause__
            raise
        begin = time.perf_counter_ns()
        batch = error = bad = None
        try:
            batch = make(feed, taken)
        except Undecodable as failed:
            bad = failed
        except Exception as failed:
            if interrupts(failed):
                raise
            error = failed
        spent = time.perf_counter_ns() - begin if timed else 0
        stall, python = stall + source.stall + spent, python + source.python + spent
        if bad is None:
            return Brought(taken, batch, error, stall, python)
        del taken
        _leave_out(feed, bad)


#: Nanoseconds that handing over a batch that is ready may take without being counted as a stall.
_HANDOVER = 1_000_000


def now() -> int:
    """Returns the time at which a ``next()`` begins, for :func:`blocked`."""
    return time.perf_counter_ns()


def blocked(begin: int, brought: Brought, works: bool) -> tuple[int, int]:
    """Returns for how long ``next()`` was blocked by a batch, and Python's part, in nanoseconds.

    That is all of the time since it was called: workers may have started, a job been opened, or a
    sampler been asked. The least time that handing over a batch takes is not counted.

    Args:
        begin: What :func:`now` returned when it was called.
        brought: The batch.
        works: Python does more than handing over what the daemon made.
    """
    besides = max(now() - begin - brought.stall, 0)
    if not brought.stall and besides < _HANDOVER:
        return 0, 0
    return brought.stall + besides, brought.python + (besides if works else 0)


def _leave_out(feed: Feed, bad: Undecodable) -> None:
    """Has the daemon decide about a sample that Python cannot decode, by the job's ``on_error``.

    The batch then comes again, without the sample or with another one in its place; or the
    sample's error comes, on all ranks.
    """
    for error in (bad, bad.__cause__):
        if error is not None:
            traceback.clear_frames(error.__traceback__)  # they hold the batch's memory
    params = {"sample": bad.sample, "reason": str(bad)}
    policy = feed.stream.call("unusable", params)["on_error"]
    if policy != "raise":
        log.warning(
            "sample %d (%s) cannot be decoded and transformed in Python, and %s (on_error=%s): %s",
            bad.sample,
            getattr(bad, "path", None) or "path unknown",
            "is left out" if policy == "skip" else "is replaced by another sample",
            policy,
            str(bad),  # a record that is kept would keep its frames, and the iterator
        )
    feed.source.restart()
