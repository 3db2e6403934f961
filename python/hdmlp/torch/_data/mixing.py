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
from typing import Callable, Protocol, TypedDict

import torch

from ..._lib import originals
from ..._transforms.generators import generators_kept, seed_generators
from ..._transforms.recognition import changed

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


#: A transform of batches.
Transform = Callable[..., object]


class Parameters(TypedDict):
    """What torchvision's ``make_params`` returns for a batch."""

    labels: object
    batch_size: int
    lam: float
    box: tuple[int, int, int, int]


class _OfTorchvision(Protocol):
    """What is used of MixUp and CutMix."""

    def __call__(self, *inputs: object) -> object: ...
    def _check_image_or_video(self, inpt: object, *, batch_size: int) -> None: ...


class _OfTimm(Protocol):
    """What is used of timm's Mixup."""

    mode: str
    cutmix_minmax: object
    correct_lam: bool
    _mix_batch: Transform

    def __call__(self, *inputs: object) -> object: ...
    def _params_per_batch(self) -> tuple[float, bool]: ...


def _is(transform: object, module: str, name: str) -> bool:
    """Reports whether an object has a class, or one derived from it, if that is imported."""
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(transform, cls)


def is_collate(transform: object) -> bool:
    """Reports whether an object is timm's ``FastCollateMixup``, which makes batches of items."""
    return _is(transform, "timm.data.mixup", "FastCollateMixup")


def unpacks(transform: object) -> bool:
    """Reports whether a transform is called with images and labels, as timm's is."""
    return _is(transform, "timm.data.mixup", "Mixup")


def known(transform: object) -> str:
    """Returns what kind of transform of torchvision's or timm's one is; empty: none, or changed."""
    cls = type(transform)
    where = cls.__module__, cls.__name__
    kind = next((k for k, known in _CLASSES.items() if where == known), "")
    if not kind or not _is(transform, *where) or changed(transform) or originals.replaced("mixing"):
        return ""
    shadowed = any(callable(getattr(cls, name, None)) for name in vars(transform))
    return "" if shadowed else kind


def fast(transform: Transform, owned: bool) -> Transform:
    """Returns what does the same as a transform of batches, and faster where that is known.

    Args:
        transform: The transform.
        owned: The images of a batch may be written to.
    """
    kind = known(transform)
    if kind == "RandomChoice":
        choice = copy.copy(transform)
        parts = vars(transform)["transforms"]
        vars(choice)["transforms"] = [fast(one, owned) for one in parts]
        return choice
    if not kind or not _agrees(transform, kind):
        return transform
    return functools.partial(_MIXERS[kind], transform, owned)


#: Classes whose pixels were found to be mixed here as by their own code.
_agreeing: set[type] = set()


def _agrees(transform: Transform, kind: str) -> bool:
    """Reports whether the installed release makes the bits that are made here.

    A small batch is mixed by both, under several seeds, once in a process.
    """
    if type(transform) in _agreeing:
        return True
    own = copy.copy(transform)
    given = vars(own)
    if kind == "timm":
        given.update(mix_prob=1.0, mixup_enabled=True)
    classes = given["num_classes"] or 2
    labels = torch.arange(4, device="cpu") % min(classes, 2)
    numbers = torch.linspace(-2, 2, 4 * 3 * 8 * 6, dtype=torch.float32, device="cpu")
    if given.get("multi_label", given["num_classes"] is None):
        labels = torch.nn.functional.one_hot(labels, classes).float()
    with generators_kept():
        for seed in range(8):
            made: list[object] = []
            for mix in (own, functools.partial(_MIXERS[kind], own, True)):
                seed_generators(seed << 32 | seed)
                try:
                    made.append(mix(numbers.clone().view(4, 3, 8, 6), labels))
                except Exception:  # its arguments may be wrong, which its user is to see
                    return False
            if not _same(*made):
                return False
    _agreeing.add(type(transform))
    return True


def _same(a: object, b: object) -> bool:
    """Reports whether two tuples of tensors are equal."""
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    return all(torch.equal(x, y) for x, y in zip(a, b))


def _torchvisions(
    mix: Callable[[torch.Tensor, Parameters], None],
    own: _OfTorchvision,
    owned: bool,
    *inputs: object,
) -> object:
    """Calls a MixUp or CutMix, whose images ``mix`` mixes in place.

    Args:
        mix: Called with images and the transform's parameters.
        own: The transform.
        owned: Images may be written to.
        inputs: What the transform is called with.
    """
    method = "transform" if hasattr(type(own), "transform") else "_transform"

    def transform(given: object, parameters: Parameters) -> object:
        if given is parameters["labels"] or not _is_plain(given):
            return getattr(own, method)(given, parameters)
        assert isinstance(given, torch.Tensor)
        own._check_image_or_video(given, batch_size=parameters["batch_size"])
        images = given if owned else given.clone()
        mix(images, parameters)
        return images

    twin = copy.copy(own)
    vars(twin)[method] = transform
    return twin(*inputs)


def _timms(own: _OfTimm, owned: bool, *inputs: object) -> object:
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
            timm = sys.modules["timm.data.mixup"]
            (top, bottom, left, right), lam = timm.cutmix_bbox_and_lam(
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


def _flat(images: torch.Tensor) -> torch.Tensor | None:
    """Returns images as rows of numbers in the order of memory; None: they are not dense."""
    rows = images if images.is_contiguous() else images.permute(0, 2, 3, 1)
    return rows.flatten(1) if rows.is_contiguous() else None


def _pieces(images: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields the same piece of each image, one piece after the other."""
    flat = _flat(images)
    assert flat is not None
    size = PIECE // images.element_size()
    for first in range(0, flat.shape[1], size):
        yield flat[:, first : first + size].unbind(0)


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


def _mix_up(images: torch.Tensor, parameters: Parameters) -> None:
    mix_previous(images, parameters["lam"])


def _cut_mix(images: torch.Tensor, parameters: Parameters) -> None:
    left, top, right, bottom = parameters["box"]
    shift(images[..., top:bottom, left:right])


_MIXERS: dict[str, Callable[..., object]] = {
    "MixUp": functools.partial(_torchvisions, _mix_up),
    "CutMix": functools.partial(_torchvisions, _cut_mix),
    "timm": _timms,
}
