"""Epochs which a sampler draws, served by the daemon: it is sent each one's order."""

from __future__ import annotations

import array
import itertools
import operator
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..._batches.source import BatchSource
from ..._batches.stream import Stream
from ..._daemon import connecting
from ..._lib import memory
from ..._loading.bring import Brought
from ..._loading.feed import Feed, User
from ..._loading.options import Options
from ...data import Folder
from .._data.making import Making
from .served import Processes, Served


class Order:
    """The batches of one epoch, as the daemon takes them: it is not sent empty ones.

    Args:
        batches: Lists of indices.
        subset: The samples to which the indices refer; None: all.
        samples: The number of samples of the dataset.
        epoch: The epoch's number, for messages.
        first: The first batch's number in the epoch, for messages.

    Attributes:
        sizes: The batches' sizes, uint32.
        ids: Their samples' IDs, int32.

    Raises:
        IndexError: An index is outside the dataset.
        TypeError: The sampler yields something other than lists of indices.
    """

    def __init__(
        self,
        batches: Sequence[Any],
        subset: Sequence[int] | None,
        samples: int,
        epoch: int,
        first: int = 0,
    ):
        count = samples if subset is None else len(subset)
        self.sizes, self.ids = array.array("I"), array.array("i")
        for step, batch in enumerate(batches, first):
            where = f"in batch {step} of epoch {epoch}"
            try:
                size = len(batch)
            except TypeError:
                raise TypeError(
                    f"the batch sampler yields {batch!r:.80} {where}; it must yield lists of "
                    "indices"
                ) from None
            if size:
                self.sizes.append(size)
            for index in batch:
                try:
                    place = operator.index(index)
                except TypeError:
                    raise TypeError(
                        f"the sampler yields {index!r:.80} {where}; a folder's samples have whole "
                        "numbers as indices"
                    ) from None
                if not -count <= place < count:
                    raise IndexError(
                        f"the sampler yields index {place} {where}; the dataset has {count} samples"
                    )
                place %= count
                self.ids.append(place if subset is None else subset[place])


class Given(Served):
    """The jobs of one loader to which orders are given, each opened as one rank.

    It yields nothing itself: :meth:`feed` returns what an epoch's batches are taken from.

    Args:
        dataset: As for :class:`Served`.
        made: As for :class:`Served`.
        options: As for :class:`Served`; of ``stream``, only ``global_batch`` applies.
        processes: As for :class:`Served`.
        seed: The job's seed; None: the daemon draws it.
        part: As for :class:`Served`.
        shares_order: The orders of these ranks are parts of one, so that no sample is repeated
            because several have it.
    """

    def __init__(
        self,
        dataset: Folder,
        made: Making,
        options: Options,
        processes: Processes,
        *,
        seed: int | None,
        part: tuple[int, int] | None = None,
        shares_order: bool = False,
    ):
        # By the feed's number: its epoch, and that epoch's order.
        self._orders: dict[int, tuple[int, Order]] = {}
        # By the epoch's number in its job: what torch's loader drew for its workers.
        self._torchs: dict[int, int] = {}
        # Each job has another name: one that is over may not have ended yet, and takes no other
        # order; nor does the job of a loader of which this one is a copy.
        self._jobs = (f".{secrets.token_hex(4)}.{n}" for n in itertools.count())
        self._part = (0, 1) if part is None or shares_order else part
        stream = replace(options.stream, shuffle="given", seed=seed)
        options = replace(options, stream=stream)
        super().__init__(dataset, made, options, processes, opens=False, part=part)

    def _open_stream(
        self, client: connecting.Client, request: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[Stream, BatchSource]:
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
                "rank": self._part[0],
                "ranks": self._part[1],
            },
        }
        fd = memory.listed(array.array("i", order.sizes.tobytes()) + order.ids)
        try:
            return super()._open_stream(client, request, (*fds, fd))
        finally:
            os.close(fd)

    def _connect(self, number: int) -> tuple[Stream, BatchSource]:
        self._opening = number
        return super()._connect(number)

    def _base_seeds(self) -> Callable[[int, int], int]:
        torchs, others = self._torchs, super()._base_seeds()
        return lambda seed, epoch: torchs.get(epoch, others(seed, epoch))

    def feed(
        self, user: User, epoch: int, order: Order, base_seed: int | None = None
    ) -> tuple[Feed, int]:
        """Gives the daemon an epoch's order.

        Args:
            user: The iteration that takes the batches.
            epoch: The epoch's number.
            order: Its order.
            base_seed: What torch's loader drew for the epoch's workers. Default: None, unknown.

        Returns:
            The user's feed, or one which no other iteration uses; and the epoch's number there.
        """
        with self._turn:
            feed, number = self._feed_for(user, epoch, order)
            if base_seed is not None:
                self._torchs[number] = base_seed
            return feed, number

    def _feed_for(self, user: User, epoch: int, order: Order) -> tuple[Feed, int]:
        number, feed = self._feeds.of(user)
        was = self._orders.get(number)
        self._orders[number] = epoch, order
        if was is not None and not feed.broken and was[1].sizes == order.sizes and epoch > was[0]:
            self._give(feed.stream, epoch, order)
            feed.restart()  # the last epoch's end may still be on its way
            self._renew(feed, None)
        else:
            feed.close()
            feed.ready()
        return feed, epoch

    @staticmethod
    def _give(stream: Stream, epoch: int, order: Order) -> None:
        fd = memory.listed(order.ids)
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
        return str(self.dataset._facts["fingerprint"])

    @property
    def seed_of_job(self) -> int | None:
        """The seed of transforms' random numbers; None before the daemon has drawn it."""
        seed: int | None = self._spec["seed"]
        return seed

    @property
    def opened(self) -> bool:
        """Reports whether an epoch was served."""
        return len(self._feeds) > 0

    def bring(self, feed: Feed, position: int, step: int) -> Brought:
        """Takes the batch at a position, and makes what the user gets.

        Args:
            feed: Where it comes from.
            position: The batch's position in the feed's order.
            step: Its number in the epoch.
        """
        feed.step = step
        return self._bring(feed, position)

    def rest(self, feed: Feed) -> None:
        """Ends the workers of the feed, unless they are to stay, as its epoch is over."""
        self._rest(feed)

    def finish_epoch(self, feed: Feed, epoch: int) -> None:
        """Verifies an epoch which was delivered from its first batch on, if that is wanted."""
        self._finish_epoch(feed, epoch)
