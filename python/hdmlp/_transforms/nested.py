"""Transforms that consist of others: all, one, or those in a random order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .arguments import as_probability
from .base import Description, Transform


class Nested(Transform):
    """Transforms within a transform. All draw from the random numbers of the outer one.

    Args:
        transforms: Each is a transform of images, or a list of them.

    Raises:
        TypeError: ``transforms`` is not a list of such.
        ValueError: It is empty.
    """

    _draws = True
    _draws_as = "v1"  # of torchvision, or "v2"

    def __init__(self, transforms: Iterable[object]):
        if not isinstance(transforms, (list, tuple)):
            raise TypeError("Argument transforms should be a sequence of transforms")
        if not transforms:
            raise ValueError("Pass at least one transform")
        self.transforms = list(transforms)
        #: Each is a list of transforms.
        self.parts = [list(t) if isinstance(t, (list, tuple)) else [t] for t in self.transforms]
        for t in (t for part in self.parts for t in part):
            if not isinstance(t, Transform):
                raise TypeError(f"{t!r} is not a transform of hdmlp.transforms")

    def _described(self, **arguments: object) -> Description:
        return {
            "name": type(self).__name__,
            "transforms": [[t.describe() for t in part] for part in self.parts],
            **arguments,
            **({} if self._draws_as == "v1" else {"draws": self._draws_as}),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transforms!r})"


class RandomApply(Nested):
    """Applies transforms of images, in their order, with a probability.

    Args:
        transforms: A list of transforms of :mod:`hdmlp.transforms`.
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    def __init__(self, transforms: Sequence[object], p: float = 0.5):
        super().__init__(transforms)
        self.p = as_probability(p)

    def describe(self) -> Description:
        described = self._described(p=float(self.p))
        described["transforms"] = [t for part in described["transforms"] for t in part]
        return described

    def __repr__(self) -> str:
        return f"RandomApply({self.transforms!r}, p={self.p})"


class RandomOrder(Nested):
    """Applies transforms of images in a random order.

    Args:
        transforms: A list of transforms of :mod:`hdmlp.transforms`; lists in it stay together.

    Raises:
        TypeError: ``transforms`` is not such a list.
        ValueError: It is empty.
    """

    def describe(self) -> Description:
        return self._described()


class RandomChoice(Nested):
    """Applies one of several transforms of images.

    Args:
        transforms: A list of transforms of :mod:`hdmlp.transforms`, or of lists of them.
        p: A weight for each. Default: None, all are equal.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    def __init__(self, transforms: Sequence[object], p: Sequence[float] | None = None):
        super().__init__(transforms)
        self.p = None if p is None else [float(weight) for weight in p]
        if self.p is not None and (
            len(self.p) != len(self.transforms) or min(self.p) < 0 or sum(self.p) <= 0
        ):
            raise ValueError(
                f"p should be a weight for each of the {len(self.transforms)} transforms. Got {p}"
            )

    def describe(self) -> Description:
        return self._described(**({} if self.p is None else {"p": self.p}))

    def __repr__(self) -> str:
        return f"RandomChoice({self.transforms!r}, p={self.p})"


def has_callables(value: object) -> bool:
    """Reports whether a value is a collection with callables in it."""
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, (list, tuple)) and any(map(callable, value))
