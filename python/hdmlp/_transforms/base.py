"""What all transforms have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

#: A transform as the daemon takes it: a JSON object with ``name`` and the arguments.
Description = dict[str, Any]

_Transform = TypeVar("_Transform", bound="Transform")


class Transform:
    """Base class of the transforms: describes what the daemon does, and compares by that.

    Instances cannot be called. Two transforms are equal if their descriptions are.
    """

    _in_torchvision = True  # torchvision has a class of the same name
    #: Whether torchvision's result on a tensor is that on the image, so that the daemon may apply
    #: the transform before ToTensor where the list has it afterwards.
    _same_on_tensor = False
    #: Whether it is so for tensors of levels from 0 to 255, within what the transform documents.
    _same_on_levels = False
    #: Whether the transform draws random numbers; and its position in the list that was given, from
    #: which they follow, where that may differ from its index in the description.
    _draws = False
    _position: int | None = None

    def describe(self) -> Description:
        """Describes the transform as the daemon takes it.

        Returns:
            A JSON object with ``name`` and the arguments (see docs/FORMATS.md).
        """
        raise NotImplementedError

    def at(self: _Transform, position: int) -> _Transform:
        """Returns the same transform at a position of a list."""
        made = copy.copy(self)
        made._position = position
        return made

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises TypeError: the daemon applies the transform, and Python cannot."""
        raise TypeError(
            f"hdmlp.transforms.{type(self).__name__} cannot be called: it is applied by the "
            "daemon, when a DataLoader of hdmlp delivers the dataset; dataset[i] and torch's own "
            f"DataLoader apply transforms in Python{self._alternative()}"
        )

    def _alternative(self, where: str = "for these") -> str:
        """What to use in Python instead, for messages."""
        if not self._in_torchvision:
            return ""
        return f": use torchvision.transforms.{type(self).__name__} {where}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Transform)
            and type(self) is type(other)
            and self.describe() == other.describe()
        )

    def __hash__(self) -> int:
        return hash(repr(sorted(self.describe().items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def descriptions(transforms: Iterable[Transform]) -> list[Description]:
    """Returns transforms as the daemon takes them, with the positions that it would not assume.

    Args:
        transforms: In the order in which the daemon carries them out.
    """
    made: list[Description] = []
    decodes = 0  # ImgDecode and Pixels do not count
    for i, t in enumerate(transforms):
        described = t.describe()
        if t._draws and t._position not in (None, i - decodes):
            described["position"] = t._position
        made.append(described)
        decodes += described["name"] in ("ImgDecode", "Pixels")
    return made
