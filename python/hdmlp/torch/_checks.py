"""What a loader's arguments mean together, or why they cannot."""

from __future__ import annotations

import logging
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler

from ..errors import ConfigError
from ._drawn import parts

log = logging.getLogger("hdmlp")


def what_orders(sampler: Any, batch_sampler: Any) -> str:
    """What says the order, for a message."""
    if type(batch_sampler) is BatchSampler:
        return f"sampler={type(sampler).__name__}"
    return (
        f"batch_sampler={type(batch_sampler).__name__}"
        if batch_sampler is not None
        else "batch_size=None"
    )


def shared_by(
    shard: bool | None,
    rank: int | None,
    world_size: int | None,
    sampler: Any,
    batch_sampler: Any,
) -> bool:
    """True if ranks share each epoch by the loader's own arguments."""
    given = rank is not None or world_size is not None
    if given and shard is False:
        raise ConfigError(
            "shard=False, and rank and world_size: ranks that share nothing have no place in a world; leave one of them out"
        )
    if (given or shard) and isinstance(sampler, DistributedSampler):
        if given:
            raise ConfigError("sampler says rank and world_size: do not give them again")
        return False  # it says so itself
    if (given or shard) and (sampler is not None or batch_sampler is not None):
        raise ConfigError(
            f"shard=True, and {'sampler' if sampler is not None else 'batch_sampler'}: it says itself which samples this rank gets; "
            "leave one of them out, or give a DistributedSampler"
        )
    return bool(given or shard)


def seed_of(
    seed: int | None,
    shuffle: Any,
    sampler: Any,
    batch_sampler: Any,
    generator: Any,
    epochs: int | None,
    shared: bool,
) -> int | None:
    """The seed of the order; None: there is none, or it is drawn."""
    ordered = sampler is not None or batch_sampler is not None
    for name, value in (("seed", seed), ("epochs", epochs)):
        if value is not None and shuffle is None and not ordered:
            raise ConfigError(
                f"{name}={value}, and neither shuffle nor sampler: as in torch, the default is shuffle=False, every epoch by ID; "
                "say shuffle=True, or shuffle=False if that is meant"
            )
    if (
        ordered
        and seed is not None
        and seed
        not in (
            getattr(part, "seed", None)
            for _, part in parts(sampler if batch_sampler is None else batch_sampler)
        )
    ):
        log.warning(
            "seed=%s: the sampler has a seed of its own (%s), which counts",
            seed,
            getattr(sampler, "seed", "none"),
        )
        return None
    if generator is not None and shuffle and (seed is not None or shared):
        raise ConfigError(
            f"generator, and {'seed' if seed is not None else 'shard'}: the order is that of DistributedSampler, which draws from no generator; "
            "leave generator out, and give seed"
        )
    return seed
