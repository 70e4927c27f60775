"""Lowerings to maps: elementwise operators, copies, concatenation, padding, gathers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...codegen.llvm.scalars import holds
from ...declare.scalar import Scalar, var
from ...errors import Declined
from ...ir.dims import Size, bounds, evaluate
from ...ir.graph import Node
from ...ir.types import Shape, axis_of, count
from ...loops.build import Draft, Gathered, Operand
from ...loops.functions import open_functions
from ...loops.lower.pointwise import pointwise
from ...memory.views import View
from ...ops.library import REGISTRY
from .lowered import Binding, Lowered, check, loop_kernel

Lowering = Callable[[Node, Sequence[View], Sequence[View]], list[Lowered]]


def spread(view: View, shape: Shape) -> tuple[Size, ...]:
    """The strides of a view broadcast to `shape`."""
    lead = len(shape) - len(view.shape)
    return (0,) * lead + tuple([0 if n == 1 and s != 1 else st for n, st, s in zip(
        view.shape, view.strides, shape[lead:], strict=True)])


def operand(draft: Draft, view: View, shape: Shape, output: bool = False) -> Operand:
    """A view as an operand of an iteration over `shape`."""
    return Operand(draft.buffer(view.base.dtype, output), spread(view, shape))


def refuse_dtypes(*views: View) -> None:
    """Raise `Declined` for elements that kernels do not hold."""
    for v in views:
        if not holds(v.base.dtype):
            raise Declined(f"no instructions compute {v.base.dtype}")


def elementwise(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Any elementwise operator, from its scalar expressions."""
    refuse_dtypes(*ins, *outs)
    if node.reads():
        raise Declined("its attributes depend on sizes")
    roots = REGISTRY[node.op].scalars(node.attrs, tuple([v.base.dtype for v in ins]))
    return [mapped(ins, outs, roots)]


def mapped(ins: Sequence[View], outs: Sequence[View], roots: Sequence[Scalar]) -> Lowered:
    """`outs[j] = roots[j](*ins)`, operands broadcast."""
    roots = open_functions(roots)
    check(roots)
    shape, draft = outs[0].shape, Draft()
    operands = [operand(draft, v, shape) for v in ins]
    targets = [operand(draft, v, shape, output=True) for v in outs]
    kernel = pointwise(draft, shape, operands, targets, roots)
    same = [v for v in ins if v.shape == shape]
    alone = [v for v in same if sum(w.base is v.base for w in ins) == 1]
    return loop_kernel(draft, kernel, [*ins, *outs], outs, count(shape), in_place=alone)


def copy(source: View, target: View) -> Lowered:
    """The elements of one view written to another of the same shape."""
    return mapped([source], [target], [var(0, source.base.dtype)])


def part(view: View, axis: int, start: Size, length: Size) -> View:
    """`length` positions of an axis from `start`."""
    shape = (*view.shape[:axis], length, *view.shape[axis + 1:])
    return View(view.base, shape, view.strides, view.offset + start * view.strides[axis])


def concat(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """One copy for each operand that does not lie in its place already.

    A result of no elements gets its copies too: else nothing would write it.
    """
    refuse_dtypes(*ins)
    axis = axis_of(cast(int, node.attrs["axis"]), len(outs[0].shape))
    out, start = list[Lowered](), cast(Size, 0)
    for v in ins:
        place = part(outs[0], axis, start, v.shape[axis])
        if v != place and (v.shape[axis] != 0 or outs[0].shape[axis] == 0):
            out.append(copy(v, place))
        start = start + v.shape[axis]
    return out


def out_of_range(axis: int, size: Size) -> Callable[[int, Binding], str]:
    """The message of an index outside an axis."""
    def text(value: int, binding: Binding) -> str:
        n = evaluate(size, binding)
        return f"the index {value} is out of range for axis {axis} of size {n}"

    return text


def whole_indices(view: View) -> None:
    """Raise `Declined` for indices that are no integers."""
    refuse_dtypes(view)
    if view.base.dtype.sort not in ("int", "uint"):
        raise Declined("indices that are no integers")


def gather(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The iteration runs over the axes before, the index's own axes, the axes after."""
    x, index = ins
    whole_indices(index)
    refuse_dtypes(x)
    axis = axis_of(cast(int, node.attrs["axis"]), len(x.shape))
    before, after, k = x.shape[:axis], x.shape[axis + 1:], len(index.shape)
    shape, draft = outs[0].shape, Draft()
    taken = Gathered(1, x.strides[axis], x.shape[axis])
    source = Operand(draft.buffer(x.base.dtype),
                     (*x.strides[:axis], *(0,) * k, *x.strides[axis + 1:]), gathers=(taken,))
    places = Operand(draft.buffer(index.base.dtype),
                     ((0,) * len(before) + index.strides + (0,) * len(after)))
    target = operand(draft, outs[0], shape, output=True)
    kernel = pointwise(draft, shape, [source, places], [target], [var(0, x.base.dtype)])
    return [loop_kernel(draft, kernel, [x, index, outs[0]], outs, count(shape),
                        out_of_range(axis, x.shape[axis]))]


def gather_elements(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The iteration runs over the index."""
    x, index = ins
    whole_indices(index)
    refuse_dtypes(x)
    axis = axis_of(cast(int, node.attrs["axis"]), len(x.shape))
    if any(bounds(n - s)[1] > 0 for i, (n, s) in enumerate(zip(
            index.shape, x.shape, strict=True)) if i != axis):
        raise Declined("an index that may be larger than its operand")
    shape, draft = outs[0].shape, Draft()
    taken = Gathered(1, x.strides[axis], x.shape[axis])
    source = Operand(draft.buffer(x.base.dtype),
                     (*x.strides[:axis], 0, *x.strides[axis + 1:]), gathers=(taken,))
    places = operand(draft, index, shape)
    target = operand(draft, outs[0], shape, output=True)
    kernel = pointwise(draft, shape, [source, places], [target], [var(0, x.base.dtype)])
    return [loop_kernel(draft, kernel, [x, index, outs[0]], outs, count(shape),
                        out_of_range(axis, x.shape[axis]))]


LOWERINGS: dict[str, Lowering] = {
    "concat": concat, "gather": gather, "gather_elements": gather_elements}
