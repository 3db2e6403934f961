"""What the demo prints of its figures: a table, a line about accuracies, and a closing sentence.

All functions are pure. ``results`` has the figures of each epoch (``demo.train``) by the loader's
name: HDMLP first, and what it is compared with.
"""

from typing import Any, Optional

Results = dict[str, list[dict[str, Any]]]

#: Two figures that differ by less than this share are called equal: timings scatter by as much.
CLOSE = 0.05

#: Seconds of waiting, over some epochs, that are as good as none: the time of a few dozen calls.
NOTHING = 0.001

#: No larger ratio is printed.
MOST = 10_000

_ROW = "{:<24}{:>7}{:>11}{:>11}{:>13}{:>20}{:>10}"


def total(epochs: list[dict[str, Any]], key: str) -> Optional[float]:
    """The sum of a figure over epochs; None if it was not measured."""
    values = [epoch[key] for epoch in epochs]
    return None if None in values else sum(values)


def table(results: Results, size: int) -> list[str]:
    """A line per loader and epoch, and one for all epochs; ``size``: bytes of the dataset."""
    heading = ("loader", "epoch", "time", "stall", "utilised", "read from source", "accuracy")
    lines = [_ROW.format(*heading)]
    for name, epochs in results.items():
        for number, epoch in enumerate(epochs):
            read = "not counted" if epoch["read"] is None else f"{epoch['read'] / 1e6:.1f} MB"
            lines.append(
                _ROW.format(
                    name if number == 0 else "",
                    number,
                    f"{epoch['time']:.2f} s",
                    f"{epoch['stall']:.3f} s",
                    f"{epoch['utilisation']:.1%}",
                    read,
                    f"{epoch['accuracy']:.1%}",
                )
            )
        read = total(epochs, "read")
        lines.append(
            _ROW.format(
                "",
                "all",
                f"{total(epochs, 'time'):.2f} s",
                f"{total(epochs, 'stall'):.3f} s",
                "",
                "" if read is None else f"{read / 1e6:.1f} MB, {read / size:.2f}x",
                "",
            ).rstrip()
        )
    return lines


def accuracies(results: Results, same_order: bool) -> str:
    """Why the accuracies of both loaders are equal, or are not."""
    ours, theirs = ([epoch["accuracy"] for epoch in epochs] for epochs in results.values())
    if not same_order:
        return "The accuracies differ: each loader shuffles by random numbers of its own."
    if ours == theirs:
        return "The accuracies are equal: both loaders gave the same images in the same order."
    return (
        "The accuracies differ although the order is the same: decoded pixels or sums of floating-"
        "point numbers were not equal to the last bit."
    )


def sentence(results: Results) -> str:
    """How HDMLP compares: in time, in bytes, and in waiting after the first epoch."""
    (_, ours), (rival, theirs) = results.items()
    parts = [
        _compare(
            total(ours, "time"),
            total(theirs, "time"),
            "{} times as fast",
            "as fast",
            "takes {} times as long",
        ),
        _compare(
            total(ours, "read"),
            total(theirs, "read"),
            "{} times fewer bytes",
            "as many bytes",
            "{} times as many bytes",
        ),
        _waiting(total(ours[1:], "stall"), total(theirs[1:], "stall")),
    ]
    said = "; ".join(part for part in parts if part)
    return f"HDMLP, compared with {rival}: {said}."


def _compare(
    ours: Optional[float], theirs: Optional[float], less: str, equal: str, more: str
) -> str:
    """One figure of both in words; empty if it was not measured. ``less``: if ours is the less."""
    if ours is None or theirs is None:
        return ""
    if abs(ours - theirs) <= CLOSE * max(ours, theirs):
        return equal
    if ours < theirs:
        return less.format(_times(theirs, ours))
    return more.format(_times(ours, theirs))


def _waiting(ours: float, theirs: float) -> str:
    """The waiting from the second epoch on."""
    when = "from the second epoch on"
    if max(ours, theirs) <= NOTHING:
        return f"neither waits {when}"
    if ours <= NOTHING:
        return f"no waiting {when}, instead of {theirs:.1f} s"
    if theirs <= NOTHING:
        return f"{ours:.1f} s of waiting {when}, instead of none"
    return _compare(
        ours,
        theirs,
        f"{{}} times less waiting {when}",
        f"as much waiting {when}",
        f"{{}} times as much waiting {when}",
    )


def _times(more: float, less: float) -> str:
    """A ratio of at least 1, in two significant digits, and at least one decimal below 10."""
    if more >= MOST * less:
        return f"more than {MOST:,}"
    ratio = more / less
    if ratio < 9.95:
        return f"{ratio:.1f}"
    return f"{float(f'{ratio:.2g}'):,.0f}"
