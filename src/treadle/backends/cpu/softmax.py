"""Softmax inside a fused group: what its parts need not do there.

Its exponents are at most 0, so that no power overflows; what would be denormal is 0 beside a sum
of at least 1. A NaN reaches every result through the sum, so that the maximum may lose it. The row
is multiplied by the reciprocal of its sum: one rounding more than a division.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from ...declare import m
from ...declare.scalar import Scalar, const
from ...ir.graph import Node, Value
from ...ir.types import F32
from ...loops.functions.exponential import exp_of_negative
from ...loops.lower.rows import Row
from ...loops.monoids import Monoid, largest

Made: TypeAlias = "Callable[[Sequence[Scalar], Row], Scalar]"


def softmax_parts(nodes: Sequence[Node], kept: Collection[Value]) -> dict[Node, Made]:
    """How to compute the nodes of every softmax in a group; what leaves it is computed in full."""
    users: dict[Value, list[Node]] = {}
    for n in nodes:
        for v in n.inputs:
            users.setdefault(v, []).append(n)
    own = {v for n in nodes for v in n.outputs}.difference(kept)
    found: dict[Node, Made] = {}
    for n in nodes:
        if n.op == "exp" and n.outputs[0].dtype is F32 and n.outputs[0] in own:
            found.update(_softmax(n, users, own))
    return found


def _softmax(exp: Node, users: dict[Value, list[Node]], own: set[Value]) -> dict[Node, Made]:
    sub, e = exp.inputs[0].producer, exp.outputs[0]
    top = None if sub is None or sub.op != "sub" else sub.inputs[1].producer
    if sub is None or top is None or top.op != "reduce_max" or (
            top.inputs[0] is not sub.inputs[0] or not {sub.outputs[0], top.outputs[0]} <= own):
        return {}
    total = [n for n in users[e] if n.op == "sum" and n.attrs["axes"] == top.attrs["axes"]]
    shares = [n for n in users[e] if n.op == "div" and n.inputs[0] is e
              and total and n.inputs[1] is total[0].outputs[0]]
    if len(total) != 1 or len(users[e]) != 1 + len(shares):
        return {}
    alone = users[top.outputs[0]] == [sub] and users[sub.outputs[0]] == [exp]
    return {exp: _power, **dict.fromkeys(shares, _share), **({top: _top} if alone else {})}


def _power(args: Sequence[Scalar], row: Row) -> Scalar:  # noqa: ARG001 - as every part
    return exp_of_negative(args[0])


def _share(args: Sequence[Scalar], row: Row) -> Scalar:  # noqa: ARG001 - as every part
    return args[0] * (const(1.0, args[0].dtype) / args[1])


def _top(args: Sequence[Scalar], row: Row) -> Scalar:
    exact = largest(args[0].dtype)
    loose = Monoid("top", exact.dtypes, exact.identity,
                   lambda a, b: (m.where(a[0] > b[0], a[0], b[0]),))
    return row.reduce(loose, args[0])[0]
