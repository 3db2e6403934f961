"""What a sampler is going to yield in an epoch, before it is iterated."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ..._lib.interrupts import steps
from .drawn import Drawn, Generators, parts
from .known import is_torchs
from .samplers import GeneratorStates, Sampler, State

#: Limit of an epoch that is drawn at once, in samples; eight times the dataset's length is added.
_LONGEST = 1 << 20

#: Samplers of torch's that yield the same again from the same generators.
_REPEATABLE = (
    RandomSampler,
    WeightedRandomSampler,
    SubsetRandomSampler,
    SequentialSampler,
    DistributedSampler,
)

_PLAIN = (int, float, str, bytes, bool, type(None))


class Foreseen(NamedTuple):
    """What is known of an epoch before its sampler is iterated.

    Attributes:
        batches: All batches of the epoch, including those that lie before a state; None:
            they cannot be drawn in advance.
        most: The most batches that the epoch may have to be had ahead.
        endless: The sampler does not say where its epochs end, or says it wrongly.
    """

    batches: list[object] | None
    most: int
    endless: bool

    @property
    def empty(self) -> bool:
        """Reports whether there is nothing that the daemon could be sent."""
        return self.endless or self.batches == []

    @property
    def why_empty(self) -> str:
        """Why there is nothing, for other ranks' messages."""
        if self.endless:
            return "its sampler does not say where its epochs end"
        return "its sampler yields nothing"


def foresee(
    sampler: Sampler,
    dataset: object,
    length: int | None,
    generator: torch.Generator | None,
    state: State | None,
    base_seed: int | None,
    workers: bool,
) -> Foreseen:
    """Returns what the sampler is going to yield; it and the generators stay where they are.

    Args:
        sampler: torch's index sampler.
        dataset: The loader's dataset.
        length: Its length; None: it has none.
        generator: The loader's.
        state: From which the epoch resumes; None: it begins.
        base_seed: As for :class:`Drawn`.
        workers: The same.
    """
    most = most_batches(sampler, length or 0)
    if not most:
        return Foreseen(None, most, endless=True)
    stands = stand_in(sampler, dataset)
    if stands is None:
        return Foreseen(None, most, endless=False)
    batches = ahead(stands, generator, state, base_seed, most, workers)
    return Foreseen(batches, most, endless=batches is None)


def most_batches(sampler: Sampler, samples: int) -> int:
    """Returns how many batches an epoch may have to be had ahead, by the sampler's own length.

    0 if the sampler has no length, or if the epoch is too long.
    """
    try:
        length = len(sampler)
        entries = length * (getattr(sampler, "batch_size", None) or 1)
        if type(sampler) is BatchSampler:  # whose only batch may be much smaller than batch_size
            entries = min(entries, len(sampler.sampler))  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return 0
    if entries > _LONGEST + 8 * samples:
        return 0
    return 2 * length + 1


def stand_in(sampler: Any, dataset: object) -> Any:
    """Returns what can be iterated in the sampler's place without changing it.

    That is the sampler itself if iterating it changes nothing but generators, as with torch's own
    samplers and with what accelerate makes of their batches. None: it cannot be copied.
    """
    accelerate = sys.modules.get("accelerate.data_loader")
    within = sampler
    while accelerate is not None and type(within) in (
        accelerate.BatchSamplerShard,
        accelerate.SkipBatchSampler,
    ):
        within = within.batch_sampler
    batched = is_torchs(within, BatchSampler)
    inner = within.sampler if batched else within
    if any(is_torchs(inner, known) for known in _REPEATABLE):
        return sampler
    # Generators are shared, as their states are restored afterwards; so is the dataset, which may
    # be large.
    python = random.random.__self__  # type: ignore[attr-defined]  # the module's own generator
    memo: dict[int, object] = {id(shared): shared for shared in (dataset, python)}
    for _, part in parts(sampler):
        memo.update(
            (id(value), value)
            for value in getattr(part, "__dict__", {}).values()
            if isinstance(value, (torch.Generator, torch.nn.Module))
        )
    return _copied_sampler(sampler, memo)


def _copied_sampler(sampler: object, memo: dict[int, object]) -> object:
    if hasattr(sampler, "__next__"):  # an iterator: what a copy yields, it no longer would
        return None
    try:
        if not hasattr(sampler, "__dict__"):
            return _copied(sampler, memo)
        result = copy.copy(sampler)
    except Exception:  # it refuses to be copied or pickled
        return None
    for name, value in vars(sampler).items():
        if name in ("sampler", "batch_sampler"):
            value = _copied_sampler(value, memo)
            if value is None:
                return None
        else:
            try:
                value = _copied(value, memo)
            except Exception:  # a running generator, for instance, which must not be shared
                return None
        result.__dict__[name] = value
    return result


def _copied(value: object, memo: dict[int, object]) -> object:
    """Returns a deep copy; ``deepcopy`` itself takes a second for a million numbers."""
    if type(value) is list and all(type(v) in _PLAIN for v in value):
        return list(value)
    if type(value) is dict:
        return {key: _copied(v, memo) for key, v in value.items()}
    return copy.deepcopy(value, memo)


def ahead(
    sampler: Sampler,
    generator: torch.Generator | None,
    state: State | None,
    base_seed: int | None,
    most: int,
    workers: bool = False,
) -> list[object] | None:
    """Returns all batches that :class:`Drawn` will yield, including those that it skips.

    The generators keep their states. None: there are more than ``most``. If the sampler raises,
    the batches before that; it raises again when it is iterated itself.
    """
    generators = Generators(sampler, generator)
    now = generators.state()
    try:
        drawn = Drawn(sampler, generator, state, base_seed, workers=workers)
        return _listed(drawn, most, drawn.skipped)
    finally:
        generators.set(now)


def again(
    sampler: Iterable[object], generators: Generators, before: GeneratorStates, most: int
) -> list[object] | None:
    """Returns what the sampler yields from earlier states of the generators, which they keep."""
    now = generators.state()
    try:
        generators.set(before)
        return _listed(steps(sampler), most, [])
    finally:
        generators.set(now)


def _listed(batches: Iterable[object], most: int, found: list[object]) -> list[object] | None:
    try:
        for batch in itertools.islice(batches, most + 1 - len(found)):
            found.append(batch)  # keeps what came before an exception
    except Exception:
        return found
    return None if len(found) > most else found
