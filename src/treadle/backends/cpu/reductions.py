"""Lowerings to rows: folds over axes and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...declare.scalar import Scalar, cast_to
from ...errors import Declined
from ...ir.dims import Size, bounds
from ...ir.graph import Node
from ...ir.types import BOOL, F32, I64, DType, Shape, axes_of, axis_of, count
from ...loops import monoids
from ...loops.build import Draft, Operand
from ...loops.lower.rows import Row, rows
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
    return cast_to(x, F32) if x.dtype.sort == "float" and x.dtype.bits < 32 else x


def fold_monoid(op: str, dtype: DType) -> Monoid:
    """What a fold operator combines with; halves accumulate in f32."""
    return FOLDS[op](F32 if dtype.sort == "float" and dtype.bits < 32 else dtype)


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


def arg_extreme(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The position of the largest or smallest element of each row."""
    refuse_dtypes(*ins)
    x, y = ins[0], outs[0]
    rank, dtype = len(x.shape), x.base.dtype
    axis = axis_of(cast(int, node.attrs["axis"]), rank)
    if bounds(x.shape[axis])[0] < 1 and not _some(x.shape, axis):
        raise Declined("an axis that may be empty")
    if dtype is BOOL:
        raise Declined("the order of bools")
    draft = Draft()
    source = Operand(draft.buffer(dtype), x.strides)
    target = Operand(draft.buffer(I64, True), kept_strides(y, rank, (axis,)))
    wide = F32 if dtype.sort == "float" and dtype.bits < 32 else dtype
    monoid = monoids.first_extreme(wide, node.op == "argmin", bool(node.attrs["select_last"]))

    def body(row: Row) -> None:
        at = draft.at(row.row[-1])
        found = row.reduce(monoid, widened(row.load(0)), at)
        row.store(1, found[1])

    kernel = rows(draft, x.shape, (axis,), [source], [target], body)
    return [loop_kernel(draft, kernel, [x, y], outs, count(x.shape))]


def _some(shape: Shape, axis: int) -> bool:
    size = shape[axis]
    return isinstance(size, int) and size > 0


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(FOLDS, fold), "argmax": arg_extreme, "argmin": arg_extreme}
