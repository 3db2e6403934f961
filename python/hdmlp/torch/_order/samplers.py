"""What a sampler is, as far as it is called, and the states from which it draws again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypedDict

#: A loader's state, which may come from a file: JSON, checked key by key where it is read.
State = dict[str, Any]


class Sampler(Protocol):
    """What torch's loader draws from: a sampler, a batch sampler, or what frameworks make of one.

    Some have no length; ``len`` then raises TypeError, or NotImplementedError.
    """

    def __iter__(self) -> Iterator[object]:
        """Draws an epoch."""

    def __len__(self) -> int:
        """Returns how much an epoch has."""


class GeneratorStates(TypedDict, total=False):
    """The states of generators, JSON-compatible.

    Attributes:
        python: Of Python's: version, words, and the second of two normal numbers.
        torch: Of torch's.
        numpy: Of numpy's; missing if it is not imported.
        own: Of the loader's and the sampler's.
    """

    python: list[Any]
    torch: str
    numpy: list[Any]
    own: list[str]


class SamplerState(TypedDict, total=False):
    """What of a sampler itself decides its order: the state that it returns, or its epoch."""

    state: object
    epoch: int


#: The samplers within a sampler, by their depth.
SamplerStates = dict[str, SamplerState]


class Start(TypedDict):
    """What decides the order before the first epoch.

    Attributes:
        own: States of the loader's and the sampler's generators.
        sampler: States of the samplers.
    """

    own: list[str]
    sampler: SamplerStates


class Starts(TypedDict, total=False):
    """:class:`Start` as a part of a state; empty if nothing decides the order."""

    start: Start
