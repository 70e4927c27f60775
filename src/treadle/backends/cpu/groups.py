"""Lowering of fused groups: one row kernel for maps and folds over the same axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from ...codegen.llvm.scalars import holds, supported
from ...declare.scalar import Scalar, cast_to, const, var, walk
from ...errors import Declined
from ...ir.graph import Node, Value
from ...ir.types import axes_of, count
from ...loops.build import Draft, Operand
from ...loops.functions import open_functions
from ...loops.lower.pointwise import place
from ...loops.lower.rows import Row, rows
from ...memory.views import View
from ...ops.library import REGISTRY
from ...rewrite.constants import number_of
from .lowered import Lowered, check, loop_kernel
from .pointwise import mapped, refuse_dtypes, spread
from .reductions import FOLDS, fold_monoid, kept_strides, widened
from .softmax import softmax_parts

SAME_ORDER = frozenset({"reshape", "squeeze", "unsqueeze"})
"""Operators that leave every element where it is."""


def fuses(node: Node) -> bool:
    """Whether an elementwise operator or a fold can be part of a kernel."""
    if not all(holds(v.dtype) for v in (*node.inputs, *node.outputs)):
        return False
    if node.op in FOLDS:
        return True
    if REGISTRY[node.op].kind != "elementwise" or not node.inputs:
        return False
    roots = REGISTRY[node.op].scalars(node.attrs, tuple([v.dtype for v in node.inputs]))
    return not any(supported(e) for e in walk(*open_functions(roots)))


def fused(node: Node, ins: Sequence[View], outs: Sequence[View]) -> list[Lowered]:
    """The region as one pass over rows, as many times as its folds depend on each other."""
    refuse_dtypes(*ins, *outs)
    region = node.regions["body"]
    folds = [n for n in region.nodes if n.op in FOLDS]
    if not folds:
        loads = [var(i, v.base.dtype) for i, v in enumerate(ins)]
        env = values(region.nodes, dict(zip(region.inputs, loads, strict=True)), None)
        return [mapped(ins, outs, [env[v] for v in region.outputs])]
    shape = folds[0].inputs[0].shape
    axes = axes_of(cast("tuple[int, ...]", folds[0].attrs["axes"]), len(shape))
    draft = Draft()
    operands = [Operand(draft.buffer(v.base.dtype), spread(v, shape)) for v in ins]
    targets = [Operand(draft.buffer(v.base.dtype, True), spread(v, shape) if len(v.shape) == len(
        shape) else kept_strides(v, len(shape), axes)) for v in outs]
    lead = max(range(len(operands)), key=lambda i: sum(s != 0 for s in operands[i].strides))

    def body(row: Row) -> None:
        env = values(region.nodes, {v: row.load(i) for i, v in enumerate(region.inputs)}, row,
                     region.outputs)
        for j, v in enumerate(region.outputs):
            row.store(len(operands) + j, env[v])

    kernel = rows(draft, shape, axes, operands, targets, body, lead)
    return [loop_kernel(draft, kernel, [*ins, *outs], outs, count(shape))]


def values(nodes: Sequence[Node], env: dict[Value, Scalar], row: Row | None,
           kept: Collection[Value] = ()) -> dict[Value, Scalar]:
    """Every value of a region as an expression at the current position; `env` has what is given.

    Folds need a row; `kept` leave the region.
    """
    known = softmax_parts(nodes, kept) if row is not None else {}
    for n in nodes:
        if n in known and row is not None:
            env[n.outputs[0]] = known[n]([env[v] for v in n.inputs], row)
        elif not n.inputs:
            env[n.outputs[0]] = _number(n.outputs[0])
        elif n.op in SAME_ORDER:
            env[n.outputs[0]] = env[n.inputs[0]]
        elif n.op in FOLDS and row is not None:
            dtype = n.inputs[0].dtype
            total, = row.reduce(fold_monoid(n.op, dtype), widened(env[n.inputs[0]]))
            env[n.outputs[0]] = cast_to(total, dtype)
        else:
            roots = open_functions(REGISTRY[n.op].scalars(
                n.attrs, tuple([v.dtype for v in n.inputs])))
            check(roots)
            args = [env[v] for v in n.inputs]
            env.update(zip(n.outputs, place(roots, args), strict=True))
    return env


def _number(v: Value) -> Scalar:
    found = number_of(v)
    if found is None or isinstance(found, complex):
        raise Declined(f"a constant of {v.type} in a group")
    return const(int(found) if v.dtype.sort in ("int", "uint", "bool") else found, v.dtype)
