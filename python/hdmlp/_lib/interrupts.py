"""Exceptions that signal handlers raise, wherever the program is."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")


def steps(iterable: Iterable[_T]) -> Iterator[_T]:
    """Returns an iterator of which a ``for`` statement loses nothing that it is about to yield.

    ``next()`` would, where a signal's handler raises before its result is stored. ``__iter__`` of
    the iterable is called once, and that of its iterator never: some iterators begin anew there.
    """
    return map(next, itertools.repeat(iter(iterable)))


def start(thread: threading.Thread) -> None:
    """Starts a thread; what a signal's handler raises meanwhile is raised as it is.

    ``Thread.start`` then takes the thread off a list, where one that has begun is no longer, and
    raises KeyError.
    """
    try:
        thread.start()
    except KeyError as error:
        raised = error.__context__
        if raised is None:
            raise
        raise raised from None


def interrupts(error: BaseException) -> bool:
    """Reports whether an exception has nothing to do with the code in which it was raised.

    So do those that end programs, as KeyboardInterrupt, and those of signal handlers: Python calls
    them between any two instructions, with the signal's number and the frame that they interrupt.
    """
    if not isinstance(error, Exception):
        return True
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        if _handles(at.tb_next.tb_frame, at.tb_frame):
            return True
        at = at.tb_next
    return False


def _handles(frame: FrameType, interrupted: FrameType) -> bool:
    """Reports whether a frame is that of a function called with a number and another frame."""
    names, more, _, values = inspect.getargvalues(frame)
    given = [values.get(name) for name in names]
    if more is not None:
        given += values.get(more) or ()
    return any(
        isinstance(number, int) and value is interrupted for number, value in zip(given, given[1:])
    )
