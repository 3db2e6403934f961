"""The batches of indices which torch's loader would draw from its sampler, epoch by epoch.

And what is needed to draw them again.
"""

from __future__ import annotations

import array
import base64
import hashlib
import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch

from ..._lib.interrupts import interrupts, steps
from ...errors import ConfigError, MismatchError
from .samplers import GeneratorStates, Sampler, SamplerState, SamplerStates, Start, Starts, State


class Generators:
    """The generators from which samplers draw, and their states.

    They are the global ones of Python, torch and numpy, and those of the loader and the sampler.

    Args:
        sampler: torch's index sampler.
        generator: The loader's; None: it has none.
    """

    def __init__(self, sampler: Iterable[object], generator: torch.Generator | None):
        found = [
            generator,
            *(
                value
                for _, part in parts(sampler)
                for value in getattr(part, "__dict__", {}).values()
            ),
        ]
        self._own = list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())

    def state(self) -> GeneratorStates:
        """Returns the states, JSON-compatible."""
        version, words, gauss = random.getstate()
        state: GeneratorStates = {
            "python": [version, _text(array.array("I", words).tobytes()), gauss],
            "torch": _text(torch.get_rng_state().numpy().tobytes()),
        }
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            name, keys, *rest = numpy.random.get_state()
            state["numpy"] = [name, _text(keys.tobytes()), *rest]
        state["own"] = self.own()
        return state

    def own(self, programs: bool = True) -> list[str]:
        """Returns the states of the loader's and the sampler's generators.

        Args:
            programs: Also if that is torch's global one. Default: True.
        """
        return [_text(g.get_state().numpy().tobytes()) for g in self._found(programs)]

    def set_own(self, states: list[str], programs: bool = True) -> None:
        """Sets the loader's and the sampler's generators to states that :meth:`own` returned."""
        for generator, value in zip(self._found(programs), states):
            generator.set_state(_tensor(value))

    def _found(self, programs: bool) -> list[torch.Generator]:
        return [g for g in self._own if programs or g is not torch.default_generator]

    def set(self, state: GeneratorStates, own: bool = True) -> None:
        """Sets the generators to states that :meth:`state` returned.

        Args:
            state: The states.
            own: Also set those of the loader and the sampler. Default: True.
        """
        version, words, gauss = state["python"]
        random.setstate((version, tuple(array.array("I", base64.b64decode(words))), gauss))
        torch.set_rng_state(_tensor(state["torch"]))
        numpy = sys.modules.get("numpy")
        if numpy is not None and "numpy" in state:
            name, keys, *rest = state["numpy"]
            numpy.random.set_state(
                (name, numpy.frombuffer(base64.b64decode(keys), numpy.uint32), *rest)
            )
        if own:
            self.set_own(state["own"])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


class Drawn:
    """One epoch of a sampler, iterated once.

    Args:
        sampler: torch's index sampler, which yields what a batch consists of.
        generator: The loader's; None: it has none.
        state: Of an epoch which was begun before, to draw it again; None: a new one.
        base_seed: The base seed; None: it is drawn.
        over: The state is after the whole epoch.
        workers: The loader has workers: then torch's iterates the sampler twice as it makes them.

    Attributes:
        base_seed: What torch's loader draws at the start of each epoch for its workers' random
            numbers.
        skipped: Those of them that lie before the state.
        on_end: Called once with all indices, 64 bits each, when the sampler has ended; None:
            nothing is.
        ended: The sampler was asked for one batch more than it has, which may draw as well.
        follows: What lies before the state was drawn from generators.

    Raises:
        MismatchError: The sampler yields other indices from the same state.
        ConfigError: It draws from global generators during its epoch, and has no length.
    """

    def __init__(
        self,
        sampler: Sampler,
        generator: torch.Generator | None,
        state: State | None = None,
        base_seed: int | None = None,
        over: bool = False,
        workers: bool = False,
    ):
        generators = Generators(sampler, generator)
        now = generators.state()
        self._sampler = sampler
        self._before: GeneratorStates = now if state is None else state["generators"]
        self._sampler_before: SamplerStates = (
            _state_of(sampler) if state is None else state["sampler"]
        )
        self._sums: list[bytes] = []  # digests of the first batches: of 1, of 2 and so on
        # How many batches were drawn, and the hash of them.
        self._counted = 0, hashlib.blake2b(digest_size=8)
        self.skipped: list[object] = []
        self.on_end: Callable[[bytes], None] | None = None
        self._contents: list[bytes] = []  # of the batches that were drawn, for on_end
        self._generator = generator
        self._recent: dict[int, object] = {}  # batches that were drawn and not dropped, by step
        # What the sampler yielded last, in a list, and the step of it.
        self._yielded: tuple[int, list[Any]] = -1, []
        self._stopped = False  # a signal's handler raised in the sampler
        self.ended = self.follows = False
        if state is not None:
            generators.set(self._before)
            _set_state(sampler, self._sampler_before)
        self._batches: Iterator[Any] = steps(sampler)
        self._drew = base_seed is None if state is None else state["drew"]
        if self._drew:
            base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        assert base_seed is not None
        self.base_seed: int = base_seed
        self._twice = workers and self._drew if state is None else state.get("twice", False)
        if self._twice:
            self._batches = steps(sampler)
        if state is not None:
            begun = generators.state()
            self._skip(state, generators, over)
            self.follows = generators.state() != begun
            self.drop(self.step)
            generators.set(now, own=False)  # the global ones are the program's

    @property
    def step(self) -> int:
        """Number of batches drawn."""
        return self._counted[0]

    def __iter__(self) -> Drawn:
        return self

    def __next__(self) -> object:
        return self.batch(self.step)

    def batch(self, step: int) -> object:
        """Returns a batch, which is the next one or was drawn before and not dropped.

        Raises:
            StopIteration: The sampler has no further one.
        """
        self._draw_until(step)
        return self._recent[step]

    def drop(self, step: int) -> None:
        """Forgets the batches before a step, which are not asked for again."""
        for before in [known for known in self._recent if known < step]:
            del self._recent[before]

    def _draw_until(self, step: int) -> None:
        """Draws the batch of a step, unless it was drawn before.

        No batch is lost if a signal's handler raises on the way: one that the sampler has yielded
        is kept at once, and one store counts it.
        """
        if step < self.step:
            return
        if self._stopped:
            self._draw_again()
        if self._yielded[0] != step:
            self._yielded = step, self._from_sampler()
        yielded = self._yielded[1]
        if hasattr(yielded[0], "__next__"):  # an iterator, which can be read once
            yielded[0] = list(yielded[0])
        indices = yielded[0]
        content = numbers(indices)
        sums = self._counted[1].copy()
        sums.update(repr(indices).encode() if content is None else content)
        if content is None:
            self.on_end = None
        elif self.on_end is not None:
            self._contents[step:] = [content]
        self._sums[step:] = [sums.digest()]
        self._recent[step] = indices
        self._counted = step + 1, sums

    def _from_sampler(self) -> list[Any]:
        """Returns what the sampler yields next, in a list.

        Raises:
            StopIteration: It yields nothing more.
        """
        try:
            for indices in self._batches:
                return [indices]
        except BaseException as error:
            self._stopped = interrupts(error)  # a generator yields nothing after an exception
            raise
        self.ended = True
        done, self.on_end = self.on_end, None
        if done is not None:
            done(b"".join(self._contents))
        raise StopIteration

    def _draw_again(self) -> None:
        """Iterates the sampler anew up to where an exception ended it, from the same generators."""
        state = {**self.state(self.step), "epoch": None}
        again = Drawn(self._sampler, self._generator, state, self.base_seed)
        self._batches, self._stopped = again._batches, False

    def _skip(self, state: State, generators: Generators, over: bool) -> None:
        first: GeneratorStates | None = None  # the generators after the first batch
        for step in range(state["step"]):
            try:
                self.skipped.append(next(self))
                first = generators.state() if first is None else first
            except StopIteration:
                raise MismatchError(
                    f"the sampler ends after {step} batches of epoch {state['epoch']}, but had "
                    f"yielded {state['step']} when the state was saved",
                    {"key": "sampler", "mine": step, "theirs": state["step"]},
                ) from None
        # "drawn" is empty if the state is another rank's, which drew other indices.
        if state["drawn"] and self._sums[-1].hex() != state["drawn"]:
            raise MismatchError(
                "the sampler yields other indices than when the state was saved, within the first "
                f"{state['step']} batches of epoch {state['epoch']}: its order must follow from "
                "torch's, Python's or numpy's generators, or from its state_dict",
                {"key": "sampler", "mine": self._sums[-1].hex(), "theirs": state["drawn"]},
            )
        if first is not None and not over:
            self._draw_what_is_left(generators, first)

    def _draw_what_is_left(self, generators: Generators, first: GeneratorStates) -> None:
        """Draws the rest of the epoch now, if the sampler draws from the program's generators.

        They are now where the state left them. Whether it does is found out by drawing one batch
        ahead.

        Args:
            generators: The generators.
            first: Their states after the first batch.
        """
        before = generators.state()
        ahead = list(itertools.islice(self._batches, 1))
        if _programs(first) == _programs(before) == _programs(generators.state()):
            self._batches = itertools.chain(ahead, self._batches)
            return
        try:
            most = 2 * len(self._sampler) + 1
        except (TypeError, NotImplementedError):
            raise ConfigError(
                f"{type(self._sampler).__name__} draws from the program's generators while its "
                "epoch is under way, and has no __len__: it cannot resume where the state was "
                "saved; give it a __len__, or a state_dict and load_state_dict"
            ) from None
        self._batches = itertools.chain(
            ahead, list(itertools.islice(self._batches, most)), self._batches
        )

    def state(self, step: int) -> State:
        """Returns what draws the rest of the epoch again from a step on; JSON-compatible."""
        return {
            "generators": self._before,
            "sampler": self._sampler_before,
            "base_seed": self.base_seed,
            "drew": self._drew,
            "twice": self._twice,
            "step": step,
            "drawn": self._sums[step - 1].hex() if step else "",
        }


def _programs(state: GeneratorStates) -> dict[str, object]:
    """Returns the states of the generators which belong to the program."""
    return {name: value for name, value in state.items() if name != "own"}


def start_of(sampler: Iterable[object], generator: torch.Generator | None) -> Starts:
    """Returns what a state from before the first epoch contains for its order; may be empty.

    The global generators are the program's, which it may set until the epoch begins, as with torch.

    Args:
        sampler: torch's index sampler.
        generator: The loader's; None: it has none.
    """
    own = Generators(sampler, generator).own(programs=False)
    states = {key: value for key, value in _state_of(sampler).items() if "state" in value}
    return {"start": {"own": own, "sampler": states}} if own or states else {}


def set_start(sampler: Iterable[object], generator: torch.Generator | None, start: Start) -> None:
    """Sets the generators and the sampler to what :func:`start_of` found.

    Raises:
        MismatchError: They are others, which have no such state.
    """
    try:
        Generators(sampler, generator).set_own(start["own"], programs=False)
        _set_state(sampler, start["sampler"])
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise MismatchError(
            "the state is of a loader with another sampler, or generators of another kind: make "
            f"the loader as that one was made ({type(error).__name__}: {error})"
        ) from None


def numbers(indices: Any) -> bytes | None:
    """Returns the indices, 64 bits each; None: they are not a list of numbers."""
    try:
        return array.array("q", indices).tobytes()
    except (TypeError, OverflowError):
        return None


def same(a: object, b: object) -> bool:
    """Reports whether two batches have the same indices."""
    content = numbers(a)
    return content == numbers(b) if content is not None else bool(a == b)


def _state_of(sampler: Iterable[object]) -> SamplerStates:
    """Returns what of the sampler itself decides its order: its epoch, or its own state."""
    state: SamplerStates = {}
    for key, s in parts(sampler):
        # The state of torchdata's distributed sampler is its position, to which the loader draws.
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


def _set_state(sampler: Iterable[object], states: SamplerStates) -> None:
    for key, s in parts(sampler):
        state: SamplerState = states.get(key, {})
        if "state" in state:
            s.load_state_dict(state["state"])
        elif "epoch" in state:
            s.set_epoch(state["epoch"])


def parts(sampler: object) -> Iterator[tuple[str, Any]]:
    """Yields a sampler and those within it, each with its depth: a batch sampler's sampler."""
    for depth in range(4):
        if sampler is None:
            return
        yield str(depth), sampler
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner
