"""Folds over axes. Half precision accumulates in f32; no axes means no change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..declare.arrays import Array, dtype_of_array, widen
from ..declare.kinds import composite, reduction
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import Sample, arr, known, sample
from ..errors import OperatorError
from ..ir.graph import Value
from ..ir.types import BOOL, Shape, TensorType, axes_of, count
from .arithmetic import abs_, truncdiv
from .compare import eq, isinf, where
from .convert import stop_gradient
from .mathfn import exp, log, sqrt
from .movement import expand, reshape, transpose

Fold: TypeAlias = Callable[..., Array]
NAN, INF = float("nan"), float("inf")
SQUARE = [[1.0, 2.0], [3.0, 4.0]]
ROWS: list[Sample] = [
    sample("f32[4,8]", axes=(-1,)), sample("f32[2,3,4]", axes=(0, 2), keepdims=True),
    sample("f32[]", axes=()), sample("f32[3]", axes=())]


def reduced(x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """The type of a fold of x over axes."""
    at = axes_of(axes, x.rank)
    if keepdims:
        return x.with_(shape=tuple([1 if i in at else s for i, s in enumerate(x.shape)]))
    return x.with_(shape=tuple([s for i, s in enumerate(x.shape) if i not in at]))


def _numbers(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if x.dtype.sort not in ("int", "uint", "float", "complex"):
        raise OperatorError(f"{x} holds no numbers", hint="cast it, or use any and all")
    return reduced(x, axes, keepdims)


def _ordered(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if x.dtype.sort not in ("bool", "int", "uint", "float"):
        raise OperatorError(f"{x} has no order")
    return reduced(x, axes, keepdims)


def _flags(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    if x.dtype is not BOOL:
        raise OperatorError(f"{x} is not bool", hint="compare first, for example ne(x, 0)")
    return reduced(x, axes, keepdims)


def spread(g: Value, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """`g`, a fold of x over axes, broadcast back over them."""
    if not keepdims:
        g = reshape(g, shape=reduced(x.type, axes, True).shape)
    return expand(g, shape=x.shape)


def sum_to(g: Value, shape: Shape) -> Value:
    """Undo broadcasting: `g` summed over the axes that `shape` lacks or holds as 1."""
    lead = g.type.rank - len(shape)
    ones = tuple([i + lead for i, s in enumerate(shape) if s == 1 and g.shape[i + lead] != 1])
    if lead or ones:
        g = sum_(g, axes=(*range(lead), *ones))
    return g if g.shape == shape else reshape(g, shape=shape)


def _fold(fold: Fold, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Fold in the compute dtype and round once."""
    w = widen(x)
    out = fold(w, axis=axes, dtype=w.dtype, keepdims=keepdims)
    return np.asarray(out).astype(x.dtype, copy=False)


def _sum_back(g: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    return spread(g, x, axes, keepdims)


def _sum_push(t: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    return sum_(t, axes=axes, keepdims=keepdims)


@reduction(types=_numbers, vjp=_sum_back, jvp=_sum_push, samples=[
    *ROWS, sample("f16[4,8]", axes=(0,)), sample("f32[0,3]", axes=(0,)),
    known(SQUARE, axes=(0,), expect=[[4.0, 6.0]]),
    known(arr([2048.0] + [1.0] * 8, "f16"), axes=(0,), expect=[arr(2056.0, "f16")]),
    known(arr([200, 100], "u8"), axes=(0,), expect=[arr(44, "u8")])])
def sum_(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Sum over axes, pairwise along rows (numpy.sum); integers wrap."""
    return _fold(np.sum, x, axes, keepdims)


def _extreme_back(g: Value, x: Value, top: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Elements that tie share the gradient."""
    hit = cast_value(eq(x, top), x.dtype)
    return spread(g, x, axes, keepdims) * (hit / sum_(hit, axes=axes, keepdims=True))


def _max_back(g: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _extreme_back(g, x, reduce_max(x, axes=axes, keepdims=True), axes, keepdims)


def _min_back(g: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    return _extreme_back(g, x, reduce_min(x, axes=axes, keepdims=True), axes, keepdims)


def _limit(x: Array, low: bool) -> object:
    """The identity of max (low) or min: the end of the dtype's range, infinite for floats."""
    dtype = dtype_of_array(x)
    if dtype.sort == "float":
        return -np.inf if low else np.inf
    if dtype is BOOL:
        return not low
    info = np.iinfo(x.dtype)
    return info.min if low else info.max


def _extreme(fold: Fold, x: Array, axes: tuple[int, ...], keepdims: bool, low: bool) -> Array:
    w = widen(x)
    if 0 in x.shape:
        out = fold(w, axis=axes, keepdims=keepdims, initial=_limit(w, low))
    else:
        out = fold(w, axis=axes, keepdims=keepdims)
    return np.asarray(out).astype(x.dtype, copy=False)


@reduction(types=_ordered, vjp=_max_back, samples=[
    *ROWS, sample("bf16[4,8]", axes=(1,)),
    known([[3.0], [NAN]], axes=(1,), expect=[[3.0, NAN]]),
    known(arr(np.empty((1, 0)), "f32"), axes=(1,), expect=[[-INF]]),
    known(arr(np.empty((1, 0)), "u8"), axes=(1,), expect=[arr([0], "u8")]),
    known([[True, False]], axes=(1,), expect=[[True]])])
def reduce_max(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Largest element over axes; NaN if any is (numpy.max). Nothing gives the lowest value."""
    return _extreme(np.max, x, axes, keepdims, True)


@reduction(types=_ordered, vjp=_min_back, samples=[
    *ROWS, known([[3.0, 1.0], [NAN, 1.0]], axes=(1,), expect=[[1.0, NAN]]),
    known(arr(np.empty((1, 0)), "i8"), axes=(1,), expect=[arr([127], "i8")]),
    known([[True, False]], axes=(1,), expect=[[False]])])
def reduce_min(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Smallest element over axes; NaN if any is (numpy.min). Nothing gives the highest value."""
    return _extreme(np.min, x, axes, keepdims, False)


def _prod_back(g: Value, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    """g times the product of the other elements, exact at zeros."""
    from .scan1d import cumprod

    gone = axes_of(axes, x.type.rank)
    kept = [i for i in range(x.type.rank) if i not in gone]
    perm = (*kept, *gone)
    last = transpose(x, perm=perm)
    flat = reshape(last, shape=(*last.shape[:len(kept)], count(last.shape[len(kept):])))
    others = (cumprod(flat, axis=-1, exclusive=True)
              * cumprod(flat, axis=-1, exclusive=True, reverse=True))
    back = transpose(reshape(others, shape=last.shape),
                     perm=tuple([perm.index(i) for i in range(len(perm))]))
    return spread(g, x, axes, keepdims) * back


@reduction(types=_numbers, vjp=_prod_back, samples=[
    *ROWS, sample("f32[0]", axes=(0,)), known(SQUARE, axes=(0, 1), expect=[24.0]),
    known(arr([3, 5], "i32"), axes=(0,), expect=[arr(15, "i32")])])
def prod(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Product over axes; integers wrap (numpy.prod)."""
    return _fold(np.prod, x, axes, keepdims)


@reduction(types=_flags, samples=[
    known([[True, False], [False, False]], axes=(1,), expect=[[True, False]]),
    known(arr([], "bool"), axes=(0,), expect=[False])])
def any_(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Whether any element over axes is true."""
    return np.any(x, axis=axes, keepdims=keepdims)


@reduction(types=_flags, samples=[
    known([[True, False], [True, True]], axes=(1,), expect=[[False, True]]),
    known(arr([], "bool"), axes=(0,), expect=[True])])
def all_(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Whether all elements over axes are true."""
    return np.all(x, axis=axes, keepdims=keepdims)


@composite(samples=[
    *ROWS, known(SQUARE, axes=(1,), expect=[[1.5, 3.5]]),
    known(arr([60000.0, 60000.0], "f16"), axes=(0,), expect=[arr(60000.0, "f16")]),
    known([-1, -2], axes=(0,), expect=[-1])])
def mean(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """Arithmetic mean over axes; integers truncate towards zero."""
    n = count(tuple([x.shape[i] for i in axes_of(axes, x.type.rank)]))
    total = sum_(wide(x), axes=axes, keepdims=keepdims)
    if x.dtype.sort in ("int", "uint"):
        return truncdiv(total, full_value(n, x.dtype))
    return cast_value(total / full_value(n, total.dtype), x.dtype)


@composite(samples=[
    *ROWS, known([[0.0, 0.0], [-INF, -INF]], axes=(1,), expect=[[0.6931471805599453, -INF]]),
    known([1000.0, 1000.0], axes=(0,), expect=[1000.6931471805599]),
    known([INF, 1.0], axes=(0,), expect=[INF])])
def logsumexp(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """log(sum(exp(x))) over axes, the maximum subtracted first (scipy.special.logsumexp)."""
    h = wide(x)
    top = stop_gradient(reduce_max(h, axes=axes, keepdims=True))
    shift = where(isinf(top), 0.0, top)
    total = log(sum_(exp(h - shift), axes=axes, keepdims=True)) + shift
    out = reduced(x.type, axes, keepdims)
    return cast_value(reshape(total, shape=out.shape), x.dtype)


@composite(samples=[*ROWS, known([[3.0, -4.0]], axes=(1,), expect=[[7.0]])])
def l1(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """Sum of absolute values over axes (ONNX ReduceL1)."""
    return cast_value(sum_(abs_(wide(x)), axes=axes, keepdims=keepdims), x.dtype)


@composite(samples=[sample("f32[4,8]", axes=(-1,), low=0.5),
                    known([[3.0, -4.0]], axes=(1,), expect=[[5.0]]),
                    known(arr([300.0, 400.0], "f16"), axes=(0,), expect=[arr(500.0, "f16")])])
def l2(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """Square root of the sum of squares over axes (ONNX ReduceL2)."""
    h = wide(x)
    return cast_value(sqrt(sum_(h * h, axes=axes, keepdims=keepdims)), x.dtype)


@composite(samples=[*ROWS, known([[3.0, -4.0]], axes=(1,), expect=[[25.0]])])
def sum_square(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """Sum of squares over axes (ONNX ReduceSumSquare)."""
    h = wide(x)
    return cast_value(sum_(h * h, axes=axes, keepdims=keepdims), x.dtype)


@composite(samples=[sample("f32[4,8]", axes=(-1,), low=0.5),
                    known([[1.0, 2.0]], axes=(1,), expect=[[1.0986122886681098]])])
def log_sum(x: Value, *, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """log(sum(x)) over axes (ONNX ReduceLogSum)."""
    return cast_value(log(sum_(wide(x), axes=axes, keepdims=keepdims)), x.dtype)


max_, min_ = reduce_max, reduce_min
"""The names within the family; the operators `max` and `min` are the elementwise ones."""
