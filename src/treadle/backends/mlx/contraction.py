"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from ...ir.graph import Node
from .arrays import number, on_gpu, wide
from .lowering import Call, Lowering, plain

ALIGNED = 8
"""What MLX's CUDA gather_mm needs of its sizes; others end in a fault that ends the process."""
EXACT = 256
"""Products of two centred bytes whose sum f32 holds exactly."""


def product(a: mx.array, b: mx.array) -> mx.array:
    """a @ b; halves accumulate in f32 and round once."""
    if on_gpu() or a.dtype == mx.float32:
        return mx.matmul(a, b)
    return mx.matmul(wide(a), wide(b)).astype(a.dtype)


def dot_general(a: mx.array, b: mx.array, *, contract_a: Sequence[int],
                contract_b: Sequence[int], batch_a: Sequence[int], batch_b: Sequence[int]
                ) -> mx.array:
    """Products summed over the contracting axes, as one batched product."""
    def side(x: mx.array, batch: Sequence[int], contract: Sequence[int]
             ) -> tuple[list[int], list[int], list[int]]:
        lead, inner = [i % x.ndim for i in batch], [i % x.ndim for i in contract]
        return lead, inner, [i for i in range(x.ndim) if i not in (*lead, *inner)]

    lead_a, inner_a, free_a = side(a, batch_a, contract_a)
    lead_b, inner_b, free_b = side(b, batch_b, contract_b)
    batch = [a.shape[i] for i in lead_a]
    rows, columns = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
    inner = math.prod(a.shape[i] for i in inner_a)
    left = mx.transpose(a, [*lead_a, *free_a, *inner_a]) if a.ndim else a
    right = mx.transpose(b, [*lead_b, *inner_b, *free_b]) if b.ndim else b
    out = product(mx.reshape(left, (*batch, math.prod(rows), inner)),
                  mx.reshape(right, (*batch, inner, math.prod(columns))))
    return mx.reshape(out, (*batch, *rows, *columns))


def _floats(node: Node) -> str:
    dtype = node.inputs[0].dtype
    return "" if dtype.sort == "float" else f"MLX multiplies no matrices of {dtype}"


def expert_index(call: Call, expert: mx.array, experts: int) -> mx.array:
    """Indices of experts as i32, checked and clamped."""
    at, zero = expert.astype(mx.int32), number(0, mx.int32)
    whole = expert.astype(mx.int64)
    bad = mx.logical_or(whole < number(0, mx.int64), whole >= number(experts, mx.int64))
    call.fault(bad, whole, lambda v: f"expert = {v} is outside 0..{experts - 1}")
    return mx.clip(at, zero, number(experts - 1, mx.int32))


def grouped_matmul(call: Call, x: mx.array, w: mx.array, expert: mx.array) -> mx.array:
    """Each row by its expert's matrix."""
    return gathered(x, w, expert_index(call, expert, w.shape[0]))


def gathered(x: mx.array, w: mx.array, at: mx.array) -> mx.array:
    """Rows of x[M,K] by matrices of w[E,K,N] whose numbers are in range."""
    a, b = (x, w) if on_gpu() else (wide(x), wide(w))
    rows = mx.expand_dims(a, 1)
    aligned = not (w.shape[1] % ALIGNED or w.shape[2] % ALIGNED)
    out = mx.gather_mm(rows, b, rhs_indices=at) if aligned or not on_gpu() else mx.matmul(
        rows, mx.take(b, at, axis=0))
    return mx.squeeze(out, 1).astype(x.dtype)


def grouped_outer(call: Call, x: mx.array, y: mx.array, expert: mx.array, *, experts: int
                  ) -> mx.array:
    """Sums of outer products by expert: rows of other experts count as zero."""
    at = expert_index(call, expert, experts)
    own = mx.equal(mx.reshape(mx.arange(experts, dtype=mx.int32), (-1, 1)), at)
    rows = mx.where(mx.expand_dims(own, -1), wide(x), number(0.0, mx.float32))
    return mx.matmul(mx.swapaxes(rows, 1, 2), wide(y)).astype(x.dtype)


def _centred(x: mx.array, zero: mx.array | None, row: bool) -> mx.array:
    real = x.astype(mx.float32)
    if zero is None:
        return real
    by_row = row and zero.ndim == 1 and tuple(zero.shape) != (1,)
    return real - (mx.expand_dims(zero, -1) if by_row else zero).astype(mx.float32)


def matmul_integer(a: mx.array, b: mx.array, *, a_zero: mx.array | None = None,
                   b_zero: mx.array | None = None) -> mx.array:
    """Sums of 256 products are exact in f32; those sums are added in i32."""
    left, right = _centred(a, a_zero, True), _centred(b, b_zero, False)
    row, column = left.ndim == 1, right.ndim == 1
    left = mx.expand_dims(left, 0) if row else left
    right = mx.expand_dims(right, -1) if column else right
    out: mx.array | None = None
    for start in range(0, left.shape[-1], EXACT):
        part = mx.matmul(left[..., start:start + EXACT], right[..., start:start + EXACT, :])
        part = part.astype(mx.int32)
        out = part if out is None else out + part
    assert out is not None
    out = mx.squeeze(out, -1) if column else out
    return mx.squeeze(out, -1 if column else -2) if row else out


LOWERINGS: dict[str, Lowering] = {
    "matmul": plain(product, _floats, empty=False), "dot_general": plain(dot_general, _floats),
    "grouped_matmul": Lowering(grouped_matmul, _floats),
    "grouped_outer": Lowering(grouped_outer, _floats),
    "matmul_integer": plain(matmul_integer)}
