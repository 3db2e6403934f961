"""What datasets and collate functions are, as far as they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Protocol


class Indexed(Protocol):
    """A dataset with items by index."""

    def __getitem__(self, index: Any, /) -> Any:
        """Returns an item."""


class TorchvisionFolder(Protocol):
    """torchvision's ``DatasetFolder``, as far as it is read."""

    root: str
    extensions: tuple[str, ...] | None
    classes: list[str]
    samples: Sequence[tuple[str, Any]]
    loader: Callable[[str], object]
    transform: Callable[..., object] | None
    target_transform: Callable[..., object] | None


class Room(Protocol):
    """Where a batch may be written.

    Attributes:
        LEAST: Fewer bytes are faster written elsewhere.
    """

    LEAST: int

    def reserve(self, nbytes: int) -> tuple[Any, int]:
        """Returns a writable buffer, and the offset in it where ``nbytes`` bytes are free."""

    def give_up(self) -> None:
        """Takes the room back that was reserved so far, of which nothing is used."""
