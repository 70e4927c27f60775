"""Reading and writing elements at computed positions.

MLX checks no index: each is clamped, and one out of range is a fault that the run reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from ...errors import OperatorError
from ...ir.graph import Node
from .arrays import number, on_gpu, wide
from .lowering import Call, Lowering
from .reductions import from_order_key, order_key

Combine: TypeAlias = Callable[[mx.array, mx.array, mx.array], mx.array]


def _range_text(size: int, axis: int) -> Callable[[int], str]:
    return lambda v: f"the index {v} is out of range for axis {axis} of size {size}"


def _fraction(_: int) -> str:
    return "an index is no integer"


def positions(call: Call, indices: mx.array, size: int, axis: int) -> mx.array:
    """Indices into an axis of `size`, counted from 0, as i64."""
    at = indices.astype(mx.int64)
    if mx.issubdtype(indices.dtype, mx.inexact):
        call.fault(mx.not_equal(at.astype(mx.float32), indices.astype(mx.float32)), at, _fraction)
    n, zero = number(size, mx.int64), number(0, mx.int64)
    bad = mx.logical_or(at < -n, at >= n)
    if indices.dtype == mx.uint64:
        bad = mx.logical_or(bad, at < zero)
    call.fault(bad, at, _range_text(size, axis))
    at = mx.where(at < zero, at + n, at)
    return mx.clip(at, zero, number(max(size - 1, 0), mx.int64))


def gather(call: Call, x: mx.array, indices: mx.array, *, axis: int) -> mx.array:
    """Slices of an axis."""
    return mx.take(x, positions(call, indices, x.shape[axis], axis), axis=axis)


def _fits_off_axis(x: mx.array, indices: mx.array, axis: int) -> mx.array:
    """x cut to the sizes of the indices off the axis."""
    axis %= x.ndim
    if any(n > s for i, (n, s) in enumerate(zip(indices.shape, x.shape, strict=True))
           if i != axis):
        raise OperatorError(f"indices {list(indices.shape)} exceed {list(x.shape)} off axis {axis}")
    return x[tuple([slice(None) if i == axis else slice(0, n)
                    for i, n in enumerate(indices.shape)])]


def gather_elements(call: Call, x: mx.array, indices: mx.array, *, axis: int) -> mx.array:
    """Element by element along an axis."""
    at = positions(call, indices, x.shape[axis], axis)
    return mx.take_along_axis(_fits_off_axis(x, indices, axis), at, axis=axis)


def _strided(shape: tuple[int, ...], axis: int) -> mx.array:
    """The own position along an axis, shaped to broadcast."""
    return mx.reshape(mx.arange(shape[axis], dtype=mx.int64),
                      [-1 if i == axis else 1 for i in range(len(shape))])


def _rows(call: Call, x: mx.array, indices: mx.array, batch: int = 0
          ) -> tuple[mx.array, tuple[int, ...]]:
    """The row-major number of each addressed slice, and the shape of a slice."""
    depth = indices.shape[-1]
    if tuple(x.shape[:batch]) != tuple(indices.shape[:batch]):
        raise OperatorError(f"{list(x.shape)} and indices {list(indices.shape)} differ in their "
                            f"{batch} batch axes")
    lead = tuple(indices.shape[:-1])
    at = [_strided(lead, i) for i in range(batch)]
    at += [positions(call, indices[..., i], x.shape[batch + i], batch + i) for i in range(depth)]
    rows = mx.zeros(lead, mx.int64)
    for axis, index in enumerate(at):
        rows = rows * number(x.shape[axis], mx.int64) + index
    return rows, tuple(x.shape[batch + depth:])


def gather_nd(call: Call, x: mx.array, indices: mx.array, *, batch_dims: int) -> mx.array:
    """Slices that index tuples name."""
    rows, rest = _rows(call, x, indices, batch_dims)
    lead = int(np.prod(x.shape[:x.ndim - len(rest)], dtype=np.int64))
    return mx.take(mx.reshape(x, (lead, *rest)), rows, axis=0)


def _last_wins(flat: mx.array, at: mx.array, updates: mx.array) -> mx.array:
    """Writing in parallel with the order of writing one after another."""
    turn = mx.arange(at.shape[0], dtype=mx.int32)
    winner = mx.full((flat.shape[0],), -1, dtype=mx.int32).at[at].maximum(turn)
    found = mx.take(updates, mx.maximum(winner, number(0, mx.int32)), axis=0)
    hit = mx.reshape(winner >= number(0, mx.int32), (-1, *[1] * (flat.ndim - 1)))
    return mx.where(hit, found, flat)


def _overwrite(flat: mx.array, at: mx.array, updates: mx.array) -> mx.array:
    if on_gpu():
        return _last_wins(flat, at, updates)
    out = mx.array(flat)
    out[at] = updates
    return out


def _largest(flat: mx.array, at: mx.array, updates: mx.array) -> mx.array:
    """Maxima of floats through integer keys: MLX's own lose a NaN."""
    if not mx.issubdtype(flat.dtype, mx.inexact):
        return flat.at[at].maximum(updates)
    out = from_order_key(order_key(flat).at[at].maximum(order_key(updates)))
    return out.astype(flat.dtype)


def _smallest(flat: mx.array, at: mx.array, updates: mx.array) -> mx.array:
    if not mx.issubdtype(flat.dtype, mx.inexact):
        return flat.at[at].minimum(updates)
    return mx.negative(_largest(mx.negative(flat), at, mx.negative(updates)))


COMBINE: dict[str, Combine] = {
    "none": _overwrite,
    "add": lambda x, at, u: x.at[at].add(u), "mul": lambda x, at, u: x.at[at].multiply(u),
    "max": _largest, "min": _smallest}


def _write(flat: mx.array, at: mx.array, updates: mx.array, reduction: str) -> mx.array:
    if reduction not in ("add", "mul"):
        return COMBINE[reduction](flat, at, updates)
    return COMBINE[reduction](wide(flat), at, wide(updates)).astype(flat.dtype)


def scatter_elements(call: Call, x: mx.array, indices: mx.array, updates: mx.array, *, axis: int,
                     reduction: str) -> mx.array:
    """Updates written at the index on the axis and the own place elsewhere."""
    if tuple(updates.shape) != tuple(indices.shape):
        raise OperatorError(f"updates {list(updates.shape)} must be {list(indices.shape)}")
    axis %= x.ndim
    _fits_off_axis(x, indices, axis)
    at = positions(call, indices, x.shape[axis], axis)
    flat = mx.zeros(indices.shape, mx.int64)
    for i, n in enumerate(x.shape):
        own = at if i == axis else _strided(tuple(indices.shape), i)
        flat = flat * number(n, mx.int64) + own
    out = _write(mx.reshape(x, (-1,)), mx.reshape(flat, (-1,)), mx.reshape(updates, (-1,)),
                 reduction)
    return mx.reshape(out, x.shape)


def scatter_nd(call: Call, x: mx.array, indices: mx.array, updates: mx.array, *,
               reduction: str) -> mx.array:
    """Updates written over the slices that index tuples name."""
    rows, rest = _rows(call, x, indices)
    if tuple(updates.shape) != (*indices.shape[:-1], *rest):
        raise OperatorError(f"updates {list(updates.shape)} must be "
                            f"{[*indices.shape[:-1], *rest]}")
    inner = int(np.prod(rest, dtype=np.int64))
    out = _write(mx.reshape(x, (-1, inner)), mx.reshape(rows, (-1,)),
                 mx.reshape(updates, (-1, inner)), reduction)
    return mx.reshape(out, x.shape)


def kv_append(call: Call, cache: mx.array, update: mx.array, at: mx.array, *, axis: int, mode: str
              ) -> mx.array:
    """The cache with rows of the update in place: every element is read from one or the other."""
    axis %= cache.ndim
    size, count = cache.shape[axis], update.shape[axis]
    if count > size:
        raise OperatorError(f"{count} entries do not fit {size}")
    if mode == "circular" and at.dtype == mx.uint64 and size:
        at = mx.remainder(at, number(size, mx.uint64))
    first, n = at.astype(mx.int64), number(size, mx.int64)
    if mode == "linear":
        last = number(size - count, mx.int64)
        bad = mx.logical_or(first < number(0, mx.int64), first > last)
        if at.dtype == mx.uint64:
            bad = mx.logical_or(bad, first < number(0, mx.int64))
        call.fault(bad, first, lambda v: f"at = {v}: {count} entries do not fit {size}")
    lead = mx.reshape(mx.remainder(first, n), (-1, *[1] * (cache.ndim - 1)))
    turn = mx.remainder(_strided(tuple(cache.shape), axis) - lead + n, n)
    new = mx.take_along_axis(update, mx.broadcast_to(
        mx.minimum(turn, number(count - 1, mx.int64)), cache.shape), axis=axis)
    return mx.where(turn < number(count, mx.int64), new, cache)


def _plain_numbers(node: Node) -> str:
    return "scattering of complex numbers" if node.inputs[0].dtype.sort == "complex" else ""


def _scatters(node: Node) -> str:
    x, reduction = node.inputs[0], node.attrs["reduction"]
    if x.dtype.name == "bool" and reduction != "none":
        return "scattering of bool with a reduction"
    if x.dtype.bits == 64 and reduction != "none" and on_gpu():
        return "the GPU has no 64-bit atomic operations"
    return _plain_numbers(node)


LOWERINGS: dict[str, Lowering] = {
    "gather": Lowering(gather), "gather_elements": Lowering(gather_elements),
    "gather_nd": Lowering(gather_nd), "kv_append": Lowering(kv_append),
    "scatter_elements": Lowering(scatter_elements, _scatters),
    "scatter_nd": Lowering(scatter_nd, _scatters)}
