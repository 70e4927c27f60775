"""Folds over axes, running folds and their dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import mlx.core as mx

from ...ir.graph import Node
from ...ir.types import DTYPES
from .arrays import OURS, constant, number, on_gpu, wide
from .lowering import Lowering, plain

Fold: TypeAlias = Callable[..., mx.array]
BLOCK = 1024
"""Elements that are added one after another: MLX's CPU sums lose a digit for each decade."""


def _blocked(x: mx.array, axes: list[int], keepdims: bool) -> mx.array:
    """A sum of sums of blocks, for CPU sums of many elements."""
    kept = [i for i in range(x.ndim) if i not in axes]
    total = math.prod(x.shape[i] for i in axes)
    if total <= BLOCK or on_gpu():
        return mx.sum(x, axis=axes, keepdims=keepdims)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)] if keepdims else [
        x.shape[i] for i in kept]
    flat = mx.reshape(mx.transpose(x, [*kept, *axes]), (*[x.shape[i] for i in kept], total))
    while total > BLOCK:
        whole = total // BLOCK * BLOCK
        head = mx.reshape(flat[..., :whole], (*flat.shape[:-1], whole // BLOCK, BLOCK))
        parts = [mx.sum(head, axis=-1)]
        if whole < total:
            parts.append(mx.sum(flat[..., whole:], axis=-1, keepdims=True))
        flat = mx.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
        total = flat.shape[-1]
    return mx.reshape(mx.sum(flat, axis=-1), shape)


def total(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    """Sum; halves are added in f32, integers wrap in their own type."""
    at = sorted(a % x.ndim for a in axes)
    floats = mx.issubdtype(x.dtype, mx.inexact)
    out = _blocked(wide(x), at, keepdims) if floats else mx.sum(x, axis=at, keepdims=keepdims)
    return out.astype(x.dtype)


def product(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    """Product; halves are multiplied in f32."""
    return mx.prod(wide(x), axis=list(axes), keepdims=keepdims).astype(x.dtype)


def _extreme(fold: Fold, flags: Fold) -> Fold:
    def run(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        op = flags if x.dtype == mx.bool_ else fold
        return op(x, axis=list(axes), keepdims=keepdims)

    return run


def _flags(fold: Fold) -> Fold:
    def run(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        return fold(x, axis=list(axes), keepdims=keepdims)

    return run


def some_axes(fold: Fold) -> Fold:
    """A fold over no axes changes nothing; MLX would fold over all."""
    def run(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        return fold(x, axes=axes, keepdims=keepdims) if axes else x

    return run


def _no_complex(node: Node) -> str:
    return "folds of complex numbers" if node.inputs[0].dtype.sort == "complex" else ""


def _running(fold: Fold, unit: int) -> Fold:
    def run(x: mx.array, *, axis: int, exclusive: bool, reverse: bool) -> mx.array:
        out = fold(wide(x), axis=axis, reverse=reverse, inclusive=not exclusive)
        return out.astype(x.dtype)

    return run


def order_key(x: mx.array) -> mx.array:
    """Integers in the order of x: NaN is the largest, the zeros are equal; i64 for 64 bits."""
    if x.dtype == mx.bool_:
        return x.astype(mx.int32)
    if mx.issubdtype(x.dtype, mx.integer):
        small = x.itemsize < 4 or x.dtype == mx.int32
        return x.astype(mx.int32) if small else _signed(x)
    w = wide(x)
    w = mx.where(mx.not_equal(w, w), number(float("nan"), w.dtype), w + number(0.0, w.dtype))
    bits = w.view(mx.int32)
    top = constant(2**31 - 1, DTYPES["i32"])
    bits = mx.where(bits < constant(0, DTYPES["i32"]), mx.bitwise_xor(bits, top), bits)
    return mx.where(mx.not_equal(w, w), top, bits)


def from_order_key(key: mx.array) -> mx.array:
    """The f32 behind a key."""
    top = constant(2**31 - 1, DTYPES["i32"])
    return mx.where(key < constant(0, DTYPES["i32"]), mx.bitwise_xor(key, top), key).view(
        mx.float32)


def _signed(x: mx.array) -> mx.array:
    """i64 in the order of u32, i64 or u64."""
    if x.dtype != mx.uint64:
        return x.astype(mx.int64)
    return mx.bitwise_xor(x, constant(2**63, DTYPES["u64"])).view(mx.int64)


def _arg(largest: bool) -> Fold:
    def run(x: mx.array, *, axis: int, keepdims: bool, select_last: bool) -> mx.array:
        key = order_key(x)
        if not largest and mx.issubdtype(x.dtype, mx.inexact):  # a NaN wins here too
            low = number(-(2**31), key.dtype)
            key = mx.where(mx.not_equal(x, x), low, key)
        if select_last:
            key = mx.take(key, mx.arange(x.shape[axis] - 1, -1, -1), axis=axis)
        at = (mx.argmax if largest else mx.argmin)(key, axis=axis, keepdims=keepdims)
        at = at.astype(mx.int64)
        return number(x.shape[axis] - 1, mx.int64) - at if select_last else at

    return run


def identity_of(op: str, dtype: mx.Dtype) -> complex:
    """What a fold of nothing gives."""
    ours = OURS[dtype]
    low = {"float": -math.inf, "bool": 0, "uint": 0}.get(ours.sort, -(2 ** (ours.bits - 1)))
    high = {"float": math.inf, "bool": 1}.get(
        ours.sort, 2 ** (ours.bits - (ours.sort == "int")) - 1)
    return {"sum": 0, "prod": 1, "reduce_max": low, "reduce_min": high, "any": 0, "all": 1}[op]


def _folding(op: str, fold: Fold) -> Lowering:
    def run(x: mx.array, *, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        if x.size:
            return fold(x, axes=axes, keepdims=keepdims)
        gone = {a % x.ndim for a in axes}
        shape = [1 if i in gone else n for i, n in enumerate(x.shape) if keepdims or i not in gone]
        return mx.broadcast_to(constant(identity_of(op, x.dtype), OURS[x.dtype]), shape)

    return plain(some_axes(run), _no_complex, empty=True)


LOWERINGS: dict[str, Lowering] = {
    "sum": _folding("sum", total), "prod": _folding("prod", product),
    "reduce_max": _folding("reduce_max", _extreme(mx.max, mx.any)),
    "reduce_min": _folding("reduce_min", _extreme(mx.min, mx.all)),
    "any": _folding("any", _flags(mx.any)), "all": _folding("all", _flags(mx.all)),
    "cumsum": plain(_running(mx.cumsum, 0), _no_complex),
    "cumprod": plain(_running(mx.cumprod, 1), _no_complex),
    "argmax": plain(_arg(True)), "argmin": plain(_arg(False))}
