"""Transforms that only the mapping of timm's makes."""

from __future__ import annotations

from .base import Description, Transform


class _Described(Transform):
    """A transform of timm's as the daemon takes it.

    Args:
        described: Its description.
    """

    _in_torchvision = False
    _draws = True

    def __init__(self, described: Description):
        self._described = described

    def describe(self) -> Description:
        return self._described

    def __repr__(self) -> str:
        return f"timm's {str(self._described['name'])[len('Timm') :]}"


class Policy(_Described):
    """timm's RandAugment or AutoAugment, of images."""


class Erasing(_Described):
    """timm's RandomErasing, of tensors."""
