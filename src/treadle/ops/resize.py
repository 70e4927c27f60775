"""Resampling on a grid (ONNX Resize): every axis is a small set of taps per output position.

Positions are computed in f32 from f32 scales, as runtimes do, so that the choice of a nearest
element agrees with theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..declare import special
from ..declare.arrays import Array, blob, dtype_of_array, np_dtype, widen
from ..declare.kinds import structured
from ..declare.opdef import cast_value
from ..declare.schema import arr, known, sample
from ..errors import Declined, OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import DTYPES, F32, Shape, TensorType, axis_of
from ..records import dataclass
from .extents import FAR, with_axis
from .gather import put_back
from .leaves import constant
from .movement import reshape

Floats: TypeAlias = npt.NDArray[np.float32]
Coordinates = Literal["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                      "asymmetric", "tf_crop_and_resize"]
Nearest = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
Mode = Literal["nearest", "linear", "cubic"]
HALF = np.float32(0.5)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of one resize: sizes, scale and the interval of tf_crop_and_resize."""

    size: int
    out: int
    scale: np.float32
    start: np.float32
    end: np.float32

    @property
    def width(self) -> np.float32:
        """The length after resizing, a fraction when a scale says so."""
        return self.scale * np.float32(self.size)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The attributes that choose the weights."""

    mode: Mode
    coordinates: Coordinates
    nearest: Nearest
    cubic: float
    exclude_outside: bool
    antialias: bool


def scaled_size(size: int, scale: float) -> int:
    """The length of an axis after resizing by a scale: floor(size * scale) in f32."""
    return int(np.float32(scale) * np.float32(size))


def _half_pixel(a: Axis, x: Floats) -> Floats:
    return (x + HALF) / a.scale - HALF


def _symmetric(a: Axis, x: Floats) -> Floats:
    shift = np.float32(a.size) / 2 * (1 - np.float32(a.out) / a.width)
    return shift + _half_pixel(a, x)


def _pytorch(a: Axis, x: Floats) -> Floats:
    return _half_pixel(a, x) if a.out > 1 else np.zeros_like(x)


def _align(a: Axis, x: Floats) -> Floats:
    if a.width == 1 or a.out == 1:
        return np.zeros_like(x)
    return x * np.float32(a.size - 1) / (a.width - 1)


def _crop(a: Axis, x: Floats) -> Floats:
    last = np.float32(a.size - 1)
    if a.width == 1 or a.out == 1:
        return np.full_like(x, HALF * (a.start + a.end) * last)
    return a.start * last + x * (a.end - a.start) * last / (a.width - 1)


_POSITION: dict[Coordinates, Callable[[Axis, Floats], Floats]] = {
    "half_pixel": _half_pixel, "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch, "align_corners": _align,
    "asymmetric": lambda a, x: x / a.scale, "tf_crop_and_resize": _crop}
_NEAREST: dict[Nearest, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - HALF),
    "round_prefer_ceil": lambda x: np.floor(x + HALF), "floor": np.floor, "ceil": np.ceil}


def _triangle(d: Array, _: float) -> Array:
    return np.maximum(1 - np.abs(d), 0)


def _keys(d: Array, a: float) -> Array:
    """Keys' cubic kernel (IEEE TASSP 29, 1981, equation 4)."""
    d = np.abs(d)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


_REACH: dict[Mode, tuple[int, Callable[[Array, float], Array]]] = {
    "linear": (1, _triangle), "cubic": (2, _keys)}


def _taps(a: Axis, k: Kernel) -> tuple[Array, Array | None, Array]:
    """Indices [taps, out], their weights (None: a single 1), and the positions [out]."""
    at = _POSITION[k.coordinates](a, np.arange(a.out, dtype=np.float32))
    if k.mode == "nearest":
        near = np.clip(_NEAREST[k.nearest](at), 0, a.size - 1)
        return near.astype(np.int64)[None], None, at
    reach, kernel = _REACH[k.mode]
    shrink = min(float(a.scale), 1.0) if k.antialias else 1.0
    first = int(np.floor(-reach / shrink)) + 1
    base = np.clip(np.ceil(at) - 1, -FAR, FAR)
    offset = np.arange(first, 2 - first)[:, None]
    weight = kernel((offset - (at - base).astype(np.float64)) * shrink, k.cubic)
    index = offset + base.astype(np.int64)
    if shrink < 1.0:
        weight = weight / weight.sum(0)
    if k.exclude_outside:
        weight = np.where((index < 0) | (index >= a.size), 0, weight)
        total = weight.sum(0)
        weight = weight / np.where(total == 0, 1, total)
    return np.clip(index, 0, a.size - 1), weight, at


def _axes(x: Shape, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    return tuple(range(len(x))) if axes is None else tuple([axis_of(a, len(x)) for a in axes])


def _plan(shape: tuple[int, ...], sizes: tuple[int, ...], scales: tuple[float, ...],
          roi: tuple[float, ...], axes: tuple[int, ...]) -> dict[int, Axis]:
    """The axes that change."""
    n = len(axes)
    starts, ends = (roi[:n], roi[n:]) if roi else ((0.0,) * n, (1.0,) * n)
    plan: dict[int, Axis] = {}
    for i, axis in enumerate(axes):
        size, out = shape[axis], sizes[i]
        scale = np.float32(scales[i]) if scales else np.float32(out) / np.float32(max(size, 1))
        scale = scale if out else np.float32(1)
        if size == 0 and out:
            raise OperatorError(f"axis {axis} has no element to resize to {out}")
        if not 0 < scale < np.inf or not np.isfinite([starts[i], ends[i]]).all():
            raise OperatorError(f"axis {axis} has scale {scale} and roi {starts[i]} to {ends[i]}",
                                hint="scales are positive, and all of them finite")
        a = Axis(size, out, scale, np.float32(starts[i]), np.float32(ends[i]))
        if (size, scale, a.start, a.end) != (out, 1, 0, 1):
            plan[axis] = a
    return plan


def _resize_types(x: TensorType, *, run_scales: TensorType | None = None,
                  run_roi: TensorType | None = None, sizes: Shape, scales: tuple[float, ...],
                  roi: tuple[float, ...], axes: tuple[int, ...] | None, mode: Mode,
                  coordinates: Coordinates, nearest: Nearest, cubic: float,
                  exclude_outside: bool, extrapolation: float, antialias: bool) -> TensorType:
    at = _axes(x.shape, axes)
    if x.dtype.sort not in ("bool", "int", "uint", "float") or (
            x.dtype.sort == "bool" and mode != "nearest"):
        raise OperatorError(f"{x} does not interpolate", hint="cast it to f32")
    if len(set(at)) != len(at) or len(sizes) != len(at):
        raise OperatorError(f"{len(sizes)} sizes for the axes {at}")
    for what, given, want in (("scales", scales, len(at)), ("roi", roi, 2 * len(at))):
        if given and len(given) != want:
            raise OperatorError(f"{len(given)} numbers in {what}, not {want}")
    for what, t, want in (("scales", run_scales, len(at)), ("roi", run_roi, 2 * len(at))):
        if t is not None and t.shape not in ((want,), (0,)):
            raise OperatorError(f"{what} {t} must have {want} elements")
    shape = x.shape
    for axis, size in zip(at, sizes, strict=True):
        shape = with_axis(shape, axis, size)
    return x.with_(shape=shape)


def _resize_back(g: Value, x: Value, *, run_scales: Value | None = None,
                 run_roi: Value | None = None, sizes: Shape, scales: tuple[float, ...],
                 roi: tuple[float, ...], axes: tuple[int, ...] | None, mode: Mode,
                 coordinates: Coordinates, nearest: Nearest, cubic: float,
                 exclude_outside: bool, extrapolation: float, antialias: bool
                 ) -> tuple[Value | None, ...]:
    """Each tap's share of g goes back to where it was read, one axis at a time."""
    at = _axes(x.shape, axes)
    fixed = [s for s in (*x.shape, *sizes) if isinstance(s, int)]
    named = [None for v in (run_scales, run_roi) if v is not None]
    if len(fixed) != x.type.rank + len(sizes) or named:
        raise Declined("resize has a derivative only when its sizes and scales are constant",
                       hint="bind the symbolic sizes first")
    plan = _plan(tuple(fixed[:x.type.rank]), tuple(fixed[x.type.rank:]), scales, roi, at)
    kernel = Kernel(mode, coordinates, nearest, cubic, exclude_outside, antialias)
    for axis, a in plan.items():
        index, weight, place = _taps(a, kernel)
        inside = _inside(a, coordinates, place)
        weight = np.ones(index.shape) if weight is None else weight
        total: Value | None = None
        for i, w in zip(index, weight * inside, strict=True):
            line = reshape(constant(value=blob(w.astype(np.float32))),
                           shape=tuple([-1 if j == axis else 1 for j in range(x.type.rank)]))
            part = put_back(g * cast_value(line, g.dtype), constant(value=blob(i)),
                            with_axis(g.shape, axis, a.size), axis)
            total = part if total is None else total + part
        g = cast(Value, total)
    return (g,)


def _inside(a: Axis, coordinates: Coordinates, at: Array) -> Array:
    """Where tf_crop_and_resize reads the tensor; elsewhere it gives the extrapolation value."""
    if coordinates != "tf_crop_and_resize":
        return np.ones(at.shape, bool)
    return (at >= 0) & (at <= a.size - 1)


class Taps(NamedTuple):
    """How one axis is read: places [taps, out], weights (None: one of 1), places inside x."""

    axis: int
    places: Array
    weight: Array | None
    inside: Array


def sampling(shape: tuple[int, ...], sizes: tuple[int, ...], scales: tuple[float, ...],
             roi: tuple[float, ...], axes: tuple[int, ...] | None, kernel: Kernel) -> list[Taps]:
    """The axes that change, those that shrink most first."""
    plan, out = _plan(shape, sizes, scales, roi, _axes(shape, axes)), list[Taps]()
    for axis in sorted(plan, key=lambda i: plan[i].out / max(plan[i].size, 1)):
        index, weight, place = _taps(plan[axis], kernel)
        out.append(Taps(axis, index, weight, _inside(plan[axis], kernel.coordinates, place)))
    return out


def along(axis: int, rank: int, line: Array) -> Array:
    """A vector shaped to broadcast along one axis."""
    return line.reshape([-1 if i == axis else 1 for i in range(rank)])


def _interpolate(x: Array, axis: int, index: Array, weight: Array | None) -> Array:
    """Weighted sum of the taps along one axis."""
    if weight is None:
        return np.take(x, index[0], axis)
    out: Array | None = None
    for i, w in zip(index, weight.astype(x.dtype), strict=True):
        part = np.multiply(np.take(x, i, axis), along(axis, x.ndim, w))
        out = part if out is None else np.add(out, part, out=out)
    assert out is not None
    return out


def _narrowed(x: Array, like: Array, whole: Callable[[Array], Array]) -> Array:
    """Back to the dtype of the operand; integers saturate."""
    dtype = dtype_of_array(like)
    if x.dtype == like.dtype or dtype.sort == "float":
        return x.astype(like.dtype, copy=False)
    return special.cast(dtype, whole(x))


_SQUARE = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0],
           [13.0, 14.0, 15.0, 16.0]]
_UP = [[[[1.0, 2.0], [3.0, 4.0]]]]


@structured(types=_resize_types, vjp=_resize_back, samples=[
    sample("f32[1,2,3,4]", sizes=(5, 2), axes=(2, 3), mode="linear"),
    sample("f16[5]", sizes=(3,), mode="cubic", antialias=True),
    sample("f32[2,0]", sizes=(3, 0)), sample("f32[2]", sizes=(0,), mode="linear", antialias=True),
    known(_UP, sizes=(1, 1, 4, 6), scales=(1.0, 1.0, 2.0, 3.0), expect=[
        [[[[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]] * 2 + [[3.0, 3.0, 3.0, 4.0, 4.0, 4.0]] * 2]]]),
    known(_UP, sizes=(4, 4), axes=(2, 3), mode="linear", expect=[
        [[[[1.0, 1.25, 1.75, 2.0], [1.5, 1.75, 2.25, 2.5], [2.5, 2.75, 3.25, 3.5],
           [3.0, 3.25, 3.75, 4.0]]]]]),
    known([1.0, 2.0, 3.0, 4.0], sizes=(2,), scales=(0.6,), mode="linear",
          coordinates="align_corners", rtol=1e-5, expect=[[1.0, 3.142857]]),
    known(_SQUARE, sizes=(3, 3), scales=(0.8, 0.8), mode="cubic", rtol=1e-5, expect=[
        [[1.47119141, 2.78125, 4.08251953], [6.71142578, 8.02148438, 9.32275391],
         [11.91650391, 13.2265625, 14.52783203]]]),
    known(_SQUARE, sizes=(2, 2), scales=(0.6, 0.6), mode="linear", antialias=True, rtol=1e-5,
          expect=[[[2.875, 4.5], [9.375, 11.0]]]),
    known(_SQUARE, sizes=(3, 3), roi=(0.4, 0.6, 0.6, 0.8), mode="linear", rtol=1e-5,
          coordinates="tf_crop_and_resize", expect=[
              [[7.6, 7.9, 8.2], [8.8, 9.1, 9.4], [10.0, 10.3, 10.6]]]),
    known(arr([0, 3], "u8"), sizes=(4,), mode="linear", expect=[arr([0, 0, 2, 3], "u8")])])
def resize(x: Array, *, run_scales: Array | None = None, run_roi: Array | None = None,
           sizes: tuple[Size, ...], scales: tuple[float, ...] = (), roi: tuple[float, ...] = (),
           axes: tuple[int, ...] | None = None,
           mode: Literal["nearest", "linear", "cubic"] = "nearest",
           coordinates: Literal["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                "align_corners", "asymmetric",
                                "tf_crop_and_resize"] = "half_pixel",
           nearest: Literal["round_prefer_floor", "round_prefer_ceil", "floor",
                            "ceil"] = "round_prefer_floor",
           cubic: float = -0.75, exclude_outside: bool = False, extrapolation: float = 0.0,
           antialias: bool = False) -> Array:
    """Resample `axes` (all by default) to `sizes` (ONNX Resize).

    `scales` map positions and default to output over input size; `roi` holds the starts and then
    the ends that tf_crop_and_resize reads, in units of the axis; positions outside give
    `extrapolation`. Both may come as tensors, `run_scales` and `run_roi`. Integers truncate, and
    round with `antialias`, as in ONNX Runtime.
    """
    scales = scales if run_scales is None else tuple(map(float, run_scales))
    roi = roi if run_roi is None else tuple(map(float, run_roi))
    kernel = Kernel(mode, coordinates, nearest, cubic, exclude_outside, antialias)
    w, outside = _computing(x, mode), list[Array]()
    for axis, index, weight, inside in sampling(
            x.shape, cast("tuple[int, ...]", sizes), scales, roi, axes, kernel):
        w = _interpolate(w, axis, index, weight)
        if not inside.all():
            outside.append(along(axis, x.ndim, ~inside))
    out = _narrowed(w, x, np.rint if antialias else np.trunc)
    for mask in outside:
        out = np.where(mask, np.asarray(extrapolation).astype(x.dtype), out)
    return out


def _computing(x: Array, mode: Mode) -> Array:
    """x in the dtype that weighs it: itself, f32, or f64 for wide integers."""
    dtype = dtype_of_array(x)
    if mode == "nearest" or dtype.sort == "float":
        return x if mode == "nearest" else widen(x)
    return x.astype(np_dtype(F32 if dtype.bits < 24 else DTYPES["f64"]))
