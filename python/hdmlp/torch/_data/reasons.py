"""Why the daemon does not serve a dataset which seems to have a folder's samples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch.utils.data

from ..._lib import originals
from ...data import Folder
from .interfaces import TorchvisionFolder

if TYPE_CHECKING:
    from typing import TypeGuard

#: With a method of the user's in one of these places, only calling it reveals a folder's items.
ITEMS = ("__getitem__", "__getitems__", "__len__")


def own_methods(known: type, value: object, *names: str) -> list[str]:
    """Returns which of these names mean something else for an object than for the class."""
    return [
        name
        for name in names
        if getattr(type(value), name, None) is not getattr(known, name, None) or name in vars(value)
    ]


def own_attributes(value: object) -> list[str]:
    """Returns the methods of its class that an object has replaced by attributes of its own."""
    of = type(value)
    found = [name for name in getattr(value, "__dict__", ()) if isinstance(name, str)]
    return [name for name in found if callable(getattr(of, name, None))]


def _torchvisions() -> Any:
    """Returns torchvision's DatasetFolder, or () if it is not loaded."""
    return getattr(sys.modules.get("torchvision.datasets.folder"), "DatasetFolder", ())


def is_torchvision(dataset: object) -> TypeGuard[TorchvisionFolder]:
    """Reports whether items are made as torchvision's DatasetFolder makes them."""
    known = _torchvisions()
    return isinstance(dataset, known) and not _why_not(known, dataset)


def _why_not(known: type, dataset: object) -> str:
    """Returns why only calling a folder's methods reveals its items; empty: they are known."""
    own = own_methods(known, dataset, *ITEMS)
    if own:
        return overrides(dataset, own)
    return revealed_by_calling(originals.replaced("torchvision's folders"))


def revealed_by_calling(replaced: str) -> str:
    """Returns what a message says of a replaced method of a library; empty: there is none."""
    return replaced and f"{replaced}, and only calling it reveals the items"


def overrides(dataset: object, own: Sequence[str]) -> str:
    """Returns why the daemon does not serve a folder with methods of its own."""
    return (
        f"{type(dataset).__name__} has methods of its own ({', '.join(own)}), and only calling "
        "them reveals its items; use transform and target_transform for what is made of samples, "
        "and torch.utils.data.Subset for some of them"
    )


def why_in_python(dataset: object) -> str:
    """Returns why the daemon does not serve what seems to be a folder's; empty: it does not."""
    known = _torchvisions()
    if isinstance(dataset, known):
        return _why_not(known, dataset)
    found = _within(dataset)
    if found is None:
        return ""
    return (
        f"it seems to take them from the {type(found).__name__} that it has, and only calling its "
        "methods reveals them; give the loader that folder itself, or torch's own Subset or "
        "ConcatDataset of it, and use transform, target_transform and collate_fn"
    )


def _within(dataset: object, depth: int = 4) -> object:
    """Returns a folder which a dataset, or one within it, has as an attribute; or None."""
    for value in list(getattr(dataset, "__dict__", {}).values()):
        for part in value[:100] if isinstance(value, (list, tuple)) else (value,):
            if isinstance(part, (Folder, _torchvisions() or Folder)):
                return part
            if depth and isinstance(part, torch.utils.data.Dataset):
                found = _within(part, depth - 1)
                if found is not None:
                    return found
    return None
