"""Epochs of which the samplers of all ranks draw a part each: one job over several nodes.

Together, the nodes read each sample that any rank needs from the source once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from ..._batches.source import BatchSource
from ..._batches.stream import Stream
from ..._daemon import connecting
from ..._launch import membership
from ..._lib import memory
from ..._loading.bring import Brought
from ..._loading.feed import Feed, User
from ..._loading.options import Options
from ...data import Folder
from ...errors import ConfigError
from .._data.making import Making
from .given import Given, Order
from .served import Processes, Served


class PartsOf(NamedTuple):
    """How the ranks of several nodes give parts of epochs.

    Attributes:
        make: Makes :class:`Parts`.
        why: Why this rank can give none; empty: it can.
        job: The number of the loader's first job.
    """

    make: Callable[..., Parts]
    why: str
    job: int = 0


class _Part(NamedTuple):
    """What a feed was given last.

    Attributes:
        epoch: Its number in the job.
        order: This rank's part; None: it gives none.
        why: Why it gives none; else empty.
        job: The number of the loader's job.
    """

    epoch: int
    order: Order | None
    why: str
    job: int


class Parts(Given):
    """The jobs of one loader on all ranks of several nodes.

    Each rank gives its own part of an epoch when it begins it, and gets its first batch when all
    have. Every rank must use the loader alike.

    Epochs are numbered in the order in which they are given. An epoch which the user breaks off
    and begins again keeps its number, so a rank which looked at its first batch is not ahead of
    those which did not.

    Args:
        dataset: As for :class:`Given`.
        made: As for :class:`Given`.
        options: As for :class:`Given`.
        processes: As for :class:`Given`.
        batch: Samples per batch.
        own_seed: The seed of this rank's random numbers if it read on its own; rank 0's is the
            job's.
        job: The number of the first job; a later one has the next.
        epoch: The number of the first epoch.
        seed: As for :class:`Given`.

    Attributes:
        job: The number of the current job.
        next: The number of the next epoch.
    """

    def __init__(
        self,
        dataset: Folder,
        made: Making,
        options: Options,
        processes: Processes,
        *,
        batch: int,
        own_seed: int,
        job: int,
        epoch: int,
        seed: int | None,
    ):
        super().__init__(dataset, made, options, processes, seed=seed)
        self._batch, self._own_seed, self.job, self.next = batch, own_seed, job, epoch
        self._given: dict[int, _Part] = {}  # by the feed's number
        self._through: dict[int, bool] = {}  # likewise: its epoch's last batch was taken

    def _open_stream(
        self, client: connecting.Client, request: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[Stream, BatchSource]:
        part = self._given[self._opening]
        ids = b"" if part.order is None else part.order.ids
        name = self._session.name
        if self._opening:
            name += f"+{self._opening}"
        request["job"] = membership.job_key(self._place, f"{name}.parts{part.job}")
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
        fd = memory.listed(ids)
        try:
            return Served._open_stream(self, client, request, (*fds, fd))
        finally:
            os.close(fd)

    def _feed_for(self, user: User, epoch: int, order: Order) -> tuple[Feed, int]:
        number, feed = self._feeds.of(user)
        was = self._given.get(number)
        again = (
            was is not None
            and was.order is not None
            and was.order.ids == order.ids
            and (self.next == was.epoch or not self._through[number])
        )
        if was is not None and again:
            epoch = was.epoch
        else:
            epoch = self.next
            if was is not None and epoch <= was.epoch:
                # Going back: the daemons no longer know that epoch.
                feed.close()
                self.job += 1
            self._given[number] = _Part(epoch, order, "", self.job)
        if feed.broken:
            feed.close()
            feed.ready()
        else:
            if was is None or epoch != was.epoch:
                self._give(feed.stream, epoch, order)
            feed.restart()  # the last epoch's end may still be on its way
            self._renew(feed, None)
        self._through[number] = False
        self.next = epoch + 1
        return feed, epoch

    def leave(self, why: str) -> None:
        """Tells the other ranks that this one reads on its own, and why; then all of them do.

        Raises:
            ConfigError: The same, from the daemon.
        """
        with self._turn:
            part = _Part(self.next, None, why[:1000], self.job)
            feed = self._feeds.first()
            if feed.broken:
                self._given[0] = part
                feed.close()
                try:
                    feed.ready()
                finally:
                    del self._given[0]
                return
            fd = memory.listed(b"")
            try:
                feed.stream.give(part.epoch, 0, fd, part.why)
            finally:
                os.close(fd)

    def bring(self, feed: Feed, position: int, step: int) -> Brought:
        """Takes the batch at a position, and makes what the user gets; see :meth:`Given.bring`."""
        brought = super().bring(feed, position, step)
        if (position + 1) % feed.stream.steps == 0:
            self._through[self._feeds.index(feed)] = True
        return brought

    @staticmethod
    def ends(error: BaseException) -> bool:
        """Reports whether each rank may read on its own after an error."""
        return isinstance(error, ConfigError) and bool(error.details.get("apart"))
