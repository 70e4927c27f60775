"""Weights in the order in which tiles read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....codegen.llvm.runtime import aligned
from ..contraction.pack import SLACK
from .spec import Cut


def pack_filters(w: NDArray[Any], groups: int, plan: Cut) -> NDArray[Any]:
    """`w` of shape (groups * filters, channels, *kernel) as (groups, tiles, k, rows of a tile).

    k counts taps, then channels fastest. Missing rows of a tile are zero. The result is flat and
    64-byte aligned.
    """
    filters, depth = w.shape[0] // groups, int(np.prod(w.shape[1:]))
    flat = np.moveaxis(w, 1, -1).reshape(groups, filters, depth)
    size = groups * plan.row_tiles * depth * plan.height
    out = aligned(size * w.itemsize + SLACK).view(w.dtype)[:size]
    view = out.reshape(groups, plan.row_tiles, depth, plan.height)
    for t, rows in enumerate(plan.heights):
        at = plan.row(t)
        view[:, t, :, :rows] = flat[:, at:at + rows].swapaxes(1, 2)
    return out
