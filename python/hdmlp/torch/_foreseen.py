"""What a sampler is going to yield in an epoch, had before it is asked for."""

from __future__ import annotations

import copy
import itertools
import random
import sys
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import torch

from ._drawn import Drawn, Generators, parts

#: Samples of an epoch that is drawn at once, at most, beside eight times the dataset.
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


def most_batches(sampler: Any, samples: int) -> int:
    """How many batches an epoch of a sampler over so many samples may have to be had ahead, by what the sampler says; 0: it does not say."""
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):  # without an end, for all that is known
        return 0
    return (
        0
        if length * (getattr(sampler, "batch_size", None) or 1) > _LONGEST + 8 * samples
        else 2 * length + 1
    )


def stand_in(sampler: Any, dataset: Any) -> Any:
    """What can be iterated in the sampler's place and leaves it as it is; None: it cannot be copied.

    That is the sampler itself where iterating it changes nothing but generators: torch's own samplers, and what accelerate makes of their batches.
    """
    accelerate = sys.modules.get("accelerate.data_loader")
    within = sampler
    while accelerate is not None and type(within) in (
        accelerate.BatchSamplerShard,
        accelerate.SkipBatchSampler,
    ):
        within = within.batch_sampler
    inner = within.sampler if type(within) is BatchSampler else within
    if type(inner) in _REPEATABLE and not any("__iter__" in vars(s) for s in (within, inner)):
        return sampler
    # Generators are not copied: whoever iterates the copy puts their states back. The dataset may be large.
    memo: dict[int, Any] = {id(shared): shared for shared in (dataset, random.random.__self__)}
    for _, part in parts(sampler):
        memo.update(
            (id(value), value)
            for value in getattr(part, "__dict__", {}).values()
            if isinstance(value, (torch.Generator, torch.nn.Module))
        )
    return _copied_sampler(sampler, memo)


def _copied_sampler(sampler: Any, memo: dict[int, Any]) -> Any:
    if hasattr(sampler, "__next__"):  # what it yields is gone from it
        return None
    if not hasattr(sampler, "__dict__"):
        try:
            return _copied(sampler, memo)
        except Exception:
            return None
    result = copy.copy(sampler)
    for name, value in vars(sampler).items():
        if name in ("sampler", "batch_sampler"):
            value = _copied_sampler(value, memo)
            if value is None:
                return None
        else:
            try:
                value = _copied(value, memo)
            except Exception:  # a running generator, for instance: shared, it would be used up
                return None
        result.__dict__[name] = value
    return result


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of a value; deepcopy takes a second for a million numbers."""
    if type(value) is list and all(type(v) in _PLAIN for v in value):
        return list(value)
    if type(value) is dict:
        return {key: _copied(v, memo) for key, v in value.items()}
    return copy.deepcopy(value, memo)


def ahead(
    sampler: Any,
    generator: torch.Generator | None,
    state: dict[str, Any] | None,
    base_seed: int | None,
    most: int,
) -> list[Any] | None:
    """All batches that :class:`Drawn` will yield, those that it skips as well; the generators stay where they are.

    None: they are more than so many. Where the sampler raises, those before; it does so again when it is asked itself.
    """
    generators = Generators(sampler, generator)
    now = generators.state()
    try:
        drawn = Drawn(sampler, generator, state, base_seed)
        return _listed(drawn, most, drawn.skipped)
    finally:
        generators.set(now)


def again(
    sampler: Any, generators: Generators, before: dict[str, Any], most: int
) -> list[Any] | None:
    """What the sampler yields with the generators as they were before; they stay where they are."""
    now = generators.state()
    try:
        generators.set(before)
        return _listed(iter(sampler), most, [])
    finally:
        generators.set(now)


def _listed(batches: Any, most: int, found: list[Any]) -> list[Any] | None:
    try:
        for batch in itertools.islice(batches, most + 1 - len(found)):
            found.append(batch)
    except Exception:
        return found
    return None if len(found) > most else found
