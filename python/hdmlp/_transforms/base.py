"""What all transforms have in common."""

from __future__ import annotations

from typing import Any, NoReturn


class Transform:
    """Base class of the transforms: describes what the daemon does, and compares by that.

    Instances cannot be called. Two transforms are equal if their descriptions are.
    """

    _in_torchvision = True  # torchvision has a class of the same name
    #: Whether torchvision's result on a tensor is that on the image, so that the daemon may apply
    #: the transform before ToTensor where the list has it afterwards.
    _same_on_tensor = False

    def describe(self) -> dict[str, Any]:
        """Describes the transform as the daemon takes it.

        Returns:
            A JSON object with ``name`` and the arguments (see docs/FORMATS.md).
        """
        raise NotImplementedError

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises TypeError: the daemon applies the transform, and Python cannot."""
        raise TypeError(
            f"hdmlp.transforms.{type(self).__name__} cannot be called: it is applied by the "
            "daemon, when a DataLoader of hdmlp delivers the dataset; dataset[i] and torch's own "
            f"DataLoader apply transforms in Python{self._alternative()}"
        )

    def _alternative(self) -> str:
        """What to use in Python instead, for messages."""
        if not self._in_torchvision:
            return ""
        return f": use torchvision.transforms.{type(self).__name__} for these"

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
