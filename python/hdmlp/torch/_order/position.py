"""Where a loader is whose order its sampler draws, and how it resumes from a state."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..._launch import membership
from ..._lib.arguments import whole_number
from ..._loading.state import check_scheme, differs
from ..._transforms.keys import SCHEME
from ...errors import ConfigError
from .samplers import State

if TYPE_CHECKING:
    import array


def process_rank() -> int:
    """Returns this process's rank in the launch; 0 if the launcher does not say."""
    try:
        return membership.look().rank  # find() may warn and ask a name server, for each batch
    except ConfigError:  # incomplete variables, which do not matter here
        return 0


class Iteration(Protocol):
    """An iteration over an epoch, of which states are taken."""

    @property
    def ended(self) -> bool:
        """Reports whether the sampler was asked for one batch more than it has."""

    def state(self, missing: int = 0) -> State:
        """Returns the state from which the epoch can be resumed; see ``Batches.state``."""


class Position:
    """The epoch that comes next, and the state of the one under way.

    A state is taken at each batch, by the last iteration that began. The states are:

    * ``resume``: A loaded state; the next iteration delivers the rest of its epoch.
    * ``at``: The state of the last iteration, or of the next one's beginning after its end.
    * ``untaken``: What :meth:`take` returned to resume from, as long as that iteration has yielded
      no batch: an iteration that replaces it resumes from the same.
    * ``after``: The state of the epoch that ended before the next one begins. To resume from
      there, the ended epoch is drawn again, so that its sampler and generators are where it left
      them.

    Args:
        seed: The seed of items' random numbers; None: it is drawn for each epoch.
        subset: The samples that the items are; None: all.
        length: The dataset's length; None: it has none.
        dataset: What messages call the dataset.
        part: This rank, and the number of ranks that share what the sampler draws.
        global_batch: Samples per step over all of these; None: the sampler decides.

    Attributes:
        epoch: The number of the next iteration's epoch.
        seed: The seed of items' random numbers.
        base_seed: What torch draws for its workers, if they stay over epochs; None: not drawn yet.
        length: The dataset's length when the last epoch began; None: it has none.
    """

    def __init__(
        self,
        seed: int | None,
        subset: array.array[int] | None,
        length: int | None,
        dataset: str,
        part: tuple[int, int] = (0, 1),
        global_batch: int | None = None,
    ):
        self.epoch = 0
        self._part, self._global_batch = part, global_batch
        self._dataset = dataset
        self.seed = seed
        self.base_seed: int | None = None
        self.length = length
        self._subset_sum = (
            None if subset is None else hashlib.blake2b(subset.tobytes(), digest_size=8).hexdigest()
        )
        self._resume: State | None = None
        self._at: State | None = None
        self._after: State | None = None
        self._untaken: tuple[State, State | None] | None = None
        self._last: weakref.ref[Iteration] | None = None
        self._jumped = False  # the epoch was set since the last iteration's last batch
        self._rank: int | None = None  # as the last iteration found it: each batch's state has it

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    @property
    def world_size(self) -> int:
        """The number of ranks that share what the sampler draws."""
        return self._part[1]

    # Iteration.

    def take(self) -> tuple[State | None, State | None]:
        """Returns the state from which the next iteration resumes, and the one it comes after."""
        if self._untaken is not None:
            self._resume, self._after = self._untaken
            self.epoch = self._resume["epoch"]
        resume, self._resume = self._resume, None
        self._untaken = None if resume is None else (resume, self._after)
        return resume, self._after

    @property
    def unasked(self) -> int | None:
        """The epoch of the last iteration, if that is gone without a batch; else None."""
        at, last = self._at, self._last
        if at is None or last is None or last() is not None or self._jumped:
            return None
        return at["epoch"] if "generators" in at and not at["step"] else None

    def begin(self, iteration: Iteration) -> None:
        """Notes that an iteration has begun."""
        self._last = weakref.ref(iteration)
        self._rank = process_rank()
        self._at, self._after, self._jumped = iteration.state(), None, False

    def is_last(self, iteration: Iteration) -> bool:
        """Reports whether an iteration is the last one that began."""
        return self._last is not None and self._last() is iteration

    def yielded(self, iteration: Iteration, missing: int = 0) -> None:
        """Notes a batch of the last iteration.

        Args:
            iteration: The iteration.
            missing: So many of the batches that were counted have not reached the loop.
        """
        self._at, self._untaken = iteration.state(missing), None
        self._after, self._jumped = None, False

    def untake(self, iteration: Iteration) -> None:
        """Has the next iteration resume where the last one is, which has no batch.

        Unless another epoch was set since.
        """
        if not self._jumped and self._untaken is None:
            self._untaken = iteration.state(), None

    def ended(self, iteration: Iteration, next_head: State) -> None:
        """Notes that the last iteration's epoch is over.

        Args:
            iteration: The iteration.
            next_head: The beginning of the next epoch's state.
        """
        self._untaken = None
        self._after = {**iteration.state(), "ended": iteration.ended}
        self._at = {**next_head, "step": 0, "after": self._after}

    # States.

    def head(self, epoch: int, numbers: dict[str, int]) -> State:
        """Returns the beginning of every state.

        Args:
            epoch: The state's epoch.
            numbers: What :meth:`Jobs.numbers` returned.
        """
        return {
            "version": 1,
            "random": SCHEME,
            "kind": "sampler",
            "epoch": epoch,
            **numbers,
            **self._place(),
            **self._agreed(),
        }

    def _place(self) -> dict[str, int]:
        """Returns which part of an epoch this rank draws."""
        rank, world_size = self._part
        if world_size == 1:
            rank = process_rank() if self._rank is None else self._rank
        return {"rank": rank, "world_size": world_size}

    def _agreed(self) -> State:
        """Returns what must be the same in the loader that resumes."""
        agreed = {
            "seed": self.seed,
            "samples": self.length,
            "subset": self._subset_sum,
            "global_batch": self._global_batch,
        }
        return {key: value for key, value in agreed.items() if value is not None}

    def state_dict(self, numbers: dict[str, int]) -> State:
        """Returns the last iteration's state, or that of the epoch that was set since."""
        if self._resume is not None:
            return dict(self._resume)
        if self._at is None:
            return {**self.head(self.epoch, numbers), "step": 0}
        if "after" in self._at:
            return {**self._at, "epoch": self.epoch}
        if self._jumped and self._at["step"]:
            after = {**self._at, "ended": False}
            return {**self.head(self.epoch, numbers), "step": 0, "after": after}
        return dict(self._at)

    def load(self, state: State, length: int | None, redraw: Callable[[State], None]) -> int:
        """Takes a state from which the next iteration resumes.

        Args:
            state: The state.
            length: The dataset's length now.
            redraw: Draws an epoch which is over again.

        Returns:
            The number of the epoch in a job that ranks share.

        Raises:
            ConfigError: It is not a state of such a loader.
            MismatchError: It belongs to another dataset or seed.
        """
        if not isinstance(state, dict) or state.get("version") != 1:
            raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
        if state.get("kind") != "sampler":
            raise ConfigError(
                "the state is of a loader whose order follows from its arguments "
                f"(shuffle={state.get('shuffle')!r}, seed={state.get('seed')}), and this one's "
                "order from a sampler: make the loader as that one was made"
            )
        check_scheme(state)
        if self.seed is None:
            self.seed = state.get("seed")
        self.length = length
        self._check(state)
        self.epoch = whole_number("state['epoch']", state.get("epoch"), 0)
        number = whole_number("state['number']", state.get("number", self.epoch), 0)
        self._rank = None
        if self.is_anothers(state):
            # accelerate saves one rank's state for all, and the others drew other indices; so did
            # the same rank of another number of ranks.
            state = _of_another_rank(state)
        self._resume, self._untaken = state if "generators" in state else None, None
        self._at, self._after = None, state.get("after")
        if self._after is not None:
            redraw(self._after)
            self._at = state
        return number

    def is_anothers(self, state: State) -> bool:
        """Reports whether a state is another rank's, or that of another number of ranks."""
        return any(state.get(key, here) != here for key, here in self._place().items())

    def _check(self, state: State) -> None:
        mine = self._agreed()
        for key in ("seed", "samples", "subset"):
            here, saved = mine.get(key), state.get(key)
            if here != saved:
                where = f", of epoch {state.get('epoch')}"
                raise differs(key, here, saved, self._dataset, where=where)
        here, saved = mine.get("global_batch"), state.get("global_batch")
        if None not in (here, saved) and here != saved:  # earlier versions did not save it
            raise differs("global_batch", here, saved, self._dataset, self._part[1])

    def set_epoch(self, epoch: int) -> int | None:
        """Sets the next epoch's number; returns it, or None if a loaded state is in that epoch."""
        epoch = whole_number("epoch", epoch, 0)
        resume = self._resume if self._untaken is None else self._untaken[0]
        if resume is not None and resume["epoch"] == epoch:
            return None
        self.epoch, self._jumped = epoch, True
        self._resume = self._untaken = None
        return self.epoch

    def follow(self, other: Position) -> None:
        """Continues where another engine is."""
        self.epoch = other.epoch
        self.base_seed = other.base_seed
        self._jumped = other._jumped
        self._resume, self._at, self._after = other._resume, other._at, other._after
        self._untaken = other._untaken


def _of_another_rank(state: State) -> State:
    """Returns a state without the digest of what its rank drew, to resume on another rank."""
    if "drawn" in state:
        state = {**state, "drawn": ""}
    if "after" in state:
        state = {**state, "after": _of_another_rank(state["after"])}
    return state
