"""What the daemon does for a transform that makes several views of an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from . import image_state
from .image_state import State, Unknown
from .multiview import Step, Views, Wrapped
from .wrappers import views_of


class Several(NamedTuple):
    """The daemon's transform for several views.

    Attributes:
        step: The transform.
        wraps: What makes torchvision's type of the views, if it is another one; see
            :class:`~hdmlp._transforms.split.Split`.
    """

    step: Views
    wraps: list[object]


def several(
    t: object,
    state: State,
    flat: Callable[[object], Iterator[object]],
    steps: Callable[[object], Iterable[image_state.Step]],
    wraps: Callable[[object, list[Step]], list[Step]],
) -> Several | None:
    """Returns what the daemon does for a transform that makes views; None: it makes none.

    Args:
        t: The transform: :class:`Views`, or an object of a class that is known to do the same.
        state: What is known of the image.
        flat: Flattens a list of transforms.
        steps: Returns ours for one of another library; raises Unknown if there are none.
        wraps: Returns what makes torchvision's type of a result, after one more transform.

    Raises:
        Unknown: The daemon cannot make one of the views.
    """
    lists: Sequence[object] | None = t.lists if isinstance(t, Views) else views_of(t)
    if lists is None:
        return None
    described: list[object] = []
    wrapped: list[Step | None] = []
    for number, given in enumerate(lists):
        of = state.of_view()
        wrap: list[Step] = []
        for inner in flat(given):
            try:
                for step in steps(inner):
                    of.take(step)
            except Unknown as e:
                raise Unknown(f"in view {number}, {inner!r:.60}: {e}") from None
            wrap = wraps(inner, wrap)
        if not of.tensor:
            raise Unknown(f"view {number} has no ToTensor")
        if of.size is None:
            raise Unknown(f"view {number} has no fixed size; add RandomResizedCrop or CenterCrop")
        described.append(of.described())
        wrapped += wrap or [None]
    return Several(Views(described), [Wrapped(wrapped)] if any(wrapped) else [])
