"""Lowerings of movement that strides alone do not express: margins, repeats, triangles, tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from ...declare import m
from ...declare.scalar import Scalar, const, make, var
from ...errors import Declined, RunError
from ...ir.dims import Size, bounds, evaluate
from ...ir.graph import Node
from ...ir.types import I64, Shape, axis_of, count
from ...loops.build import Condition, Draft, Gathered, Operand, Remapped, Window
from ...loops.ir import Access, Buffer
from ...loops.lower.pointwise import pointwise
from ...memory.views import View
from .limits import node_text
from .lowered import Binding, Lowered, loop_kernel
from .pointwise import Lowering, operand, refuse_dtypes, whole_indices


def number(value: object, like: View) -> Scalar:
    """An attribute's number as a constant of a view's dtype."""
    dtype, found = like.base.dtype, cast(float, value)
    return const(int(found) if dtype.sort in ("int", "uint", "bool") else float(found), dtype)


def pad(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Margins of every mode. Negative ones crop; other modes than constant need them known."""
    refuse_dtypes(*ins)
    x, mode = ins[0], cast(str, node.attrs["mode"])
    pads, n = cast(Shape, node.attrs["pads"]), len(x.shape)
    padded = [i for i in range(n) if pads[i] != 0 or pads[i + n] != 0]
    if any(bounds(pads[i])[0] < 0 < bounds(pads[i])[1] for i in padded):
        raise Declined("a margin of unknown sign")
    draft = Draft()
    buffer = draft.buffer(x.base.dtype)
    views = [x, *ins[1:], outs[0]]
    if mode == "constant":
        fill = number(node.attrs["value"], x)
        if node.keys:
            fill = draft.load(Access(draft.buffer(ins[1].base.dtype), ()))
        offset: Size = 0
        for i in padded:
            offset = offset - pads[i] * x.strides[i]
        source = Operand(buffer, x.strides, offset, fill=fill, windows=tuple(
            [Window(i, pads[i], pads[i] + x.shape[i]) for i in padded]))
    else:
        if any(bounds(pads[i])[0] < 0 or bounds(pads[i + n])[0] < 0 for i in padded) or node.keys:
            raise Declined(f"margins of mode {mode} that crop")
        source = _mirrored(buffer, x, padded, pads, mode)
    target = operand(draft, outs[0], outs[0].shape, output=True)
    kernel = pointwise(draft, outs[0].shape, [source], [target], [var(0, x.base.dtype)])
    made = loop_kernel(draft, kernel, views, outs, count(outs[0].shape))
    return [made if mode == "constant" else _not_of_nothing(made, node, x, padded)]


def _not_of_nothing(made: Lowered, node: Node, x: View, padded: Sequence[int]) -> Lowered:
    """The kernel with a check of sizes: an empty axis has nothing to repeat."""
    pads, n = cast(Shape, node.attrs["pads"]), len(x.shape)
    some = [i for i in padded if bounds(x.shape[i])[0] < 1]

    def chunks(binding: Binding) -> int:
        for i in some:
            if evaluate(x.shape[i], binding) == 0 and any(
                    evaluate(pads[j], binding) for j in (i, i + n)):
                raise RunError(f"{node_text(node)}: an axis of size 0 has nothing to pad with in "
                               f"mode {node.attrs['mode']}")
        return made.chunks(binding)

    return replace(made, chunks=chunks) if some else made


def _mirrored(buffer: Buffer, x: View, padded: Sequence[int], pads: Shape, mode: str) -> Operand:
    """Positions outside an axis read one inside; of an empty axis nothing is read."""
    strides = [0 if i in padded else s for i, s in enumerate(x.strides)]
    terms = tuple([Remapped(i, x.strides[i], _place(mode, pads[i], x.shape[i])) for i in padded])
    some = tuple([Condition((i,), _nonempty(x.shape[i])) for i in padded
                  if bounds(x.shape[i])[0] < 1])
    return Operand(buffer, tuple(strides), remapped=terms, conditions=some)


def _nonempty(size: Size) -> Callable[[Draft, Sequence[Scalar]], Scalar]:
    return lambda draft, _: draft.number(size) > 0


def _place(mode: str, before: Size, size: Size) -> Callable[[Draft, Scalar], Scalar]:
    def place(draft: Draft, at: Scalar) -> Scalar:
        at, n = at - draft.number(before), draft.number(size)
        if mode == "edge":
            return m.max_(m.min_(at, n - 1), const(0, I64))
        if mode == "wrap":
            return make("mod", at, n)
        turn = n * 2 - 2
        inside = make("mod", at, turn)
        return m.where(inside < n, inside, turn - inside)

    return place


def tile(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Every axis as (repeat, position): the operand stands still along repeats."""
    refuse_dtypes(*ins)
    x, y, repeats = ins[0], outs[0], cast(Shape, node.attrs["repeats"])
    shape: list[Size] = []
    source: list[Size] = []
    target: list[Size] = []
    for n, r, s, t in zip(x.shape, repeats, x.strides, y.strides, strict=True):
        shape += [r, n]
        source += [0, s]
        target += [t * n, t]
    draft = Draft()
    kernel = pointwise(draft, shape, [Operand(draft.buffer(x.base.dtype), tuple(source))],
                       [Operand(draft.buffer(y.base.dtype, True), tuple(target))],
                       [var(0, x.base.dtype)])
    return [loop_kernel(draft, kernel, [x, y], outs, count(y.shape))]


def trilu(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Elements on one side of a diagonal; the other side reads as 0."""
    refuse_dtypes(*ins)
    x, n = ins[0], len(ins[0].shape)
    k, upper = cast(Size, node.attrs["k"]), bool(node.attrs["upper"])

    def holds(draft: Draft, at: Sequence[Scalar]) -> Scalar:
        distance = at[1] - at[0]
        return distance >= draft.number(k) if upper else distance <= draft.number(k)

    draft = Draft()
    source = Operand(draft.buffer(x.base.dtype), x.strides, fill=number(0, x),
                     conditions=(Condition((n - 2, n - 1), holds),))
    target = operand(draft, outs[0], x.shape, output=True)
    kernel = pointwise(draft, x.shape, [source], [target], [var(0, x.base.dtype)])
    return [loop_kernel(draft, kernel, [x, outs[0]], outs, count(x.shape))]


def gather_nd(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Batch axes, the index's own axes, then those of a slice; one term for each component."""
    x, index = ins
    whole_indices(index)
    refuse_dtypes(x)
    batch, depth = cast(int, node.attrs["batch_dims"]), index.shape[-1]
    if not isinstance(depth, int) or x.shape[:batch] != index.shape[:batch]:
        raise Declined("batch axes of unknown equality")
    own, rest = len(index.shape) - 1 - batch, x.strides[batch + depth:]
    shape, draft = outs[0].shape, Draft()
    places = index.strides[:-1] + (0,) * len(rest)
    buffers = [draft.buffer(x.base.dtype), draft.buffer(index.base.dtype)]
    taken = [Gathered(1 + i, x.strides[batch + i], x.shape[batch + i]) for i in range(depth)]
    source = Operand(buffers[0], (*x.strides[:batch], *(0,) * own, *rest), gathers=tuple(taken))
    parts = [Operand(buffers[1], places, index.strides[-1] * i) for i in range(depth)]
    target = operand(draft, outs[0], shape, output=True)
    kernel = pointwise(draft, shape, [source, *parts], [target], [var(0, x.base.dtype)])
    sizes = x.shape[batch:batch + depth]

    def fault(value: int, binding: Binding) -> str:
        known = [evaluate(s, binding) for s in sizes]
        return f"the index {value} is out of range for axes of sizes {known}"

    return [loop_kernel(draft, kernel, [x, index, outs[0]], outs, count(shape), fault)]


def roll(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """Element i comes from i - shift, modulo the size."""
    refuse_dtypes(*ins)
    x, shift = ins[0], cast(Size, node.attrs["shift"])
    axis = axis_of(cast(int, node.attrs["axis"]), len(x.shape))

    def place(draft: Draft, at: Scalar) -> Scalar:
        return make("mod", at - draft.number(shift), draft.number(x.shape[axis]))

    draft = Draft()
    source = Operand(draft.buffer(x.base.dtype), (*x.strides[:axis], 0, *x.strides[axis + 1:]),
                     remapped=(Remapped(axis, x.strides[axis], place),))
    target = operand(draft, outs[0], x.shape, output=True)
    kernel = pointwise(draft, x.shape, [source], [target], [var(0, x.base.dtype)])
    return [loop_kernel(draft, kernel, [x, outs[0]], outs, count(x.shape))]


LOWERINGS: dict[str, Lowering] = {
    "roll": roll, "pad": pad, "tile": tile, "trilu": trilu, "gather_nd": gather_nd}
