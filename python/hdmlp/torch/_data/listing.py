"""The listing of a folder of images in Python, as torchvision makes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

#: The suffixes of torchvision's ImageFolder.
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """Returns the sorted names of a directory's subdirectories, and their numbers.

    Raises:
        FileNotFoundError: There are none.
    """
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: number for number, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int],
    extensions: Sequence[str] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """Returns (path, class number) of the files in the classes' directories.

    Args:
        directory: Where these directories are.
        class_to_idx: The numbers of classes by name.
        extensions: Suffixes of the files that are samples.
        is_valid_file: Returns whether the file at a path is a sample, instead of ``extensions``.
        allow_empty: Classes may have no samples. Default: False.

    Raises:
        ValueError: There are no classes, or not one of ``extensions`` and ``is_valid_file``.
        FileNotFoundError: A class has no samples.
    """
    if not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None")
    suffixes = tuple([extensions] if isinstance(extensions, str) else extensions or ())
    valid = is_valid_file or (lambda path: path.lower().endswith(suffixes))
    samples: list[tuple[str, int]] = []
    empty: list[str] = []
    for name in sorted(class_to_idx):
        top = os.path.join(os.path.expanduser(directory), name)
        before = len(samples)
        for folder, _, files in sorted(os.walk(top, followlinks=True)):
            paths = (os.path.join(folder, file) for file in sorted(files))
            samples += [(path, class_to_idx[name]) for path in paths if valid(path)]
        if len(samples) == before:
            empty.append(name)
    if empty and not allow_empty:
        supported = f"Supported extensions are: {', '.join(suffixes)}" if suffixes else ""
        raise FileNotFoundError(
            f"Found no valid file for the classes {', '.join(empty)}. {supported}"
        )
    return samples


class StandardTransform:
    """What torchvision's datasets have as ``transforms``: both transforms of an item.

    Args:
        transform: Of the object; None: nothing.
        target_transform: Of the label; None: nothing.
    """

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, value: Any, target: Any) -> tuple[Any, Any]:
        """Returns both, transformed."""
        if self.transform is not None:
            value = self.transform(value)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return value, target

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for head, given in (
            ("Transform: ", self.transform),
            ("Target transform: ", self.target_transform),
        ):
            if given is not None:
                lines.append((head + repr(given)).replace("\n", "\n" + " " * len(head)))
        return "\n".join(lines)


def shown(dataset: Any) -> str:
    """Returns what torchvision's ``repr`` of a folder is."""
    lines = [f"Number of datapoints: {len(dataset)}"]
    if getattr(dataset, "root", None) is not None:
        lines.append(f"Root location: {dataset.root}")
    lines += dataset.extra_repr().splitlines()
    if dataset.transforms is not None:
        lines.append(repr(dataset.transforms))
    return "\n    ".join([f"Dataset {type(dataset).__name__}", *lines])
