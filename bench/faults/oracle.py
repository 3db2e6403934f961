"""The oracle, which is independent of HDMLP: a listing of its own, torch's sampler, digests of the
bytes that open() reads."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence

from verdicts import wrong

SEED, BATCH = 7, 5
EXTENSIONS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)  # torchvision's


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_file(path: str) -> str:
    h = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as f:
        while part := f.read(1 << 22):
            h.update(part)
    return h.hexdigest()


class Listing:
    """A dataset as torchvision's ImageFolder lists it, with digests of its files, as it is at this
    moment."""

    def __init__(
        self, root: os.PathLike, extensions: Sequence[str] = EXTENSIONS, read: bool = True
    ) -> None:
        root = os.fspath(root)
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.paths: list[str] = []
        self.labels: list[int] = []
        self.digests: list[str | None] = []
        for label, name in enumerate(self.classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                for file in sorted(files):
                    if file.lower().endswith(tuple(extensions)):
                        self.paths.append(os.path.join(folder, file))
                        self.labels.append(label)
        self.digests = [None] * len(self.paths)
        if read:
            for i, path in enumerate(self.paths):
                with contextlib.suppress(OSError):
                    if os.path.isfile(path):
                        self.digests[i] = digest_file(path)

    def __len__(self) -> int:
        return len(self.paths)

    def epoch(
        self,
        epoch: int = 0,
        *,
        seed: int = SEED,
        batch: int = BATCH,
        rank: int = 0,
        world: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        skip: Sequence[str] = (),
        substitute: Sequence[str] = (),
    ) -> list[list]:
        """The batches that torch's loader with a DistributedSampler gives to a rank; without the
        files whose name is in ``skip``."""
        from torch.utils.data import BatchSampler, DistributedSampler

        sampler = DistributedSampler(
            range(len(self)), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )  # type: ignore[arg-type]
        sampler.set_epoch(epoch)
        found = []
        bad = {i for i, path in enumerate(self.paths) if os.path.basename(path) in skip}
        stand = {i for i, path in enumerate(self.paths) if os.path.basename(path) in substitute}
        for ids in BatchSampler(sampler, batch, drop_last):
            ids = [i for i in ids if i not in bad]
            while any(i in stand for i in ids):
                ids = [(i + 1) % len(self) if i in stand else i for i in ids]
            found.append([[self.digests[i] for i in ids], [self.labels[i] for i in ids]])
        return found


def same(got: list[list], *allowed: list[list], what: str = "the stream") -> None:
    """Raises unless ``got`` is one of ``allowed``."""
    if any(got == wanted for wanted in allowed):
        return
    wanted = allowed[0]
    if len(got) != len(wanted):
        lengths = " or ".join(str(len(w)) for w in allowed)
        note = f"{len(got)} batches instead of {lengths}; "
    else:
        note = ""
    bad = sum(a != b for a, b in zip(got, wanted))
    samples = [(x, y) for a, b in zip(got, wanted) for x, y in zip(a[0], b[0])]
    differ = sum(x != y for x, y in samples)
    raise wrong(
        f"{what}: {note}{bad} of {len(wanted)} batches differ, {differ} of {len(samples)} samples"
    )
