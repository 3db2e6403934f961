"""Transforms that only the mapping of timm's makes."""

from __future__ import annotations

from typing import Any

from .base import Transform


class _Described(Transform):
    """A transform of timm's as the daemon takes it.

    Args:
        described: Its description.
    """

    _in_torchvision = False
    _draws = True

    def __init__(self, described: dict[str, Any]):
        self._described = described

    def describe(self) -> dict[str, Any]:
        return self._described

    def __repr__(self) -> str:
        return f"timm's {str(self._described['name'])[len('Timm') :]}"


class Policy(_Described):
    """timm's RandAugment or AutoAugment, of images."""


class Erasing(_Described):
    """timm's RandomErasing, of tensors."""
