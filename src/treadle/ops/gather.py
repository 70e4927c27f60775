"""Reading and writing elements at computed positions.

Indices have any integer dtype, or a float one that holds integers; negative ones count from the
end; one out of range is an error that names it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..declare.arrays import Array, widen
from ..declare.kinds import composite, linear, structured
from ..declare.opdef import cast_value
from ..declare.schema import arr, known, sample
from ..errors import Declined, OperatorError
from ..ir.graph import Value
from ..ir.types import I64, Shape, TensorType, axis_of, broadcast, shape_text
from .compare import eq, where
from .extents import surely_differ, surely_exceeds, with_axis, zeros
from .generate import iota
from .movement import concat, expand, transpose, unsqueeze

Reduction = Literal["none", "add", "mul", "max", "min"]
_AT = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
GRID = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def whole(indices: Array) -> Array:
    """Indices as signed or unsigned integers; a fraction is an error."""
    if indices.dtype.kind in "iu":
        return indices
    with np.errstate(invalid="ignore"):
        out = indices.astype(np.int64)
    if indices.dtype != object and not np.array_equal(out, indices.astype(np.float64)):
        raise OperatorError("an index is no integer")
    return out


def positions(indices: Array, size: int, axis: int) -> Array:
    """Indices into an axis of `size` counted from 0; one out of range is an error."""
    at = whole(indices)
    if not at.size:
        return at.astype(np.int64)
    low, high = int(at.min()), int(at.max())
    if low < -size or high >= size:
        raise OperatorError(f"the index {low if low < -size else high} is out of range for "
                            f"axis {axis} of size {size}")
    at = at.astype(np.int64, copy=False)
    return np.where(at < 0, at + size, at) if low < 0 else at


def indexing(t: TensorType) -> None:
    """Reject an operand that cannot hold indices."""
    if t.dtype.sort not in ("int", "uint", "float"):
        raise OperatorError(f"{t} holds no indices", hint="use an integer dtype")


def put_back(g: Value, indices: Value, shape: Shape, axis: int) -> Value:
    """Zeros of `shape` with the slices of `g` added where gather(axis) read them."""
    k, rank = indices.type.rank, g.type.rank
    front = (*range(axis, axis + k), *range(axis), *range(axis + k, rank))
    rows = (shape[axis], *with_axis(shape, axis))
    flat = scatter_nd(zeros(g.type.with_(shape=rows)), unsqueeze(indices, axes=(-1,)),
                      transpose(g, perm=front), reduction="add")
    back = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    return transpose(flat, perm=back)


def _gather_types(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    indexing(indices)
    return x.with_(shape=with_axis(x.shape, axis, *indices.shape))


def _gather_back(g: Value, x: Value, indices: Value, *, axis: int) -> tuple[Value, None]:
    return put_back(g, indices, x.shape, axis_of(axis, x.type.rank)), None


@linear(types=_gather_types, transpose=_gather_back, samples=[
    known(GRID, [[0, -1], [1, 2]], axis=0,
          expect=[[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [5.0, 6.0]]]]),
    known(GRID, arr(1, "i32"), axis=-1, expect=[[2.0, 4.0, 6.0]]),
    known(GRID, arr([1.0, 0.0], "f32"), axis=1, expect=[[[2.0, 1.0], [4.0, 3.0], [6.0, 5.0]]]),
    known(arr([[1, 2]], "i4"), arr([], "u8"), axis=1, expect=[arr(np.empty((1, 0)), "i4")])])
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """The slices of an axis that `indices` name; its axes replace that one (ONNX Gather)."""
    return np.take(x, positions(indices, x.shape[axis], axis), axis)


def _same_rank(x: TensorType, indices: TensorType, axis: int) -> None:
    indexing(indices)
    at = axis_of(axis, x.rank)
    wrong = [i for i, (n, s) in enumerate(zip(indices.shape, x.shape, strict=False))
             if i != at and surely_exceeds(n, s)]
    if indices.rank != x.rank or wrong:
        raise OperatorError(f"indices {shape_text(indices.shape)} do not fit {x} on axis {axis}",
                            hint="the same rank, and off the axis no size above that of x; "
                                 "take_along broadcasts")


def _gather_elements_types(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    _same_rank(x, indices, axis)
    return x.with_(shape=indices.shape)


def _gather_elements_back(g: Value, x: Value, indices: Value, *, axis: int
                          ) -> tuple[Value, None]:
    return scatter_elements(zeros(x.type), indices, g, axis=axis, reduction="add"), None


def _places(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """An index array for every axis of x: `indices` on `axis`, their own place elsewhere."""
    axis %= x.ndim
    if any(n > s for i, (n, s) in enumerate(zip(indices.shape, x.shape, strict=True)) if i != axis):
        raise OperatorError(f"indices {list(indices.shape)} exceed {list(x.shape)} off axis {axis}")
    grid = np.ix_(*map(np.arange, indices.shape))
    return (*grid[:axis], positions(indices, x.shape[axis], axis), *grid[axis + 1:])


@linear(types=_gather_elements_types, transpose=_gather_elements_back, samples=[
    known([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[1, 2, 0], [2, 0, 0]], axis=0,
          expect=[[[4, 8, 3], [7, 2, 3]]]),
    known([[1.0, 2.0], [3.0, 4.0]], [[0, 0], [-1, 0]], axis=1, expect=[[[1.0, 1.0], [4.0, 3.0]]]),
    known([5.0], arr([], "i32"), axis=0, expect=[[]])])
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Element by element: x at the index on `axis` and at the own place elsewhere (ONNX)."""
    return x[_places(x, indices, axis)]


@composite(samples=[
    sample("f32[3,4]", "i64[3,1]", axis=1, low=0, high=3),
    known([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1, expect=[[[2.0], [3.0]]]),
    known([[1.0], [3.0]], [[1, 0, 1]], axis=0, expect=[[[3.0, 1.0, 3.0]]])])
def take_along(x: Value, indices: Value, *, axis: int = 0) -> Value:
    """gather_elements with x and indices broadcast off the axis (numpy.take_along_axis)."""
    at = axis_of(axis, x.type.rank)
    if indices.type.rank != x.type.rank:
        raise OperatorError(f"indices of rank {indices.type.rank} for {x.type}")
    off = broadcast([with_axis(x.shape, at, 1), with_axis(indices.shape, at, 1)])
    x = expand(x, shape=with_axis(off, at, x.shape[at]))
    return gather_elements(x, expand(indices, shape=with_axis(off, at, indices.shape[at])),
                           axis=at)


def _depth(x: TensorType, indices: TensorType, batch: int = 0) -> int:
    """How many axes of x one index tuple names."""
    indexing(indices)
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 0 <= batch < indices.rank or batch + depth > x.rank:
        raise OperatorError(f"indices {shape_text(indices.shape)} for {x} with {batch} batch axes",
                            hint="the last axis holds one number for each axis it names")
    if any(surely_differ(a, b) for a, b in zip(
            x.shape[:batch], indices.shape[:batch], strict=True)):
        raise OperatorError(f"{x} and {indices} differ in their {batch} batch axes")
    return depth


def _gather_nd_types(x: TensorType, indices: TensorType, *, batch_dims: int) -> TensorType:
    depth = _depth(x, indices, batch_dims)
    return x.with_(shape=(*indices.shape[:-1], *x.shape[batch_dims + depth:]))


def _gather_nd_back(g: Value, x: Value, indices: Value, *, batch_dims: int
                    ) -> tuple[Value, None]:
    one = (*indices.shape[:-1], 1)
    own = [iota(shape=one, axis=i, dtype=I64) for i in range(batch_dims)]
    at = concat([*own, cast_value(indices, I64)], axis=-1) if own else indices
    return scatter_nd(zeros(x.type), at, g, reduction="add"), None


def _rows(x: Array, indices: Array, batch: int = 0) -> tuple[Array, tuple[int, ...]]:
    """The row-major number of each addressed slice of x, and the shape of a slice."""
    depth = indices.shape[-1]
    if x.shape[:batch] != indices.shape[:batch]:
        raise OperatorError(f"{list(x.shape)} and indices {list(indices.shape)} differ in their "
                            f"{batch} batch axes")
    lead = indices.ndim - 1
    at: list[Array] = [
        np.reshape(np.arange(int(x.shape[i])), [-1 if j == i else 1 for j in range(lead)])
        for i in range(batch)]
    at += [positions(indices[..., i], x.shape[batch + i], batch + i) for i in range(depth)]
    rows: Array = np.zeros(indices.shape[:-1], np.int64)
    for axis, index in enumerate(at):
        np.multiply(rows, x.shape[axis], out=rows)
        np.add(rows, index, out=rows)
    return rows, x.shape[batch + depth:]


@linear(types=_gather_nd_types, transpose=_gather_nd_back, samples=[
    known([[0, 1], [2, 3]], [[0, 0], [1, -1]], expect=[[0, 3]]),
    known([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], [[[0, 1]], [[1, 0]]],
          expect=[[[[2, 3]], [[4, 5]]]]),
    known([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], [[1], [0]], batch_dims=1,
          expect=[[[2, 3], [4, 5]]]),
    known(3.0, arr(np.empty((2, 0)), "i64"), expect=[[3.0, 3.0]])])
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The slices of x that index tuples name, after shared leading batch axes (ONNX GatherND)."""
    rows, rest = _rows(x, indices, batch_dims)
    lead = int(np.prod(x.shape[:x.ndim - len(rest)]))
    return np.take(x.reshape(lead, *rest), rows, 0)


def _result(x: Array, updates: Array, reduction: str) -> Array:
    """A fresh row-major array to write into; sums and products of halves run in f32."""
    if updates.dtype == object:
        return x.astype(object)
    return np.array(widen(x) if reduction in ("add", "mul") else x, order="C")


def _write(flat: Array, at: Array, updates: Array, reduction: str) -> None:
    """Combine updates into a flat array; of repeated places without reduction the last wins."""
    if reduction == "none":
        flat[at] = updates
    else:
        _AT[reduction].at(flat, at.reshape(-1), updates.reshape(-1).astype(flat.dtype, copy=False))


def _scatter_types(x: TensorType, updates: TensorType, want: Shape) -> TensorType:
    if updates.dtype is not x.dtype:
        raise OperatorError(f"updates {updates} and {x} differ in dtype", hint="cast one of them")
    if updates.rank != len(want) or any(map(surely_differ, updates.shape, want)):
        raise OperatorError(f"updates {shape_text(updates.shape)} must be {shape_text(want)}")
    return x


def _scatter_elements_types(x: TensorType, indices: TensorType, updates: TensorType, *,
                            axis: int, reduction: str) -> TensorType:
    _same_rank(x, indices, axis)
    return _scatter_types(x, updates, indices.shape)


def _scatter_elements_back(g: Value, x: Value, indices: Value, updates: Value, *, axis: int,
                           reduction: Reduction) -> tuple[Value, None, Value]:
    seen = gather_elements(g, indices, axis=axis)
    if reduction == "add":
        return g, None, seen
    if reduction == "none":
        return scatter_elements(g, indices, zeros(updates.type), axis=axis), None, seen
    if reduction == "mul":
        raise Declined("scatter_elements with reduction=mul has no derivative",
                       hint="multiply by a mask made with gather and where")
    out = scatter_elements(x, indices, updates, axis=axis, reduction=reduction)
    won = eq(updates, gather_elements(out, indices, axis=axis))
    return where(eq(x, out), g, 0.0), None, where(won, seen, 0.0)


_SCATTER_DOC = [[1.0, 0.0, 3.0, 4.0, 5.0]]


@structured(types=_scatter_elements_types, vjp=_scatter_elements_back, samples=[
    known([[1.0, 2.0, 3.0, 4.0, 5.0]], [[1, -2]], [[1.1, 2.1]], axis=1,
          expect=[[[1.0, 1.1, 3.0, 2.1, 5.0]]]),
    known([[1.0, 2.0, 3.0, 4.0, 5.0]], [[1, 1]], [[1.1, 2.1]], axis=1, reduction="add",
          expect=[[[1.0, 5.2, 3.0, 4.0, 5.0]]]),
    known([[1.0, 2.0, 3.0, 4.0, 5.0]], [[1, 1]], [[1.1, 2.1]], axis=1, reduction="max",
          expect=[[[1.0, 2.1, 3.0, 4.0, 5.0]]]),
    known(arr([1.0, 2.0], "bf16"), [1, 1], arr([3.0, 2.0], "bf16"), axis=0, reduction="mul",
          expect=[arr([1.0, 12.0], "bf16")]),
    known([3, 4], [0], [7], axis=0, reduction="min", expect=[[3, 4]])])
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int = 0,
                     reduction: Literal["none", "add", "mul", "max", "min"] = "none") -> Array:
    """x with updates written at the index on `axis` and at the own place elsewhere (ONNX).

    Without a reduction the last of several updates of one place wins.
    """
    _fits(updates, indices.shape)
    out = _result(x, updates, reduction)
    at = np.ravel_multi_index(_places(x, indices, axis), x.shape) if indices.size else None
    if at is not None:
        _write(out.reshape(-1), at, updates, reduction)
    return out.astype(x.dtype, copy=False) if updates.dtype != object else out


def _fits(updates: Array, want: tuple[int, ...]) -> None:
    if updates.shape != want:
        raise OperatorError(f"updates {list(updates.shape)} must be {list(want)}")


def _scatter_nd_types(x: TensorType, indices: TensorType, updates: TensorType, *,
                      reduction: str) -> TensorType:
    depth = _depth(x, indices)
    return _scatter_types(x, updates, (*indices.shape[:-1], *x.shape[depth:]))


def _scatter_nd_back(g: Value, x: Value, indices: Value, updates: Value, *,
                     reduction: Reduction) -> tuple[Value, None, Value]:
    seen = gather_nd(g, indices)
    if reduction == "add":
        return g, None, seen
    if reduction == "none":
        return scatter_nd(g, indices, zeros(updates.type)), None, seen
    if reduction == "mul":
        raise Declined("scatter_nd with reduction=mul has no derivative",
                       hint="multiply by a mask made with gather and where")
    out = scatter_nd(x, indices, updates, reduction=reduction)
    won = eq(updates, gather_nd(out, indices))
    return where(eq(x, out), g, 0.0), None, where(won, seen, 0.0)


@structured(types=_scatter_nd_types, vjp=_scatter_nd_back, samples=[
    known([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [[4], [3], [1], [7]],
          [9.0, 10.0, 11.0, 12.0], expect=[[1.0, 11.0, 3.0, 10.0, 9.0, 6.0, 7.0, 12.0]]),
    known(GRID, [[0], [0]], [[1.0, 1.0], [2.0, 0.0]], reduction="add",
          expect=[[[4.0, 3.0], [3.0, 4.0], [5.0, 6.0]]]),
    known(GRID, [[0, 1], [2, 0]], [7.0, 2.0], reduction="min",
          expect=[[[1.0, 2.0], [3.0, 4.0], [2.0, 6.0]]])])
def scatter_nd(x: Array, indices: Array, updates: Array, *,
               reduction: Literal["none", "add", "mul", "max", "min"] = "none") -> Array:
    """x with updates written over the slices that index tuples name (ONNX ScatterND).

    Without a reduction the last of several updates of one place wins.
    """
    rows, rest = _rows(x, indices)
    _fits(updates, (*indices.shape[:-1], *rest))
    out, inner = _result(x, updates, reduction), int(np.prod(rest))
    if updates.size:
        if reduction == "none":
            out.reshape(-1, inner)[rows.reshape(-1)] = updates.reshape(-1, inner)
        else:
            at = rows.reshape(-1, 1) * inner + np.arange(inner)
            _write(out.reshape(-1), at, updates, reduction)
    return out.astype(x.dtype, copy=False) if updates.dtype != object else out
