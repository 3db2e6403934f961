"""What torch's own loader iterates; this counts its batches.

That are iterable datasets, and loaders whose program has another iterator in the place of torch's.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..._lib import originals
from ..._lib.arguments import whole_number
from ..._lib.interrupts import interrupts
from ..._loading.reports import Report, Stats
from ...errors import ConfigError
from .content import users_collate
from .counted import Counted


def own_iterator(loader: object, dataset: object) -> str:
    """Returns why torch's own loader has to iterate a dataset that is not iterable; or nothing.

    Args:
        loader: The loader, which may be half-made.
        dataset: Its dataset.
    """
    if isinstance(dataset, IterableDataset):
        return ""
    method = inspect.getattr_static(loader, "_get_iterator")
    if method is not inspect.getattr_static(DataLoader, "_get_iterator"):
        return (
            f"{type(loader).__name__} has a _get_iterator of its own, and only torch's loader "
            "calls it; override __iter__ for what is done with batches"
        )
    replaced = originals.replaced("iteration")
    return replaced and f"{replaced}, which only torch's loader calls"


def check_iterator(loader: DataLoader[object]) -> None:
    """Checks that a loader which HDMLP iterates has torch's own iterator still.

    Raises:
        ConfigError: It has another one.
    """
    why = own_iterator(loader, loader.dataset)
    if why:
        raise ConfigError(f"after the loader was made: {why}; make a new loader")


class Iterables:
    """The position of a loader of an iterable dataset, and what it counts.

    A state holds the epoch and how many of its batches were yielded. Resuming from one iterates
    the dataset anew and discards as many; the dataset's own random numbers are not restored.

    An iteration takes its epoch with its first batch. Its batches count as long as it is the last
    one that began.

    Args:
        dataset: The dataset.
        why: Why it is not left to HDMLP, if it is not an iterable dataset; else empty. It has no
            state then, because its order is not restored.

    Attributes:
        output: None: the daemon makes nothing.
    """

    output = None

    def __init__(self, dataset: object, why: str = ""):
        self._dataset, self._why = dataset, why
        self._start = self._at = (0, 0)  # where the next iteration begins; the next batch's place
        self._dataset_epoch: int | None = None  # what the dataset was given
        self._latest: object | None = None
        self._counted = Counted()

    # Iteration.

    def iterate(self, loader: DataLoader[object], batches: Iterator[object]) -> Iterator[object]:
        """Yields the batches of an epoch, or the rest of them after :meth:`load_state_dict`.

        Args:
            loader: The loader. It is not kept.
            batches: What torch's loader yields.
        """
        default = users_collate(loader.collate_fn, True) is None
        return _Epoch(self, batches, _counter(loader.batch_size, default))

    def begin(self) -> tuple[int, int, object]:
        """Begins an iteration; returns its epoch, its first step, and what names it."""
        epoch, step = self._at = self._start
        self._start = epoch + 1, 0
        self._latest = object()
        return epoch, step, self._latest

    def goes_on(self, iteration: object, epoch: int, step: int) -> None:
        """Notes which batch of an iteration is next."""
        if self._latest is iteration:
            self._at = epoch, step

    def ended(self, iteration: object) -> None:
        """Notes that an iteration has no further batch."""
        if self._latest is iteration:
            self._at = self._start

    def count(self, samples: int, spent: int, since: int) -> int:
        """Counts a batch; see :meth:`Counted.add`."""
        return self._counted.add(samples, spent, spent, since)

    # The loader's interface.

    @property
    def seed(self) -> NoReturn:
        """Raises ConfigError: the dataset decides."""
        raise ConfigError(
            "seed: the order is the iterable dataset's, or that of torch's own loader"
        )

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return self._counted.stats

    def report(self, cluster: bool = False) -> Report:
        """Returns what this process counted."""
        return self._counted.report()

    def explain(self, epoch: int, step: int, rank: int | None = None) -> NoReturn:
        """Raises ConfigError: only iterating the dataset reveals its order."""
        raise ConfigError(
            "explain: only iterating the iterable dataset, or torch's own loader, reveals its order"
        )

    def set_epoch(self, epoch: int) -> None:
        """Sets the next epoch's number, and passes it to the dataset, if it has a ``set_epoch``."""
        if epoch != self._start[0]:
            self._start = epoch, 0
        self._at = self._start
        self._tell_dataset(epoch)

    def _tell_dataset(self, epoch: int) -> None:
        tell = getattr(self._dataset, "set_epoch", None)
        if callable(tell) and not self._why:
            tell(epoch)
            self._dataset_epoch = epoch

    def state_dict(self) -> dict[str, object]:
        """Returns the epoch, and how many of its batches were yielded."""
        self._check_state()
        epoch, step = self._at
        state = {"version": 1, "kind": "iterable", "epoch": epoch, "step": step}
        return state if self._dataset_epoch is None else {**state, "set": self._dataset_epoch}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Resumes from where :meth:`state_dict` was called.

        The dataset is given the epoch that it was given there.
        """
        self._check_state()
        if not isinstance(state, dict) or state.get("kind") != "iterable":
            raise ConfigError(f"not a state of a loader of an iterable dataset: {state!r:.200}")
        epoch = whole_number("state['epoch']", state.get("epoch"), 0)
        step = whole_number("state['step']", state.get("step"), 0)
        self._start = self._at = epoch, step
        self._latest = None
        if state.get("set") is not None:
            self._tell_dataset(whole_number("state['set']", state["set"], 0))

    def _check_state(self) -> None:
        if self._why:
            raise ConfigError(
                "state_dict: torch's own loader iterates this dataset, and has no state, because "
                f"{self._why}"
            )


class _Epoch:
    """The batches of an epoch that are left.

    As in torch, an exception does not end it: the next batch follows. A batch whose making failed
    counts, as it does not come again.

    Args:
        owner: The loader's position.
        batches: What torch's loader yields.
        items: Says how many items a batch has.
    """

    def __init__(self, owner: Iterables, batches: Iterator[object], items: Callable[[object], int]):
        self._owner, self._batches, self._items = owner, batches, items
        self._number: object | None = None  # None before the first batch
        self._epoch = self._step = 0
        self._before = 0  # batches that are still to be discarded
        self._made: list[object] | None = None  # a batch that was not returned yet
        self._since = 0

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> object:
        if self._number is None:
            self._epoch, self._step, self._number = self._owner.begin()
            self._before = self._step
        while self._before:
            self._before -= 1
            next(self._batches, None)
        if self._made is None:
            self._advance()
        batch, self._made = self._made, None
        assert batch is not None
        return batch[0]

    def _advance(self) -> None:
        """Takes the next batch of torch's loader, and keeps it until it is returned."""
        begin = time.perf_counter_ns()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._owner.ended(self._number)
            raise
        except Exception as error:
            if not interrupts(error):
                self._count_step()
            raise
        self._made = [batch]
        spent = time.perf_counter_ns() - begin
        self._since = self._owner.count(self._items(batch), spent, self._since)
        self._count_step()

    def _count_step(self) -> None:
        self._step += 1
        self._owner.goes_on(self._number, self._epoch, self._step)


def _counter(size: int | None, default: bool) -> Callable[[object], int]:
    """Returns what determines how many items a batch has.

    A batch that the user's ``collate_fn`` made counts as a full one.

    Args:
        size: The items of a full batch; None: there are single items, and no batches.
        default: torch's default collate function makes the batches.
    """

    def items(batch: object) -> int:
        if size is None:
            return 1
        while default and isinstance(batch, (dict, list, tuple)) and batch:
            batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        return len(batch) if default and isinstance(batch, torch.Tensor) else size

    return items
