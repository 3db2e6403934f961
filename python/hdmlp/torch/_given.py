"""Epochs that a sampler draws, served by the daemon: it is told the order of each when it begins."""

from __future__ import annotations

import array
import itertools
import operator
import os
import secrets
import weakref
from dataclasses import replace
from typing import Any, Dict, Optional, Sequence, Tuple

from .. import _daemon, _memory
from .._feed import Brought, Feed
from .._options import Options
from .._source import BatchSource
from .._stream import Stream
from ..data import Folder
from ._served import Making, Served


class Order:
    """The batches of one epoch.

    Args:
        batches: lists of indices.
        subset: what the indices are places in; None: samples.
        samples: of the dataset.
        epoch: its number; first: that of the first batch in it; for messages.

    Attributes:
        sizes: of the batches, u32.
        ids: their samples, i32.

    Raises:
        IndexError: an index lies outside the dataset.
        TypeError: what the sampler yields is no index, or no list of them.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[Any]],
        subset: Optional[Sequence[int]],
        samples: int,
        epoch: int,
        first: int = 0,
    ):
        count = samples if subset is None else len(subset)
        self.sizes, self.ids = array.array("I"), array.array("i")
        for step, batch in enumerate(batches, first):
            where = f"in batch {step} of epoch {epoch}"
            try:
                self.sizes.append(len(batch))
            except TypeError:
                raise TypeError(
                    f"the batch sampler yields {batch!r:.80} {where}; it must yield lists of indices"
                ) from None
            for index in batch:
                try:
                    place = operator.index(index)
                except TypeError:
                    raise TypeError(
                        f"the sampler yields {index!r:.80} {where}; a folder's samples have whole numbers for indices"
                    ) from None
                if not -count <= place < count:
                    raise IndexError(
                        f"the sampler yields index {place} {where}; the dataset has {count} samples"
                    )
                place %= count
                self.ids.append(place if subset is None else subset[place])


class Given(Served):
    """The jobs of one loader whose orders are given, each opened as one rank. It yields nothing itself: :meth:`feed` says where an epoch's batches come from.

    Args:
        options: those of :class:`Served`; of ``stream``, ``global_batch`` counts.
        seed: of the job; None: the daemon draws it.
        dataset, made, more: those of :class:`Served`.
    """

    def __init__(
        self,
        dataset: Folder,
        made: Making,
        options: Options,
        *,
        seed: Optional[int],
        **more: Any,
    ):
        self._orders: Dict[
            int, Tuple[int, Order]
        ] = {}  # by the feed's number: its epoch, and that one's order
        # A job that is over may not have ended yet, and takes no other order; nor does that of the loader that this one's is a copy of.
        self._jobs = (f".{secrets.token_hex(4)}.{n}" for n in itertools.count())
        super().__init__(
            dataset,
            made,
            replace(options, stream=replace(options.stream, shuffle="given", seed=seed)),
            opens=False,
            **more,
        )

    def _open_stream(
        self, client: _daemon.Client, request: Dict[str, Any], fds: Sequence[int] = ()
    ) -> Tuple[Stream, BatchSource]:
        epoch, order = self._orders[self._opening]
        request["job"] += next(self._jobs)
        request["stream"] = {
            **request["stream"],
            "epochs": 0,
            "global_batch": max(order.sizes),
            "given": {
                "batches": len(order.sizes),
                "entries": len(order.ids),
                "epochs": 1,
                "first": epoch,
            },
        }
        fd = _memory.listed(array.array("i", order.sizes.tobytes()) + order.ids)
        try:
            return super()._open_stream(client, request, (fd,))
        finally:
            os.close(fd)

    def _connect(self, number: int) -> Tuple[Stream, BatchSource]:
        self._opening = number
        return super()._connect(number)

    def feed(self, user: Any, epoch: int, order: Order) -> Tuple[Feed, int]:
        """The user's feed, or one that no other iteration uses, to which the order of the epoch was given; and the epoch's number there."""
        with self._turn:
            return self._feed_for(user, epoch, order)

    def _feed_of(self, user: Any) -> Tuple[int, Feed]:
        for number, feed in enumerate(self._feeds):
            if feed.free or feed.used_by(user):
                break
        else:
            number, feed = len(self._feeds), self._new_feed()
            self._feeds.append(feed)
        feed.user = weakref.ref(user)
        return number, feed

    def _feed_for(self, user: Any, epoch: int, order: Order) -> Tuple[Feed, int]:
        number, feed = self._feed_of(user)
        was = self._orders.get(number)
        self._orders[number] = epoch, order
        usable = not feed.broken and was is not None
        if usable and was[1].sizes == order.sizes and epoch > was[0]:
            self._give(feed.stream, epoch, order)
            feed.source.restart()  # the last epoch's end may still be on its way
            self._renew(feed, None)
        else:
            feed.close()
            feed.ready()
        return feed, epoch

    @staticmethod
    def _give(stream: Stream, epoch: int, order: Order) -> None:
        fd = _memory.listed(order.ids)
        try:
            stream.give(epoch, len(order.ids), fd)
        finally:
            os.close(fd)

    @property
    def samples(self) -> int:
        """The number of samples in the dataset."""
        return len(self.dataset)

    @property
    def fingerprint(self) -> str:
        """The dataset's version."""
        return self.dataset.facts["fingerprint"]

    @property
    def seed_of_job(self) -> int:
        """What random numbers of transforms follow from."""
        return self._spec["seed"]

    @property
    def opened(self) -> bool:
        """True if an epoch was served."""
        return bool(self._feeds)

    def bring(self, feed: Feed, position: int) -> Brought:
        """The batch at a position, as the user gets it."""
        return self._bring(feed, position)
