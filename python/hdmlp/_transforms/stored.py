"""Images that are not encoded. Not for users: datasets add it."""

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
