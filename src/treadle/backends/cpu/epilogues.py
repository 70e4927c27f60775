"""Lowering of groups whose first operator is a product or a convolution: the rest is its tail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, cast

from ...declare.scalar import Scalar, substitute, var, walk
from ...errors import Declined
from ...ir.graph import Graph, Node, Value
from ...memory.views import View, reshape, whole
from . import convolution, integer_products, products
from .groups import fused, values
from .lowered import Lowered
from .tails import Tail, laid


class Head(Protocol):
    """A lowering that takes a tail."""

    def __call__(self, node: Node, ins: Sequence[View], outs: Sequence[View],
                 fixed: Collection[Value], tail: Tail | None = None) -> list[Lowered]:
        """The kernels of a node that ends with `tail`."""
        ...


HEADS: Mapping[str, Head] = {
    **products.LOWERINGS, **integer_products.LOWERINGS, **convolution.LOWERINGS}
"""Operators whose kernels take elementwise work on their results."""


def head_of(body: Graph) -> Node | None:
    """The product or convolution of a group."""
    return next((n for n in body.nodes if n.op in HEADS), None)


def group(node: Node, ins: Sequence[View], outs: Sequence[View], fixed: Collection[Value]
          ) -> list[Lowered]:
    """A `fused` node: rows and maps, or a head with its tail."""
    body = node.regions["body"]
    if (head := head_of(body)) is None:
        return fused(node, ins, outs)
    return _finished(body, head, ins, outs, fixed)


def declined(body: Graph) -> str:
    """Why a group with a head would be no single kernel; empty if it is one."""
    head = head_of(body)
    assert head is not None
    try:
        _finished(body, head, list(map(whole, body.inputs)), list(map(whole, body.outputs)), (),
                  strict=True)
    except Declined as e:
        return e.message
    return ""


def _finished(body: Graph, head: Node, ins: Sequence[View], outs: Sequence[View],
              fixed: Collection[Value], *, strict: bool = False) -> list[Lowered]:
    if len(body.outputs) != 1:
        raise Declined("several results")
    if head.op in convolution.LOWERINGS and body.outputs[0].dtype is not head.outputs[0].dtype:
        raise Declined(f"windows of {head.outputs[0].dtype} that end as {body.outputs[0].dtype}")
    made, given = head.outputs[0], dict(zip(body.inputs, ins, strict=True))
    env = {v: var(i + 1, v.dtype) for i, v in enumerate(body.inputs)}
    rest = [n for n in body.nodes if n is not head]
    root = values(rest, {**env, made: var(0, made.dtype)}, None)[body.outputs[0]]
    shape = body.outputs[0].shape
    used = sorted({cast(int, e.value) for e in walk(root) if e.op == "var"} - {0})
    place = {i: at + 1 for at, i in enumerate(used)}
    args: list[Scalar] = [var(0, made.dtype)] + [
        var(place.get(i + 1, 0), v.dtype) for i, v in enumerate(body.inputs)]
    views = [laid(ins[i - 1], shape) for i in used]
    target = reshape(outs[0], made.shape)
    if target is None:
        raise Declined("its output has gaps")
    tail = Tail(substitute(root, args), views, strict).under(made.shape)
    return HEADS[head.op](head, [given[v] for v in head.inputs], [target], fixed, tail)
