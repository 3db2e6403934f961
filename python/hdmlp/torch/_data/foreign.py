"""Warns if a loader other than ours reads samples of HDMLP's datasets.

They are right, but the daemon has no part in it.
"""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("hdmlp")

_FETCH = "torch.utils.data._utils.fetch"
_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")


class Notice:
    """Warns once, in this process and those forked from it."""

    def __init__(self) -> None:
        # Shared with forked workers, of which each epoch has new ones.
        self._said = mmap.mmap(-1, 1)

    def __reduce__(self) -> tuple[object, ...]:
        # Workers that are not forked get a pickled dataset. The warning comes from here then, and
        # not from each of them.
        if any(_module(frame) in _LOADERS for frame in _callers()):
            self._say()
        return _received, (self._said[0],)

    def told(self, said: int) -> Notice:
        """Takes over from another process whether it has warned."""
        self._said[0] |= said
        return self

    def read(self) -> None:
        """Notes that a sample is read in Python, by a loader or by the program itself."""
        if not self._said[0] and any(_module(frame) == _FETCH for frame in _callers()):
            self._say()

    def _say(self) -> None:
        if self._said[0]:
            return
        self._said[0] = 1
        log.warning(
            "a loader other than hdmlp.torch.DataLoader reads samples of an HDMLP dataset: they "
            "are right, but each is read from its file, decoded and transformed in Python, without "
            "the daemon and its caches; make the loader with hdmlp.torch.DataLoader; if accelerate "
            "or transformers' Trainer makes it, call hdmlp.torch.use_in(accelerate) first"
        )


#: This process's.
NOTICE = Notice()


def _received(said: int) -> Notice:
    return NOTICE.told(said)


def _module(frame: FrameType) -> str | None:
    return frame.f_globals.get("__name__")


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
