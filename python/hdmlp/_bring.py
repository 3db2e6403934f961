"""From a source's batch to what the user gets."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from ._feed import Feed
from ._recipe import Undecodable
from ._source import BatchSource, Taken
from .errors import SampleError

log = logging.getLogger("hdmlp")


class Brought(NamedTuple):
    """A batch that was made.

    Attributes:
        taken: What it was made of.
        batch: What the user gets.
        error: What the user's code raised in its place; None if it raised nothing.
        stall: Nanoseconds that ``next()`` blocked for it.
        python: Nanoseconds, of ``stall``, for which Python code was making it.
    """

    taken: Taken
    batch: Any
    error: Exception | None
    stall: int
    python: int


def bring(
    feed: Feed,
    source: BatchSource,
    position: int,
    make: Callable[[Feed, Taken], Any],
    timeout: float,
    timed: bool,
) -> Brought:
    """Takes the batch at a position from the feed, and makes what the user gets of it.

    A batch with a sample that Python cannot decode comes again, after the daemon has decided about
    the sample.

    Args:
        feed: The iteration's feed.
        source: The feed's source.
        position: Which batch.
        make: Makes what the user gets.
        timeout: Seconds to wait at most; 0 means no limit.
        timed: The time of ``make`` counts as Python's part of the stall.

    Raises:
        HDMLPError: What the source raises.
    """
    stall = python = 0
    bad: Undecodable | None = None
    while True:
        if source.position != position:
            source.seek(position)
        try:
            taken = source.next(timeout)
        except SampleError as failed:
            if bad is not None and failed.sample == bad.sample:
                raise failed from bad.__cause__
            raise
        begin = time.perf_counter_ns()
        batch = error = bad = None
        try:
            batch = make(feed, taken)
        except Undecodable as failed:
            bad = failed
        except Exception as failed:
            error = failed
        spent = time.perf_counter_ns() - begin if timed else 0
        stall, python = stall + source.stall + spent, python + source.python + spent
        if bad is None:
            return Brought(taken, batch, error, stall, python)
        del taken
        _leave_out(feed, bad)


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
            "sample %d (%s) cannot be decoded in Python, and %s (on_error=%s): %s",
            bad.sample,
            getattr(bad, "path", None) or "path unknown",
            "is left out" if policy == "skip" else "is replaced by another sample",
            policy,
            bad,
        )
    feed.source.restart()
