"""The batches of indices that torch's loader would draw from its sampler, an epoch at a time; and what it takes to draw them again."""

from __future__ import annotations

import array
import base64
import hashlib
import itertools
import random
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from ..errors import MismatchError


class Generators:
    """The states of the generators that samplers draw from: Python's, torch's and numpy's global ones, and those of loader and sampler.

    Args:
        sampler: torch's index sampler.
        generator: the loader's; None: it has none.
    """

    def __init__(self, sampler: Any, generator: Optional[torch.Generator]):
        found = [generator, *(getattr(part, "generator", None) for _, part in parts(sampler))]
        self._own = list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())

    def state(self) -> Dict[str, Any]:
        """The states now, JSON-compatible."""
        version, words, gauss = random.getstate()
        state: Dict[str, Any] = {"python": [version, _text(array.array("I", words).tobytes()), gauss],
                                 "torch": _text(torch.get_rng_state().numpy().tobytes())}
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            name, keys, *rest = numpy.random.get_state()
            state["numpy"] = [name, _text(keys.tobytes()), *rest]
        state["own"] = [_text(g.get_state().numpy().tobytes()) for g in self._own]
        return state

    def set(self, state: Dict[str, Any], own: bool = True) -> None:
        """Sets the generators as :meth:`state` found them; those of loader and sampler only if ``own``."""
        version, words, gauss = state["python"]
        random.setstate((version, tuple(array.array("I", base64.b64decode(words))), gauss))
        torch.set_rng_state(_tensor(state["torch"]))
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy" in state:
            name, keys, *rest = state["numpy"]
            numpy.random.set_state((name, numpy.frombuffer(base64.b64decode(keys), numpy.uint32), *rest))
        for generator, value in zip(self._own, state["own"] if own else ()):
            generator.set_state(_tensor(value))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


class Drawn:
    """One epoch of a sampler, iterated once.

    Args:
        sampler: yields what a batch consists of: torch's index sampler.
        generator: the loader's own; None: it has none.
        state: of an epoch that was begun before, to draw it again; None: a new one.
        base_seed: what it is; None: drawn.

    Attributes:
        base_seed: what torch's loader draws at the start of each epoch, for the random numbers of its workers.
        step: batches that were drawn.
        skipped: those of them that the state had left behind.
        on_end: called once with all indices, each 64 bits, when the sampler has ended; None: nothing is called.
        ended: the sampler was asked for one more than it has, which may draw as well.

    Raises:
        MismatchError: the sampler yields other indices from the same state.
    """

    def __init__(self, sampler: Any, generator: Optional[torch.Generator], state: Optional[Dict[str, Any]] = None,
                 base_seed: Optional[int] = None):
        generators = Generators(sampler, generator)
        now = generators.state()
        self._before = now if state is None else state["generators"]
        self._sampler_before = _state_of(sampler) if state is None else state["sampler"]
        self._sums: List[bytes] = []  # of the first batches, how many of them were drawn
        self._hash = hashlib.blake2b(digest_size=8)
        self.step = 0
        self.skipped: List[Any] = []
        self.on_end: Optional[Callable[[bytes], None]] = None
        self._indices = bytearray()
        self.ended = False
        if state is not None:
            generators.set(self._before)
            _set_state(sampler, self._sampler_before)
        self._batches: Iterator[Any] = iter(sampler)
        self._drew = base_seed is None if state is None else state["drew"]
        if self._drew:
            base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        self.base_seed = base_seed
        if state is not None:
            self._skip(state)
            generators.set(now, own=False)  # those are the program's

    def __iter__(self) -> "Drawn":
        return self

    def __next__(self) -> Any:
        try:
            indices = next(self._batches)
        except StopIteration:
            self.ended = True
            done, self.on_end = self.on_end, None
            if done is not None:
                done(bytes(self._indices))
            raise
        content = _numbers(indices)
        self._hash.update(repr(indices).encode() if content is None else content)
        if content is None:
            self.on_end = None
        elif self.on_end is not None:
            self._indices += content
        self._sums.append(self._hash.digest())
        self.step += 1
        return indices

    def rest(self, most: int) -> Optional[List[Any]]:
        """All batches that are left; None if they are more than so many, which are then yielded as if they had not been asked for."""
        digest, step, known = self._hash.copy(), self.step, len(self._indices)
        batches = list(itertools.islice(self, most + 1))
        if len(batches) <= most:
            return batches
        self._hash, self.step = digest, step
        del self._sums[step:], self._indices[known:]
        self._batches = itertools.chain(batches, self._batches)
        return None

    def _skip(self, state: Dict[str, Any]) -> None:
        for step in range(state["step"]):
            try:
                self.skipped.append(next(self))
            except StopIteration:
                raise MismatchError(f"the sampler ends after {step} batches of epoch {state['epoch']}, but had yielded {state['step']} when the "
                                    "state was saved",
                                    {"key": "sampler", "mine": step, "theirs": state["step"]}) from None
        if state["drawn"] and self._sums[-1].hex() != state["drawn"]:  # without it, another rank drew other indices
            raise MismatchError(f"the sampler yields other indices than when the state was saved, within the first {state['step']} batches of epoch "
                                f"{state['epoch']}: its order must follow from torch's, Python's or numpy's generators, or from its state_dict",
                                {"key": "sampler", "mine": self._sums[-1].hex(), "theirs": state["drawn"]})

    def state(self, step: int) -> Dict[str, Any]:
        """What draws the rest of this epoch again from a step on, one that was drawn; JSON-compatible."""
        return {"generators": self._before, "sampler": self._sampler_before, "base_seed": self.base_seed, "drew": self._drew, "step": step, "drawn": self._sums[step - 1].hex() if step else ""}


#: Samples of an epoch that is drawn at once, at most, beside eight times the dataset.
_LONGEST = 1 << 20

#: Samplers of torch's that yield the same again from the same generators.
_REPEATABLE = (RandomSampler, WeightedRandomSampler, SubsetRandomSampler, SequentialSampler, DistributedSampler)


def repeatable(sampler: Any) -> bool:
    """True of torch's own samplers, and of what accelerate makes of their batches: what they yield follows from the generators, and can be had ahead."""
    accelerate = sys.modules.get("accelerate.data_loader")
    while accelerate is not None and type(sampler) in (accelerate.BatchSamplerShard, accelerate.SkipBatchSampler):
        sampler = sampler.batch_sampler
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    return type(inner) in _REPEATABLE and not any("__iter__" in vars(s) for s in (sampler, inner))


def ahead(sampler: Any, generator: Optional[torch.Generator], state: Optional[Dict[str, Any]], base_seed: Optional[int]) -> List[Any]:
    """All batches that :class:`Drawn` will yield, those that it skips as well; the generators stay where they are."""
    generators = Generators(sampler, generator)
    now = generators.state()
    try:
        drawn = Drawn(sampler, generator, state, base_seed)
        return drawn.skipped + list(drawn)
    finally:
        generators.set(now)


def most_batches(sampler: Any, samples: int) -> int:
    """How many batches an epoch of a sampler over so many samples may have to be drawn at once, by what the sampler says; 0: it does not say."""
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):  # without an end, for all that is known
        return 0
    return 0 if length * (getattr(sampler, "batch_size", None) or 1) > _LONGEST + 8 * samples else 2 * length + 1


def _numbers(indices: Any) -> Optional[bytes]:
    """The indices, each 64 bits; None: they are no list of numbers."""
    try:
        return array.array("q", indices).tobytes()
    except (TypeError, OverflowError):
        return None


def _state_of(sampler: Any) -> Dict[str, Any]:
    """What of a sampler itself decides on its order: its epoch, or its own state."""
    state: Dict[str, Any] = {}
    for key, s in parts(sampler):
        # torchdata's distributed sampler has the place in its epoch for a state, which the loader itself goes to.
        own = type(s).__module__ != "torchdata.stateful_dataloader.sampler"
        if own and callable(getattr(s, "state_dict", None)) and callable(getattr(s, "load_state_dict", None)):
            state[key] = {"state": s.state_dict()}
        elif callable(getattr(s, "set_epoch", None)) and isinstance(getattr(s, "epoch", None), int):
            state[key] = {"epoch": s.epoch}
    return state


def _set_state(sampler: Any, state: Dict[str, Any]) -> None:
    for key, s in parts(sampler):
        if "state" in state.get(key, {}):
            s.load_state_dict(state[key]["state"])
        elif "epoch" in state.get(key, {}):
            s.set_epoch(state[key]["epoch"])


def parts(sampler: Any) -> Iterator[Any]:
    """A sampler, and those within it: a batch sampler's."""
    for depth in range(4):
        if sampler is None:
            return
        yield str(depth), sampler
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner
