"""Attention on MLX's fused kernel, where it means the same."""

from __future__ import annotations

import math

import mlx.core as mx

from ...ir.graph import Node
from .arrays import number, on_gpu, wide
from .lowering import Lowering, plain


def _per_batch(x: mx.array) -> mx.array:
    x = x.astype(mx.int64)
    return x if x.ndim == 0 else mx.reshape(x, (-1, 1, 1, 1))


def _count(n: int, axis: int) -> mx.array:
    return mx.reshape(mx.arange(n, dtype=mx.int64), [-1 if i == axis else 1 for i in range(4)])


def _visible(shape: tuple[int, int], mask: mx.array | None, offset: mx.array | None,
             valid_length: mx.array | None, start: int, left: int | None, right: int | None
             ) -> mx.array | None:
    """Which keys each query sees; None when it sees all."""
    rows, columns = shape
    j, parts = _count(columns, 3), list[mx.array]()
    p = _count(rows, 2) + number(start, mx.int64)
    p = p if offset is None else p + _per_batch(offset)
    parts += [] if left is None else [j >= p - number(left, mx.int64)]
    parts += [] if right is None else [j <= p + number(right, mx.int64)]
    parts += [] if valid_length is None else [j < _per_batch(valid_length)]
    parts += [] if mask is None else [mask]
    out = None
    for part in parts:
        out = part if out is None else mx.logical_and(out, part)
    return out


def _plain_causal(q: mx.array, k: mx.array, left: int | None, right: int | None, start: int,
                  others: bool) -> bool:
    """MLX aligns its causal mask to the last key, which is start = L - S; it needs S <= L."""
    s, n = q.shape[2], k.shape[2]
    return not others and left is None and right == 0 and start == n - s and s <= n


def attention(q: mx.array, k: mx.array, v: mx.array, *, mask: mx.array | None = None,
              bias: mx.array | None = None, offset: mx.array | None = None,
              valid_length: mx.array | None = None, sink: mx.array | None = None,
              scale: float | None, softcap: float | None, start: int, left: int | None,
              right: int | None) -> mx.array:
    """softmax(scale q kT + bias, over visible keys) v; rows that see no key give zeros."""
    dtype = q.dtype
    if not on_gpu():  # its composed form would round the scores of halves
        q, k, v = wide(q), wide(k), wide(v)
    by = 1.0 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale
    sinks = None if sink is None else sink.astype(q.dtype)
    others = any(x is not None for x in (mask, bias, offset, valid_length))
    if _plain_causal(q, k, left, right, start, others):
        return mx.fast.scaled_dot_product_attention(
            q, k, v, scale=by, mask="causal", sinks=sinks).astype(dtype)
    seen = _visible((q.shape[2], k.shape[2]), mask, offset, valid_length, start, left, right)
    some = None if seen is None else mx.any(seen, axis=3, keepdims=True)
    if some is not None and seen is not None:
        seen = mx.logical_or(seen, mx.logical_not(some))  # those rows are replaced below
    if valid_length is not None:  # what lies beyond may be NaN, which 0 does not erase
        inside = _count(v.shape[2], 2) < _per_batch(valid_length)
        v = mx.where(inside, v, number(0.0, v.dtype))
    out = mx.fast.scaled_dot_product_attention(
        q, k, v, scale=by, mask=_combined(seen, bias, q.dtype), sinks=sinks)
    out = out if some is None else mx.where(some, out, number(0.0, out.dtype))
    return out.astype(dtype)


def _combined(seen: mx.array | None, bias: mx.array | None, dtype: mx.Dtype) -> mx.array | None:
    """A mask in one of MLX's two forms: bool, or added in the dtype of the operands."""
    if bias is None:
        return seen
    added = bias.astype(dtype)
    return added if seen is None else mx.where(seen, added, number(-math.inf, dtype))


def _attends(node: Node) -> str:
    if node.attrs["softcap"] is not None:
        return "MLX's attention has no softcap"
    dtypes = {v.dtype for v in node.inputs[:3]}
    if len(dtypes) > 1:
        return "MLX's attention takes operands of one dtype"
    if node.reads() or any(not isinstance(v.shape[3], int) for v in node.inputs[:3]):
        return "a start or a head size that only a run gives"
    return ""


LOWERINGS: dict[str, Lowering] = {"attention": plain(attention, _attends)}
