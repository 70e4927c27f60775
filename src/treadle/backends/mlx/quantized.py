"""Quantised weights in MLX's affine form: fields of 2, 4 or 8 bits, q * scale + bias.

A weight is repacked once, before the first run that needs it. Where a bias, which is -zero * scale,
is neither a number of the scales' dtype nor of f32, MLX's operators cannot hold the weight: zero
points stand for biases then, our kernel reads them, and other products dequantise first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

import mlx.core as mx
import numpy as np

from ...declare.arrays import Array
from ...ir.graph import Node, Value
from ...ir.types import DType, axis_of, count
from ...records import dataclass
from .arrays import HELD, on_gpu, to_mlx, wide
from .contraction import expert_index, gathered, product
from .gather import positions
from .kernels.quantized_row import quantized_row
from .lowering import Call, Join, Lowering

GROUPS = (128, 64, 32)
"""Elements that share a scale in MLX."""
FIELDS = (2, 4, 8)
Weight: TypeAlias = "tuple[mx.array, ...]"
"""Fields, scales and biases, or the dequantised weight alone."""
FEW = 4
"""Rows of one weight up to which our kernel is the fastest on a GPU."""
ROWS = 16
"""The same for rows that have experts of their own."""
TILE = 8
"""Rows for which MLX's product changes from one row at a time to tiles."""
MOST = 128
"""Rows beyond which it is faster to dequantise first."""


@dataclass(frozen=True, slots=True)
class Affine:
    """How a weight with its parameters becomes fields [.., N, K] in words, scales and biases."""

    shapes: tuple[tuple[int, ...], ...]
    source: DType
    axis: int
    block: int
    transposed: bool
    group: int

    def join(self, arrays: Sequence[Array]) -> tuple[mx.array, ...]:
        """Packed fields, scales, and biases or zero points in u8."""
        w, *params = (a.reshape(s) for a, s in zip(arrays, self.shapes, strict=True))
        scale = self._groups(params[0])
        zeros = self._groups(params[1]) if params[1:] else np.zeros(scale.shape, np.int8)
        zero, fields = self._unsigned(zeros), self._unsigned(w)
        words = packed(fields if self.transposed else fields.swapaxes(-1, -2), self.source.bits)
        bias = biases(scale, zero)
        return to_mlx(words), to_mlx(scale), to_mlx(zero if bias is None else bias)

    def _unsigned(self, w: Array) -> Array:
        """Fields counted from the smallest one of their dtype."""
        middle = 2 ** (self.source.bits - 1) if self.source.sort == "int" else 0
        return w.astype(np.int8).view(np.uint8) + np.uint8(middle) if middle else w.astype(np.uint8)

    def _groups(self, p: Array) -> Array:
        """A parameter for each group."""
        n, k = self.shapes[0][-2:] if self.transposed else self.shapes[0][:-3:-1]
        lead, many = self.shapes[0][:-2], k // self.group
        if self.block:
            rows = p if self.transposed else p.swapaxes(-1, -2)
            return np.ascontiguousarray(rows.repeat(-(-self.block // self.group), -1)[..., :many])
        if p.size > 1:
            shape = [1] * len(self.shapes[0])
            shape[self.axis] = -1
            p = p.reshape(shape if self.transposed else [*shape[:-2], shape[-1], shape[-2]])
        return np.ascontiguousarray(np.broadcast_to(p, (*lead, n, many)))


def biases(scale: Array, zero: Array) -> Array | None:
    """-zero * scale in the dtype of the scales or else in f32; None if neither holds them all."""
    with np.errstate(all="ignore"):
        exact = -(zero * scale.astype(np.float64))
        for dtype in (scale.dtype, np.dtype(np.float32)):
            held = exact.astype(dtype)
            if np.array_equal(held.astype(np.float64), exact):
                return held
    return None


def packed(fields: Array, bits: int) -> Array:
    """Fields along the last axis as words of 32 bits, the low ones first."""
    per = 8 // bits
    out = np.zeros((*fields.shape[:-1], fields.shape[-1] // per), np.uint8)
    for i in range(per):
        out |= fields[..., i::per] << np.uint8(bits * i)
    return out.view(np.uint32)


def operands(node: Node) -> tuple[int, ...]:
    """Where a node has its weight, the scales and the zero points."""
    first = 0 if node.op == "quantized_gather" else 1
    split = len(node.inputs) - len(node.keys)
    zero = [split + i for i, k in enumerate(node.keys) if k == "zero"]
    return (first, first + 1, *zero)


def layout(node: Node) -> Affine | str:
    """How the weight of a node is packed, or why it cannot be."""
    values = [node.inputs[i] for i in operands(node)]
    w, scale, rank = values[0], values[1], values[0].type.rank
    block, axis = cast(int, node.attrs["block_size"]), axis_of(cast(int, node.attrs["axis"]), rank)
    transposed = cast(bool, node.attrs.get("transposed", True))
    inner = rank - 1 if transposed else rank - 2
    k = w.shape[inner]
    if not isinstance(k, int) or not all(isinstance(d, int) for v in values for d in v.shape):
        return f"the sizes of the weight {w.type} are not known"
    if w.dtype.bits not in FIELDS or scale.dtype.bits > 32:
        return f"MLX has no fields of {w.dtype} with scales in {scale.dtype}"
    if (axis == inner) != bool(block) and scale.shape not in ((), (1,)):
        return "the scales lie along the axis that is summed, without blocks" if (
            axis == inner) else "the blocks lie across the axis that is summed"
    group = next((g for g in GROUPS if not k % g and not (block and block < k and block % g)), 0)
    if not group:
        return f"rows of {k} in blocks of {block or k}: MLX has groups of 32, 64 and 128"
    shapes = cast("tuple[tuple[int, ...], ...]", tuple([v.shape for v in values]))
    return Affine(shapes, w.dtype, axis, block, transposed, group)


def refuse(node: Node) -> str:
    """Why a node is opened instead."""
    weights = [node.inputs[i] for i in operands(node)]
    if any(not _known(v) for v in weights):
        return "the weight is computed by the graph"
    found = layout(node)
    return found if isinstance(found, str) else ""


def _known(v: Value) -> bool:
    return v.producer is None or v.producer.op in ("reshape", "constant", "full")


def join(node: Node) -> tuple[tuple[int, ...], Join] | None:
    """The operands that are packed together, and how."""
    found = layout(node)
    return None if isinstance(found, str) else (operands(node), found)


# Kernels


def sizes(form: Weight, k: int) -> tuple[int, int]:
    """The group and the bits of a packed weight whose rows have k elements."""
    return k // form[1].shape[-1], 32 * form[0].shape[-1] // k


def real(form: Weight, k: int, dtype: mx.Dtype) -> mx.array:
    """The weight [.., N, K], each element rounded once."""
    if len(form) == 1:
        return form[0].astype(dtype)
    (group, bits), scales, bias = sizes(form, k), wide(form[1]), wide(form[2])
    kind = mx.float16 if on_gpu() else mx.float32  # both hold every field
    fields = mx.dequantize(form[0], mx.ones(scales.shape, kind), mx.zeros(scales.shape, kind),
                           group, bits)
    zero = bias.astype(mx.float32) if bias.dtype == mx.uint8 else mx.round(
        mx.where(scales == 0, mx.zeros_like(bias), -bias / scales))
    grouped = mx.reshape(fields, (*scales.shape, group))
    out = (grouped - mx.expand_dims(zero, -1)) * mx.expand_dims(scales, -1)
    return mx.reshape(out, fields.shape).astype(dtype)


def loose(node: Node, w: mx.array, scale: mx.array, zero: mx.array | None, dtype: mx.Dtype
          ) -> mx.array:
    """A weight that only the run knows, [.., N, K], dequantised."""
    found = layout(node)
    assert isinstance(found, Affine)

    def spread(p: mx.array) -> mx.array:
        if p.ndim == w.ndim and found.block:
            cut = [slice(None)] * w.ndim
            cut[found.axis] = slice(w.shape[found.axis])
            return mx.repeat(p, found.block, found.axis)[tuple(cut)]
        return p if p.size == 1 else mx.reshape(p, [-1 if i == found.axis else 1
                                                    for i in range(w.ndim)])

    out = w.astype(mx.float32)
    out = out if zero is None else out - spread(zero.astype(mx.float32))
    out = (out * spread(wide(scale))).astype(dtype)
    return out if found.transposed else mx.swapaxes(out, -1, -2)


def _weight(call: Call, w: mx.array | Weight, scale: mx.array | None, zero: mx.array | None,
            dtype: mx.Dtype) -> Weight:
    if isinstance(w, tuple):
        return w
    assert scale is not None
    return (loose(call.node, w, scale, zero, dtype),)


def _row(x: mx.array, form: Weight, added: mx.array | None = None,
         expert: mx.array | None = None) -> mx.array | None:
    """By our kernel for rows, where it runs."""
    if len(form) == 1 or not on_gpu():
        return None
    w, scales, bias = form
    return quantized_row(x, w, scales, bias, added=added, expert=expert)


def quantized_matmul(call: Call, x: mx.array, w: mx.array | Weight, scale: mx.array | None, *,
                     zero: mx.array | None = None, bias: mx.array | None = None,
                     **_: object) -> mx.array:
    """A few rows by our kernel on a GPU; more by MLX's product of quantised matrices."""
    k, form = x.shape[-1], _weight(call, w, scale, zero, x.dtype)
    rows = x if x.ndim == 2 else mx.reshape(x, (-1, k))
    y = _row(rows, form, added=bias) if rows.shape[0] <= FEW else None
    if y is None:
        y = _several(rows, form)
        y = (y if bias is None else wide(y) + wide(bias)).astype(x.dtype)
    return y if x.ndim == 2 else mx.reshape(y, (*x.shape[:-1], y.shape[-1]))


def _own(form: Weight) -> bool:
    """Whether MLX's operators take the weight."""
    return len(form) > 1 and form[2].dtype != mx.uint8


def _alike(x: mx.array, form: Weight) -> tuple[mx.array, mx.array, mx.array]:
    """x, scales and biases as MLX multiplies them: in one dtype, on the CPU f32."""
    if on_gpu() and all(p.dtype == x.dtype for p in form[1:]):
        return x, form[1], form[2]
    return wide(x), wide(form[1]), wide(form[2])


def _several(x: mx.array, form: Weight) -> mx.array:
    (m, k), own = x.shape, _own(form)
    if not own:
        return product(x, mx.swapaxes(real(form, k, x.dtype), -1, -2))
    (group, bits), (given, scales, bias) = sizes(form, k), _alike(x, form)
    # MLX's CUDA build lacks 2 bits by f32, and once said so only when the run was evaluated.
    fits = m <= MOST and given.dtype == x.dtype and (bits > 2 or x.dtype != mx.float32)
    padded = max(m, TILE)
    if not on_gpu() or fits and works(padded, form[0].shape[0], k, group, bits, x.dtype):
        full = mx.pad(given, [(0, padded - m), (0, 0)]) if on_gpu() and m < padded else given
        return mx.quantized_matmul(full, form[0], scales, bias, True, group, bits)[:m]
    return product(x, mx.dequantize(form[0], scales, bias, group, bits).astype(x.dtype).T)


@lru_cache(256)
def works(rows: int, n: int, k: int, group: int, bits: int, dtype: mx.Dtype) -> bool:
    """Whether MLX multiplies quantised matrices of these sizes: its CUDA build lacks some."""
    x, scales = mx.zeros((rows, k), dtype), mx.zeros((n, k // group), dtype)
    words = mx.zeros((n, k * bits // 32), mx.uint32)
    return _evaluates(lambda: mx.quantized_matmul(x, words, scales, scales, True, group, bits))


def _evaluates(product: Callable[[], mx.array]) -> bool:
    """Whether MLX can; it may raise in the evaluation after the one that failed."""
    done = True
    for make in (product, lambda: mx.zeros((1,)) + 1):
        try:
            mx.eval(make())
        except (RuntimeError, ValueError):
            done = False
    return done


@lru_cache(256)
def gathers(experts: int, n: int, k: int, group: int, bits: int, dtype: mx.Dtype) -> bool:
    """The same of matrices by expert."""
    x, scales = mx.zeros((TILE, 1, k), dtype), mx.zeros((experts, n, k // group), dtype)
    words, at = mx.zeros((experts, n, k * bits // 32), mx.uint32), mx.zeros((TILE,), mx.int32)
    return _evaluates(lambda: mx.gather_qmm(x, words, scales, scales, None, at, True, group, bits))


def quantized_grouped_matmul(call: Call, x: mx.array, w: mx.array | Weight,
                             scale: mx.array | None, expert: mx.array, *,
                             zero: mx.array | None = None, **_: object) -> mx.array:
    """Few rows by our kernel on a GPU; else by MLX's product of gathered quantised matrices."""
    (m, k), form = x.shape, _weight(call, w, scale, zero, x.dtype)
    experts, n = form[0].shape[0], form[0].shape[1]
    at = expert_index(call, expert, experts)
    if m <= ROWS and (few := _row(x, form, expert=at)) is not None:
        return few
    if _own(form):
        (group, bits), (given, scales, bias) = sizes(form, k), _alike(x, form)
        if not on_gpu() or gathers(experts, n, k, group, bits, given.dtype):
            y = mx.gather_qmm(mx.expand_dims(given, 1), form[0], scales, bias, None, at, True,
                              group, bits)
            return mx.squeeze(y, 1).astype(x.dtype)
    if m >= experts:
        return gathered(x, mx.swapaxes(real(form, k, x.dtype), -1, -2), at)
    each = wide(real(tuple([mx.take(part, at, axis=0) for part in form]), k, x.dtype))
    y = mx.matmul(wide(mx.expand_dims(x, 1)), mx.swapaxes(each, -1, -2))
    return mx.squeeze(y, 1).astype(x.dtype)


def quantized_gather(call: Call, w: mx.array | Weight, scale: mx.array | None,
                     indices: mx.array, *, zero: mx.array | None = None, **_: object) -> mx.array:
    """The rows taken, dequantised."""
    node = call.node
    dtype, k = HELD[node.outputs[0].dtype], cast(int, node.inputs[0].shape[1])
    form = _weight(call, w, scale, zero, dtype)
    at = positions(call, indices, form[0].shape[0], 0)
    return real(tuple([mx.take(part, at, axis=0) for part in form]), k, dtype)


def described(node: Node, form: Weight | None) -> str:
    """The kernel of a node for its explanation."""
    found = layout(node)
    if isinstance(found, str) or form is not None and len(form) == 1:
        return "a weight dequantised in each run"
    parts = f"{found.source.bits} bits, groups of {found.group}"
    if node.op == "quantized_gather":
        return f"mx.dequantize of the rows taken, {parts}"
    many = "mx.gather_qmm"
    if node.op == "quantized_matmul":
        many = "mx.quantized_matmul" + f" (dequantised beyond {MOST} rows)" * on_gpu()
    if form is not None and not _own(form):
        many = "a product after dequantising (f32 does not hold -zero * scale)"
    x = node.inputs[0].shape
    rows = count(x[:-1])
    few = FEW if node.op == "quantized_matmul" else ROWS
    if not on_gpu() or isinstance(rows, int) and rows > few:
        return f"{many}, {parts}"
    more = "" if isinstance(rows, int) else f" for up to {few} rows, else {many}"
    return f"quantized_row{more}, {parts}"


LOWERINGS: dict[str, Lowering] = {
    "quantized_matmul": Lowering(quantized_matmul, refuse, join=join),
    "quantized_grouped_matmul": Lowering(quantized_grouped_matmul, refuse, join=join),
    "quantized_gather": Lowering(quantized_gather, refuse, join=join)}
