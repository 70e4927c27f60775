"""Convolution and pooling: products over gathered panels, and windows that slide over planes."""

from .lowering import LOWERINGS as ORDINARY
from .pools import LOWERINGS as POOLS
from .transposed import LOWERINGS as TRANSPOSED

LOWERINGS = {**ORDINARY, **TRANSPOSED}
"""Lowerings that pack parameters."""

__all__ = ["LOWERINGS", "POOLS"]
