"""Find norms of a sum, whose sum goes on as the residual stream."""

from __future__ import annotations

from typing import ClassVar, cast

from ..ir.graph import Node, Value
from ..ops.fused import residual_layer_norm, residual_rms_norm
from ..records import dataclass
from .raising import Found, Match, Near, Raise, View


@dataclass(frozen=True, slots=True)
class RaiseResidualNorm(Raise):
    """Records residual_layer_norm and residual_rms_norm of a sum of two equal types and its norm.

    The sum stays available to everything else. In f32 and f64 results keep every bit; halves are
    normalised before the sum rounds. Holds for every operand.
    """

    name: ClassVar[str] = "raise_residual_norm"
    anchors: ClassVar[frozenset[str]] = frozenset({"layer_norm", "rms_norm"})

    def match(self, node: Node, view: View) -> Match:
        """The norm `node` of a sum."""
        total = node.inputs[0].producer
        if total is None or total.op != "add" or view.home[total] is not view.home[node]:
            return None
        x, r = total.inputs
        if view.data(x) is not None or view.data(r) is not None:
            return None
        if x.type != r.type:
            return Near(f"the sum of {x.type} and {r.type} broadcasts")
        if late := [v for v in node.inputs[1:] if _after(v, total, view)]:
            return Near(f"its operand {late[0].type} is computed after the sum")
        axis, eps = cast(int, node.attrs["axis"]), cast(float, node.attrs["eps"])

        def record(x: Value, r: Value, gamma: Value, *beta: Value) -> tuple[Value, ...]:
            if node.op == "rms_norm":
                y, added = residual_rms_norm(x, r, gamma, axis=axis, eps=eps)
            else:
                y, added = residual_layer_norm(x, r, gamma, beta=beta[0] if beta else None,
                                               axis=axis, eps=eps)
            return added, y

        return Found(f"residual_{node.op}", (total, node), (x, r, *node.inputs[1:]), record)


def _after(v: Value, node: Node, view: View) -> bool:
    return v.producer is not None and view.order[v.producer] > view.order[node]
