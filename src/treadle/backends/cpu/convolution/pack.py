"""Weights in the order in which tiles read them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ....codegen.llvm.runtime import aligned
from ..contraction.pack import SLACK
from .spec import Cut


def pack_filters(w: NDArray[Any], plan: Cut) -> NDArray[Any]:
    """`w` of shape (groups, filters, channels, taps) as (groups, blocks, tiles, k, rows of a tile).

    k counts taps, then channels fastest, within a block. Missing rows of a tile are zero. The
    result is flat and 64-byte aligned.
    """
    groups, filters, channels, taps = w.shape
    depth = channels * taps
    flat = w.swapaxes(2, 3).reshape(groups, filters, depth)
    size = groups * plan.row_tiles * depth * plan.height
    out = aligned(size * w.itemsize + SLACK).view(w.dtype)[:size]
    whole = out.reshape(groups, -1)
    for start, count in plan.depths:
        part = plan.row_tiles * plan.height
        view = whole[:, start * part:(start + count) * part].reshape(
            groups, plan.row_tiles, count, plan.height)
        for t, rows in enumerate(plan.heights):
            at = plan.row(t)
            view[:, t, :, :rows] = flat[:, at:at + rows, start:start + count].swapaxes(1, 2)
    return out
