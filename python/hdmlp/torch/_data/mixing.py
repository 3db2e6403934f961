"""Mixing the images of a batch, as torchvision's v2 and timm do it.

Everything but the pixels is done by their own code, which draws the parameters, mixes the labels
and refuses what it cannot take: by a copy of the user's object, of which the method for pixels is
replaced. That computes the same bits, in the same order of floating-point operations, in place and
in pieces that stay in the processor's cache.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterator
from typing import Any, Callable

import torch

from ..._lib import originals
from ..._transforms.generators import generators_kept, seed_generators
from ..._transforms.split import changed

_V2 = "torchvision.transforms.v2"
_TYPES = (torch.float32, torch.float16, torch.bfloat16)

#: The classes whose pixels are mixed here, or which choose among these.
_CLASSES = {
    "MixUp": (f"{_V2}._augment", "MixUp"),
    "CutMix": (f"{_V2}._augment", "CutMix"),
    "RandomChoice": (f"{_V2}._container", "RandomChoice"),
    "timm": ("timm.data.mixup", "Mixup"),
}

#: Bytes of an image that are mixed at once: three such pieces fit into the second-level cache.
PIECE = 1 << 17


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def is_collate(transform: object) -> bool:
    """Reports whether an object is timm's ``FastCollateMixup``, which makes batches of items."""
    cls = _class("timm.data.mixup", "FastCollateMixup")
    return cls is not None and isinstance(transform, cls)


def called(transform: Any) -> Callable[[Any], object]:
    """Returns what calls a transform of batches: timm's is called with images and labels."""
    cls = _class("timm.data.mixup", "Mixup")
    if cls is not None and isinstance(transform, cls):
        return lambda batch: transform(*batch)
    return transform  # type: ignore[no-any-return]


def known(transform: object) -> str:
    """Returns what kind of transform of torchvision's or timm's one is; empty: none, or changed."""
    cls = type(transform)
    kind = next((k for k, where in _CLASSES.items() if cls is _class(*where)), "")
    if not kind or changed(transform) or originals.replaced("mixing"):
        return ""
    shadowed = any(callable(getattr(cls, name, None)) for name in vars(transform))
    return "" if shadowed else kind


def fast(transform: Any, owned: bool) -> Callable[..., object]:
    """Returns what does the same as a transform of batches, and faster where that is known.

    Args:
        transform: The transform.
        owned: The images of a batch may be written to.
    """
    kind = known(transform)
    if kind == "RandomChoice":
        choice = copy.copy(transform)
        choice.transforms = [fast(one, owned) for one in transform.transforms]
        return choice  # type: ignore[no-any-return]
    if not kind or not _agrees(transform, kind):
        return transform  # type: ignore[no-any-return]
    return functools.partial(_MIXERS[kind], transform, owned)


#: Classes whose pixels were found to be mixed here as by their own code.
_agreeing: set[type] = set()


def _agrees(transform: Any, kind: str) -> bool:
    """Reports whether the installed release makes the bits that are made here.

    A small batch is mixed by both, under several seeds, once in a process.
    """
    if type(transform) in _agreeing:
        return True
    own = copy.copy(transform)
    if kind == "timm":
        own.mix_prob, own.mixup_enabled = 1.0, True
    classes = own.num_classes or 2
    labels = torch.arange(4, device="cpu") % min(classes, 2)
    numbers = torch.linspace(-2, 2, 4 * 3 * 8 * 6, dtype=torch.float32, device="cpu")
    if getattr(own, "multi_label", own.num_classes is None):
        labels = torch.nn.functional.one_hot(labels, classes).float()
    with generators_kept():
        for seed in range(8):
            made: list[Any] = []
            for mix in (own, functools.partial(_MIXERS[kind], own, True)):
                seed_generators(seed << 32 | seed)
                try:
                    made.append(mix(numbers.clone().view(4, 3, 8, 6), labels))
                except Exception:  # its arguments may be wrong, which its user is to see
                    return False
            if not all(map(torch.equal, *made)):
                return False
    _agreeing.add(type(transform))
    return True


def _torchvisions(mix: Callable[..., None], own: Any, owned: bool, *inputs: Any) -> object:
    """Calls a MixUp or CutMix, whose images ``mix`` mixes in place.

    Args:
        mix: Called with images and the transform's parameters.
        own: The transform.
        owned: Images may be written to.
        inputs: What the transform is called with.
    """
    method = "transform" if hasattr(type(own), "transform") else "_transform"

    def transform(given: Any, parameters: dict[str, Any]) -> object:
        if given is parameters["labels"] or not _is_plain(given):
            return getattr(own, method)(given, parameters)
        own._check_image_or_video(given, batch_size=parameters["batch_size"])
        images = given if owned else given.clone()
        mix(images, parameters)
        return images

    twin = copy.copy(own)
    vars(twin)[method] = transform
    return twin(*inputs)


def _timms(own: Any, owned: bool, *inputs: Any) -> object:
    """Calls timm's Mixup, which writes to its images as well."""
    if own.mode != "batch":
        return own(*inputs)

    def mix_batch(images: torch.Tensor) -> object:
        if not _is_plain(images):
            return own._mix_batch(images)
        lam, cuts = own._params_per_batch()
        if lam == 1.0:
            return 1.0
        if cuts:
            box = _class("timm.data.mixup", "cutmix_bbox_and_lam")
            (top, bottom, left, right), lam = box(
                images.shape, lam, ratio_minmax=own.cutmix_minmax, correct_lam=own.correct_lam
            )
            swap(images[:, :, top:bottom, left:right])
        else:
            mix_opposite(images, lam)
        return lam

    twin = copy.copy(own)
    twin._mix_batch = mix_batch
    return twin(*inputs)


def _is_plain(images: object) -> bool:
    """Reports whether an object is images whose bytes can be mixed."""
    return (
        type(images) is torch.Tensor
        and images.device.type == "cpu"
        and images.dtype in _TYPES
        and images.ndim == 4
        and images.numel() > 0
        and not images.requires_grad
        and _flat(images) is not None
    )


def _flat(images: torch.Tensor) -> Any:
    """Returns images as rows of numbers in the order of memory; None: they are not dense."""
    if images.is_contiguous():
        return images.view(len(images), -1)
    if images.is_contiguous(memory_format=torch.channels_last):
        return images.permute(0, 2, 3, 1).view(len(images), -1)
    return None


def _pieces(images: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields the same piece of each image, one piece after the other."""
    for piece in _flat(images).split(PIECE // images.element_size(), 1):
        yield piece.unbind(0)


# In the order of floating-point operations of torchvision's and timm's.


def mix_previous(images: torch.Tensor, lam: float) -> None:
    """Mixes each image with the one before it, and the first with the last.

    As ``images.roll(1, 0).mul_(1 - lam).add_(images.mul(lam))``.
    """
    for parts in _pieces(images):
        part = torch.empty_like(parts[0])
        last = parts[-1].clone()
        for i in range(len(parts) - 1, -1, -1):
            torch.mul(parts[i - 1] if i else last, 1.0 - lam, out=part)
            parts[i].mul_(lam).add_(part)


def mix_opposite(images: torch.Tensor, lam: float) -> None:
    """Mixes the first image with the last, the second with the last but one, and so on.

    As ``flipped = images.flip(0).mul_(1 - lam); images.mul_(lam).add_(flipped)``.
    """
    for parts in _pieces(images):
        part, other = torch.empty_like(parts[0]), torch.empty_like(parts[0])
        for a, b in zip(parts[: len(parts) // 2], reversed(parts)):
            torch.mul(b, 1.0 - lam, out=part)
            torch.mul(a, 1.0 - lam, out=other)
            a.mul_(lam).add_(part)
            b.mul_(lam).add_(other)


def shift(boxes: torch.Tensor) -> None:
    """Copies each image's box from the one before it, and the first's from the last."""
    parts = boxes.unbind(0)
    last = parts[-1].clone()
    for i in range(len(parts) - 1, 0, -1):
        parts[i].copy_(parts[i - 1])
    parts[0].copy_(last)


def swap(boxes: torch.Tensor) -> None:
    """Swaps the boxes of the first image and the last, and so on."""
    parts = boxes.unbind(0)
    for a, b in zip(parts[: len(parts) // 2], reversed(parts)):
        first = a.clone()
        a.copy_(b)
        b.copy_(first)


def _mix_up(images: torch.Tensor, parameters: dict[str, Any]) -> None:
    mix_previous(images, parameters["lam"])


def _cut_mix(images: torch.Tensor, parameters: dict[str, Any]) -> None:
    left, top, right, bottom = parameters["box"]
    shift(images[..., top:bottom, left:right])


_MIXERS: dict[str, Callable[..., object]] = {
    "MixUp": functools.partial(_torchvisions, _mix_up),
    "CutMix": functools.partial(_torchvisions, _cut_mix),
    "timm": _timms,
}
