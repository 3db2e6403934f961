"""What the bytes of samples are that are no encoded images. Not for users: datasets add it."""

from __future__ import annotations

from .base import Description, Transform


class Pixels(Transform):
    """Takes a sample's bytes as the levels of an image, which is not encoded.

    Must be the first of its list.

    Args:
        width: Of every image, in pixels.
        height: The same.
        channels: 1 or 3.
        layout: ``"HWC"``: the channels of a pixel lie together; ``"CHW"``: those of the image.
    """

    _in_torchvision = False

    def __init__(self, width: int, height: int, channels: int, layout: str):
        self.width, self.height, self.channels, self.layout = width, height, channels, layout

    def describe(self) -> Description:
        return {
            "name": "Pixels",
            "width": self.width,
            "height": self.height,
            "channels": self.channels,
            "layout": self.layout,
        }

    def __repr__(self) -> str:
        return f"Pixels({self.width}, {self.height}, {self.channels}, {self.layout!r})"


class Bytes(Transform):
    """Takes a sample's bytes as they are: those of a batch are one array.

    Must be the only one of its list.

    Args:
        count: How many bytes a sample has.
    """

    _in_torchvision = False

    def __init__(self, count: int):
        self.count = count

    def describe(self) -> Description:
        return {"name": "Bytes", "count": self.count}

    def __repr__(self) -> str:
        return f"Bytes({self.count})"
