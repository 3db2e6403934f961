"""Transforms of libraries are tried out where their arguments may be wrong.

torchvision and timm check many arguments when a transform is applied, which in a loader would be
the first batch, in a worker.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from .generators import generators_kept

#: As often as makes it likely that a transform by chance is applied.
_TIMES = 20
_EDGE = 64


def try_out(t: Callable[[Any], object], dtype: str | bool, channels: int) -> None:
    """Raises what a library's transform raises of an image; the generators stay as they are.

    Args:
        t: The transform.
        dtype: The type of tensors that it gets, by name; False: it gets images of PIL.
        channels: Their channels.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    with generators_kept():
        if dtype:
            value = torch.zeros((channels, _EDGE, _EDGE), dtype=getattr(torch, str(dtype)))
        else:
            from PIL import Image

            value = Image.new("L" if channels == 1 else "RGB", (_EDGE, _EDGE))
        for _ in range(_TIMES):
            t(value)
