"""Several views of an image, each by a list of transforms of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from .._lib.arguments import whole_number
from .base import Description, Transform

#: A transform; those which are ours cannot be called.
Step = Callable[[object], object]

#: The most views of an image.
MOST = 64


class Views(Transform):
    """Several views of an image, as MoCo, SimSiam or DINO use them, from one decode.

    An item is a list with what each view becomes, so a batch is a list of tensors of shape
    (n, C, H, W). Each list of transforms starts from the image at this place. The random numbers of
    a list go on where those of the list before it ended, as if they were called one after another.

    Args:
        views: For each view a transform, or a list (or Compose) of them: ours, torchvision's or any
            callables. With ``n``: one such, for all views.
        n: The number of views which ``views`` makes. Default: None, ``views`` has one for each.

    If the daemon cannot carry out a transform of a view, all views are made in Python.

    Raises:
        TypeError: ``views`` has something that cannot be called, or without ``n`` is not a list.
        ValueError: There are no views, or more than 64.
    """

    _in_torchvision = False

    def __init__(self, views: object, n: int | None = None):
        if n is not None:
            views = [views] * whole_number("n", n, 1)
        elif not isinstance(views, (list, tuple)):
            raise TypeError(
                f"views should be a list with the transforms of each view, without n. Got {views!r}"
            )
        if not 1 <= len(views) <= MOST:
            raise ValueError(f"{len(views)} views; there may be 1 to {MOST}")
        self.lists: list[list[Step]] = [
            list(_steps(view, f"views[{i}]")) for i, view in enumerate(views)
        ]

    @property
    def described(self) -> bool:
        """Whether all transforms are ours."""
        return all(isinstance(t, Transform) for steps in self.lists for t in steps)

    @property
    def callable(self) -> bool:
        """Whether Python can carry out all transforms."""
        return not any(isinstance(t, Transform) for steps in self.lists for t in steps)

    @property
    def _draws(self) -> bool:  # type: ignore[override]
        return any(getattr(t, "_draws", True) for steps in self.lists for t in steps)

    def mapped(self, of: Callable[[list[Step]], Step]) -> Views:
        """Returns views by what a function makes of each list."""
        return Views([of(steps) for steps in self.lists])

    def describe(self) -> Description:
        """Describes the views as the daemon takes them; see :meth:`Transform.describe`.

        Raises:
            ValueError: A transform is not one of ours; :func:`hdmlp.transforms.describe` takes
                torchvision's too.
        """
        if not self.described:
            raise ValueError(
                f"{self!r} has transforms which are not those of hdmlp.transforms: use "
                "hdmlp.transforms.describe, which takes torchvision's too"
            )
        lists = cast("list[list[Transform]]", self.lists)
        return {"name": "Views", "views": [[t.describe() for t in ts] for ts in lists]}

    def __call__(self, image: object) -> list[object]:  # type: ignore[override]
        """Returns the list of views, made in Python.

        Raises:
            TypeError: A transform is one of ours, which only the daemon carries out.
        """
        if not self.callable:
            super().__call__()
        return [_applied(steps, image) for steps in self.lists]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Views) and self.lists == other.lists

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Views({self.lists!r})"


def _steps(given: object, place: str) -> Iterator[Step]:
    """The transforms of a view, with lists and our Compose flattened.

    Raises:
        TypeError: One cannot be called.
    """
    inner: Iterable[object]
    if isinstance(given, (list, tuple)):
        inner = given
    elif isinstance(given, Transform) and type(given).__name__ == "Compose":
        inner = vars(given)["transforms"]
    elif not callable(given) or isinstance(given, type):
        raise TypeError(f"{place} should be a transform or a list of them. Got {given!r}")
    else:
        yield given
        return
    for i, t in enumerate(inner):
        yield from _steps(t, f"{place}[{i}]")


def _applied(steps: Sequence[Step], value: object) -> object:
    for step in steps:
        value = step(value)
    return value


class Wrapped:
    """Applies to each view what makes torchvision's type of it.

    Args:
        steps: For each view the callable; None: the view stays as it is.
    """

    def __init__(self, steps: Sequence[Step | None]):
        self.steps = list(steps)

    def __call__(self, views: object) -> list[object]:
        assert isinstance(views, (list, tuple))
        return [view if step is None else step(view) for step, view in zip(self.steps, views)]

    def __repr__(self) -> str:
        return f"Wrapped({self.steps!r})"
