"""Operators whose result sizes depend on data.

Each takes `names`: fresh symbols for the sizes that it finds, bound when it runs.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..declare.arrays import Array, ints, widen
from ..declare.kinds import composite, structured
from ..declare.room import check_room
from ..declare.schema import arr, known
from ..errors import OperatorError
from ..ir.dims import Size, sym
from ..ir.graph import Value
from ..ir.types import BOOL, I64, Shape, TensorType, axes_of, axis_of, count
from .extents import resolve, with_axis
from .gather import gather, put_back
from .generate import range_
from .movement import reshape
from .pad import PadMode, pad
from .reduce import sum_

NAN = float("nan")
_LONGEST = 2**48
"""Elements of the longest range that is tried; more is a mistake in the bounds."""


def fresh(names: tuple[str, ...], n: int) -> Shape:
    """The sizes an operator finds, as symbols."""
    if len(names) != n or len(set(names)) != n or not all(map(str.isidentifier, names)):
        raise OperatorError(f"names={names} must name {n} sizes, each once")
    return tuple(map(sym, names))


def _vector(t: TensorType, what: str, length: Size | None = None) -> None:
    if t.rank != 1 or t.dtype.sort not in ("int", "uint") or (
            length is not None and t.shape[0] != length):
        raise OperatorError(f"{what} {t} must be an integer vector"
                            + (f" of {length}" if length is not None else ""))


def _whole(x: Array) -> tuple[int, ...]:
    return tuple([int(v) for v in x.reshape(-1)])


def _nonzero_types(x: TensorType, *, names: tuple[str, ...]) -> TensorType:
    if x.dtype.sort in ("string", "block", "host"):
        raise OperatorError(f"{x} has no zeros")
    return TensorType((x.rank, *fresh(names, 1)), I64)


@structured(types=_nonzero_types, samples=[
    known([[1, 0], [1, 1]], names=("n",), expect=[[[0, 1, 1], [0, 0, 1]]]),
    known(arr([0.0, NAN], "f16"), names=("n",), expect=[[[1]]]),
    known([False], names=("n",), expect=[np.empty((1, 0), np.int64)]),
    known(5, names=("n",), expect=[np.empty((0, 1), np.int64)])])
def nonzero(x: Array, *, names: tuple[str, ...]) -> Array:
    """The positions of the elements that are not 0, row-major: i64[rank, n] (ONNX NonZero)."""
    if not x.ndim:
        return np.empty((0, int(bool(x))), np.int64)
    return np.array(np.nonzero(widen(x)), np.int64)


@composite(samples=[
    known([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [False, True, True], axis=0, names=("n",),
          expect=[[[3.0, 4.0], [5.0, 6.0]]]),
    known([[1, 2], [3, 4], [5, 6]], [False, True, False, False, True], names=("n",),
          expect=[[2, 5]]),
    known([1.0], [False], axis=0, names=("n",), expect=[[]])])
def compress(x: Value, condition: Value, *, axis: int | None = None, names: tuple[str, ...]
             ) -> Value:
    """The slices of an axis, or the elements, where `condition` is true (ONNX Compress).

    The condition is a vector and may be shorter than the axis; a true entry beyond is an error.
    """
    if condition.type.rank != 1 or condition.dtype is not BOOL:
        raise OperatorError(f"the condition {condition.type} must be a bool vector")
    if axis is None:
        x, axis = reshape(x, shape=(-1,)), 0
    index = reshape(nonzero(condition, names=names), shape=fresh(names, 1))
    return gather(x, index, axis=axis)


def _unique_types(x: TensorType, *, axis: int | None, sorted: bool, names: tuple[str, ...]
                  ) -> tuple[TensorType, ...]:
    (n,) = fresh(names, 1)
    if x.dtype.sort in ("block", "host", "complex"):
        raise OperatorError(f"{x} has no order")
    shape = (n,) if axis is None else with_axis(x.shape, axis, n)
    looked = count(x.shape) if axis is None else x.shape[axis_of(axis, x.rank)]
    found = TensorType((n,), I64)
    return x.with_(shape=shape), found, TensorType((looked,), I64), found


def _unique_back(*args: Value, axis: int | None, sorted: bool, names: tuple[str, ...]) -> Value:
    g, x = args[0], args[-1]
    first = unique(x, axis=axis, sorted=sorted, names=names)[1]
    if axis is None:
        return reshape(put_back(g, first, (count(x.shape),), 0), shape=x.shape)
    return put_back(g, first, x.shape, axis_of(axis, x.type.rank))


@structured(types=_unique_types, vjp=_unique_back, samples=[
    known([2.0, 1.0, 1.0, 3.0, 4.0, 3.0], names=("n",),
          expect=[[1.0, 2.0, 3.0, 4.0], [1, 0, 3, 4], [1, 0, 0, 2, 3, 2], [2, 1, 2, 1]]),
    known([2.0, 1.0, 1.0, 3.0, 4.0, 3.0], sorted=False, names=("n",),
          expect=[[2.0, 1.0, 3.0, 4.0], [0, 1, 3, 4], [0, 1, 1, 2, 3, 2], [1, 2, 2, 1]]),
    known([[1, 0, 0], [1, 0, 0], [2, 3, 4]], axis=0, names=("n",),
          expect=[[[1, 0, 0], [2, 3, 4]], [0, 2], [0, 0, 1], [2, 1]]),
    known(arr([], "bf16"), names=("n",), expect=[arr([], "bf16"), *[np.empty(0, np.int64)] * 3]),
    known(arr(["b", "a", "b"], "string"), names=("n",),
          expect=[arr(["a", "b"], "string"), [1, 0], [1, 0, 1], [1, 2]])])
def unique(x: Array, *, axis: int | None = None, sorted: bool = True, names: tuple[str, ...]
           ) -> tuple[Array, ...]:
    """The distinct elements, or slices of an axis, in order or as first met (ONNX Unique).

    Outputs: values, where each first is, the number of every element's value, and counts.
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    keys = widen(x)
    if x.dtype == object:
        keys = np.reshape(np.unique(x.astype(str), return_inverse=True)[1], x.shape)
    _, first, inverse, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True,
        axis=axis if x.ndim > 1 else None)
    inverse = np.reshape(inverse, -1)
    if not sorted:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return (np.take(x, first, axis),
            *(a.astype(np.int64, copy=False) for a in (first, inverse, counts)))


def _nms_types(boxes: TensorType, scores: TensorType, *, max_boxes: TensorType | None = None,
               iou_threshold: TensorType | None = None, score_threshold: TensorType | None = None,
               center_point: bool, names: tuple[str, ...]) -> TensorType:
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4 or (
            boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise OperatorError(f"boxes {boxes} and scores {scores} do not fit",
                            hint="boxes are [N,boxes,4] and scores [N,classes,boxes]")
    if {boxes.dtype.sort, scores.dtype.sort} != {"float"}:
        raise OperatorError(f"boxes {boxes} and scores {scores} must be floats")
    return TensorType((*fresh(names, 1), 3), I64)


def _corners(boxes: Array, center_point: bool) -> Array:
    """Low and high corner and the area of boxes, [5, n]; any opposite corners may be given."""
    a, b = boxes[:, :2].T, boxes[:, 2:].T
    low, high = (a - b / 2, a + b / 2) if center_point else (np.minimum(a, b), np.maximum(a, b))
    size = high - low
    return np.concatenate([low, high, size[:1] * size[1:]])


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union; 0 for boxes without area."""
    rows = np.minimum(box[2], others[2]) - np.maximum(box[0], others[0])
    cols = np.minimum(box[3], others[3]) - np.maximum(box[1], others[1])
    common = np.maximum(rows, 0) * np.maximum(cols, 0)
    union = box[4] + others[4] - common
    return np.where((common > 0) & (union > 0), common / np.where(union > 0, union, 1), 0)


def _suppress(boxes: Array, scores: Array, most: int, iou: float, least: float | None
              ) -> list[int]:
    """The kept boxes of one class, best first; of equal scores the lower index."""
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    left = boxes[:, order]
    kept: list[int] = []
    while order.size and len(kept) < most:
        kept.append(int(order[0]))
        apart = _overlap(left[:, 0], left[:, 1:]) <= iou
        order, left = order[1:][apart], left[:, 1:][:, apart]
    return kept


def _first(x: Array | None, default: float) -> float:
    return default if x is None or not x.size else float(x.reshape(-1)[0])


_BOXES = [[[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [0.0, -0.1, 1.0, 0.9],
           [0.0, 10.0, 1.0, 11.0], [0.0, 10.1, 1.0, 11.1], [0.0, 100.0, 1.0, 101.0]]]
_SCORES = [[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]]


@structured(types=_nms_types, samples=[
    known(_BOXES, _SCORES, max_boxes=[3], iou_threshold=[0.5], score_threshold=[0.0],
          names=("n",), expect=[[[0, 0, 3], [0, 0, 0], [0, 0, 5]]]),
    known(_BOXES, _SCORES, max_boxes=2, iou_threshold=[0.5], score_threshold=[0.4],
          names=("n",), expect=[[[0, 0, 3], [0, 0, 0]]]),
    known(_BOXES, _SCORES, names=("n",), expect=[np.empty((0, 3), np.int64)])])
def non_max_suppression(boxes: Array, scores: Array, *, max_boxes: Array | None = None,
                        iou_threshold: Array | None = None, score_threshold: Array | None = None,
                        center_point: bool = False, names: tuple[str, ...]) -> Array:
    """(batch, class, box) of the boxes to keep, best first in each class (ONNX).

    At most `max_boxes` (0 by default) a class, of scores above `score_threshold`, and none that
    overlaps a better one by more than `iou_threshold` (0). Boxes are y0 x0 y1 x1, or with
    `center_point` x y width height.
    """
    most, iou = int(_first(max_boxes, 0)), _first(iou_threshold, 0.0)
    least = None if score_threshold is None else _first(score_threshold, 0.0)
    boxes, scores = widen(boxes), widen(scores)
    corners = [_corners(boxes[n], center_point) for n in range(len(boxes))]
    found = [(n, c, b) for n, corner in enumerate(corners) for c in range(scores.shape[1])
             for b in _suppress(corner, scores[n, c], most, iou, least)]
    return np.array(found, np.int64).reshape(-1, 3)


def _slice_types(x: TensorType, starts: TensorType, ends: TensorType, *,
                 steps: TensorType | None = None, axes: tuple[int, ...], names: tuple[str, ...]
                 ) -> TensorType:
    axes_of(axes, x.rank)
    for what, t in (("starts", starts), ("ends", ends), ("steps", steps)):
        if t is not None:
            _vector(t, what, len(axes))
    shape = list(x.shape)
    for axis, size in zip(axes, fresh(names, len(axes)), strict=True):
        shape[axis] = size
    return x.with_(shape=tuple(shape))


@structured(types=_slice_types, samples=[
    known([[1, 2, 3, 4], [5, 6, 7, 8]], [1, 0], [2, 3], steps=[1, 2], axes=(0, 1),
          names=("a", "b"), expect=[[[5, 7]]]),
    known([0, 1, 2, 3], [-1], [-100], steps=arr([-1], "i32"), axes=(-1,), names=("a",),
          expect=[[3, 2, 1, 0]])])
def slice_dynamic(x: Array, starts: Array, ends: Array, *, steps: Array | None = None,
                  axes: tuple[int, ...], names: tuple[str, ...]) -> Array:
    """slice with bounds known at run time."""
    take = [slice(None)] * x.ndim
    by = (1,) * len(axes) if steps is None else _whole(steps)
    if 0 in by:
        raise OperatorError("a step of 0")
    for axis, start, end, step in zip(axes, _whole(starts), _whole(ends), by, strict=True):
        take[axis] = slice(*_plain(start, end, step, x.shape[axis]))
    return x[tuple(take)]


def _plain(start: int, end: int, step: int, size: int) -> tuple[int, int | None, int]:
    """Bounds in the way Python reads them: clamped, and None for "before the first"."""
    first, last, _ = slice(start, end, step).indices(size)
    return first, None if last < 0 else last, step


def _reshape_types(x: TensorType, shape: TensorType, *, zero_copies: bool,
                   names: tuple[str, ...]) -> TensorType:
    _vector(shape, "the shape")
    return x.with_(shape=fresh(names, _known_length(shape)))


def _known_length(t: TensorType) -> int:
    if not isinstance(t.shape[0], int):
        raise OperatorError(f"the length of {t} decides the rank and must be a number")
    return t.shape[0]


def _reshape_back(g: Value, x: Value, shape: Value, *, zero_copies: bool,
                  names: tuple[str, ...]) -> tuple[Value, None]:
    return reshape(g, shape=x.shape), None


@structured(types=_reshape_types, vjp=_reshape_back, samples=[
    known([[1.0, 2.0], [3.0, 4.0]], [-1], names=("a",), expect=[[1.0, 2.0, 3.0, 4.0]]),
    known([[1, 2], [3, 4]], [0, -1, 1], zero_copies=True, names=("a", "b", "c"),
          expect=[[[[1], [2]], [[3], [4]]]])])
def reshape_dynamic(x: Array, shape: Array, *, zero_copies: bool = False, names: tuple[str, ...]
                    ) -> Array:
    """reshape to a shape known at run time; 0 means the size of x there if `zero_copies`."""
    sizes = list(_whole(shape))
    for i, size in enumerate(sizes):
        if size == 0 and zero_copies:
            if i >= x.ndim:
                raise OperatorError(f"size {i} copies an axis that {list(x.shape)} lacks")
            sizes[i] = x.shape[i]
    full = ints(resolve(x.shape, tuple(sizes)))
    if count(full) != x.size or min(full, default=0) < 0:
        raise OperatorError(f"{x.size} elements do not reshape to {sizes}")
    return x.reshape(full)


def _expand_types(x: TensorType, shape: TensorType, *, names: tuple[str, ...]) -> TensorType:
    _vector(shape, "the shape")
    return x.with_(shape=fresh(names, max(x.rank, _known_length(shape))))


@structured(types=_expand_types, samples=[
    known([[1], [2]], [2, 1, 2], names=("a", "b", "c"),
          expect=[[[[1, 1], [2, 2]], [[1, 1], [2, 2]]]])])
def expand_dynamic(x: Array, shape: Array, *, names: tuple[str, ...]) -> Array:
    """expand with a shape known at run time."""
    try:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, _whole(shape)))
    except ValueError:
        raise OperatorError(f"{list(x.shape)} does not expand to {list(_whole(shape))}") from None


def _pad_types(x: TensorType, pads: TensorType, *, fill: TensorType | None = None, mode: PadMode,
               names: tuple[str, ...]) -> TensorType:
    _vector(pads, "pads", 2 * x.rank)
    if fill is not None and (fill.rank or fill.dtype is not x.dtype):
        raise OperatorError(f"the fill {fill} must be {x.dtype}[]")
    return x.with_(shape=fresh(names, x.rank))


@structured(types=_pad_types, samples=[
    known([1, 2], [1, 2], fill=9, names=("a",), expect=[[9, 1, 2, 9, 9]])])
def pad_dynamic(x: Array, pads: Array, *, fill: Array | None = None,
                mode: Literal["constant", "reflect", "edge", "wrap"] = "constant",
                names: tuple[str, ...]) -> Array:
    """pad with counts known at run time."""
    return pad(x, fill=fill, pads=_whole(pads), mode=mode)


def _range_types(start: TensorType, limit: TensorType, step: TensorType, *,
                 names: tuple[str, ...]) -> TensorType:
    types = (start, limit, step)
    if any(t.rank or t.dtype is not start.dtype for t in types):
        raise OperatorError(f"{start}, {limit} and {step} must be scalars of one dtype")
    if start.dtype.sort not in ("int", "uint", "float"):
        raise OperatorError(f"a range of {start.dtype}")
    return TensorType(fresh(names, 1), start.dtype)


def _range_back(g: Value, start: Value, limit: Value, step: Value, *, names: tuple[str, ...]
                ) -> tuple[Value, None, Value]:
    count = range_(start=0, step=1, length=g.shape[0], dtype=g.dtype)
    return sum_(g, axes=(0,)), None, sum_(g * count, axes=(0,))


@structured(types=_range_types, vjp=_range_back, samples=[
    known(1, 5, 2, names=("n",), expect=[[1, 3]]),
    known(10, 6, -3, names=("n",), expect=[[10, 7]]),
    known(1.0, 2.0, 0.5, names=("n",), expect=[[1.0, 1.5]])])
def range_dynamic(start: Array, limit: Array, step: Array, *, names: tuple[str, ...]) -> Array:
    """start + i * step below limit (ONNX Range): max(0, ceil((limit - start) / step)) elements."""
    if not step:
        raise OperatorError("a step of 0")
    first, by = widen(start), widen(step)
    if first.dtype.kind == "f":
        span = (float(limit) - float(start)) / float(step)
        if not abs(span) < _LONGEST:
            raise OperatorError(f"a range from {start} to {limit} by {step}")
        n = max(int(np.ceil(span)), 0)
    else:
        n = max(-((int(start) - int(limit)) // int(step)), 0)
    check_room(n * first.dtype.itemsize)
    return (first + np.arange(n, dtype=first.dtype) * by).astype(start.dtype, copy=False)
