"""Samples of HDMLP's datasets that another loader than ours reads: they are right, and it is said once that the daemon has no part in it."""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

log = logging.getLogger("hdmlp")

_FETCH = "torch.utils.data._utils.fetch"
_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")


class Notice:
    """Says once, in this process and those forked from it, that another loader than ours reads samples."""

    def __init__(self) -> None:
        self._said = mmap.mmap(
            -1, 1
        )  # shared with forked workers, of which each epoch has new ones

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers that are not forked get a dataset pickled. It is said here then, and not by each of them.
        if any(_module(frame) in _LOADERS for frame in _callers()):
            self._say()
        return _received, (self._said[0],)

    def told(self, said: int) -> Notice:
        """Takes over from another process whether it was said there."""
        self._said[0] |= said
        return self

    def read(self) -> None:
        """A sample is read in Python, for torch's loader or for somebody who looks at it."""
        if not self._said[0] and any(_module(frame) == _FETCH for frame in _callers()):
            self._say()

    def _say(self) -> None:
        if self._said[0]:
            return
        self._said[0] = 1
        log.warning(
            "a loader other than hdmlp.torch.DataLoader reads samples of an HDMLP dataset: they are right, but each is read from its file, decoded "
            "and transformed in Python, without the daemon and its caches; make the loader with hdmlp.torch.DataLoader, and where accelerate or "
            "transformers' Trainer makes it, call hdmlp.torch.use_in(accelerate) before"
        )


NOTICE = Notice()
"""This process's."""


def _received(said: int) -> Notice:
    return NOTICE.told(said)


def _module(frame: FrameType) -> str | None:
    return frame.f_globals.get("__name__")


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
