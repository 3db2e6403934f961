"""The batches of indices that torch's loader would draw from its sampler, an epoch at a time; and what it takes to draw them again."""

from __future__ import annotations

import array
import base64
import hashlib
import itertools
import random
import sys
from collections.abc import Iterator
from typing import Any, Callable

import torch

from ..errors import ConfigError, MismatchError


class Generators:
    """The states of the generators that samplers draw from: Python's, torch's and numpy's global ones, and those of loader and sampler.

    Args:
        sampler: torch's index sampler.
        generator: the loader's; None: it has none.
    """

    def __init__(self, sampler: Any, generator: torch.Generator | None):
        found = [
            generator,
            *(
                value
                for _, part in parts(sampler)
                for value in getattr(part, "__dict__", {}).values()
            ),
        ]
        self._own = list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())

    def state(self) -> dict[str, Any]:
        """The states now, JSON-compatible."""
        version, words, gauss = random.getstate()
        state: dict[str, Any] = {
            "python": [version, _text(array.array("I", words).tobytes()), gauss],
            "torch": _text(torch.get_rng_state().numpy().tobytes()),
        }
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            name, keys, *rest = numpy.random.get_state()
            state["numpy"] = [name, _text(keys.tobytes()), *rest]
        state["own"] = [_text(g.get_state().numpy().tobytes()) for g in self._own]
        return state

    def set(self, state: dict[str, Any], own: bool = True) -> None:
        """Sets the generators as :meth:`state` found them; those of loader and sampler only if ``own``."""
        version, words, gauss = state["python"]
        random.setstate((version, tuple(array.array("I", base64.b64decode(words))), gauss))
        torch.set_rng_state(_tensor(state["torch"]))
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy" in state:
            name, keys, *rest = state["numpy"]
            numpy.random.set_state(
                (name, numpy.frombuffer(base64.b64decode(keys), numpy.uint32), *rest)
            )
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
        over: the state has left the whole epoch behind.

    Attributes:
        base_seed: what torch's loader draws at the start of each epoch, for the random numbers of its workers.
        step: batches that were drawn.
        skipped: those of them that the state had left behind.
        on_end: called once with all indices, each 64 bits, when the sampler has ended; None: nothing is called.
        ended: the sampler was asked for one more than it has, which may draw as well.
        follows: what a state had left behind followed from generators.

    Raises:
        MismatchError: the sampler yields other indices from the same state.
        ConfigError: it draws from global generators while its epoch is under way, and has no length.
    """

    def __init__(
        self,
        sampler: Any,
        generator: torch.Generator | None,
        state: dict[str, Any] | None = None,
        base_seed: int | None = None,
        over: bool = False,
    ):
        generators = Generators(sampler, generator)
        now = generators.state()
        self._sampler = sampler
        self._before = now if state is None else state["generators"]
        self._sampler_before = _state_of(sampler) if state is None else state["sampler"]
        self._sums: list[bytes] = []  # of the first batches, how many of them were drawn
        self._hash = hashlib.blake2b(digest_size=8)
        self.step = 0
        self.skipped: list[Any] = []
        self.on_end: Callable[[bytes], None] | None = None
        self._indices = bytearray()
        self.ended = self.follows = False
        if state is not None:
            generators.set(self._before)
            _set_state(sampler, self._sampler_before)
        self._batches: Iterator[Any] = iter(sampler)
        self._drew = base_seed is None if state is None else state["drew"]
        if self._drew:
            base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        self.base_seed = base_seed
        if state is not None:
            begun = generators.state()
            self._skip(state, generators, over)
            self.follows = generators.state() != begun
            generators.set(now, own=False)  # those are the program's

    def __iter__(self) -> Drawn:
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
        content = numbers(indices)
        self._hash.update(repr(indices).encode() if content is None else content)
        if content is None:
            self.on_end = None
        elif self.on_end is not None:
            self._indices += content
        self._sums.append(self._hash.digest())
        self.step += 1
        return indices

    def _skip(self, state: dict[str, Any], generators: Generators, over: bool) -> None:
        first = None
        for step in range(state["step"]):
            try:
                self.skipped.append(next(self))
                first = generators.state() if first is None else first
            except StopIteration:
                raise MismatchError(
                    f"the sampler ends after {step} batches of epoch {state['epoch']}, but had yielded {state['step']} when the "
                    "state was saved",
                    {"key": "sampler", "mine": step, "theirs": state["step"]},
                ) from None
        if (
            state["drawn"] and self._sums[-1].hex() != state["drawn"]
        ):  # without it, another rank drew other indices
            raise MismatchError(
                f"the sampler yields other indices than when the state was saved, within the first {state['step']} batches of epoch "
                f"{state['epoch']}: its order must follow from torch's, Python's or numpy's generators, or from its state_dict",
                {"key": "sampler", "mine": self._sums[-1].hex(), "theirs": state["drawn"]},
            )
        if state["step"] and not over:
            self._draw_what_is_left(generators, first)

    def _draw_what_is_left(self, generators: Generators, first: dict[str, Any]) -> None:
        """Where the sampler draws from the program's generators while its epoch is under way: draws the rest now, from where the state left them.
        Another one is asked one batch ahead, which tells. ``first``: what the generators were after its first batch.
        """
        before = generators.state()
        ahead = list(itertools.islice(self._batches, 1))
        if _programs(first) == _programs(before) == _programs(generators.state()):
            self._batches = itertools.chain(ahead, self._batches)
            return
        try:
            most = 2 * len(self._sampler) + 1
        except (TypeError, NotImplementedError):  # without an end, for all that is known
            raise ConfigError(
                f"{type(self._sampler).__name__} draws from the program's generators while its epoch is under way, and has no __len__: it cannot "
                "go on where the state was saved; give it a __len__, or a state_dict and load_state_dict"
            ) from None
        self._batches = itertools.chain(
            ahead, list(itertools.islice(self._batches, most)), self._batches
        )

    def state(self, step: int) -> dict[str, Any]:
        """What draws the rest of this epoch again from a step on, one that was drawn; JSON-compatible."""
        return {
            "generators": self._before,
            "sampler": self._sampler_before,
            "base_seed": self.base_seed,
            "drew": self._drew,
            "step": step,
            "drawn": self._sums[step - 1].hex() if step else "",
        }


def _programs(state: dict[str, Any]) -> dict[str, Any]:
    """Of generators' states those that belong to the program."""
    return {name: value for name, value in state.items() if name != "own"}


def numbers(indices: Any) -> bytes | None:
    """The indices, each 64 bits; None: they are no list of numbers."""
    try:
        return array.array("q", indices).tobytes()
    except (TypeError, OverflowError):
        return None


def same(a: Any, b: Any) -> bool:
    """True if two batches are of the same indices."""
    content = numbers(a)
    return content == numbers(b) if content is not None else bool(a == b)


def _state_of(sampler: Any) -> dict[str, Any]:
    """What of a sampler itself decides on its order: its epoch, or its own state."""
    state: dict[str, Any] = {}
    for key, s in parts(sampler):
        # torchdata's distributed sampler has the place in its epoch for a state, which the loader itself goes to.
        own = type(s).__module__ != "torchdata.stateful_dataloader.sampler"
        if (
            own
            and callable(getattr(s, "state_dict", None))
            and callable(getattr(s, "load_state_dict", None))
        ):
            state[key] = {"state": s.state_dict()}
        elif callable(getattr(s, "set_epoch", None)) and isinstance(getattr(s, "epoch", None), int):
            state[key] = {"epoch": s.epoch}
    return state


def _set_state(sampler: Any, state: dict[str, Any]) -> None:
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
