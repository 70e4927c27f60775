"""Packs B into panels: what a tile reads in one step of k lies together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....codegen.llvm.runtime import aligned
from .tiles import Tile

SLACK = 256
"""Bytes after the last panel, so that reading ahead stays inside the allocation."""


def packed_elements(k: int, n: int, tile: Tile, group: int = 1) -> int:
    """Elements of a packed (k, n) matrix, without slack: the stride of a packed batch."""
    return -(-n // tile.columns) * tile.columns * (-(-k // group) * group)


def pack(b: NDArray[Any], tile: Tile, group: int = 1) -> NDArray[Any]:
    """`b` of shape (..., k, n) as panels (..., n / columns, k / group, columns, group).

    The last panel and the last group are filled with zeros. `group` is the number of neighbours
    along k that one instruction multiplies: 1, 2 or 4. The result is flat and 64-byte aligned.
    """
    *batch, k, n = b.shape
    panels, groups = -(-n // tile.columns), -(-k // group)
    count = int(np.prod(batch, dtype=np.int64))
    size = count * packed_elements(k, n, tile, group)
    out = aligned(size * b.itemsize + SLACK).view(b.dtype)[:size]
    view = out.reshape(count, panels, groups, tile.columns, group)
    flat = b.reshape(count, k, n)
    for p in range(panels):
        part = flat[:, :, p * tile.columns:(p + 1) * tile.columns]
        for g in range(group):
            rows = part[:, g::group]
            view[:, p, :rows.shape[1], :part.shape[2], g] = rows
    return out
