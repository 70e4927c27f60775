"""Reading images between pixels: sampling grids and affine maps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from ..declare.arrays import Array, blob, ints, np_dtype, widen
from ..declare.kinds import composite, linear
from ..declare.opdef import cast_value, full_value, wide
from ..declare.schema import sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64, Shape, TensorType, count
from .arithmetic import abs_, fmod, max_, min_
from .compare import eq, gt, le, logical_and, where
from .extents import surely_differ
from .gather import gather_elements
from .leaves import constant
from .mathfn import floor, round_
from .movement import concat, expand, narrow, reshape, transpose
from .reduce import sum_

Padding: TypeAlias = Literal["zeros", "border", "reflection"]
CUBIC = -0.75
"""The coefficient of Keys' cubic convolution that PyTorch and ONNX use."""
ORACLE = "tests.oracles.sampling:"


def _reflect(at: Value, size: Size, align_corners: bool) -> Value:
    """Coordinates folded into the image by reflection at its border."""
    low, extra = (0.0, 1.0) if align_corners else (-0.5, 0.0)
    span = full_value(size, at.dtype) - extra
    step = max_(span, 0.5)  # an image of one pixel has no span between corners
    far = abs_(at - low)
    turns, rest = floor(far / step), fmod(far, step)
    folded = where(eq(fmod(turns, 2.0), 0.0), rest + low, span + low - rest)
    return where(gt(span, 0.0), folded, 0.0)


def _pixels(x: Value, at: Sequence[Value], padding: Padding, align_corners: bool) -> Value:
    """x[N, C, space..] at whole coordinates `[N, P]` an axis, as `[N, C, P]`."""
    batch, channels, *space = x.shape
    points = at[0].shape[1]
    index: Value | None = None
    inside: Value | None = None
    for size, c in zip(space, at, strict=True):
        c = _reflect(c, size, align_corners) if padding == "reflection" else c
        kept = max_(min_(c, full_value(size - 1, c.dtype)), 0.0)
        here, place = eq(c, kept), cast_value(kept, I64)
        inside = here if inside is None else logical_and(inside, here)
        index = place if index is None else index * full_value(size, I64) + place
    assert index is not None and inside is not None
    rows = expand(reshape(index, shape=(batch, 1, points)), shape=(batch, channels, points))
    found = gather_elements(reshape(x, shape=(batch, channels, count(tuple(space)))), rows, axis=2)
    if padding != "zeros":
        return found
    return where(reshape(inside, shape=(batch, 1, points)), found, 0.0)


def _taps(at: Value, mode: str) -> list[tuple[Value, Value]]:
    """Whole coordinates around each position, with their weights."""
    low = floor(at)
    t = at - low
    if mode == "linear":
        return [(low, 1.0 - t), (low + 1.0, t)]
    return [(low + k, _cubic(abs_(t - k))) for k in (-1.0, 0.0, 1.0, 2.0)]


def _cubic(d: Value) -> Value:
    near = (d * (CUBIC + 2) - (CUBIC + 3)) * d * d + 1.0
    far = ((d * CUBIC - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return where(le(d, 1.0), near, far)


def interpolate(x: Value, at: Sequence[Value], *, mode: str = "linear",
                padding: Padding = "zeros", align_corners: bool = True) -> Value:
    """x[N, C, space..] at coordinates `[N, P]` an axis, in pixels, as `[N, C, P]`."""
    if mode == "nearest":
        return _pixels(x, [round_(c) for c in at], padding, align_corners)
    batch, points = at[0].shape
    total: Value | None = None
    for corner in itertools.product(*[_taps(c, mode) for c in at]):
        weight = corner[0][1]
        for _, w in corner[1:]:
            weight = weight * w
        found = _pixels(x, [c for c, _ in corner], padding, align_corners)
        part = found * reshape(weight, shape=(batch, 1, points))
        total = part if total is None else total + part
    assert total is not None
    return total


def _check_grid(x: TensorType, grid: TensorType) -> None:
    n = x.rank - 2
    if n < 1 or grid.rank != x.rank or grid.shape[-1] != n:
        raise OperatorError(f"x[N,C,space..] and grid[N,out..,{max(n, 1)}] are needed, "
                            f"got {x} and {grid}")
    if surely_differ(x.shape[0], grid.shape[0]):
        raise OperatorError(f"the batches {x.shape[0]} and {grid.shape[0]} differ")
    if x.dtype.sort != "float" or grid.dtype.sort != "float":
        raise OperatorError(f"floats are sampled at floats, got {x.dtype} and {grid.dtype}")


def _coordinate(g: Value, size: Size, padding: Padding, align_corners: bool) -> Value:
    """The pixel that a grid coordinate names; with cubic taps only single pixels are moved."""
    length, g = full_value(size, g.dtype), g + 1.0
    c = g / 2.0 * (length - 1.0) if align_corners else (g * length - 1.0) / 2.0
    if padding == "border":
        return max_(min_(c, length - 1.0), 0.0)
    return _reflect(c, size, align_corners) if padding == "reflection" else c


@composite(samples=[
    *[sample("f32[2,3,4,5]", "f32[2,3,4,2]", mode=m, padding=p, align_corners=a, low=-1.4,
             high=1.4, expect=ORACLE + "grid_sample", rtol=1e-4)
      for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection")
      for a in (False, True)],
    *[sample("f32[1,2,3,4,3]", "f32[1,2,3,2,3]", mode=m, padding=p, low=-1.4, high=1.4,
             expect=ORACLE + "grid_sample", rtol=1e-4)
      for m in ("linear", "nearest") for p in ("zeros", "border", "reflection")],
    sample("f32[1,1,1,3]", "f32[1,2,2,2]", padding="reflection", align_corners=True,
           expect=ORACLE + "grid_sample", rtol=1e-4),
    sample("f16[1,1,3,3]", "f16[1,2,2,2]", low=-1.0, high=1.0)])
def grid_sample(x: Value, grid: Value, *,
                mode: Literal["linear", "nearest", "cubic"] = "linear",
                padding: Literal["zeros", "border", "reflection"] = "zeros",
                align_corners: bool = False) -> Value:
    """x[N, C, space..] read at grid[N, out.., space axes], as [N, C, out..].

    Grid coordinates run from -1 to 1 over the image, last axis first (x, y, then z); they are
    pixel centres of the corners with `align_corners`, else the image's outer edges. Positions
    outside read 0, the nearest pixel, or a reflection. Source: ONNX GridSample.
    """
    _check_grid(x.type, grid.type)
    space, batch, out = x.shape[2:], x.shape[0], grid.shape[1:-1]
    given: Padding = "zeros" if mode == "cubic" else padding
    at = list[Value]()
    for i, size in enumerate(space):
        one = narrow(wide(grid), axis=-1, start=len(space) - 1 - i, length=1)
        at.append(_coordinate(reshape(one, shape=(batch, count(out))), size, given,
                              align_corners))
    read = interpolate(wide(x), at, mode=mode, padding=padding, align_corners=align_corners)
    return cast_value(reshape(read, shape=(*x.shape[:2], *out)), x.dtype)


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
