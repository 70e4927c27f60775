"""Tensors made from sizes and positions."""

from __future__ import annotations

import numpy as np

from ..declare.arrays import Array, compute_dtype, ints, np_dtype
from ..declare.kinds import composite, leaf, linear
from ..declare.opdef import cast_value, full_value
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import F32, I64, DType, Shape, TensorType, axis_of, shape_text
from .compare import eq, where
from .extents import inserted
from .movement import narrow, reshape, unsqueeze


def _counted(dtype: DType, shape: Shape) -> TensorType:
    if dtype.sort not in ("int", "uint", "float", "complex"):
        raise OperatorError(f"positions do not count in {dtype}", hint="use a number dtype")
    if any(isinstance(s, int) and s < 0 for s in shape):
        raise OperatorError(f"the shape {shape_text(shape)} has a negative size")
    return TensorType(shape, dtype)


def _count(n: int, dtype: DType) -> Array:
    return np.arange(n, dtype=np_dtype(compute_dtype(dtype)))


def _range_types(*, start: float | Size, step: float | Size, length: Size, dtype: DType
                 ) -> TensorType:
    return _counted(dtype, (length,))


@leaf(types=_range_types, samples=[
    known(start=1, step=2, length=2, dtype="i64", expect=[[1, 3]]),
    known(start=10, step=-2, length=2, dtype="i32", expect=[arr([10, 8], "i32")]),
    known(start=1.0, step=0.5, length=3, dtype="bf16", expect=[arr([1.0, 1.5, 2.0], "bf16")]),
    known(start=0, step=1, length=0, dtype="f32", expect=[[]])])
def range_(*, start: float | Size, step: float | Size, length: Size, dtype: DType) -> Array:
    """start + i * step for i below length (ONNX Range); halves are computed in f32."""
    (n,) = ints((length,))
    count = _count(n, dtype)
    first, by = np.asarray(start).astype(count.dtype), np.asarray(step).astype(count.dtype)
    return (first + count * by).astype(np_dtype(dtype), copy=False)


def _iota_types(*, shape: Shape, axis: int, dtype: DType) -> TensorType:
    axis_of(axis, len(shape))
    return _counted(dtype, shape)


@leaf(types=_iota_types, samples=[
    known(shape=(2, 3), axis=1, dtype="i64", expect=[[[0, 1, 2], [0, 1, 2]]]),
    known(shape=(2, 1), axis=-2, dtype="f32", expect=[[[0.0], [1.0]]])])
def iota(*, shape: tuple[Size, ...], axis: int, dtype: DType) -> Array:
    """The position along an axis in every element (XLA Iota)."""
    sizes = ints(shape)
    column = [1] * len(sizes)
    column[axis] = -1
    count = _count(sizes[axis], dtype).astype(np_dtype(dtype), copy=False)
    return np.broadcast_to(count.reshape(column), sizes)


def _eye_types(*, rows: Size, cols: Size, k: int, dtype: DType) -> TensorType:
    if dtype.sort not in ("bool", "int", "uint", "float", "complex"):
        raise OperatorError(f"{dtype} has no 1", hint="use a number dtype")
    return TensorType((rows, cols), dtype)


@leaf(types=_eye_types, samples=[
    known(rows=2, cols=3, k=1, dtype="f32", expect=[[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]),
    known(rows=2, cols=1, k=-1, dtype="bool", expect=[[[False], [True]]])])
def eye(*, rows: Size, cols: Size, k: int = 0, dtype: DType) -> Array:
    """1 on the k-th diagonal, counted upwards, and 0 elsewhere (numpy.eye, ONNX EyeLike)."""
    n, m = ints((rows, cols))
    return np.eye(n, m, _clamp(k, n, m), np_dtype(dtype))


def _clamp(k: int, rows: int, cols: int) -> int:
    """The diagonal k, or the nearest one outside the matrix."""
    return max(-rows, min(k, cols))


def _trilu_types(x: TensorType, *, k: Size, upper: bool) -> TensorType:
    if x.rank < 2:
        raise OperatorError(f"{x} has no last two axes")
    return x


def _trilu_back(g: Value, x: Value, *, k: Size, upper: bool) -> Value:
    return trilu(g, k=k, upper=upper)


@linear(types=_trilu_types, transpose=_trilu_back, samples=[
    sample("f32[2,3,4]", k=0, upper=True), sample("f32[0,2]", k=1, upper=False),
    known([[4, 7, 3], [1, 2, 8]], k=1, upper=True, expect=[[[0, 7, 3], [0, 0, 8]]]),
    known([[4, 7, 3], [1, 2, 8]], k=-1, upper=False, expect=[[[0, 0, 0], [1, 0, 0]]]),
    known(arr([[4.0]], "bf16"), k=2**40, upper=True, expect=[arr([[0.0]], "bf16")])])
def trilu(x: Array, *, k: Size = 0, upper: bool = True) -> Array:
    """The last two axes from (upper) or up to (lower) diagonal k, else 0 or "" (ONNX Trilu)."""
    rows, cols = x.shape[-2:]
    (at,) = ints((k,))
    below = np.tri(rows, cols, _clamp(at - 1 if upper else at, rows, cols), bool)
    zero = np.asarray("", object) if x.dtype == object else np.zeros((), x.dtype)
    return np.where(below, zero, x) if upper else np.where(below, x, zero)


@composite(samples=[
    known([1, -1, 3], depth=3, expect=[[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]),
    known([[1, 0]], depth=2, axis=1, dtype="i32", expect=[arr([[[0, 1], [1, 0]]], "i32")]),
    known(arr([0.0], "f32"), values=[2, 5], depth=2, expect=[[[5, 2]]]),
    known(arr(1, "u8"), depth=2, on=0.5, off=-1.0, expect=[[-1.0, 0.5]])])
def one_hot(indices: Value, *, values: Value | None = None, depth: Size, axis: int = -1,
            on: float | int = 1, off: float | int = 0, dtype: DType = F32) -> Value:
    """`on` where the new axis of size `depth` is at the index and `off` elsewhere (ONNX OneHot).

    Negative indices count from the end; one out of range gives `off` everywhere. `values[2]`
    holds off and on as a tensor instead, of any dtype.
    """
    rank = indices.type.rank + 1
    (at,) = inserted((axis,), rank - 1)
    line = tuple([depth if i == at else 1 for i in range(rank)])
    index = unsqueeze(cast_value(indices, I64), axes=(at,))
    index = where(index < 0, index + full_value(depth, I64), index)
    hit = eq(index, iota(shape=line, axis=at, dtype=I64))
    if values is None:
        return where(hit, _number(on, dtype), _number(off, dtype))
    return where(hit, *(reshape(narrow(values, axis=0, start=i, length=1), shape=())
                        for i in (1, 0)))


def _number(value: float | int, dtype: DType) -> Value:
    floats = dtype.sort in ("float", "complex")
    return full_value(float(value) if floats else value, dtype)
