"""Margins, rotation, reversal, and blocks between depth and space."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..declare.arrays import Array, ints
from ..declare.kinds import composite, linear, structured
from ..declare.opdef import cast_value
from ..declare.schema import arr, known, sample
from ..errors import Declined, OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import I64, Shape, TensorType, axis_of, shape_text
from .compare import lt, where
from .extents import with_axis, zeros
from .gather import put_back, take_along
from .generate import iota, range_
from .movement import reshape, transpose
from .reduce import sum_

PadMode = Literal["constant", "reflect", "edge", "wrap"]
GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def _pad_types(x: TensorType, *, fill: TensorType | None = None, pads: Shape, mode: PadMode,
               value: complex) -> TensorType:
    if len(pads) != 2 * x.rank:
        raise OperatorError(f"{len(pads)} pads for {x.rank} axes",
                            hint="the counts before every axis, then those after every axis")
    if fill is not None and (fill.rank or fill.dtype is not x.dtype):
        raise OperatorError(f"the fill {fill} must be {x.dtype}[]")
    if isinstance(value, complex) and x.dtype.sort != "complex":
        raise OperatorError(f"the value {value} does not fit {x.dtype}")
    shape = tuple([s + a + b for s, a, b in zip(
        x.shape, pads[:x.rank], pads[x.rank:], strict=True)])
    if any(isinstance(s, int) and s < 0 for s in shape):
        raise OperatorError(f"pads {shape_text(pads)} leave a negative size {shape_text(shape)}")
    return x.with_(shape=shape)


def _pad_back(g: Value, x: Value, *, fill: Value | None = None, pads: Shape, mode: PadMode,
              value: complex) -> tuple[Value, ...]:
    if mode == "constant":
        gx = pad(g, pads=tuple([-p for p in pads]))
        if fill is None:
            return (gx,)
        outside = g - pad(gx, pads=pads)
        return gx, sum_(outside, axes=tuple(range(x.type.rank)))
    n = x.type.rank
    for axis, size in enumerate(x.shape):
        ends = (pads[axis], pads[axis + n])
        if ends != (0, 0):
            index = pad(range_(start=0, step=1, length=size, dtype=I64), pads=ends, mode=mode)
            g = put_back(g, index, with_axis(g.shape, axis, size), axis)
    return (g,) if fill is None else (g, zeros(fill.type))


def _pad_push(t: Value, x: Value, *, fill: Value | None = None, pads: Shape, mode: PadMode,
              value: complex) -> Value:
    if fill is not None:
        raise Declined("pad with a fill operand has no forward derivative", hint="use grad")
    return pad(t, pads=pads, mode=mode)


@structured(types=_pad_types, vjp=_pad_back, jvp=_pad_push, samples=[
    sample("f32[2,3]", pads=(1, 0, 0, 2)), sample("f32[3]", pads=(-1, 2)),
    sample("f32[2,3]", pads=(1, 1, 1, 2), mode="reflect"), sample("f32[]", pads=()),
    sample("f32[2,0]", pads=(0, 1, 0, 1)),
    known([[1.0, 1.2], [2.3, 3.4]], pads=(0, 2, 0, 0), value=9.0,
          expect=[[[9.0, 9.0, 1.0, 1.2], [9.0, 9.0, 2.3, 3.4]]]),
    known([1, 2], pads=(1, 1), fill=7, expect=[[7, 1, 2, 7]]),
    known(GRID, pads=(0, 2, 0, 2), mode="reflect",
          expect=[[[3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0], [6.0, 5.0, 4.0, 5.0, 6.0, 5.0, 4.0]]]),
    known(GRID, pads=(0, 1, 0, 1), mode="edge",
          expect=[[[1.0, 1.0, 2.0, 3.0, 3.0], [4.0, 4.0, 5.0, 6.0, 6.0]]]),
    known(GRID, pads=(0, 1, 0, 1), mode="wrap",
          expect=[[[3.0, 1.0, 2.0, 3.0, 1.0], [6.0, 4.0, 5.0, 6.0, 4.0]]])])
def pad(x: Array, *, fill: Array | None = None, pads: tuple[Size, ...],
        mode: Literal["constant", "reflect", "edge", "wrap"] = "constant",
        value: complex | float | int | bool = 0) -> Array:
    """Margins around every axis: `pads` holds the counts before each axis, then after each.

    The constant is `value`, or the scalar `fill`. Negative counts crop, before anything is
    added. Modes as numpy.pad, ONNX Pad.
    """
    counts = np.array(ints(pads), np.int64).reshape(2, -1)
    crop = [slice(max(-int(a), 0), n - max(-int(b), 0)) for n, (a, b) in zip(
        x.shape, counts.T, strict=True)]
    if any(s.stop < s.start for s in crop):
        raise OperatorError(f"pads {shape_text(pads)} remove more than {list(x.shape)} holds")
    x, grow = x[tuple(crop)], np.maximum(counts, 0)
    if mode != "constant":
        if any(n == 0 and w.any() for n, w in zip(x.shape, grow.T, strict=True)):
            raise OperatorError(f"an axis of size 0 has nothing to pad with in mode {mode}")
        return np.pad(x, grow.T, mode)
    out = np.empty(tuple(np.array(x.shape, np.int64) + grow.sum(0)), x.dtype)
    out[...] = value if fill is None else fill
    out[tuple([slice(a, a + n) for a, n in zip(grow[0], x.shape, strict=True)])] = x
    return out


def _roll_types(x: TensorType, *, shift: Size, axis: int) -> TensorType:
    axis_of(axis, x.rank)
    return x


def _roll_back(g: Value, x: Value, *, shift: Size, axis: int) -> Value:
    return roll(g, shift=-shift, axis=axis)


@linear(types=_roll_types, transpose=_roll_back, samples=[
    sample("f32[2,5]", shift=-7, axis=1), sample("f32[0]", shift=1, axis=0),
    known([0, 1, 2, 3, 4], shift=2, axis=0, expect=[[3, 4, 0, 1, 2]])])
def roll(x: Array, *, shift: Size, axis: int) -> Array:
    """Rotate an axis: element i goes to i + shift, modulo the size (numpy.roll)."""
    (by,) = ints((shift,))
    return np.roll(x, by % max(x.shape[axis], 1), axis)


@composite(samples=[
    known([[0.0, 4.0], [1.0, 5.0], [2.0, 6.0]], [3, 2],
          expect=[[[2.0, 5.0], [1.0, 4.0], [0.0, 6.0]]]),
    known([[0, 1, 2], [4, 5, 6]], arr([1, 2], "i32"), time_axis=1, batch_axis=0,
          expect=[[[0, 1, 2], [5, 4, 6]]]),
    sample("f32[3,2,4]", "i64[4]", time_axis=1, batch_axis=2, low=0, high=2)])
def reverse_sequence(x: Value, lengths: Value, *, time_axis: int = 0, batch_axis: int = 1
                     ) -> Value:
    """The first lengths[n] steps of each batch entry in reverse order, the rest as it is (ONNX)."""
    time, batch = axis_of(time_axis, x.type.rank), axis_of(batch_axis, x.type.rank)
    if time == batch or lengths.shape != (x.shape[batch],) or lengths.dtype.sort not in (
            "int", "uint"):
        raise OperatorError(f"{lengths.type} does not hold a length for each entry of axis "
                            f"{batch_axis} of {x.type}")
    shape = tuple([s if i == batch else 1 for i, s in enumerate(x.shape)])
    ends = reshape(cast_value(lengths, I64), shape=shape)
    step = iota(shape=tuple([s if i == time else 1 for i, s in enumerate(x.shape)]), axis=time,
                dtype=I64)
    return take_along(x, where(lt(step, ends), ends - 1 - step, step), axis=time)


def _nchw(x: Value, block: int) -> Shape:
    if x.type.rank != 4 or block < 1:
        raise OperatorError(f"{x.type} with block {block}", hint="x is [N,C,H,W], block >= 1")
    return x.shape


def _part(size: Size, by: int) -> Size:
    """size / by, which must be a whole number."""
    if isinstance(size, int) and size % by:
        raise OperatorError(f"the size {size} does not divide by {by}")
    return size // by


_CHANNELS = [[[[0.0]], [[6.0]], [[12.0]], [[18.0]]]]


@composite(samples=[
    sample("f32[1,8,2,3]", block=2, mode="CRD"),
    known(_CHANNELS, block=2, expect=[[[[[0.0, 6.0], [12.0, 18.0]]]]]),
    known([[[[0]], [[1]], [[2]], [[3]], [[4]], [[5]], [[6]], [[7]]]], block=2,
          expect=[[[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]]),
    known([[[[0]], [[1]], [[2]], [[3]], [[4]], [[5]], [[6]], [[7]]]], block=2, mode="CRD",
          expect=[[[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]])])
def depth_to_space(x: Value, *, block: int, mode: Literal["DCR", "CRD"] = "DCR") -> Value:
    """[N,C,H,W] -> [N, C/b^2, bH, bW] (ONNX DepthToSpace).

    Channels are read as (b, b, C/b^2) in mode DCR and as (C/b^2, b, b) in mode CRD.
    """
    n, c, h, w = _nchw(x, block)
    depth = _part(c, block * block)
    if mode == "DCR":
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    return reshape(transpose(reshape(x, shape=split), perm=perm),
                   shape=(n, depth, h * block, w * block))


@composite(samples=[
    sample("f32[1,2,4,6]", block=2, mode="CRD"),
    known([[[[0.0, 6.0], [12.0, 18.0]]]], block=2, expect=[_CHANNELS]),
    known([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]], block=2,
          expect=[[[[[0]], [[1]], [[2]], [[3]], [[4]], [[5]], [[6]], [[7]]]]]),
    known([[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]], block=2, mode="CRD",
          expect=[[[[[0]], [[1]], [[2]], [[3]], [[4]], [[5]], [[6]], [[7]]]]])])
def space_to_depth(x: Value, *, block: int, mode: Literal["DCR", "CRD"] = "DCR") -> Value:
    """[N,C,H,W] -> [N, b^2 C, H/b, W/b], the inverse of depth_to_space (ONNX SpaceToDepth)."""
    n, c, h, w = _nchw(x, block)
    rows, cols = _part(h, block), _part(w, block)
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = reshape(x, shape=(n, c, rows, block, cols, block))
    return reshape(transpose(parts, perm=perm), shape=(n, c * block * block, rows, cols))
