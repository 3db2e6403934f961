"""Epochs of which the samplers of all ranks draw a part each: one job over several nodes, which reads what any rank needs from the source once."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from .. import _daemon, _launcher, _memory
from .._feed import Brought, Feed
from .._source import BatchSource
from .._stream import Stream
from ..errors import ConfigError
from ._given import Given, Order
from ._served import Served


class PartsOf(NamedTuple):
    """The parts that ranks of several nodes may give.

    Attributes:
        make: makes :class:`Parts`.
        why: this rank can give none; empty: it can.
        job: the number of the loader's first job.
    """

    make: Callable[..., "Parts"]
    why: str
    job: int = 0


class _Part(NamedTuple):
    """What a feed has given last.

    Attributes:
        epoch: its number in the job.
        order: this rank's part; None: it gives none, and ``why``.
        job: which of the loader's jobs it is in.
    """

    epoch: int
    order: Optional[Order]
    why: str
    job: int


class Parts(Given):
    """The jobs of one loader on all ranks of several nodes: each rank gives its own part of an epoch when it begins it, and gets its first batch when
    all have. Every rank must use the loader alike.

    Epochs are numbered one after the other as they are given. An epoch that the user broke off and begins again is the same one: a rank that has looked
    at its first batch, which others have not, is not ahead of them.

    Args:
        batch: samples of a batch.
        own_seed: what random numbers of this rank would follow from if it read by itself; rank 0's is the job's.
        job: the number of the first job; a later one has the next.
        epoch: the number of the first epoch.
        *args, **more: those of :class:`Given`.

    Attributes:
        next: the number of the next epoch.
    """

    def __init__(self, *args: Any, batch: int, own_seed: int, job: int, epoch: int, **more: Any):
        super().__init__(*args, **more)
        self._batch, self._own_seed, self.job, self.next = batch, own_seed, job, epoch
        self._given: Dict[int, _Part] = {}  # by the feed's number
        self._through: Dict[int, bool] = {}  # likewise, whether its epoch's last batch was taken

    def _open_stream(
        self, client: _daemon.Client, request: Dict[str, Any], fds: Sequence[int] = ()
    ) -> Tuple[Stream, BatchSource]:
        part = self._given[self._opening]
        ids = b"" if part.order is None else part.order.ids
        name = f"{self._name}+{self._opening}" if self._opening else self._name
        request["job"] = _launcher.job_key(self._place, f"{name}.parts{part.job}")
        request["stream"] = {
            **request["stream"],
            "epochs": 0,
            "given": {
                "entries": len(ids),
                "epochs": 1,
                "first": part.epoch,
                "batch": self._batch,
                "seed": self._own_seed,
                "apart": part.why,
            },
        }
        fd = _memory.listed(ids)
        try:
            return Served._open_stream(self, client, request, (fd,))
        finally:
            os.close(fd)

    def _feed_for(self, user: Any, epoch: int, order: Order) -> Tuple[Feed, int]:
        number, feed = self._feed_of(user)
        was = self._given.get(number)
        if (
            was is not None
            and was.order.ids == order.ids
            and (self.next == was.epoch or not self._through[number])
        ):
            epoch = was.epoch
        else:
            epoch = self.next
            if (
                was is not None and epoch <= was.epoch
            ):  # back: the daemons do not know that one any more
                feed.close()
                self.job += 1
            self._given[number] = _Part(epoch, order, "", self.job)
        if feed.broken:
            feed.close()
            feed.ready()
        else:
            if epoch != was.epoch:
                self._give(feed.stream, epoch, order)
            feed.source.restart()  # the last epoch's end may still be on its way
            self._renew(feed, None)
        self._through[number] = False
        self.next = epoch + 1
        return feed, epoch

    def leave(self, why: str) -> None:
        """Tells the other ranks that this one reads by itself, and why; then all do so.

        Raises:
            ConfigError: the same, from the daemon.
        """
        with self._turn:
            part = _Part(self.next, None, why[:1000], self.job)
            if not self._feeds:
                self._feeds.append(self._new_feed())
            feed = self._feeds[0]
            if feed.broken:
                self._given[0] = part
                feed.close()
                try:
                    feed.ready()
                finally:
                    del self._given[0]
                return
            fd = _memory.listed(b"")
            try:
                feed.stream.give(part.epoch, 0, fd, part.why)
            finally:
                os.close(fd)

    def bring(self, feed: Feed, position: int) -> Brought:
        """See :meth:`Given.bring`."""
        brought = super().bring(feed, position)
        if (position + 1) % feed.stream.steps == 0:
            self._through[self._feeds.index(feed)] = True
        return brought

    @staticmethod
    def ends(error: BaseException) -> bool:
        """True if after this error each rank may read by itself."""
        return isinstance(error, ConfigError) and bool(error.details.get("apart"))
