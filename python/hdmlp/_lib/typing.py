"""Types of what the daemon and multiprocessing give, where no class of theirs describes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


class _OutputAnswer(TypedDict):
    field: str
    shape: Sequence[int] | None
    type: str


class OutputAnswer(_OutputAnswer, total=False):
    """What the daemon delivers of a field, as OPENED describes it.

    ``shape`` is None if the field comes as it is. With ``channels_last`` it is channels, height,
    width, and lies in memory as height, width, channels. ``view`` is only there if it is one of
    several views of the field, and then its number. With ``sized`` the
    height and width, which are 0 there, precede each sample's elements.
    """

    channels_last: bool
    view: int
    sized: bool


class Facts(TypedDict, total=False):
    """What the daemon sends of a dataset."""

    samples: int
    classes: list[str]
    bytes: int
    class_sizes: list[int]
    fingerprint: str


class Opened(Facts, total=False):
    """The OPENED object (docs/FORMATS.md), as far as Python reads it."""

    seed: int
    steps: int
    epoch: int
    prefetch_batches: int
    order: str
    outputs: list[OutputAnswer]
    warnings: list[str] | None


class Context(Protocol):
    """A context of multiprocessing."""

    @property
    def Process(self) -> Callable[..., BaseProcess]:  # noqa: N802
        """The class of its processes."""

    def get_start_method(self) -> str | None:
        """Returns how it starts them."""
