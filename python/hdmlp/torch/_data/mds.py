"""Shards of mosaicml-streaming for torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch.utils.data

from ..._records import mds
from .elements import Numbers
from .fields import Step, check_parts
from .folder import pil_loader
from .records import Making


class MDS(Making, mds.MDS, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The samples of mosaicml-streaming's shards, which are not compressed, as they lie.

    The offsets at the head of each shard are read, and the sizes of columns where a sample has
    several that vary. Then samples come in any order, without shards being copied.

    Args:
        path: The directory of ``index.json``, or that file.
        columns: Which columns items have. Default: None, all.
        loader, transform, target_transform, transforms: See :class:`Files`; by column.

    An item is a dict by column, as of ``StreamingDataset``, but that images (``jpeg``, ``png``, and
    ``bytes`` with a transform) are RGB, and decoded by the daemon where a transform follows. Those
    of ``pil`` keep their mode.

    Raises:
        ConfigError: The shards are compressed or damaged, there is no such column, or one is a
            pickle without a ``loader``.
        DatasetNotFoundError: There is no such file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
    ):
        self._open(path, columns)
        self._numbers = {
            name: Numbers(own.dtype, own.shape, plain=self.encodings[name] == "int")
            for name, own in self._elements.items()
        }
        self._set_making(loader, transform, target_transform, transforms, False)

    def _loader_of(self, name: str) -> Step | None:
        given = check_parts(self.transform, "transform", self.fields, self._form.kind)
        if self.encodings[name] == "bytes" and name in given:
            return pil_loader
        made = self._numbers.get(name)
        return made or mds.decoder_of(self._index_path, name, self.encodings[name])
