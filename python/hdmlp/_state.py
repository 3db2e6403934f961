"""A loader's saved state, and where a loader is."""

from __future__ import annotations

import array
import hashlib
from collections.abc import Mapping
from typing import Any

from ._arguments import whole_number
from .errors import ConfigError, MismatchError

#: What the order of a loader depends on besides its subset, in the order of comparison.
_SPEC = ("shuffle", "scheme", "tail", "drop_last")
_COMPARED = ("global_batch", "fingerprint", "samples", "seed", *_SPEC, "subset")


class Cursor:
    """Where a loader is, in positions: batches from the start of the run.

    Attributes:
        start: Where the next iteration begins.
        position: The next batch of the last iteration.
        jumped: ``start`` was set by the user, not reached by iterating.
        iteration: The number of the last iteration, which alone moves ``position``.
    """

    __slots__ = ("iteration", "jumped", "position", "start")

    def __init__(self) -> None:
        self.start = self.position = self.iteration = 0
        self.jumped = False

    @property
    def next(self) -> int:
        """The position of the batch that the user gets next."""
        return self.start if self.jumped else self.position

    def begin(self, end: int) -> int:
        """Begins an iteration that ends before position ``end``; returns its number."""
        self.position, self.start, self.jumped = self.start, end, False
        self.iteration += 1
        return self.iteration

    def jump(self, position: int) -> None:
        """Has the next iteration begin at ``position``."""
        self.start, self.jumped = position, True

    def follow(self, other: Cursor) -> None:
        """Goes to where another loader of the same steps is."""
        self.start, self.position, self.jumped = other.start, other.position, other.jumped


def identity(
    spec: Mapping[str, Any], opened: Mapping[str, Any], subset: array.array[int] | None
) -> dict[str, Any]:
    """Returns what the order of a loader's batches depends on.

    Args:
        spec: OPEN's ``stream`` object.
        opened: The OPENED object.
        subset: IDs of the samples that the stream is over; None means all samples.
    """
    digest = None
    if subset is not None:
        digest = hashlib.blake2b(subset.tobytes(), digest_size=8).hexdigest()
    return {
        "fingerprint": opened["fingerprint"],
        "samples": opened["samples"],
        "seed": int(opened["seed"]),
        "subset": digest,
        **{key: spec[key] for key in (*_SPEC, "global_batch")},
    }


def save(mine: Mapping[str, Any], steps: int, position: int) -> dict[str, Any]:
    """Returns the state of a loader of this :func:`identity` that is at ``position``."""
    epoch, step = divmod(position, steps) if steps else (0, 0)
    return {"version": 1, "epoch": epoch, "step": step, "steps": steps, **mine}


def position_in(state: Mapping[str, Any], steps: int) -> int:
    """Returns the position that a state says.

    Raises:
        ConfigError: There is no such position.
    """
    epoch = whole_number("state['epoch']", state.get("epoch"), 0)
    step = whole_number("state['step']", state.get("step"), 0)
    if step >= max(steps, 1) or epoch >> 32:
        raise ConfigError(
            f"state['epoch']={epoch}, state['step']={step}: out of range, an epoch of this loader "
            f"has {steps} steps, 0 to {steps - 1}: make the loader with the dataset and batch size "
            "of the loader that saved the state"
        )
    return epoch * steps + step


def check(state: Any) -> dict[str, Any]:
    """Returns ``state`` if it is one of a loader whose order follows from its arguments.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(state, dict) or state.get("version") != 1:
        raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
    if state.get("kind") == "sampler":
        raise ConfigError(
            "the state is of a loader whose order a sampler drew, and this one's follows from a "
            "seed or is by ID: make the loader as that one was made, with its sampler, or with "
            "shuffle=True and without seed"
        )
    return state


def compare(state: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Compares a state with a loader's :func:`identity`.

    Raises:
        MismatchError: They differ, so that batches would differ.
    """
    for key in _COMPARED:
        theirs = state.get(key)
        if theirs != mine[key]:
            then = f": make the loader with seed={theirs!r}" if key == "seed" else ""
            raise MismatchError(
                f"{key} is {mine[key]!r} here, but {theirs!r} in the saved state{then}",
                {"key": key, "mine": mine[key], "theirs": theirs},
            )
