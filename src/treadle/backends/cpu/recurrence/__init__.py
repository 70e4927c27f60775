"""Templates of recurrences over tokens: linear attention, causal convolution, selective scan."""

from .lowering import LOWERINGS

__all__ = ["LOWERINGS"]
