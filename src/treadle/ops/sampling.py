"""Reading images between pixels: grids, regions of interest, deformed windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..declare.arrays import Array, blob, ints, np_dtype, widen
from ..declare.kinds import linear, structured
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import Shape, TensorType, count
from .extents import surely_differ
from .leaves import constant
from .movement import concat, reshape, transpose
from .reduce import sum_

Padding = Literal["zeros", "border", "reflection"]
CUBIC = -0.75
"""The coefficient of Keys' cubic convolution that PyTorch and ONNX use."""
ORACLE = "tests.oracles.sampling:"


def _reflect(at: Array, low: float, high: float) -> Array:
    """Coordinates folded into [low, high] by reflection at its ends."""
    span = high - low
    if span <= 0:
        return np.zeros_like(at)
    far = np.abs(at - low)
    turns, rest = np.floor(far / span), np.fmod(far, span)
    return np.where(turns % 2 == 0, rest + low, high - rest)


def _border(size: int, align_corners: bool) -> tuple[float, float]:
    return (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)


def _pixels(x: Array, at: Sequence[Array], padding: Padding, align_corners: bool) -> Array:
    """x[N, C, space..] at whole coordinates `[N, P]` an axis, as `[N, C, P]`."""
    space = x.shape[2:]
    index, inside = np.zeros(at[0].shape, np.int64), np.ones(at[0].shape, bool)
    for size, c in zip(space, at, strict=True):
        if padding == "reflection":
            c = _reflect(c, *_border(size, align_corners))
        whole = c.astype(np.int64)
        kept = np.clip(whole, 0, max(size - 1, 0))
        inside &= whole == kept
        index = index * size + kept
    found = np.take_along_axis(x.reshape(*x.shape[:2], math.prod(space)), index[:, None], 2)
    return np.where(inside[:, None], found, 0) if padding == "zeros" else found


def _taps(at: Array, mode: str) -> list[tuple[Array, Array]]:
    """Whole coordinates around each position, with their weights."""
    low = np.floor(at)
    t = at - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return [(low + k, _cubic(np.abs(t - k))) for k in (-1, 0, 1, 2)]


def _cubic(d: Array) -> Array:
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return np.where(d <= 1, near, far)


def interpolate(x: Array, at: Sequence[Array], *, mode: str = "linear",
                padding: Padding = "zeros", align_corners: bool = True) -> Array:
    """x[N, C, space..] at coordinates `[N, P]` an axis, in pixels, as `[N, C, P]`."""
    if mode == "nearest":
        return _pixels(x, [np.rint(c) for c in at], padding, align_corners)
    total = np.zeros((*x.shape[:2], at[0].shape[-1]), x.dtype)
    for corner in itertools.product(*[_taps(c, mode) for c in at]):
        weight = corner[0][1]
        for _, w in corner[1:]:
            weight = weight * w
        total += _pixels(x, [c for c, _ in corner], padding, align_corners) * weight[:, None]
    return total


def _grid_types(x: TensorType, grid: TensorType, *, mode: str, padding: str,
                align_corners: bool) -> TensorType:
    n = x.rank - 2
    if n < 1 or grid.rank != x.rank or grid.shape[-1] != n:
        raise OperatorError(f"x[N,C,space..] and grid[N,out..,{max(n, 1)}] are needed, "
                            f"got {x} and {grid}")
    if surely_differ(x.shape[0], grid.shape[0]):
        raise OperatorError(f"the batches {x.shape[0]} and {grid.shape[0]} differ")
    if x.dtype.sort != "float" or grid.dtype.sort != "float":
        raise OperatorError(f"floats are sampled at floats, got {x.dtype} and {grid.dtype}")
    return x.with_(shape=(*x.shape[:2], *grid.shape[1:-1]))


@structured(types=_grid_types, samples=[
    *[sample("f32[2,3,4,5]", "f32[2,3,4,2]", mode=m, padding=p, align_corners=a, low=-1.4,
             high=1.4, expect=ORACLE + "grid_sample", rtol=1e-4)
      for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection")
      for a in (False, True)],
    *[sample("f32[1,2,3,4,3]", "f32[1,2,3,2,3]", mode=m, padding=p, low=-1.4, high=1.4,
             expect=ORACLE + "grid_sample", rtol=1e-4)
      for m in ("linear", "nearest") for p in ("zeros", "border", "reflection")],
    sample("f16[1,1,3,3]", "f16[1,2,2,2]", low=-1.0, high=1.0)])
def grid_sample(x: Array, grid: Array, *,
                mode: Literal["linear", "nearest", "cubic"] = "linear",
                padding: Literal["zeros", "border", "reflection"] = "zeros",
                align_corners: bool = False) -> Array:
    """x[N, C, space..] read at grid[N, out.., space axes], as [N, C, out..].

    Grid coordinates run from -1 to 1 over the image, last axis first (x, y, then z); they are
    pixel centres of the corners with `align_corners`, else the image's outer edges. Positions
    outside read 0, the nearest pixel, or a reflection. Source: ONNX GridSample.
    """
    w, space = widen(x), x.shape[2:]
    if 0 in space:
        raise OperatorError(f"x has no pixels: {list(x.shape)}")
    where = widen(grid).reshape(grid.shape[0], math.prod(grid.shape[1:-1]), len(space))
    at = list[Array]()
    for i, size in enumerate(space):
        g = where[..., len(space) - 1 - i]
        c = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
        if padding == "border" and mode != "cubic":
            c = np.clip(c, 0, size - 1)
        elif padding == "reflection" and mode != "cubic":
            c = _reflect(c, *_border(size, align_corners))
        at.append(c)
    out = interpolate(w, at, mode=mode, padding=padding, align_corners=align_corners)
    return out.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype, copy=False)


def _affine_types(theta: TensorType, *, size: Shape, align_corners: bool) -> TensorType:
    n = len(size)
    if n not in (2, 3) or theta.rank != 3 or theta.shape[1:] != (n, n + 1):
        raise OperatorError(f"theta[N,{n},{n + 1}] is needed for {n} spatial sizes, got {theta}")
    if theta.dtype.sort != "float":
        raise OperatorError(f"theta is {theta.dtype}, not a float")
    return theta.with_(shape=(theta.shape[0], *size, n))


def _axis_points(size: int, align_corners: bool) -> Array:
    if align_corners:
        return np.linspace(-1.0, 1.0, size) if size > 1 else np.zeros(size)
    return (np.arange(size) * 2 + 1) / size - 1


def _affine_back(g: Value, theta: Value, *, size: Shape, align_corners: bool) -> Value:
    """The sum over positions of the cotangent times the position, and times 1."""
    n = len(size)
    unit = np.eye(n, n + 1, dtype=np_dtype(g.dtype))[None]
    base = affine_grid(constant(value=blob(unit)), size=size, align_corners=align_corners)
    total = count(size)
    rows = reshape(g, shape=(g.shape[0], 1, total, n))
    points = transpose(reshape(base, shape=(1, total, n, 1)), perm=(0, 2, 1, 3))
    slopes = sum_(rows * points, axes=(2,))
    shift = sum_(rows, axes=(2,))
    return transpose(concat([slopes, shift], axis=1), perm=(0, 2, 1))


@linear(types=_affine_types, transpose=_affine_back, samples=[
    sample("f32[2,2,3]", size=(3, 4), expect=ORACLE + "affine_grid", rtol=1e-5),
    sample("f32[1,3,4]", size=(2, 3, 4), align_corners=True, expect=ORACLE + "affine_grid",
           rtol=1e-5)])
def affine_grid(theta: Array, *, size: tuple[Size, ...], align_corners: bool = False) -> Array:
    """The sampling grid [N, *size, axes] of affine maps theta[N, axes, axes + 1].

    Each position (x, y, .., 1) of the output, from -1 to 1 as `grid_sample` counts, is mapped by
    theta. Source: ONNX AffineGrid; `size` is without its N and C.
    """
    space = ints(size)
    points = np.meshgrid(*[_axis_points(s, align_corners) for s in space], indexing="ij")
    base = np.stack([*points[::-1], np.ones(space)], -1)
    out = np.einsum("...k,njk->n...j", base.astype(widen(theta).dtype), widen(theta))
    return out.astype(theta.dtype, copy=False)
