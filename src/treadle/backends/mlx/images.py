"""Kernels on images whose channels are last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import mlx.core as mx

from ...ir.graph import Node
from . import convolution, movement, pools, reductions
from .layout import moved, rank_of
from .lowering import Kernel, plain


def _concat(xs: Sequence[mx.array], *, axis: int) -> mx.array:
    return movement.concat(xs, axis=moved(axis, xs[0].ndim))


def _pad(x: mx.array, *, fill: mx.array | None = None, pads: tuple[int, ...], mode: str,
         value: complex) -> mx.array:
    n = x.ndim
    order = [0, *range(2, n), 1]
    turned = tuple([pads[i] for i in order] + [pads[n + i] for i in order])
    return movement.pad(x, fill=fill, pads=turned, mode=mode, value=value)


def _fold(op: str) -> Kernel:
    inner = reductions.LOWERINGS[op].kernel

    def run(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        at = tuple([moved(a, x.ndim) for a in axes])
        return cast(mx.array, inner(None, x, axes=at, keepdims=keepdims))

    return run


def _narrow(x: mx.array, *, axis: int, start: int, length: int) -> mx.array:
    return movement.narrow(x, axis=moved(axis, x.ndim), start=start, length=length)


_KERNELS: Mapping[str, Kernel] = {
    "convolution": convolution.convolution,
    "transposed_convolution": convolution.transposed_convolution,
    **{n: pools.folding(*f, 1) for n, f in pools.FOLDS.items()},
    **{n: _fold(n) for n in ("sum", "reduce_max", "reduce_min")},
    "concat": _concat, "pad": _pad, "narrow": _narrow}
KERNELS: Mapping[str, Kernel] = {n: plain(k).kernel for n, k in _KERNELS.items()}
"""By operator; elementwise operators use the kernel that they always use."""
ALWAYS = frozenset({"convolution", "transposed_convolution"})
"""Operators that want their operand this way whatever it is now."""


def images(node: Node, elementwise: bool) -> bool:
    """Whether the outputs of a node can be images with channels last."""
    rank = rank_of(node)
    if rank < 3 or not (elementwise or node.op in KERNELS):
        return False
    if node.op in ("sum", "reduce_max", "reduce_min"):
        return node.attrs["keepdims"] is True
    return True
