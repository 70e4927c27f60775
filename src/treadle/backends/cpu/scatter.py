"""Lowerings of writes by index: scatter, and entries appended to a cache.

A copy of the operand comes first. Updates of one place are combined in their order: the loop over
indices runs in sequence, the axes that cannot collide run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from ...declare import m
from ...declare.scalar import Scalar, cast_to, make
from ...errors import Declined
from ...ir.dims import Size, bounds, evaluate
from ...ir.graph import Node
from ...ir.types import F32, I64, DType, axis_of, count
from ...loops.build import INDEX_RANGE, Draft, Gathered, Operand, Space, density, nest
from ...loops.ir import Access, Axis, Check, Store
from ...memory.views import View
from .carry import carry
from .lowered import Binding, Lowered, loop_kernel
from .pointwise import Lowering, out_of_range, refuse_dtypes, whole_indices

_REDUCTIONS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "none": lambda _, new: new, "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new, "max": m.max_, "min": m.min_}


def _combined(reduction: str, dtype: DType) -> Callable[[Scalar, Scalar], Scalar]:
    """What an update makes of an element; raises `Declined` where rounding would differ."""
    combine, half = _REDUCTIONS[reduction], dtype.sort == "float" and dtype.bits < 32
    if reduction == "none":
        return combine
    if half and reduction in ("add", "mul"):
        raise Declined("sums of halves by index round once at the end")
    if dtype.sort not in ("int", "uint", "float"):
        raise Declined(f"the reduction {reduction} of {dtype}")
    if not half:
        return combine
    return lambda old, new: cast_to(combine(cast_to(old, F32), cast_to(new, F32)), dtype)


def _in_order(draft: Draft, shape: Sequence[Size], ordered: Sequence[int], operands: list[Operand],
              views: Sequence[View], reduction: str, fault: Callable[[int, Binding], str]
              ) -> Lowered:
    """Update operand -2 with operand -1 along `shape`; the axes `ordered` run in sequence."""
    combine = _combined(reduction, operands[-2].buffer.dtype)
    axes = [draft.axis(f"i{d}", n) for d, n in enumerate(shape)]
    space = Space(draft, axes, operands)
    update = space.load(len(operands) - 1)
    place = space.access(operands[-2])
    old = update if reduction == "none" else draft.load(place)
    store = space.store(len(operands) - 2, combine(old, update))
    free = sorted((d for d in range(len(axes)) if d not in ordered),
                  key=lambda d: density(operands[-2].strides[d], d))
    lanes = axes[free[0]] if free else draft.axis("r", 1)
    chain: list[tuple[str, Axis]] = [("par", axes[d]) for d in sorted(free[1:])]
    chain += [("lanes", lanes), *(("seq", axes[d]) for d in ordered)]
    kernel = draft.kernel(*nest(chain, (*space.checks.values(), store)))
    return loop_kernel(draft, kernel, views, [views[-2]], count(tuple(shape)), fault)


def scatter_elements(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Only the axis of the indices can collide."""
    x, index, updates = ins
    whole_indices(index)
    refuse_dtypes(x)
    axis = axis_of(cast(int, node.attrs["axis"]), len(x.shape))
    if index.shape != updates.shape:
        raise Declined("updates of another shape than the indices")
    if any(bounds(n - s)[1] > 0 for i, (n, s) in enumerate(zip(
            index.shape, x.shape, strict=True)) if i != axis):
        raise Declined("an index that may be larger than its operand")
    y, draft = outs[0], Draft()
    places = Operand(draft.buffer(index.base.dtype), index.strides)
    target = Operand(draft.buffer(x.base.dtype, True),
                     (*y.strides[:axis], 0, *y.strides[axis + 1:]),
                     gathers=(Gathered(0, y.strides[axis], y.shape[axis]),))
    source = Operand(draft.buffer(x.base.dtype), updates.strides)
    write = _in_order(draft, index.shape, (axis,), [places, target, source], [index, y, updates],
                      cast(str, node.attrs["reduction"]), out_of_range(axis, x.shape[axis]))
    return [carry(x, y), write]


def scatter_nd(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The axes of a slice cannot collide."""
    x, index, updates = ins
    whole_indices(index)
    refuse_dtypes(x)
    depth, own = index.shape[-1], len(index.shape) - 1
    if not isinstance(depth, int) or updates.shape != (*index.shape[:-1], *x.shape[depth:]):
        raise Declined("updates of unknown equality with the slices")
    y, draft, rest = outs[0], Draft(), len(x.shape) - depth
    buffers = [draft.buffer(index.base.dtype), draft.buffer(x.base.dtype, True),
               draft.buffer(x.base.dtype)]
    places = index.strides[:-1] + (0,) * rest
    parts = [Operand(buffers[0], places, index.strides[-1] * i) for i in range(depth)]
    taken = tuple([Gathered(i, y.strides[i], y.shape[i]) for i in range(depth)])
    target = Operand(buffers[1], (0,) * own + y.strides[depth:], gathers=taken)
    sizes = x.shape[:depth]

    def fault(value: int, binding: Binding) -> str:
        known = [evaluate(s, binding) for s in sizes]
        return f"the index {value} is out of range for axes of sizes {known}"

    write = _in_order(draft, updates.shape, range(own), [*parts, target, Operand(
        buffers[2], updates.strides)], [index, y, updates], cast(str, node.attrs["reduction"]),
        fault)
    return [carry(x, y), write]


def kv_append(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Every element of the update has a place of its own."""
    cache, update, first = ins
    whole_indices(first)
    refuse_dtypes(cache)
    rank = len(cache.shape)
    axis, y = axis_of(cast(int, node.attrs["axis"]), rank), outs[0]
    size, length, linear = cache.shape[axis], update.shape[axis], node.attrs["mode"] == "linear"
    draft = Draft()
    buffers = [draft.buffer(v.base.dtype, v is y) for v in (update, first, y)]
    axes = [draft.axis(f"i{d}", n) for d, n in enumerate(update.shape)]
    space = Space(draft, axes, [Operand(buffers[0], update.strides), Operand(
        buffers[1], (first.strides[0],) + (0,) * (rank - 1))])
    first_at, n = space.load(1), draft.number(size)
    begin = cast_to(first_at, I64)
    checks = [_fits(begin, n, draft.number(length), linear)]
    if not linear:
        begin = make("mod", begin, n) if first_at.dtype.name != "u64" else cast_to(
            make("mod", first_at, cast_to(n, first_at.dtype)), I64)
    at = begin + draft.at(axes[axis])
    if not linear:
        at = m.where(at >= n, at - n, at)
    terms = [(a, draft.extent(s)) for d, (a, s) in enumerate(zip(axes, y.strides, strict=True))
             if d != axis and s != 0]
    place = Access(buffers[2], (*terms, (at, draft.extent(y.strides[axis]))))
    order = sorted(range(rank), key=lambda d: density(update.strides[d], d))
    chain = [*(("par", axes[d]) for d in sorted(order[1:])), ("lanes", axes[order[0]])]
    kernel = draft.kernel(*nest(chain, (*checks, Store(place, space.load(0)))))

    def fault(value: int, binding: Binding) -> str:
        return (f"entries from {value} on: {evaluate(length, binding)} do not fit "
                f"{evaluate(size, binding)}")

    written = count(update.shape)
    write = loop_kernel(draft, kernel, [update, first, y], [y], written, fault)
    return [carry(cache, y), *_checked_alone(first, (size, length), linear, written, fault), write]


def _fits(begin: Scalar, n: Scalar, entries: Scalar, linear: bool) -> Check:
    bad = m.or_(begin < 0, begin > n - entries) if linear else entries > n
    return Check(bad, INDEX_RANGE, begin)


def _checked_alone(first: View, sizes: tuple[Size, Size], linear: bool, written: Size,
                   fault: Callable[[int, Binding], str]) -> list[Lowered]:
    """The checks of positions at which, if no element is written, nothing else looks."""
    if isinstance(written, int) and written > 0:
        return []
    draft = Draft()
    axis = draft.axis("i0", first.shape[0])
    space = Space(draft, [axis], [Operand(draft.buffer(first.base.dtype), first.strides)])
    n, entries = map(draft.number, sizes)
    kernel = draft.kernel(*nest([("lanes", axis)], (
        _fits(cast_to(space.load(0), I64), n, entries, linear),)))
    made = loop_kernel(draft, kernel, [first], [], first.shape[0], fault)
    return [replace(made, chunks=lambda b: 0 if evaluate(written, b) else 1)]


LOWERINGS: dict[str, Lowering] = {
    "scatter_elements": scatter_elements, "scatter_nd": scatter_nd, "kv_append": kv_append}
