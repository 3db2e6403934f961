"""What a row of the page is: an item of a paper, what is run for it, and the lines it gives."""

import statistics
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional


class Line(NamedTuple):
    """One figure.

    Attributes:
        what: what was measured, of which loader or policy, on how many nodes.
        ours: the figure, or the median of several.
        unit: "s", "ms", "images/s", "%" (of a share, 1 is 100 %) or "x" (a ratio).
        paper: the number that the paper prints for the same; None: it prints none.
        spread: the least and the greatest of several measurements; None: there was one.
        note: what else is to be said of it.
    """

    what: str
    ours: float
    unit: str
    paper: Optional[float] = None
    spread: Optional[tuple[float, float]] = None
    note: str = ""

    @property
    def deviation(self) -> Optional[float]:
        """How far the figure is from the printed number, as a share of that."""
        return self.ours / self.paper - 1 if self.paper else None


class Row(NamedTuple):
    """An item of a paper.

    Attributes:
        key: its name on the command line.
        item: paper, figures and tables.
        title: what it shows.
        printed: what the paper says, and of which setup.
        here: what is run instead.
        differs: why figures differ.
        measure: runs it; its arguments are those of `quick` or `full`.
    """

    key: str
    item: str
    title: str
    printed: str
    here: str
    differs: str
    measure: Callable[..., list[Line]]
    quick: dict[str, Any]
    full: dict[str, Any]


def middle(what: str, values: Sequence[float], unit: str, **more: Any) -> Line:
    """The median of several measurements, with the least and the greatest."""
    spread = (min(values), max(values)) if len(values) > 1 else None
    return Line(what, statistics.median(values), unit, spread=spread, **more)
