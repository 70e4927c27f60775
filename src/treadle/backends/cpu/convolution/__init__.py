"""Convolution and pooling: products over gathered panels, and windows that slide over planes."""

from .lowering import LOWERINGS
from .pools import LOWERINGS as POOLS

__all__ = ["LOWERINGS", "POOLS"]
