"""Orders along an axis: NaN is the largest, the zeros are equal, ties go to the lower index."""

from __future__ import annotations

import mlx.core as mx

from ...errors import OperatorError
from ...ir.graph import Node
from .arrays import number, on_gpu
from .lowering import Lowering, plain
from .reductions import order_key


def order(x: mx.array, axis: int, descending: bool) -> mx.array:
    """The indices that sort an axis.

    Keys of 32 bits are sorted together with their index in one i64, which needs no stable sort.
    """
    key = order_key(x)
    if descending:
        key = mx.bitwise_invert(key)
    if key.dtype != mx.int32:
        return mx.argsort(key, axis=axis).astype(mx.int64)
    n, axis = x.shape[axis], axis % x.ndim
    own = mx.reshape(mx.arange(n, dtype=mx.int64),
                     [-1 if i == axis else 1 for i in range(x.ndim)])
    both = mx.left_shift(key.astype(mx.int64), number(32, mx.int64)) + own
    low = number(0xFFFFFFFF, mx.int64)
    return mx.bitwise_and(mx.sort(both, axis=axis), low)


def argsort(x: mx.array, *, axis: int, descending: bool) -> mx.array:
    """Stable either way."""
    return order(x, axis, descending)


def sort(x: mx.array, *, axis: int, descending: bool) -> mx.array:
    """An axis in order."""
    return mx.take_along_axis(x, order(x, axis, descending), axis=axis)


def topk(x: mx.array, *, k: int, axis: int, largest: bool, sorted: bool) -> list[mx.array]:
    """The first k of the whole order."""
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise OperatorError(f"{k} elements of axis {axis} of size {n}")
    at = order(x, axis, largest)
    at = at[(slice(None),) * (axis % x.ndim) + (slice(0, k),)]
    return [mx.take_along_axis(x, at, axis=axis), at]


def _stable(node: Node) -> str:
    dtype = node.inputs[0].dtype
    wide = dtype.name in ("u32", "i64", "u64")
    return f"the GPU's sort of {dtype} is not stable" if wide and on_gpu() else ""


LOWERINGS: dict[str, Lowering] = {
    "argsort": plain(argsort, _stable), "sort": plain(sort, _stable),
    "topk": plain(topk, _stable)}
