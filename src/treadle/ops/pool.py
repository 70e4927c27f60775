"""Pooling over windows of the spatial axes of x[N, C, spatial..], as ONNX defines it.

Attributes: `kernel` (window sizes), `strides` and `dilations` (1 unless given), `pads` (before
each axis, then after; 0 unless given), `ceil_mode` (count a last partial window). Padding takes no
part in a maximum or minimum. Windows fold axis by axis, because each fold here is separable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np

from ..declare.arrays import Array, ints, type_of, widen
from ..declare.kinds import composite, linear, structured
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64, Shape, TensorType, count
from .arithmetic import abs_
from .arithmetic import pow as power
from .conv import transposed_convolution
from .extents import zeros
from .gather import gather_elements, scatter_elements
from .leaves import full
from .movement import reshape
from .reduce import mean, reduce_max, sum_
from .windows import extent, out_shape, pad_space, per_axis, positive, window_view

Fold: TypeAlias = Callable[[Array, Array], Array]
Numbers: TypeAlias = tuple[int, ...]
ORACLE = "tests.oracles.pool:"


def _pool_types(x: TensorType, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
                pads: Shape, ceil_mode: bool) -> TensorType:
    n = len(kernel)
    if x.rank != n + 2 or not n:
        raise OperatorError(f"a window of {n} axes needs x of rank {n + 2}, got {x}")
    if x.dtype.sort not in ("int", "uint", "float"):
        raise OperatorError(f"{x.dtype} does not pool", hint="cast it")
    sizes = out_shape(x.shape[2:], positive("kernel", kernel, n), positive("strides", strides, n),
                      positive("dilations", dilations, n), per_axis("pads", pads, 2 * n, 0),
                      ceil=ceil_mode)
    return x.with_(shape=(*x.shape[:2], *sizes))


def lowest(x: Array) -> float:
    """What never wins a maximum in x."""
    dtype = type_of(x).dtype
    if dtype.sort == "float":
        return float("-inf")
    return -(1 << dtype.bits - 1) if dtype.sort == "int" else 0


def highest(x: Array) -> float:
    """What never wins a minimum in x."""
    dtype = type_of(x).dtype
    if dtype.sort == "float":
        return float("inf")
    return (1 << dtype.bits - (dtype.sort == "int")) - 1


def _padded(x: Array, fill: float, kernel: Numbers, strides: Numbers, dilations: Numbers,
            pads: Sequence[Size], ceil_mode: bool) -> tuple[Array, Numbers, Numbers, Numbers]:
    """x with padding up to the end of the last window, and the number of windows."""
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = ints(per_axis("pads", pads, 2 * n, 0))
    sizes = ints(out_shape(x.shape[2:], kernel, steps, gaps, edges, ceil=ceil_mode))
    ends = [(sizes[i] - 1) * steps[i] + (kernel[i] - 1) * gaps[i] + 1 - x.shape[2 + i] - edges[i]
            for i in range(n)]
    behind = [max(e, p) for e, p in zip(ends, edges[n:], strict=True)]
    return pad_space(x, (*edges[:n], *behind), fill), sizes, steps, gaps


def _fold(fold: Fold, x: Array, fill: float, kernel: Numbers, strides: Numbers,
          dilations: Numbers, pads: Sequence[Size], ceil_mode: bool) -> Array:
    out, sizes, steps, gaps = _padded(widen(x), fill, kernel, strides, dilations, pads, ceil_mode)
    for i, k in enumerate(kernel):
        line, total = np.moveaxis(out, 2 + i, -1), np.zeros(())
        for tap in range(k):
            at = tap * gaps[i]
            part = line[..., at:at + (sizes[i] - 1) * steps[i] + 1:steps[i]]
            total = part if tap == 0 else fold(total, part)
        out = np.moveaxis(total, -1, 2 + i)
    return out.astype(x.dtype, copy=True)


def _sum_back(g: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
              pads: Shape, ceil_mode: bool) -> Value:
    """Each input element takes the cotangent of every window that it lies in."""
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = per_axis("pads", pads, 2 * n, 0)
    rows = reshape(g, shape=(g.shape[0] * g.shape[1], 1, *g.shape[2:]))
    ones = full(value=1.0, shape=(1, 1, *kernel), dtype=g.dtype)
    rest = tuple([x.shape[2 + i] + edges[i] - extent(kernel[i], gaps[i])
                  - (g.shape[2 + i] - 1) * steps[i] for i in range(n)])
    out = transposed_convolution(rows, ones, strides=steps, dilations=gaps,
                                 pads=(*edges[:n], *(0,) * n), output_padding=rest)
    return reshape(out, shape=x.shape)


PLANE = [[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]


@linear(types=_pool_types, transpose=_sum_back, samples=[
    known(PLANE, kernel=(2, 2), expect=[[[[[12.0, 16.0], [24.0, 28.0]]]]]),
    sample("f32[2,3,7,6]", kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1), dilations=(1, 2),
           ceil_mode=True, expect=ORACLE + "sum_pool", rtol=1e-5),
    sample("f16[1,2,9]", kernel=(3,), strides=(2,), expect=ORACLE + "sum_pool", rtol=2e-3)])
def sum_pool(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
             dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
             ceil_mode: bool = False) -> Array:
    """The sum of each window. Halves accumulate in f32."""
    return _fold(np.add, x, 0, kernel, strides, dilations, pads, ceil_mode)


def _max_back(g: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
              pads: Shape, ceil_mode: bool) -> Value:
    _, at = max_pool_with_argmax(x, kernel=kernel, strides=strides, dilations=dilations,
                                 pads=pads, ceil_mode=ceil_mode)
    flat = zeros(TensorType((count(x.shape),), x.dtype))
    total = count(g.shape)
    out = scatter_elements(flat, reshape(at, shape=(total,)), reshape(g, shape=(total,)),
                           reduction="add")
    return reshape(out, shape=x.shape)


def _max_push(t: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
              pads: Shape, ceil_mode: bool) -> Value:
    _, at = max_pool_with_argmax(x, kernel=kernel, strides=strides, dilations=dilations,
                                 pads=pads, ceil_mode=ceil_mode)
    flat = gather_elements(reshape(t, shape=(count(t.shape),)),
                           reshape(at, shape=(count(at.shape),)))
    return reshape(flat, shape=at.shape)


@structured(types=_pool_types, vjp=_max_back, jvp=_max_push, samples=[
    known(PLANE, kernel=(2, 2), expect=[[[[[5.0, 6.0], [8.0, 9.0]]]]]),
    sample("f32[2,3,7,6]", kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1), dilations=(1, 2),
           ceil_mode=True, expect=ORACLE + "max_pool"),
    sample("i8[1,2,9]", kernel=(3,), strides=(2,), pads=(1, 1), low=-90, high=90,
           expect=ORACLE + "max_pool"),
    sample("f16[1,2,9]", kernel=(3,), strides=(2,), expect=ORACLE + "max_pool")])
def max_pool(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
             dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
             ceil_mode: bool = False) -> Array:
    """The maximum of each window; NaN propagates."""
    return _fold(np.maximum, x, lowest(x), kernel, strides, dilations, pads, ceil_mode)


def _min_back(g: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
              pads: Shape, ceil_mode: bool) -> Value:
    return _max_back(g, -x, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                     ceil_mode=ceil_mode)


def _min_push(t: Value, x: Value, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
              pads: Shape, ceil_mode: bool) -> Value:
    return _max_push(t, -x, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                     ceil_mode=ceil_mode)


@structured(types=_pool_types, vjp=_min_back, jvp=_min_push, samples=[
    known(PLANE, kernel=(2, 2), pads=(0, 0, 1, 1),
          expect=[[[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]])])
def min_pool(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
             dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
             ceil_mode: bool = False) -> Array:
    """The minimum of each window; NaN propagates."""
    return _fold(np.minimum, x, highest(x), kernel, strides, dilations, pads, ceil_mode)


@structured(types=_pool_types, samples=[
    known(PLANE, kernel=(2, 2), expect=[[[[[40.0, 180.0], [1120.0, 2160.0]]]]])])
def prod_pool(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
              dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
              ceil_mode: bool = False) -> Array:
    """The product of each window; padding counts as 1."""
    return _fold(np.multiply, x, 1, kernel, strides, dilations, pads, ceil_mode)


def _argmax_types(x: TensorType, *, kernel: Numbers, strides: Numbers, dilations: Numbers,
                  pads: Shape, ceil_mode: bool, column_major: bool
                  ) -> tuple[TensorType, TensorType]:
    out = _pool_types(x, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                      ceil_mode=ceil_mode)
    return out, out.with_(dtype=I64)


def _argmax_back(*args: Value, kernel: Numbers, strides: Numbers, dilations: Numbers,
                 pads: Shape, ceil_mode: bool, column_major: bool) -> Value:
    g, _, x = args
    return _max_back(g, x, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                     ceil_mode=ceil_mode)


@structured(types=_argmax_types, vjp=_argmax_back, samples=[
    known(PLANE, kernel=(2, 2), expect=[[[[[5.0, 6.0], [8.0, 9.0]]]], [[[[4, 5], [7, 8]]]]]),
    sample("f32[2,3,7,6]", kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1),
           expect=ORACLE + "max_pool_with_argmax"),
    sample("f32[2,2,4,5]", kernel=(2, 2), column_major=True,
           expect=ORACLE + "max_pool_with_argmax")])
def max_pool_with_argmax(x: Array, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
                         dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
                         ceil_mode: bool = False, column_major: bool = False
                         ) -> tuple[Array, Array]:
    """`max_pool`, and where in x, taken as one vector, each maximum lies (the first of equals).

    With `column_major` the spatial part of the index counts the first axis fastest (ONNX
    storage_order=1).
    """
    n = len(kernel)
    padded, sizes, steps, gaps = _padded(x, lowest(x), kernel, strides, dilations, pads,
                                         ceil_mode)
    edges = ints(per_axis("pads", pads, 2 * n, 0))
    view = window_view(padded, kernel, steps, gaps, sizes)
    flat = view.reshape(*x.shape[:2], math.prod(kernel), *sizes)
    best = flat.argmax(2)
    values = np.take_along_axis(flat, best[:, :, None], 2)[:, :, 0]
    index, scale = cast(Array, np.zeros(best.shape, np.int64)), 1
    taps = cast("tuple[Array, ...]", np.unravel_index(best, kernel))
    order = range(n) if column_major else range(n)[::-1]
    for i in order:
        start = np.arange(sizes[i]).reshape((-1, *(1,) * (n - 1 - i))) * steps[i] - edges[i]
        index += np.clip(start + taps[i] * gaps[i], 0, x.shape[2 + i] - 1) * scale
        scale *= x.shape[2 + i]
    planes = cast(Array, np.arange(x.shape[0] * x.shape[1]))
    return values, index + planes.reshape((*x.shape[:2], *(1,) * n)) * scale


@composite(samples=[
    sample("f32[2,3,7,6]", kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1),
           expect=ORACLE + "average_pool", rtol=1e-5),
    sample("f32[1,2,7,6]", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True,
           count_include_pad=True, expect=ORACLE + "average_pool", rtol=1e-5),
    sample("f32[1,2,9]", kernel=(3,), strides=(2,), dilations=(2,), pads=(2, 2), ceil_mode=True,
           expect=ORACLE + "average_pool", rtol=1e-5),
    sample("f16[1,2,9]", kernel=(3,), expect=ORACLE + "average_pool", rtol=2e-3)])
def average_pool(x: Value, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
                 dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
                 ceil_mode: bool = False, count_include_pad: bool = False) -> Value:
    """The mean of each window over its elements inside x, or inside the padded x.

    What a partial last window of `ceil_mode` lacks behind the padding never counts.
    """
    n, w = len(kernel), wide(x)
    total = sum_pool(w, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                     ceil_mode=ceil_mode)
    edges = per_axis("pads", pads, 2 * n, 0)
    padded = any(e != 0 for e in edges)
    if not ceil_mode and (count_include_pad or not padded):
        return cast_value(total / full_value(float(np.prod(kernel)), w.dtype), x.dtype)
    here = full(value=1.0, shape=(1, 1, *x.shape[2:]), dtype=w.dtype)
    if count_include_pad:
        outer = tuple([x.shape[2 + i] + edges[i] + edges[n + i] for i in range(n)])
        here = full(value=1.0, shape=(1, 1, *outer), dtype=w.dtype)
        edges = _overhang(total, outer, kernel, strides, dilations)
        ceil_mode = False
    members = sum_pool(here, kernel=kernel, strides=strides, dilations=dilations, pads=edges,
                       ceil_mode=ceil_mode)
    return cast_value(total / members, x.dtype)


def _overhang(out: Value, outer: Shape, kernel: Numbers, strides: Numbers, dilations: Numbers
              ) -> Shape:
    """Pads that let the windows of `out` run over the end of the padded sizes `outer`."""
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    return (*(0,) * n, *[(out.shape[2 + i] - 1) * steps[i] + extent(kernel[i], gaps[i]) - outer[i]
                         for i in range(n)])


def _powers(x: Value, p: int) -> Value:
    if p < 1:
        raise OperatorError(f"the norm of order p={p}", hint="p is at least 1")
    return power(abs_(wide(x)), float(p))


@composite(samples=[
    sample("f32[2,3,7,6]", kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1), p=3,
           expect=ORACLE + "lp_pool", rtol=1e-5),
    known(PLANE, kernel=(2, 2), strides=(2, 2), p=2, expect=[[[[[46.0 ** 0.5]]]]])])
def lp_pool(x: Value, *, kernel: tuple[int, ...], strides: tuple[int, ...] = (),
            dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
            ceil_mode: bool = False, p: int = 2) -> Value:
    """(sum |x|^p)^(1/p) of each window."""
    powers = _powers(x, p)
    total = sum_pool(powers, kernel=kernel, strides=strides, dilations=dilations, pads=pads,
                     ceil_mode=ceil_mode)
    return cast_value(power(total, 1.0 / p), x.dtype)


def _space(x: Value) -> Numbers:
    if x.type.rank < 3:
        raise OperatorError(f"x[N,C,spatial..] is needed, got {x.type}")
    return tuple(range(2, x.type.rank))


@composite(samples=[known(PLANE, expect=[[[[[5.0]]]]])])
def global_average_pool(x: Value) -> Value:
    """The mean over the spatial axes, which stay with size 1."""
    return mean(x, axes=_space(x), keepdims=True)


@composite(samples=[known(PLANE, expect=[[[[[9.0]]]]])])
def global_max_pool(x: Value) -> Value:
    """The maximum over the spatial axes, which stay with size 1."""
    return reduce_max(x, axes=_space(x), keepdims=True)


@composite(samples=[known([[[3.0, -4.0]]], p=2, expect=[[[[5.0]]]])])
def global_lp_pool(x: Value, *, p: int = 2) -> Value:
    """(sum |x|^p)^(1/p) over the spatial axes, which stay with size 1."""
    total = sum_(_powers(x, p), axes=_space(x), keepdims=True)
    return cast_value(power(total, 1.0 / p), x.dtype)


def _unpool_types(x: TensorType, at: TensorType, *, shape: Shape) -> TensorType:
    if at.shape != x.shape or at.dtype.sort not in ("int", "uint"):
        raise OperatorError(f"the indices {at} must be integers of the shape of {x}")
    if len(shape) != x.rank:
        raise OperatorError(f"the output shape {shape} has another rank than {x}")
    return x.with_(shape=shape)


def _unpool_back(g: Value, x: Value, at: Value, *, shape: Shape) -> tuple[Value, None]:
    flat, total = reshape(g, shape=(count(shape),)), count(x.shape)
    seen = gather_elements(flat, reshape(at, shape=(total,)))
    return reshape(seen, shape=x.shape), None


@structured(types=_unpool_types, vjp=_unpool_back, samples=[
    known([[[[1.0, 2.0], [3.0, 4.0]]]], [[[[5, 7], [13, 15]]]], shape=(1, 1, 4, 4),
          expect=[[[[[0.0] * 4, [0.0, 1.0, 0.0, 2.0], [0.0] * 4, [0.0, 3.0, 0.0, 4.0]]]]])])
def max_unpool(x: Array, at: Array, *, shape: tuple[Size, ...]) -> Array:
    """Zeros of `shape` with x written at the flat indices `at` (ONNX MaxUnpool)."""
    out = np.zeros(ints(shape), x.dtype)
    if at.size and not (at.min() >= 0 and at.max() < out.size):
        raise OperatorError(f"the index {at.min() if at.min() < 0 else at.max()} is outside "
                            f"0..{out.size - 1}")
    out.reshape(-1)[at.reshape(-1)] = x.reshape(-1)
    return out
