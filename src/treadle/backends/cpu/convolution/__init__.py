"""Convolution and pooling: products over gathered panels, and windows that slide over planes."""

from .lowering import LOWERINGS

__all__ = ["LOWERINGS"]
