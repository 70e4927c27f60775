"""The same elements under another shape, order or extent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..declare.arrays import Array, ints
from ..declare.kinds import linear, structured, view
from ..declare.schema import known, sample
from ..errors import OperatorError
from ..ir.dims import Size
from ..ir.graph import Value
from ..ir.types import (
    I64,
    Shape,
    TensorType,
    axes_of,
    axis_of,
    broadcast,
    count,
    shape_text,
)
from .extents import (
    first_of,
    inserted,
    resolve,
    sliced,
    surely_differ,
    surely_exceeds,
    total,
    with_axis,
    zeros,
)

GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def _reshape_types(x: TensorType, *, shape: Shape) -> TensorType:
    full, elements = resolve(x.shape, shape), count(x.shape)
    if any(isinstance(s, int) and s < 0 for s in full):
        raise OperatorError(f"the shape {shape_text(shape)} has a negative size")
    if surely_differ(count(full), elements):
        raise OperatorError(f"{elements} elements do not reshape to {shape_text(shape)}",
                            hint="the product of the sizes must stay; one of them may be -1")
    return x.with_(shape=full)


def _reshape_back(g: Value, x: Value, *, shape: Shape) -> Value:
    return reshape(g, shape=x.shape)


@view(types=_reshape_types, transpose=_reshape_back, samples=[
    sample("f32[4,6]", shape=(2, -1)), sample("f32[1,1]", shape=()),
    sample("f32[0,3]", shape=(-1, 3)),
    known(GRID, shape=(3, -1), expect=[[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]),
    known(7.0, shape=(1, -1), expect=[[[7.0]]])])
def reshape(x: Array, *, shape: tuple[Size, ...]) -> Array:
    """The same elements in row-major order under another shape; one size may be -1 (NumPy).

    Sizes whose product is not known to fit are checked at run time.
    """
    full = ints(resolve(x.shape, shape))
    if count(full) != x.size:
        raise OperatorError(f"{x.size} elements do not reshape to {shape_text(full)}")
    return x.reshape(full)


def _transpose_types(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    if sorted(perm) != list(range(x.rank)):
        raise OperatorError(f"perm {perm} is no permutation of the {x.rank} axes")
    return x.with_(shape=tuple([x.shape[p] for p in perm]))


def _transpose_back(g: Value, x: Value, *, perm: tuple[int, ...]) -> Value:
    return transpose(g, perm=tuple([perm.index(i) for i in range(len(perm))]))


@view(types=_transpose_types, transpose=_transpose_back, samples=[
    sample("f32[2,3,4]", perm=(1, 2, 0)), sample("f32[]", perm=()),
    known(GRID, perm=(1, 0), expect=[[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]])])
def transpose(x: Array, *, perm: tuple[int, ...]) -> Array:
    """Axis i of the result is axis perm[i] of x (NumPy, ONNX Transpose)."""
    return np.transpose(x, perm)


def _expand_types(x: TensorType, *, shape: Shape) -> TensorType:
    return x.with_(shape=broadcast([x.shape, shape]))


def _expand_back(g: Value, x: Value, *, shape: Shape) -> Value:
    from .reduce import sum_to

    return sum_to(g, x.shape)


@view(types=_expand_types, transpose=_expand_back, samples=[
    sample("f32[3,1]", shape=(2, 3, 4)), sample("f32[2,3]", shape=(3,)),
    known([[1.0], [2.0]], shape=(1, 3), expect=[[[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]])])
def expand(x: Array, *, shape: tuple[Size, ...]) -> Array:
    """Broadcast x with `shape`, which may be shorter than x or hold 1 (ONNX Expand)."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape)))


def _fits(x: Shape, shape: Shape) -> Sequence[tuple[Size, Size]]:
    """Sizes of x that are not the ones beside them in `shape`, aligned at the last axis."""
    pairs = zip(x[len(x) - len(shape):], shape, strict=True)
    return [(have, want) for have, want in pairs if want not in (1, have)]


def _expect_types(x: TensorType, *, shape: Shape) -> TensorType:
    if len(shape) > x.rank:
        raise OperatorError(f"{x} has fewer axes than {shape_text(shape)}")
    for have, want in _fits(x.shape, shape):
        if surely_differ(have, want) and surely_differ(want, 1):
            raise OperatorError(f"{x} does not expand to {shape_text(shape)}: {have} against "
                                f"{want}")
    return x


def _expect_back(g: Value, x: Value, *, shape: Shape) -> Value:
    return g


@view(types=_expect_types, transpose=_expect_back, samples=[
    sample("f32[2,3]", shape=(1, 3)), sample("f32[2,3]", shape=()),
    known([[1.0, 2.0]], shape=(2,), expect=[[[1.0, 2.0]]])])
def expect_broadcast(x: Array, *, shape: tuple[Size, ...]) -> Array:
    """X itself, if expanding it by `shape` leaves it as it is: each size there is 1 or x's own.

    What is not known before is checked at run time.
    """
    if wrong := _fits(x.shape, ints(shape)):
        have, want = wrong[0]
        raise OperatorError(f"an axis of {have} does not expand to {want}",
                            hint="a size of the shape is the input's own, or one of them is 1")
    return x


def _squeeze_types(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    gone = axes_of(axes, x.rank)
    if wrong := [i for i in gone if surely_differ(x.shape[i], 1)]:
        raise OperatorError(f"axis {wrong[0]} has size {x.shape[wrong[0]]}, not 1")
    return x.with_(shape=tuple([s for i, s in enumerate(x.shape) if i not in gone]))


def _squeeze_back(g: Value, x: Value, *, axes: tuple[int, ...]) -> Value:
    return reshape(g, shape=x.shape)


@view(types=_squeeze_types, transpose=_squeeze_back, samples=[
    sample("f32[1,3,1]", axes=(0, -1)), known([[1.0, 2.0]], axes=(0,), expect=[[1.0, 2.0]])])
def squeeze(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Drop axes of size 1."""
    if wrong := [a for a in axes if x.shape[a] != 1]:
        raise OperatorError(f"axis {wrong[0]} has size {x.shape[wrong[0]]}, not 1")
    return np.squeeze(x, axes)


def _unsqueeze_types(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    at, rest = inserted(axes, x.rank), iter(x.shape)
    return x.with_(shape=tuple([1 if i in at else next(rest)
                                for i in range(x.rank + len(axes))]))


def _unsqueeze_back(g: Value, x: Value, *, axes: tuple[int, ...]) -> Value:
    return squeeze(g, axes=axes)


@view(types=_unsqueeze_types, transpose=_unsqueeze_back, samples=[
    sample("f32[2,3]", axes=(0, -1)), sample("f32[]", axes=(0,)),
    known([1.0, 2.0], axes=(1,), expect=[[[1.0], [2.0]]])])
def unsqueeze(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Insert axes of size 1 at these positions of the result (ONNX Unsqueeze)."""
    return np.expand_dims(x, axes)


def _flip_types(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    axes_of(axes, x.rank)
    return x


def _flip_back(g: Value, x: Value, *, axes: tuple[int, ...]) -> Value:
    return flip(g, axes=axes)


@view(types=_flip_types, transpose=_flip_back, samples=[
    sample("f32[2,3]", axes=(0, 1)),
    known(GRID, axes=(-1,), expect=[[[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]])])
def flip(x: Array, *, axes: tuple[int, ...]) -> Array:
    """Reverse the order of the elements along axes."""
    return np.flip(x, axes)


def _slice_types(x: TensorType, *, starts: Shape, ends: Shape, steps: tuple[int, ...],
                 axes: tuple[int, ...]) -> TensorType:
    if not len(starts) == len(ends) == len(steps) == len(axes):
        raise OperatorError(f"{len(starts)} starts, {len(ends)} ends, {len(steps)} steps and "
                            f"{len(axes)} axes", hint="give one of each for every axis")
    if 0 in steps:
        raise OperatorError("a step of 0")
    axes_of(axes, x.rank)
    shape = list(x.shape)
    for start, end, step, axis in zip(starts, ends, steps, axes, strict=True):
        shape[axis] = sliced(shape[axis], start, end, step)
    return x.with_(shape=tuple(shape))


def _slice_back(g: Value, x: Value, *, starts: Shape, ends: Shape, steps: tuple[int, ...],
                axes: tuple[int, ...]) -> Value:
    from .gather import put_back
    from .generate import range_
    from .pad import pad

    pads: list[Size] = [0] * (2 * x.type.rank)
    for start, step, axis in zip(starts, steps, axes, strict=True):
        at, size = axis_of(axis, x.type.rank), x.shape[axis]
        first, length = first_of(start, size, step), g.shape[at]
        if step == 1:
            pads[at] = first
            pads[at + x.type.rank] = size - first - length
        else:
            index = range_(start=first, step=step, length=length, dtype=I64)
            g = put_back(g, index, with_axis(g.shape, at, size), at)
    return pad(g, pads=tuple(pads)) if any(p != 0 for p in pads) else g


@view(types=_slice_types, transpose=_slice_back, samples=[
    sample("f32[4,6]", starts=(1, -1), ends=(3, -7), steps=(1, -2), axes=(0, 1)),
    sample("f32[5]", starts=(1,), ends=(2**63 - 1,), steps=(2,), axes=(-1,)),
    sample("f32[3]", starts=(2,), ends=(1,), steps=(1,), axes=(0,)),
    known([[1, 2, 3, 4], [5, 6, 7, 8]], starts=(1, 0), ends=(2, 3), steps=(1, 2), axes=(0, 1),
          expect=[[[5, 7]]]),
    known([0, 1, 2, 3, 4], starts=(20,), ends=(-2**63,), steps=(-1,), axes=(0,),
          expect=[[4, 3, 2, 1, 0]])])
def slice_(x: Array, *, starts: tuple[Size, ...], ends: tuple[Size, ...], steps: tuple[int, ...],
           axes: tuple[int, ...]) -> Array:
    """start:end:step of each named axis, clamped as NumPy does; steps may be negative."""
    take = [slice(None)] * x.ndim
    for start, end, step, axis in zip(ints(starts), ints(ends), steps, axes, strict=True):
        first, n = first_of(start, x.shape[axis], step), sliced(x.shape[axis], start, end, step)
        assert isinstance(first, int) and isinstance(n, int)
        last = first + n * step
        take[axis] = slice(first, last if last >= 0 else None, step) if n else slice(0, 0)
    return x[tuple(take)]


def _narrow_types(x: TensorType, *, axis: int, start: Size, length: Size) -> TensorType:
    size = x.shape[axis_of(axis, x.rank)]
    if any(isinstance(s, int) and s < 0 for s in (start, length)) or surely_exceeds(
            start + length, size):
        raise OperatorError(f"{length} elements from {start} of axis {axis} of size {size}",
                            hint="start and length lie inside the axis; slice clamps instead")
    return x.with_(shape=with_axis(x.shape, axis, length))


def _narrow_back(g: Value, x: Value, *, axis: int, start: Size, length: Size) -> Value:
    from .pad import pad

    rank, at = x.type.rank, axis_of(axis, x.type.rank)
    pads: list[Size] = [0] * (2 * rank)
    pads[at], pads[at + rank] = start, x.shape[at] - start - length
    return pad(g, pads=tuple(pads))


@view(types=_narrow_types, transpose=_narrow_back, samples=[
    sample("f32[4,6]", axis=1, start=2, length=3), sample("f32[2]", axis=0, start=2, length=0),
    known([1.0, 2.0, 3.0], axis=0, start=1, length=2, expect=[[2.0, 3.0]])])
def narrow(x: Array, *, axis: int, start: Size, length: Size) -> Array:
    """`length` elements of an axis from `start`; beyond the axis is an error."""
    first, n = ints((start, length))
    if first < 0 or n < 0 or first + n > x.shape[axis]:
        raise OperatorError(f"{n} elements from {first} of axis {axis} of size {x.shape[axis]}")
    return x[(slice(None),) * (axis % x.ndim) + (slice(first, first + n),)]


def _concat_types(xs: Sequence[TensorType], *, axis: int) -> TensorType:
    if not xs:
        raise OperatorError("nothing to concatenate")
    first, at = xs[0], axis_of(axis, xs[0].rank)
    for x in xs[1:]:
        if x.dtype is not first.dtype:
            raise OperatorError(f"{first} and {x} differ in dtype", hint="cast one of them")
        if x.rank != first.rank or with_axis(x.shape, at) != with_axis(first.shape, at):
            pairs = [(a, b) for a, b in zip(first.shape, x.shape, strict=False) if a != b]
            raise OperatorError(f"{first} and {x} differ off axis {axis}",
                                hint="equal sizes everywhere but on the axis, of equal symbols",
                                sizes=pairs[0] if pairs and len(pairs) == 1 else ())
    return first.with_(shape=with_axis(first.shape, at, total([x.shape[at] for x in xs])))


def _concat_back(g: Value, xs: Sequence[Value], *, axis: int) -> tuple[Value, ...]:
    start: Size = 0
    out: list[Value] = []
    for x in xs:
        out.append(narrow(g, axis=axis, start=start, length=x.shape[axis]))
        start = start + x.shape[axis]
    return tuple(out)


def _concat_push(ts: Sequence[Value | None], xs: Sequence[Value], *, axis: int) -> Value:
    return concat([zeros(x.type) if t is None else t for t, x in zip(ts, xs, strict=True)],
                  axis=axis)


@structured(types=_concat_types, vjp=_concat_back, jvp=_concat_push, samples=[
    sample("f32[2,3]", "f32[2,1]", axis=-1), sample("f32[2]", axis=0),
    sample("bf16[0,2]", "bf16[3,2]", axis=0),
    known([1.0, 2.0], [3.0], axis=0, expect=[[1.0, 2.0, 3.0]])])
def concat(xs: Sequence[Array], *, axis: int) -> Array:
    """Operands one after another along an axis; the other sizes are equal (ONNX Concat)."""
    return np.concatenate(xs, axis)


def _split_types(x: TensorType, *, axis: int, sizes: Shape) -> tuple[TensorType, ...]:
    size = x.shape[axis_of(axis, x.rank)]
    if any(isinstance(s, int) and s < 0 for s in sizes) or surely_differ(
            total(sizes), size):
        raise OperatorError(f"axis {axis} of size {size} does not split into {shape_text(sizes)}")
    return tuple([x.with_(shape=with_axis(x.shape, axis, s)) for s in sizes])


def _split_back(*gs: Value, axis: int, sizes: Shape) -> Value:
    return concat(gs[:-1], axis=axis)


@view(types=_split_types, transpose=_split_back, samples=[
    sample("f32[4,6]", axis=1, sizes=(1, 5)), sample("f32[3]", axis=0, sizes=(3,)),
    known([1.0, 2.0, 3.0], axis=0, sizes=(0, 1, 2), expect=[[], [1.0], [2.0, 3.0]])])
def split(x: Array, *, axis: int, sizes: tuple[Size, ...]) -> tuple[Array, ...]:
    """Consecutive parts of an axis, one output each; the sizes add up to the axis."""
    parts = ints(sizes)
    if sum(parts) != x.shape[axis]:
        raise OperatorError(f"axis {axis} of size {x.shape[axis]} does not split into "
                            f"{shape_text(parts)}")
    return tuple(np.split(x, np.cumsum(parts[:-1], dtype=np.int64), axis))


def _tile_types(x: TensorType, *, repeats: Shape) -> TensorType:
    if len(repeats) != x.rank or any(isinstance(r, int) and r < 0 for r in repeats):
        raise OperatorError(f"repeats {shape_text(repeats)} for {x.rank} axes",
                            hint="give one count of at least 0 for every axis")
    return x.with_(shape=tuple([s * r for s, r in zip(x.shape, repeats, strict=True)]))


def _tile_back(g: Value, x: Value, *, repeats: Shape) -> Value:
    from .reduce import sum_

    pairs = [n for r, s in zip(repeats, x.shape, strict=True) for n in (r, s)]
    return sum_(reshape(g, shape=tuple(pairs)), axes=tuple(range(0, len(pairs), 2)))


@linear(types=_tile_types, transpose=_tile_back, samples=[
    sample("f32[2,3]", repeats=(2, 1)), sample("f32[]", repeats=()),
    sample("f32[2]", repeats=(0,)),
    known([[1, 2], [3, 4]], repeats=(1, 2), expect=[[[1, 2, 1, 2], [3, 4, 3, 4]]])])
def tile(x: Array, *, repeats: tuple[Size, ...]) -> Array:
    """x repeated along every axis (NumPy tile, ONNX Tile)."""
    return np.tile(x, ints(repeats))
