"""Dequantise a large weight without large intermediate results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from ..declare.arrays import Array
from ..ir.graph import Node
from ..ops.library import REGISTRY

ELEMENTS = 1 << 20
"""About how many elements are dequantised at a time."""


def by_rows(node: Node, arrays: Sequence[Array]) -> tuple[Array]:
    """The output of a `dequantize_linear`, some rows after others; elements keep their bits."""
    w, op, block = arrays[0], REGISTRY[node.op], cast(int, node.attrs["block_size"])
    across = node.attrs["axis"] in (0, -w.ndim)
    each = block if block and across else 1
    step = max(1, ELEMENTS * len(w) // max(w.size, 1) // each) * each if w.ndim else 0

    def part(start: int) -> Array:
        stop, given = start + step, [w[start:start + step]]
        for p in arrays[1:]:
            cut = p.ndim > 0 and p.shape != (1,) and (p.ndim == w.ndim > 1 or across)
            given.append(p[start // each:-(-stop // each)] if cut else p)
        named = dict(zip(node.keys, given[2:], strict=True))
        return np.asarray(op(*given[:2], **named, **node.attrs))

    if not w.ndim or len(w) <= step:
        named = dict(zip(node.keys, arrays[2:], strict=True))
        return (np.asarray(op(*arrays[:2], **named, **node.attrs)),)
    first = part(0)
    out = np.empty(w.shape, first.dtype)
    out[:step] = first
    for start in range(step, len(w), step):
        out[start:start + step] = part(start)
    return (out,)
