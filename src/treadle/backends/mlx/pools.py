"""Pooling: windows fold axis by axis, over one strided slice for each tap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import mlx.core as mx

from ...ir.dims import Size
from ...ir.graph import Node
from ...ops.windows import out_shape, per_axis
from .arrays import number, wide
from .convolution import Ints, padded
from .lowering import Kernel, Lowering, plain
from .reductions import identity_of, order_key

Fold: TypeAlias = Callable[[mx.array, mx.array], mx.array]
MOST_TAPS = 256


def _geometry(shape: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, ceil: bool
              ) -> tuple[Ints, Ints, Ints, list[int]]:
    n = len(kernel)
    steps, gaps = per_axis("strides", strides, n, 1), per_axis("dilations", dilations, n, 1)
    edges = per_axis("pads", pads, 2 * n, 0)
    space: tuple[Size, ...] = shape
    sizes = out_shape(space, kernel, steps, gaps, edges, ceil=ceil)
    return steps, gaps, edges, [int(str(s)) for s in sizes]


def folding(fold: Fold, identity: str, at: int) -> Kernel:
    """Windows folded over x whose spatial axes begin at `at`."""
    def run(x: mx.array, *, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints,
            ceil_mode: bool) -> mx.array:
        space = tuple(x.shape[at:at + len(kernel)])
        steps, gaps, edges, sizes = _geometry(space, kernel, strides, dilations, pads, ceil_mode)
        w = wide(x)
        out = padded(w, identity_of(identity, w.dtype), kernel, steps, gaps, edges, sizes, at)
        for i, k in enumerate(kernel):
            lead, total = (slice(None),) * (at + i), out
            for tap in range(k):
                begin = tap * gaps[i]
                end = begin + (sizes[i] - 1) * steps[i] + 1
                part = out[(*lead, slice(begin, end, steps[i]))]
                total = part if tap == 0 else fold(total, part)
            out = total
        return out.astype(x.dtype)

    return run


def max_pool_with_argmax(x: mx.array, *, kernel: Ints, strides: Ints, dilations: Ints,
                         pads: Ints, ceil_mode: bool, column_major: bool) -> list[mx.array]:
    """The largest element of each window and its place; the first of equals wins."""
    space = tuple(x.shape[2:])
    steps, gaps, edges, sizes = _geometry(space, kernel, strides, dilations, pads, ceil_mode)
    key = padded(order_key(x), -(2**31), kernel, steps, gaps, edges, sizes)
    own = mx.broadcast_to(mx.reshape(_places(x, column_major), (1, 1, *x.shape[2:])), x.shape)
    place = padded(own, 0, kernel, steps, gaps, edges, sizes)
    best, at = key, place
    for i, k in reversed([*enumerate(kernel)]):  # rows last: the first of equals is in row order
        lead, top, found = (slice(None),) * (2 + i), best, at
        for tap in range(k):
            start = tap * gaps[i]
            cut = (*lead, slice(start, start + (sizes[i] - 1) * steps[i] + 1, steps[i]))
            more = best[cut] > top if tap else None
            top = best[cut] if more is None else mx.where(more, best[cut], top)
            found = at[cut] if more is None else mx.where(more, at[cut], found)
        best, at = top, found
    planes = mx.reshape(mx.arange(x.shape[0] * x.shape[1], dtype=mx.int64),
                        (*x.shape[:2], *[1] * len(kernel)))
    at = at + planes * number(math.prod(x.shape[2:]), mx.int64)
    flat = mx.reshape(mx.transpose(x, _spatial_order(x, column_major)), (-1,))
    return [mx.reshape(mx.take(flat, mx.reshape(at, (-1,))), at.shape), at]


def _spatial_order(x: mx.array, column_major: bool) -> list[int]:
    space = list(range(2, x.ndim))
    return [0, 1, *(reversed(space) if column_major else space)]


def _places(x: mx.array, column_major: bool) -> mx.array:
    """The flat index of each spatial element."""
    space = tuple(x.shape[2:])
    count = mx.arange(math.prod(space), dtype=mx.int64)
    if not column_major:
        return mx.reshape(count, space)
    return mx.transpose(mx.reshape(count, space[::-1]))


def _refuse(node: Node) -> str:
    kernel = node.attrs["kernel"]
    if isinstance(kernel, tuple) and sum(k for k in kernel if isinstance(k, int)) > MOST_TAPS:
        return f"a window of more than {MOST_TAPS} taps"
    return ""


def _first_of_windows(node: Node) -> str:
    dtype = node.inputs[0].dtype
    return _refuse(node) or (f"places of {dtype}" if dtype.bits == 64 or dtype.name == "u32"
                             else "")


FOLDS: dict[str, tuple[Fold, str]] = {
    "sum_pool": (mx.add, "sum"), "max_pool": (mx.maximum, "reduce_max"),
    "min_pool": (mx.minimum, "reduce_min"), "prod_pool": (mx.multiply, "prod")}
LOWERINGS: dict[str, Lowering] = {
    **{n: plain(folding(*f, 2), _refuse) for n, f in FOLDS.items()},
    "max_pool_with_argmax": plain(max_pool_with_argmax, _first_of_windows)}
