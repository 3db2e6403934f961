"""What a rank was given since the run began, as its states carry it.

A part is a contiguous piece of the run in one launch: positions, the sum of the audits of its
batches, its samples, and an ID of its own. ``hdmlp verify`` computes from the parts of all ranks
whether each sample of each epoch came exactly once, across interruptions and with other world
sizes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._launch.place import Place
from ..errors import ConfigError

#: Parts that a state carries at most, the latest; the oldest of them has how many were dropped
#: before it. There is one for each launch, and for each epoch that the loop left before its end.
MOST = 256


class Part(NamedTuple):
    """A piece of the run that a rank was given without a gap.

    Attributes:
        begin: The position of its first batch.
        end: The position after its last batch.
        sum: The sum of the batches' audits, modulo 2^64.
        samples: Its samples.
        id: Its own, 16 hexadecimal digits. States that were saved while it lasted and after it have
            it in common; another pass over the same batches has another one. Empty as long as no
            iteration has begun.
    """

    begin: int
    end: int
    sum: int
    samples: int
    id: str = ""


def continued(
    earlier: tuple[dict[str, Any], ...], part: Part, place: Place, steps: int, position: int
) -> tuple[tuple[dict[str, Any], ...], Part]:
    """Returns the parts of an iteration that begins at a position.

    Args:
        earlier: The parts before ``part``, as states have them.
        part: The one that the last iteration added to.
        place: The rank.
        steps: Batches per epoch.
        position: Where the iteration begins.
    """
    if part.end == position and part.begin < part.end:
        return earlier, part
    begun = Part(position, position, 0, 0, os.urandom(8).hex())
    return parts(earlier, part, place, steps), begun


def parts(
    earlier: tuple[dict[str, Any], ...], part: Part, place: Place, steps: int
) -> tuple[dict[str, Any], ...]:
    """Returns the parts as states have them.

    Args:
        earlier: See :func:`continued`.
        part: See :func:`continued`.
        place: See :func:`continued`.
        steps: See :func:`continued`.
    """
    if part.begin == part.end:
        return earlier
    last = {
        "rank": place.rank,
        "world_size": place.world_size,
        "from": list(divmod(part.begin, steps)),
        "to": list(divmod(part.end, steps)),
        "samples": part.samples,
        "sum": f"{part.sum:016x}",
        "id": part.id,
    }
    if len(earlier) < MOST:
        return (*earlier, last)
    gone, first, *others = earlier
    return ({**first, "dropped": gone.get("dropped", 0) + 1}, *others, last)


def saved(state: Mapping[str, object]) -> tuple[dict[str, Any], ...]:
    """Returns the parts of a state; none, if an earlier release saved it.

    Raises:
        ConfigError: They are no parts.
    """
    given = state.get("delivered", [])
    whole = isinstance(given, Sequence) and all(
        isinstance(part, dict)
        and all(type(part.get(key)) is int for key in ("rank", "world_size", "samples"))
        and type(part.get("dropped", 0)) is int
        and all(isinstance(part.get(key), (list, tuple)) for key in ("from", "to"))
        and all(isinstance(part.get(key), str) for key in ("sum", "id"))
        for part in given
    )
    if not whole:
        raise ConfigError(
            "state['delivered'] was changed: it is what `hdmlp verify` computes with; load the "
            "state as it was saved, or remove the key"
        )
    return tuple(given)  # type: ignore[arg-type]
