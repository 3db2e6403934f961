"""Lists of transforms for images, masks and boxes, for scripts on several nodes."""

import hashlib

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from triples import KINDS  # noqa: F401

TYPES = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}

#: What the daemon carries out, and what runs in Python.
LISTS = {
    "daemon": [
        v2.RandomResizedCrop((24, 32), antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.2, 0.2),
        v2.ClampBoundingBoxes(),
        v2.SanitizeBoundingBoxes(),
        v2.ToImage(),
        v2.ToDtype(TYPES, scale=True),
    ],
    "python": [
        v2.RandomRotation(20),
        v2.Resize((24, 32), antialias=True),
        v2.ToImage(),
        v2.ToDtype(TYPES, scale=True),
    ],
}


def digests(*tensors):
    """What distinguishes tensors: their type, shape and bytes; zeros have no sign."""
    return [
        f"{tensor.dtype} {tuple(tensor.shape)} "
        + hashlib.sha256((tensor + 0).contiguous().numpy().tobytes()).hexdigest()[:16]
        for tensor in (tensor.as_subclass(torch.Tensor) for tensor in tensors)
    ]
