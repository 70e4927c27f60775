"""Lowerings to rows: folds over axes and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...declare.scalar import Scalar, cast_to
from ...ir.dims import Size, bounds
from ...ir.graph import Node
from ...ir.types import BOOL, DTYPES, F32, I32, I64, DType, axes_of, axis_of, count
from ...loops import monoids
from ...loops.build import Draft, Operand
from ...loops.ir import Check
from ...loops.lower.rows import Row, rows
from ...loops.lower.running import running
from ...loops.monoids import Monoid
from ...memory.views import View
from .lowered import Lowered, loop_kernel
from .pointwise import Lowering, refuse_dtypes

FOLDS: dict[str, Callable[[DType], Monoid]] = {
    "sum": monoids.add, "prod": monoids.mul, "reduce_max": monoids.largest,
    "reduce_min": monoids.smallest, "all": monoids.both, "any": monoids.either}


def kept_strides(view: View, rank: int, gone: Sequence[int]) -> tuple[Size, ...]:
    """The strides of a reduced output over the iteration space; 0 along what is reduced."""
    if len(view.shape) == rank:
        return tuple([0 if i in gone else s for i, s in enumerate(view.strides)])
    rest = iter(view.strides)
    return tuple([0 if i in gone else next(rest) for i in range(rank)])


def widened(x: Scalar) -> Scalar:
    """A half as f32."""
    return cast_to(x, widest(x.dtype))


def widest(dtype: DType) -> DType:
    """What a dtype accumulates in: f32 for halves."""
    return F32 if dtype.sort == "float" and dtype.bits < 32 else dtype


def fold_monoid(op: str, dtype: DType) -> Monoid:
    """What a fold operator combines with; halves accumulate in f32."""
    return FOLDS[op](widest(dtype))


def fold(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """A reduction operator. Halves accumulate in f32."""
    refuse_dtypes(*ins)
    x, y = ins[0], outs[0]
    rank, dtype = len(x.shape), x.base.dtype
    gone = axes_of(cast("tuple[int, ...]", node.attrs["axes"]), rank)
    draft = Draft()
    source = Operand(draft.buffer(dtype), x.strides)
    target = Operand(draft.buffer(y.base.dtype, True), kept_strides(y, rank, gone))
    monoid = fold_monoid(node.op, dtype)

    def body(row: Row) -> None:
        total, = row.reduce(monoid, widened(row.load(0)))
        row.store(1, cast_to(total, dtype))

    kernel = rows(draft, x.shape, gone, [source], [target], body)
    return [loop_kernel(draft, kernel, [x, y], outs, count(x.shape))]


_EMPTY = 2
"""The code of a check that an axis has an element."""


def arg_extreme(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The position of the largest or smallest element of each row."""
    refuse_dtypes(*ins)
    x, y = ins[0], outs[0]
    rank, dtype = len(x.shape), x.base.dtype
    axis = axis_of(cast(int, node.attrs["axis"]), rank)
    draft = Draft()
    source = Operand(draft.buffer(dtype), x.strides)
    target = Operand(draft.buffer(I64, True), kept_strides(y, rank, (axis,)))
    wide = DTYPES["u8"] if dtype is BOOL else widest(dtype)
    place = I32 if bounds(x.shape[axis])[1] < 2**31 else I64
    monoid = monoids.first_extreme(wide, node.op == "argmin", bool(node.attrs["select_last"]),
                                   place)

    def body(row: Row) -> None:
        at = cast_to(draft.at(row.row[-1]), place)
        found = row.reduce(monoid, cast_to(row.load(0), wide), at)
        row.store(1, cast_to(found[1], I64))

    size = draft.number(x.shape[axis])
    some = [] if bounds(x.shape[axis])[0] > 0 else [Check(size < 1, _EMPTY, size)]
    kernel = rows(draft, x.shape, (axis,), [source], [target], body, checks=some)
    return [loop_kernel(draft, kernel, [x, y], outs, count(x.shape),
                        lambda *_: f"axis {axis} has no element")]


_RUNNING = {"cumsum": monoids.add, "cumprod": monoids.mul}


def running_fold(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Sums and products up to each element. Halves accumulate in f32."""
    refuse_dtypes(*ins)
    x, y = ins[0], outs[0]
    dtype, axis = x.base.dtype, axis_of(cast(int, node.attrs["axis"]), len(x.shape))
    draft = Draft()

    def operand(view: View, output: bool) -> Operand:
        buffer = draft.buffer(dtype, output)
        if not node.attrs["reverse"]:
            return Operand(buffer, view.strides)
        step, last = view.strides[axis], view.shape[axis] - 1
        strides = (*view.strides[:axis], step * -1, *view.strides[axis + 1:])
        return Operand(buffer, strides, last * step)

    kernel = running(draft, x.shape, axis, operand(x, False), operand(y, True),
                     _RUNNING[node.op](widest(dtype)), bool(node.attrs["exclusive"]))
    return [loop_kernel(draft, kernel, [x, y], outs, count(x.shape))]


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(FOLDS, fold), "argmax": arg_extreme, "argmin": arg_extreme,
    **dict.fromkeys(_RUNNING, running_fold)}
