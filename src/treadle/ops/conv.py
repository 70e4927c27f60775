"""Convolution over one or more spatial axes, channels first, as ONNX and PyTorch define it.

`convolution` and `transposed_convolution` are the linear cores, each the other's adjoint; `conv`
and `conv_transpose` add the optional bias and are what importers make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..declare.arrays import Array, ints, np_dtype, type_of, widen
from ..declare.kinds import composite, linear
from ..declare.opdef import cast_value, wide
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.dims import Size, bounds
from ..ir.graph import Value
from ..ir.types import Shape, TensorType
from .extents import surely_differ
from .movement import reshape, transpose
from .windows import extent, out_shape, pad_space, per_axis, positive, window_view

BLOCK = 1 << 24
"""Elements of unrolled windows that the reference body holds at once."""
EXACT = 2.0**53
"""Integers up to here are exact in f64, whose products are fast."""


def _spatial(x: TensorType, w: TensorType, groups: int) -> int:
    if x.rank < 3 or w.rank != x.rank:
        raise OperatorError(f"x[N,C,spatial..] and w of the same rank are needed, got {x}, {w}")
    if x.dtype is not w.dtype:
        raise OperatorError(f"x is {x.dtype} and w is {w.dtype}", hint="cast one of them")
    if groups < 1:
        raise OperatorError(f"groups is {groups}")
    return x.rank - 2


def _divides(groups: int, channels: Size, what: str) -> None:
    if isinstance(channels, int) and channels % groups:
        raise OperatorError(f"{groups} groups do not divide {channels} {what} channels")


def _convolution_types(x: TensorType, w: TensorType, *, strides: tuple[int, ...],
                       dilations: tuple[int, ...], pads: Shape, groups: int) -> TensorType:
    n = _spatial(x, w, groups)
    if surely_differ(x.shape[1], w.shape[1] * groups):
        raise OperatorError(f"x has {x.shape[1]} channels, w takes {w.shape[1]} in each of "
                            f"{groups} groups")
    _divides(groups, w.shape[0], "output")
    sizes = out_shape(x.shape[2:], w.shape[2:], positive("strides", strides, n),
                      positive("dilations", dilations, n), per_axis("pads", pads, 2 * n, 0))
    return x.with_(shape=(x.shape[0], w.shape[0], *sizes))


def _product(a: Array, b: Array) -> Array:
    """`a @ b`; integers go through f64 while that is exact, because NumPy's own loop is slow."""
    if a.dtype.kind not in "iu" or not a.size or not b.size:
        return np.matmul(a, b)
    top = float(np.abs(a.astype(np.float64)).max()) * float(np.abs(b.astype(np.float64)).max())
    if top * a.shape[-1] >= EXACT:
        return np.matmul(a, b)
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _depthwise(x: Array, w: Array, view: Array) -> Array:
    out = np.zeros((*x.shape[:2], *view.shape[w.ndim:]), x.dtype)
    for tap in np.ndindex(*w.shape[2:]):
        shape = (1, -1, *(1,) * (w.ndim - 2))
        out += view[(slice(None), slice(None), *tap)] * w[(slice(None), 0, *tap)].reshape(shape)
    return out


def _back_convolution(g: Value, x: Value, w: Value, *, strides: tuple[int, ...],
                      dilations: tuple[int, ...], pads: Shape, groups: int
                      ) -> tuple[Value, Value]:
    n = x.type.rank - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = per_axis("pads", pads, 2 * n, 0)
    rest = tuple([x.shape[2 + i] + edges[i] + edges[n + i] - extent(w.shape[2 + i], gaps[i])
                  - (g.shape[2 + i] - 1) * steps[i] for i in range(n)])
    dx = transposed_convolution(g, w, strides=steps, dilations=gaps, pads=edges, groups=groups,
                                output_padding=rest)
    return dx, _back_filter(x, g, w.shape[2:], steps, gaps, edges, groups)


def _back_filter(x: Value, g: Value, kernel: Shape, strides: Sequence[int],
                 dilations: Sequence[int], pads: Shape, groups: int) -> Value:
    """What the filter gets: a convolution over the batch with stride and dilation exchanged.

    Pads behind are chosen so that it has exactly the kernel's size.
    """
    n = len(kernel)
    behind = [extent(g.shape[2 + i], strides[i]) + (kernel[i] - 1) * dilations[i]
              - x.shape[2 + i] - pads[i] for i in range(n)]
    taps = _swap(x, groups, outer=False)
    filters = _swap(g, groups, outer=True)
    out = convolution(taps, filters, strides=tuple(dilations), dilations=tuple(strides),
                      pads=(*pads[:n], *behind), groups=groups)
    return transpose(out, perm=(1, 0, *range(2, n + 2)))


def _swap(x: Value, groups: int, *, outer: bool) -> Value:
    """`[N, G*C, ..]` as `[G*C, N, ..]` (outer) or `[C, G*N, ..]`."""
    batch, channels, *space = x.shape
    if outer:
        return transpose(x, perm=(1, 0, *range(2, x.type.rank)))
    split = reshape(x, shape=(batch, groups, channels // groups, *space))
    turned = transpose(split, perm=(2, 1, 0, *range(3, x.type.rank + 1)))
    return reshape(turned, shape=(channels // groups, batch * groups, *space))


CONV = "tests.oracles.conv:conv"
TRANSPOSED = "tests.oracles.conv:conv_transpose"


@linear(types=_convolution_types, transpose=_back_convolution, samples=[
    sample("f32[2,4,9]", "f32[6,2,3]", strides=(2,), pads=(1, 2), groups=2, expect=CONV,
           rtol=1e-5),
    sample("f32[2,3,7,6]", "f32[5,3,3,2]", strides=(2, 1), dilations=(1, 2), pads=(1, 0, 1, 1),
           expect=CONV, rtol=1e-5),
    sample("f32[1,4,6,6]", "f32[4,1,3,3]", pads=(1, 1, 1, 1), groups=4, expect=CONV, rtol=1e-5),
    sample("f32[1,2,4,5,4]", "f32[3,2,2,2,2]", strides=(1, 2, 1), expect=CONV, rtol=1e-5),
    sample("f32[1,4,3,4,3]", "f32[4,2,2,2,1]", dilations=(1, 2, 1), groups=2, expect=CONV,
           rtol=1e-5),
    sample("f16[1,2,8]", "f16[2,2,3]", low=60.0, high=64.0, expect=CONV, rtol=1e-3),
    sample("i32[1,2,8]", "i32[2,2,3]", low=-9, high=9)])
def convolution(x: Array, w: Array, *, strides: tuple[int, ...] = (),
                dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (), groups: int = 1
                ) -> Array:
    """Cross-correlation of x[N, C, spatial..] with w[M, C / groups, kernel..].

    y[n, m, o] = sum over c, k of w[m, c, k] * x[n, c, o * stride + k * dilation - pad], where m
    sees only the channels of its group. Pads lie before each spatial axis, then after (negative
    ones crop); empty attributes mean 1, and 0 for pads. Half floats accumulate in f32. Source:
    ONNX Conv.
    """
    n = x.ndim - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    dtype, wx, ww = x.dtype, widen(x), widen(w)
    padded = pad_space(wx, ints(per_axis("pads", pads, 2 * n, 0)))
    sizes = ints(out_shape(padded.shape[2:], w.shape[2:], steps, gaps, (0,) * (2 * n)))
    view = window_view(padded, w.shape[2:], steps, gaps, sizes)
    if w.shape[1] == 1 and groups == w.shape[0] == x.shape[1]:
        return _depthwise(padded, ww, view).astype(dtype, copy=False)
    inner, area = math.prod(w.shape[1:]), math.prod(sizes)
    kernel = ww.reshape(groups, w.shape[0] // groups, inner)
    out = np.empty((x.shape[0], *kernel.shape[:2], area), wx.dtype)
    step = max(1, BLOCK // max(1, groups * inner * area))
    for i in range(0, x.shape[0], step):
        part = view[i:i + step]
        out[i:i + step] = _product(kernel, part.reshape(len(part), groups, inner, area))
    return out.reshape(x.shape[0], w.shape[0], *sizes).astype(dtype, copy=False)


def _transposed_types(x: TensorType, w: TensorType, *, strides: tuple[int, ...],
                      dilations: tuple[int, ...], pads: Shape, output_padding: Shape,
                      groups: int) -> TensorType:
    n = _spatial(x, w, groups)
    if surely_differ(x.shape[1], w.shape[0]):
        raise OperatorError(f"x has {x.shape[1]} channels, w takes {w.shape[0]}")
    _divides(groups, w.shape[0], "input")
    if 0 in (*x.shape[2:], *w.shape[2:]):
        raise OperatorError(f"a spatial axis of {x} or {w} is empty")
    steps, gaps = positive("strides", strides, n), positive("dilations", dilations, n)
    edges = per_axis("pads", pads, 2 * n, 0)
    extra = per_axis("output_padding", output_padding, n, 0)
    sizes = tuple([(x.shape[2 + i] - 1) * steps[i] + extent(w.shape[2 + i], gaps[i]) + extra[i]
                   - edges[i] - edges[n + i] for i in range(n)])
    if any(bounds(s)[1] < 0 for s in sizes):
        raise OperatorError(f"the pads {edges} are larger than the output")
    return x.with_(shape=(x.shape[0], w.shape[1] * groups, *sizes))


def fold_windows(cols: Array, kernel: Sequence[int], strides: Sequence[int],
                 dilations: Sequence[int]) -> Array:
    """Add windows `[lead.., *kernel, *count]` up where they lie; the transpose of viewing them."""
    n = len(kernel)
    lead = cols.ndim - 2 * n
    count = cols.shape[lead + n:]
    sizes = [(count[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 if count[i] else 0
             for i in range(n)]
    out = np.zeros((*cols.shape[:lead], *sizes), cols.dtype)
    for tap in np.ndindex(*kernel):
        at = [slice(t * d, t * d + (c - 1) * s + 1, s) if c else slice(0)
              for t, d, c, s in zip(tap, dilations, count, strides, strict=True)]
        out[(..., *at)] += cols[(*(slice(None),) * lead, *tap)]
    return out


def _back_transposed(g: Value, x: Value, w: Value, *, strides: tuple[int, ...],
                     dilations: tuple[int, ...], pads: Shape, output_padding: Shape, groups: int
                     ) -> tuple[Value, Value]:
    n = x.type.rank - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = per_axis("pads", pads, 2 * n, 0)
    extra = per_axis("output_padding", output_padding, n, 0)
    exact = (*edges[:n], *[e - o for e, o in zip(edges[n:], extra, strict=True)])
    dx = convolution(g, w, strides=steps, dilations=gaps, pads=exact, groups=groups)
    return dx, _back_filter(g, x, w.shape[2:], steps, gaps, edges, groups)


@linear(types=_transposed_types, transpose=_back_transposed, samples=[
    sample("f32[2,4,5]", "f32[4,3,3]", strides=(2,), pads=(1, 0), output_padding=(1,), groups=2,
           expect=TRANSPOSED, rtol=1e-5),
    sample("f32[1,3,4,5]", "f32[3,2,3,2]", strides=(2, 3), dilations=(2, 1), pads=(1, 0, 2, 1),
           output_padding=(1, 2), expect=TRANSPOSED, rtol=1e-5),
    sample("f32[1,2,2,3,2]", "f32[2,1,2,2,2]", strides=(2, 2, 2), expect=TRANSPOSED, rtol=1e-5),
    sample("f32[1,2,2,3,2]", "f32[2,2,2,2,1]", strides=(2, 1, 2), dilations=(1, 2, 1), groups=2,
           expect=TRANSPOSED, rtol=1e-5),
    sample("f16[1,2,4]", "f16[2,2,3]", expect=TRANSPOSED, rtol=2e-3)])
def transposed_convolution(x: Array, w: Array, *, strides: tuple[int, ...] = (),
                           dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (),
                           output_padding: tuple[Size, ...] = (), groups: int = 1) -> Array:
    """The adjoint of `convolution` in x: x[N, C, spatial..], w[C, M / groups, kernel..].

    Each element adds its filter to the output at distance `strides`. Pads crop the result;
    `output_padding` lengthens it at the end. Sizes are (in - 1) * stride + (k - 1) * dilation + 1
    + output_padding - pads. Source: ONNX ConvTranspose.
    """
    n = x.ndim - 2
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = ints(per_axis("pads", pads, 2 * n, 0))
    extra = ints(per_axis("output_padding", output_padding, n, 0))
    wx, per = widen(x), x.shape[1] // groups
    taps, points = math.prod(w.shape[1:]), math.prod(x.shape[2:])
    kernel = widen(w).reshape(groups, per, taps).swapaxes(1, 2)
    cols = _product(kernel, wx.reshape(x.shape[0], groups, per, points))
    full = fold_windows(cols.reshape(x.shape[0], groups * w.shape[1], *w.shape[2:], *x.shape[2:]),
                        w.shape[2:], steps, gaps)
    crop = [-e for e in edges]
    out = pad_space(full, (*crop[:n], *[c + e for c, e in zip(crop[n:], extra, strict=True)]))
    return out.astype(np_dtype(type_of(x).dtype), copy=False)


def add_bias(y: Value, bias: Value) -> Value:
    """`bias[C]` added to y[N, C, spatial..]."""
    if bias.type.rank != 1 or surely_differ(bias.shape[0], y.shape[1]):
        raise OperatorError(f"the bias must be [{y.shape[1]}], got {bias.type}")
    return y + reshape(bias, shape=(bias.shape[0], *(1,) * (y.type.rank - 2)))


@composite(samples=[
    sample("f32[2,3,6,6]", "f32[4,3,3,3]", bias="f32[4]", pads=(1, 1, 1, 1), expect=CONV,
           rtol=1e-5),
    sample("f16[1,2,6]", "f16[2,2,3]", bias="f16[2]", expect=CONV, rtol=2e-3)])
def conv(x: Value, w: Value, *, bias: Value | None = None, strides: tuple[int, ...] = (),
         dilations: tuple[int, ...] = (), pads: tuple[Size, ...] = (), groups: int = 1) -> Value:
    """`convolution` plus an optional bias[M]; half floats are rounded once, after the bias."""
    if bias is None:
        return convolution(x, w, strides=strides, dilations=dilations, pads=pads, groups=groups)
    y = convolution(wide(x), wide(w), strides=strides, dilations=dilations, pads=pads,
                    groups=groups)
    return cast_value(add_bias(y, wide(bias)), x.dtype)


@composite(samples=[
    sample("f32[1,3,4,4]", "f32[3,2,3,3]", bias="f32[2]", strides=(2, 2), expect=TRANSPOSED,
           rtol=1e-5)])
def conv_transpose(x: Value, w: Value, *, bias: Value | None = None,
                   strides: tuple[int, ...] = (), dilations: tuple[int, ...] = (),
                   pads: tuple[Size, ...] = (), output_padding: tuple[Size, ...] = (),
                   groups: int = 1) -> Value:
    """`transposed_convolution` plus an optional bias[M]; half floats are rounded once."""
    if bias is None:
        return transposed_convolution(x, w, strides=strides, dilations=dilations, pads=pads,
                                      output_padding=output_padding, groups=groups)
    y = transposed_convolution(wide(x), wide(w), strides=strides, dilations=dilations, pads=pads,
                               output_padding=output_padding, groups=groups)
    return cast_value(add_bias(y, wide(bias)), x.dtype)
