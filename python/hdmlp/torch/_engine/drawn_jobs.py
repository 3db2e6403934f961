"""The daemon's jobs of a loader whose order its sampler draws."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..._loading.state import differs
from ...errors import ConfigError
from .._order.samplers import State
from .given import Given, Order
from .parts import Parts, PartsOf

log = logging.getLogger("hdmlp")


class Jobs:
    """The jobs to which a loader gives the orders that its sampler draws.

    Where possible, ranks on several nodes give the parts of each epoch to one job, which reads each
    sample from the source once (:class:`Parts`). If one of them cannot, each rank has a job of its
    own from then on (:class:`Given`).

    Args:
        serve: Opens a job of this rank alone.
        subset: The samples that the loader's items are; None: all.
        parts: How the ranks give parts; None: this rank is on its own.
        dataset: What messages call the dataset.
    """

    def __init__(
        self,
        serve: Callable[..., Given],
        subset: Sequence[int] | None,
        parts: PartsOf | None,
        dataset: str,
    ):
        self._dataset = dataset
        self._serve = serve
        self._subset = subset
        self._parts = parts
        self._given: Given | None = None
        # A job which this rank has left: other nodes may still ask for what this node holds.
        self._left: Given | None = None
        self._seed = 0
        # The next epoch's number in a job of several ranks, if a state has it.
        self._number: int | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_given": None, "_left": None, "_parts": None}

    @property
    def given(self) -> Given:
        """The current job."""
        assert self._given is not None
        return self._given

    @property
    def served(self) -> bool:
        """Reports whether the daemon served an epoch."""
        return self._given is not None and self._given.opened

    @property
    def parts(self) -> PartsOf | None:
        """How the ranks give parts; None: this rank is on its own."""
        return self._parts

    def order(self, batches: Sequence[object], epoch: int, first: int = 0) -> Order:
        """Returns batches of indices as the daemon takes them.

        Args:
            batches: The batches.
            epoch: Their epoch, for messages.
            first: The first batch's number in the epoch, for messages.

        Raises:
            IndexError: An index is outside the dataset.
            TypeError: The sampler yields something other than lists of indices.
        """
        return Order(batches, self._subset, self.given.samples, epoch, first)

    def open(self, seed: int, epoch: int, resume: State | None) -> None:
        """Makes the job, if there is none.

        Args:
            seed: Of transforms' random numbers.
            epoch: The number of the epoch that begins.
            resume: The state from which the loader resumes; None: it does not.

        Raises:
            MismatchError: The state belongs to another version of the dataset.
        """
        if self._given is None:
            known = None if resume is None else resume.get("job_seed")
            self._seed = seed if known is None else known
            if self._parts is None:
                self._given = self._serve(seed=self._seed)
            else:
                number = epoch if self._number is None else self._number
                self._given = self._parts.make(
                    seed=known, own_seed=seed, job=self._parts.job, epoch=number
                )
        theirs = None if resume is None else resume.get("fingerprint")
        mine = self._given.fingerprint
        if theirs not in (None, mine):
            raise differs("fingerprint", mine, theirs, self._dataset)

    # Leaving the job that the ranks share.

    def leave_parts(self, why: str) -> None:
        """Has this rank read on its own from now on, and notifies the others, if there are any."""
        if self._parts is None:
            return
        try:
            if isinstance(self._given, Parts):
                self._given.leave(why)
        except ConfigError as error:
            if not Parts.ends(error):
                raise
        self._go_apart()

    def goes_apart(self, error: BaseException) -> bool:
        """Reports whether this rank reads on its own after an error."""
        if not Parts.ends(error):
            return False
        if self._parts is not None:  # otherwise another iteration was given before
            log.warning(
                "%s. Each rank's node reads what its ranks need; no node asks another for it",
                str(error).rstrip("."),
            )
            self._go_apart()
        return True

    def _go_apart(self) -> None:
        self._left, self._parts = self._given, None
        self._given = self._serve(seed=self._seed)

    # The epochs' numbers in a job that ranks share.

    def numbers(self) -> dict[str, int]:
        """Returns the part of a state which holds the next epoch's number in the ranks' job."""
        return {"number": self._given.next} if isinstance(self._given, Parts) else {}

    def go_to(self, number: int) -> None:
        """Sets the number of the next epoch."""
        self._number = number
        if isinstance(self._given, Parts):
            self._given.next = number

    def follow(self, other: Jobs) -> None:
        """Continues after the jobs of another engine, in another job of the ranks.

        A job which is over may not have ended yet, so it cannot be joined again.
        """
        if self._parts is None or other._parts is None:
            self._parts = None
            return
        number = other._given.job + 1 if isinstance(other._given, Parts) else other._parts.job
        self._parts = self._parts._replace(job=number)

    def close(self) -> None:
        """Leaves the jobs. Idempotent."""
        for job in (self._given, self._left):
            if job is not None:
                job.close()
