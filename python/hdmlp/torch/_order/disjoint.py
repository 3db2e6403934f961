"""Checks that ranks whose samplers share an epoch get different samples.

That is for samplers which have to be iterated; they are compared once, after an epoch was drawn.
The ranks use the store of ``torch.distributed``, where each leaves which samples it was given. None
waits for another: the last one compares. A loader which some ranks do not iterate is not compared.
"""

from __future__ import annotations

import array
import hashlib
import json
import logging
import struct
import zlib
from types import ModuleType
from typing import Callable, NamedTuple

import torch

log = logging.getLogger("hdmlp")

#: Attributes of samplers which give a sample to several ranks on purpose: timm's, DeiT's and those
#: of torchvision's references.
_REPEATS = ("num_repeats", "repetitions")


class Share(NamedTuple):
    """The rank that a sampler is for.

    Attributes:
        sampler: The sampler's class name.
        rank: Which part of an epoch it yields.
        replicas: The number of parts.
        repeats: The parts may have samples in common.
    """

    sampler: str
    rank: int
    replicas: int
    repeats: bool


def share_of(sampler: object) -> Share | None:
    """Returns which part of an epoch a sampler yields, or one within a batch sampler.

    None: it has no rank, or there is only one part.
    """
    for _ in range(4):
        rank, replicas = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
        if type(rank) is int and type(replicas) is int:
            repeats = any(getattr(sampler, name, 1) not in (None, 1) for name in _REPEATS)
            return Share(type(sampler).__name__, rank, replicas, repeats) if replicas > 1 else None
        inner = getattr(sampler, "sampler", None)
        sampler = getattr(sampler, "batch_sampler", None) if inner is None else inner
    return None


def shard_of(batches: object) -> tuple[int, int]:
    """Returns the rank for which accelerate shards a batch sampler, and the number of ranks.

    All ranks draw one order, and each yields every n-th batch, or its part of each batch.
    """
    for _ in range(4):
        rank = getattr(batches, "process_index", None)
        ranks = getattr(batches, "num_processes", None)
        if type(rank) is int and type(ranks) is int:
            return rank, ranks
        batches = getattr(batches, "batch_sampler", None)
    return 0, 1


class Drawings:
    """What each rank of a loader drew in its first epoch.

    Args:
        name: The loader's name, the same on all ranks.
        share: This rank's part.

    Attributes:
        left: Whether this rank has left its indices.
    """

    def __init__(self, name: str, share: Share):
        self._name, self._share = name, share
        self.left = False

    def leave(self, epoch: int, indices: bytes, samples: int | None) -> None:
        """Leaves what this rank drew for the other ranks, once; the last one compares.

        Args:
            epoch: The epoch's number, for messages.
            indices: The indices in order, 64 bits each.
            samples: The dataset's length; None: it has none.
        """
        if self.left:
            return
        self.left = True
        distributed: ModuleType = torch.distributed
        if (
            not distributed.is_available()
            or not distributed.is_initialized()
            or distributed.get_world_size() == 1
        ):
            return
        try:
            messages = self._exchange(distributed, Part.of(self._share, epoch, indices, samples))
        except (RuntimeError, AttributeError, ValueError) as error:  # only a check
            log.debug("what the ranks' samplers yield is not compared: %s", error)
            return
        for message in messages:
            log.warning("%s", message)

    def _exchange(self, distributed: ModuleType, mine: Part) -> list[str]:
        store = distributed.distributed_c10d._get_default_store()
        me, world = distributed.get_rank(), distributed.get_world_size()
        key = f"hdmlp/drawn/{self._name}"
        key = f"{key}/{store.add(f'{key}/{me}', 1)}"  # loaders of one name may follow one another
        store.set(f"{key}/{me}", mine.packed())
        if store.add(f"{key}/came", 1) < world:
            return []
        parts = {rank: Part.unpacked(store.get(f"{key}/{rank}")) for rank in range(world)}
        for rank in range(world):
            store.set(f"{key}/{rank}", "")
        return compared(parts)


class Part(NamedTuple):
    """What a rank drew in an epoch.

    Attributes:
        share: Which part of the epoch it should be.
        epoch: The epoch's number.
        samples: The dataset's length.
        digest: A digest of the indices, in order.
        bits: One bit for each of the dataset's samples.
    """

    share: Share
    epoch: int
    samples: int
    digest: str
    bits: int

    @classmethod
    def of(cls, share: Share, epoch: int, indices: bytes, samples: int | None) -> Part:
        """Returns the part with these indices, 64 bits each."""
        numbers = array.array("q", indices)
        count = samples or max(map(abs, numbers), default=0) + 1
        bits = bytearray(count // 8 + 1)
        for index in numbers:
            index %= count
            bits[index >> 3] |= 1 << (index & 7)
        return cls(
            share,
            epoch,
            count,
            hashlib.blake2b(indices, digest_size=8).hexdigest(),
            int.from_bytes(bits, "little"),
        )

    def packed(self) -> bytes:
        """Packs the part for :meth:`unpacked`.

        The length of a JSON array, the array, and the compressed bits.
        """
        head = json.dumps([*self.share, self.epoch, self.samples, self.digest]).encode()
        return (
            struct.pack("<I", len(head))
            + head
            + zlib.compress(self.bits.to_bytes(self.samples // 8 + 1, "little"), 1)
        )

    @classmethod
    def unpacked(cls, data: bytes) -> Part:
        """Unpacks what :meth:`packed` returned."""
        (length,) = struct.unpack_from("<I", data)
        *share, epoch, samples, digest = json.loads(data[4 : 4 + length])
        return cls(
            Share(*share),
            epoch,
            samples,
            digest,
            int.from_bytes(zlib.decompress(data[4 + length :]), "little"),
        )


def compared(parts: dict[int, Part]) -> list[str]:
    """Returns what is wrong with what processes drew.

    Args:
        parts: What they drew, by their number.

    Returns:
        Messages; none if nothing is wrong, or if they did not draw the same epoch.
    """
    least = min(parts)
    first = parts[least]
    if any(part.epoch != first.epoch for part in parts.values()):
        return []
    where = f"the ranks disagree about the sampler in epoch {first.epoch}"
    compare: tuple[tuple[str, Callable[[Part], object]], ...] = (
        ("it", lambda p: p.share.sampler),
        ("num_replicas", lambda p: p.share.replicas),
        ("the dataset's length", lambda p: p.samples),
    )
    for what, of in compare:
        for process, part in parts.items():
            if of(part) != of(first):
                return [
                    f"{where}: {what} is {of(first)} on rank {least}, and {of(part)} on rank "
                    f"{process}"
                ]
    messages: list[str] = []
    # By the sampler's rank: the first process that has it.
    shares: dict[int, tuple[int, Part]] = {}
    for process, part in parts.items():
        other, same = shares.setdefault(part.share.rank, (process, part))
        if same.digest != part.digest:
            messages.append(
                f"{where}: ranks {other} and {process} both have rank {part.share.rank} of "
                f"{part.share.replicas} of {part.share.sampler}, and it yields other samples "
                "there, or in another order"
            )
    once = twice = 0
    for _, part in shares.values():
        twice |= once & part.bits
        once |= part.bits
    several = bin(twice).count("1")
    # Padding an epoch repeats fewer samples than there are replicas.
    if several >= first.share.replicas and not first.share.repeats:
        messages.append(
            f"sampler={first.share.sampler}: {several} of {bin(once).count('1')} samples of epoch "
            f"{first.epoch} go to more than one of its {first.share.replicas} ranks, which should "
            "get different ones: give them the same seed and epoch, and each its own rank"
        )
    return messages
