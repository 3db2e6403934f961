"""TFRecord files for torch."""

from __future__ import annotations

import torch.utils.data

from ..._records import tfrecord
from .fields import Step, check_parts
from .folder import pil_loader
from .records import Making


class TFRecord(Making, tfrecord.TFRecord, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Records of TFRecord files, each a ``tf.train.Example``, of which features are fields.

    The files are read once, when this object is made: nothing lists where their records begin. They
    must not be compressed.

    Args:
        paths: A file, or a list of files, which follow one another.
        *names: The features that items have. Each record must have one value of each: bytes, or a
            number, which is kept in the process.
        loader, transform, target_transform, transforms: See :class:`Files`; by feature. Bytes that
            have a transform are images.

    An item is a dict by feature: bytes, or what is made of them, integers and floats.

    Raises:
        ConfigError: A file is none of these or compressed, or a record has no such feature.
    """

    def __init__(
        self,
        paths: object,
        *names: str,
        loader: object = None,
        transform: object = None,
        target_transform: Step | None = None,
        transforms: Step | None = None,
    ):
        self._open(paths, names)
        self._set_making(loader, transform, target_transform, transforms, False)

    def _loader_of(self, name: str) -> Step | None:
        given = check_parts(self.transform, "transform", self.fields, self._form.kind)
        return pil_loader if name in given else None
