"""Running folds and orders along one axis.

Orders: NaN is the largest element, -0 equals 0, and ties go to the lower index.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..declare.arrays import Array, ints, widen
from ..declare.kinds import composite, linear, structured
from ..declare.opdef import cast_value, wide
from ..declare.schema import arr, known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import BOOL, I64, TensorType, axis_of
from .compare import where
from .convert import stop_gradient
from .extents import surely_exceeds, with_axis, zeros
from .gather import gather_elements, scatter_elements
from .generate import eye, one_hot, trilu
from .mathfn import exp, log
from .movement import expand, transpose, unsqueeze
from .reduce import reduce_max, sum_

NAN, INF = float("nan"), float("inf")
_FEW = 64
"""Axes up to this long are sorted outright when only some elements are asked for."""


def _scanned(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    axis_of(axis, x.rank)
    if x.dtype.sort not in ("int", "uint", "float", "complex"):
        raise OperatorError(f"{x} holds no numbers", hint="cast it")
    return x


def _run(fold: Callable[..., Array], x: Array, axis: int, unit: int, exclusive: bool,
         reverse: bool) -> Array:
    axis %= x.ndim
    w = np.flip(widen(x), axis) if reverse else widen(x)
    out = fold(w, axis=axis, dtype=w.dtype)
    if exclusive:
        lead, shifted = (slice(None),) * axis, np.empty_like(out)
        shifted[(*lead, slice(0, 1))] = unit
        shifted[(*lead, slice(1, None))] = out[(*lead, slice(0, -1))]
        out = shifted
    return (np.flip(out, axis) if reverse else out).astype(x.dtype, copy=False)


def _cumsum_back(g: Value, x: Value, *, axis: int, exclusive: bool, reverse: bool) -> Value:
    return cumsum(g, axis=axis, exclusive=exclusive, reverse=not reverse)


@linear(types=_scanned, transpose=_cumsum_back, samples=[
    sample("f32[3,4]", axis=0), sample("f16[3,4]", axis=1, exclusive=True, reverse=True),
    sample("f32[0]", axis=0, exclusive=True),
    known([1.0, 2.0, 3.0], axis=0, expect=[[1.0, 3.0, 6.0]]),
    known([1.0, 2.0, 3.0], axis=0, exclusive=True, expect=[[0.0, 1.0, 3.0]]),
    known([1.0, 2.0, 3.0], axis=0, reverse=True, expect=[[6.0, 5.0, 3.0]]),
    known([1.0, 2.0, 3.0], axis=0, exclusive=True, reverse=True, expect=[[5.0, 3.0, 0.0]])])
def cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Sums of the elements up to each one, from the end if `reverse` (ONNX CumSum).

    `exclusive` leaves the own element out.
    """
    return _run(np.cumsum, x, axis, 0, exclusive, reverse)


def _cumprod_back(g: Value, x: Value, *, axis: int, exclusive: bool, reverse: bool) -> Value:
    """Row i, column j of `others`: the product that reaches j, without element i.

    Quadratic in the axis, and exact at zeros.
    """
    at, n = axis_of(axis, x.type.rank), x.shape[axis]
    perm = (*(i for i in range(x.type.rank) if i != at), at)
    last, seed = transpose(x, perm=perm), transpose(g, perm=perm)
    rows = expand(unsqueeze(last, axes=(-2,)), shape=with_axis(last.shape, -1, n, n))
    own = eye(rows=n, cols=n, dtype=BOOL)
    others = cumprod(where(own, 1.0, rows), axis=-1, exclusive=exclusive, reverse=reverse)
    near = int(exclusive)
    reach = trilu(others, k=-near if reverse else near, upper=not reverse)
    back = sum_(reach * unsqueeze(seed, axes=(-2,)), axes=(-1,))
    return transpose(back, perm=tuple([perm.index(i) for i in range(len(perm))]))


@structured(types=_scanned, vjp=_cumprod_back, samples=[
    sample("f32[3,4]", axis=0), sample("f32[2,3]", axis=-1, exclusive=True, reverse=True),
    known([1.0, 2.0, 3.0], axis=0, expect=[[1.0, 2.0, 6.0]]),
    known([1.0, 2.0, 3.0], axis=0, exclusive=True, expect=[[1.0, 1.0, 2.0]]),
    known([1.0, 2.0, 3.0], axis=0, reverse=True, expect=[[6.0, 6.0, 3.0]]),
    known([1.0, 2.0, 3.0], axis=0, exclusive=True, reverse=True, expect=[[6.0, 3.0, 1.0]])])
def cumprod(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Products of the elements up to each one, from the end if `reverse` (ONNX CumProd).

    `exclusive` leaves the own element out.
    """
    return _run(np.cumprod, x, axis, 1, exclusive, reverse)


def _ordered(x: TensorType, axis: int) -> int:
    if x.dtype.sort not in ("bool", "int", "uint", "float"):
        raise OperatorError(f"{x} has no order")
    return axis_of(axis, x.rank)


def _arg_types(x: TensorType, *, axis: int, keepdims: bool, select_last: bool) -> TensorType:
    at = _ordered(x, axis)
    if x.shape[at] == 0:
        raise OperatorError(f"axis {axis} of {x} has no element")
    return TensorType(with_axis(x.shape, at, *((1,) if keepdims else ())), I64)


def _arg(find: Callable[..., Array], x: Array, axis: int, keepdims: bool, last: bool) -> Array:
    n = x.shape[axis]
    if not n:
        raise OperatorError(f"axis {axis} has no element")
    w = widen(x)
    at = find(np.flip(w, axis) if last else w, axis=axis, keepdims=keepdims)
    return np.asarray(n - 1 - at if last else at, np.int64)


@structured(types=_arg_types, samples=[
    sample("bf16[3,4]", axis=1), sample("f32[0,3]", axis=-1),
    known([[2, 1], [3, 10]], axis=1, keepdims=True, expect=[[[0], [1]]]),
    known([[2, 2], [3, 10]], axis=1, select_last=True, expect=[[1, 1]]),
    known([1.0, NAN, 3.0, NAN], axis=0, expect=[1])])
def argmax(x: Array, *, axis: int, keepdims: bool = False, select_last: bool = False) -> Array:
    """The index of the largest element, the first (or last) of equals; NaN counts as largest."""
    return _arg(np.argmax, x, axis, keepdims, select_last)


@structured(types=_arg_types, samples=[
    sample("f16[3,4]", axis=0), known([[2, 1], [3, 10]], axis=0, expect=[[0, 0]]),
    known([[2, 2], [3, 10]], axis=1, select_last=True, keepdims=True, expect=[[[1], [0]]]),
    known([1.0, NAN, 0.0], axis=0, expect=[1])])
def argmin(x: Array, *, axis: int, keepdims: bool = False, select_last: bool = False) -> Array:
    """The index of the smallest element, the first (or last) of equals; a NaN wins (NumPy)."""
    return _arg(np.argmin, x, axis, keepdims, select_last)


def order_key(x: Array, descending: bool) -> Array:
    """Integers whose ascending order is the order of x: the bits of floats, NaN on top."""
    w = widen(x)
    if w.dtype.kind == "f":
        key = _float_key(np.add(w, np.zeros((), w.dtype)))
    else:
        key = w.view(np.uint8) if w.dtype == np.bool_ else w
    return np.invert(key) if descending else key


def _float_key(x: Array) -> Array:
    np.copyto(x, np.nan, where=np.isnan(x))
    bits: Array = x.view(np.int64 if x.dtype.itemsize == 8 else np.int32)
    sign = np.right_shift(bits, 8 * x.dtype.itemsize - 1)
    return np.bitwise_xor(bits, np.bitwise_and(sign, np.iinfo(bits.dtype).max))


def _sort_types(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    _ordered(x, axis)
    return x


def _argsort_types(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    _ordered(x, axis)
    return x.with_(dtype=I64)


@structured(types=_argsort_types, samples=[
    sample("f32[3,4]", axis=0), sample("i8[3,4]", descending=True), sample("f32[2,0]"),
    known([2.0, NAN, -0.0, 0.0, -1.0], expect=[[4, 2, 3, 0, 1]]),
    known([2.0, NAN, 0.0, -0.0, 2.0], descending=True, expect=[[1, 0, 4, 2, 3]])])
def argsort(x: Array, *, axis: int = -1, descending: bool = False) -> Array:
    """The indices that sort an axis, stable either way; NaN is the largest."""
    return np.argsort(order_key(x, descending), axis, kind="stable").astype(np.int64, copy=False)


def _sort_back(g: Value, x: Value, *, axis: int, descending: bool) -> Value:
    order = argsort(x, axis=axis, descending=descending)
    return scatter_elements(zeros(x.type), order, g, axis=axis)


def _sort_push(t: Value, x: Value, *, axis: int, descending: bool) -> Value:
    return gather_elements(t, argsort(x, axis=axis, descending=descending), axis=axis)


@structured(types=_sort_types, vjp=_sort_back, jvp=_sort_push, samples=[
    sample("f32[3,4]", axis=0), sample("bf16[5]", descending=True),
    known([2.0, NAN, -1.0], expect=[[-1.0, 2.0, NAN]]),
    known(arr([3, 1, 2], "u8"), descending=True, expect=[arr([3, 2, 1], "u8")])])
def sort(x: Array, *, axis: int = -1, descending: bool = False) -> Array:
    """An axis in order; NaN is the largest."""
    order = np.argsort(order_key(x, descending), axis, kind="stable")
    return np.take_along_axis(x, order, axis)


def _topk_types(x: TensorType, *, k: Size, axis: int, largest: bool, sorted: bool
                ) -> tuple[TensorType, TensorType]:
    size = x.shape[_ordered(x, axis)]
    if surely_exceeds(k, size) or (isinstance(k, int) and k < 0):
        raise OperatorError(f"{k} elements of axis {axis} of size {size}")
    out = x.with_(shape=with_axis(x.shape, axis, k))
    return out, out.with_(dtype=I64)


def _first(key: Array, k: int) -> Array:
    """The places of the k lowest keys of every row, in order."""
    n = key.shape[-1]
    if k * 8 >= n or n <= _FEW:
        return np.argsort(key, -1, kind="stable")[..., :k]
    rows = key.reshape(-1, n)
    edge = np.partition(rows, max(k - 1, 0), -1)[:, max(k - 1, 0):][:, :1]
    below, same = rows < edge, rows == edge
    missing = k - np.count_nonzero(below, -1, keepdims=True)
    at = np.nonzero(below | (same & (np.cumsum(same, -1) <= missing)))[1].reshape(len(rows), k)
    order = np.argsort(np.take_along_axis(rows, at, -1), -1, kind="stable")
    return np.take_along_axis(at, order, -1).reshape(*key.shape[:-1], k)


def _topk_back(*args: Value, k: Size, axis: int, largest: bool, sorted: bool) -> Value:
    g, _, x = args
    at = topk(x, k=k, axis=axis, largest=largest, sorted=sorted)[1]
    return scatter_elements(zeros(x.type), at, g, axis=axis)


@structured(types=_topk_types, vjp=_topk_back, samples=[
    sample("f32[4,8]", k=3), sample("f32[100,2]", k=2, axis=0, largest=False),
    sample("f32[0]", k=0), sample("f32[2,100]", k=0),
    known([[0.0, 1.0, 2.0, 3.0], [7.0, 4.0, 5.0, 6.0]], k=3,
          expect=[[[3.0, 2.0, 1.0], [7.0, 6.0, 5.0]], [[3, 2, 1], [0, 3, 2]]]),
    known([1, 3, 3, 0], k=2, expect=[[3, 3], [1, 2]]),
    known([1, 0, 3, 0], k=3, largest=False, expect=[[0, 0, 1], [1, 3, 0]]),
    known([1.0, NAN, 2.0], k=2, expect=[[NAN, 2.0], [1, 2]])])
def topk(x: Array, *, k: Size, axis: int = -1, largest: bool = True, sorted: bool = True
         ) -> tuple[Array, Array]:
    """The k largest (or smallest) elements of an axis in order, and their i64 indices.

    Ties go to the lower index; NaN is the largest. Without `sorted` any order is allowed, and
    this one is given (ONNX TopK).
    """
    (count,), n = ints((k,)), x.shape[axis]
    if not 0 <= count <= n:
        raise OperatorError(f"{count} elements of axis {axis} of size {n}")
    key = np.moveaxis(order_key(x, largest), axis, -1)
    at = np.moveaxis(_first(key, count), -1, axis)
    return np.take_along_axis(x, at, axis), at.astype(np.int64, copy=False)


@composite(samples=[
    sample("f32[4,8]"), sample("f32[3,2]", axis=0), sample("f16[3,4]"), sample("f32[2,0]"),
    known([[1e4, 1e4]], expect=[[[0.5, 0.5]]]),
    known([-1.0, 0.0, 1.0], expect=[[0.09003058, 0.24472848, 0.66524094]]),
    known([-INF, -INF], expect=[[NAN, NAN]])])
def softmax(x: Value, *, axis: int = -1) -> Value:
    """Exponentials that sum to 1 along an axis; the maximum is subtracted first.

    A row of -inf alone gives NaN, as does a row with NaN or +inf.
    """
    h = wide(x)
    e = exp(h - stop_gradient(reduce_max(h, axes=(axis,), keepdims=True)))
    return cast_value(e / sum_(e, axes=(axis,), keepdims=True), x.dtype)


@composite(samples=[
    sample("f32[4,8]"), sample("bf16[3,2]", axis=0),
    known([[1e4, 1e4]], expect=[[[-0.6931471805599453] * 2]]),
    known([-1.0, 0.0, 1.0], expect=[[-2.4076059, -1.4076059, -0.407606]])])
def log_softmax(x: Value, *, axis: int = -1) -> Value:
    """log(softmax(x)), computed without the quotient (ONNX LogSoftmax)."""
    h = wide(x)
    h = h - stop_gradient(reduce_max(h, axes=(axis,), keepdims=True))
    return cast_value(h - log(sum_(exp(h), axes=(axis,), keepdims=True)), x.dtype)


@composite(samples=[
    sample("f32[2,3,4]", axis=1),
    known([[3.0, 0.0, 1.0], [2.0, 5.0, 5.0]], expect=[[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])])
def hardmax(x: Value, *, axis: int = -1) -> Value:
    """1 at the first largest element of an axis and 0 elsewhere (ONNX Hardmax)."""
    at = axis_of(axis, x.type.rank)
    return one_hot(argmax(x, axis=at), depth=x.shape[at], axis=at, dtype=x.dtype)
