"""Find the gated layer of two projections of one operand."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..ir.graph import Node, Value
from ..ops.contract import matmul
from ..ops.fused import swiglu
from ..ops.movement import concat
from ..records import dataclass
from .raising import Found, Match, Near, Raise, Trail, View


@dataclass(frozen=True, slots=True)
class RaiseSwiglu(Raise):
    """Records swiglu of one product with packed weights for silu(x gate) * (x up).

    The weights, and the biases if there are, must be constants or frozen parameters, which
    folding packs once. Each column is the same sum as before. Holds for every operand.
    """

    name: ClassVar[str] = "raise_swiglu"
    anchors: ClassVar[frozenset[str]] = frozenset({"mul"})

    def match(self, node: Node, view: View) -> Match:
        """The product of a gate and what it gates."""
        trail = Trail(view, node)
        for a, b in (node.inputs, node.inputs[::-1]):
            gate = trail.through(a, "silu")
            if gate is None:
                continue
            g, u = (_projection(v, trail) for v in (gate.inputs[0], b))
            if g is None or u is None or g.x is not u.x:
                return None
            return _packed(g, u, node, trail)
        return None


class Projection(NamedTuple):
    """x w + bias."""

    x: Value
    w: Value
    bias: Value | None


def _projection(value: Value, trail: Trail) -> Projection | None:
    node, bias = trail.through(value, "add"), None
    if node is not None:
        products = [v.producer is not None and v.producer.op == "matmul" for v in node.inputs]
        if products.count(True) != 1:
            return None
        value, bias = node.inputs if products[0] else node.inputs[::-1]
    node = trail.through(value, "matmul")
    return None if node is None else Projection(node.inputs[0], node.inputs[1], bias)


def _packed(g: Projection, u: Projection, node: Node, trail: Trail) -> Match:
    view, biases = trail.view, [v for v in (u.bias, g.bias) if v is not None]
    if g.w.type != u.w.type or g.w.type.rank != 2 or len(biases) == 1:
        return Near("a gate and a value of unlike projections", trail.nodes)
    fixed = [u.w, g.w, *biases]
    if any([view.data(v) is None for v in fixed]):
        return Near("the weights are not frozen, so they cannot be packed", trail.nodes)
    if any([not view.single(v) for v in fixed[:2]]) or any([
            v.shape != g.w.shape[1:] for v in biases]):
        return Near("weights that others read, or biases that broadcast", trail.nodes)

    def record(x: Value, up: Value, gate: Value, *rest: Value) -> tuple[Value, ...]:
        y = matmul(x, concat([up, gate], axis=1))
        return (swiglu(y + concat(list(rest), axis=0) if rest else y),)

    return Found("swiglu", (node,), (g.x, *fixed), record, trail.nodes)
