"""Images in zip archives for torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch.utils.data

from ..._records import zips
from .fields import Step
from .folder import pil_loader
from .records import Making


class Zip(Making, zips.Zip, torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images in zip archives whose members are stored, and not compressed (``zip -0``).

    They are those of torchvision's ``ImageFolder`` in the unpacked archives, in its order: the
    directories below ``root`` are the classes. The list at each archive's end is read, and the
    header before each image; checksums are not compared.

    Args:
        paths: An archive, or a list of them, of which no two have a file of the same name.
        root: The directory in the archives that has the classes, such as ``"train"``. Default:
            ``""``, the archive itself.
        transform: Applied to RGB PIL images; the daemon carries out what it can. Default: None.
        target_transform: Applied to labels. Default: None.
        loader: From the bytes of an image to an object. Default: None, an RGB PIL image.
        labels: One per image, in the order of their names: images may then lie anywhere below
            ``root``. Default: None: classes by directory.
        classes: See :class:`Files`. Default: None.

    An item is (image, label), as of ``ImageFolder``.

    Raises:
        ConfigError: An archive is none or damaged, its images are compressed or encrypted, or there
            are none.
    """

    def __init__(
        self,
        paths: object,
        root: str = "",
        transform: object = None,
        target_transform: Step | None = None,
        loader: object = None,
        *,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
    ):
        self._open(paths, root, labels, classes)
        self._set_making(loader, transform, target_transform, None, False)

    def _loader_of(self, name: str) -> Step | None:
        return pil_loader
